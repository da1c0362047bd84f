//! Text for people, made from rows: pure functions from rows to lines.
//!
//! `listing` and `conns` print exactly what ipvsadm prints, trailing blanks included; the others
//! are our own. Every function takes rows and returns text, so that each format has a table of samples.

pub mod conns;
pub mod drops;
pub mod est;
pub mod knobs;
pub mod listing;
pub mod packet;
pub mod proc;
pub mod rates;
pub mod status;
pub mod table;
pub mod workers;

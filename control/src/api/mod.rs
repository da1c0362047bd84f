//! The control socket: everything that crosses it, and both of its ends.
//!
//! `codec` turns bytes into messages and back; `rows` are what messages carry; `listener` owns the path,
//! `session` one client, `server` all of them; `client` is the other end, used by the commands.

pub mod client;
pub mod codec;
pub mod listener;
pub mod rows;
pub mod server;
pub mod session;

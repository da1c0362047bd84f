//! The control socket: everything that crosses it, and both of its ends.
//!
//! Two families of messages share it: our own, here, and the kernel's IPVS family, which a session hands on.
//! `codec` turns bytes into messages and back; `rows` and `conns` are what messages carry; `listener` owns the path, `access`
//! says who may do what, `budget` how often; `handler` is what the daemon is to it; `session` is one client, `server` all of them; `client` is the
//! other end, used by the commands.

pub mod access;
mod answer;
pub mod budget;
pub mod client;
pub mod codec;
pub mod conns;
pub mod handler;
pub mod listener;
pub mod rows;
pub mod server;
pub mod session;
pub mod text;

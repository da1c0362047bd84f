//! The kernel's IPVS generic-netlink family, answered from a table of our own. No socket here.
//!
//! Model: `attr` reads and writes attributes, `service`, `dest`, `daemon` and `stats` turn the family's nests
//! into values and back, `request` makes one typed [`Request`] of a message, `reply` reads answers (clients),
//! `lookup` answers the search for the family's number. [`Server`] executes requests on a [`Store`] in the
//! kernel's order of checks, with the kernel's error numbers; [`MemoryStore`] is the plainest store.
//!
//! The bytes on the wire are those of kernel 6.12, the family's number apart: programs look it up by name.
//! Everything is a pure function of the message and the store; in the daemon only the control thread calls it.
//!
//! Sources: `linux/ip_vs.h`, `linux/genetlink.h`, `linux/netlink.h`, and exchanges recorded from kernel 6.12.

pub mod attr;
pub mod daemon;
pub mod dest;
pub mod lookup;
mod memory;
pub mod message;
pub mod options;
pub mod proc;
pub mod reply;
pub mod request;
mod server;
pub mod service;
pub mod stats;
mod store;
mod types;

/// Message type of the search for a family's number.
pub const LOOKUP: u16 = lookup::CONTROL_ID;
/// Message types that a [`Server`] answers: the family, and the search for its number.
pub const FAMILIES: [u16; 2] = [message::FAMILY_ID, LOOKUP];

pub use memory::MemoryStore;
pub use request::{Command, Request};
pub use server::{Answer, Rights, Server, is_change, lists_services, starts_daemon};
pub use store::Store;
pub use types::{
    Daemon, DaemonState, Dest, DestKey, DestOptions, Family, Info, Method, SYNC_PORT, Service, ServiceEdit,
    ServiceKey, ServiceOptions, Stats, Timeouts, Tunnel, flag, is_unicast, tunnel_flag, tunnel_type,
};

#[cfg(test)]
mod tests;

//! The `weiradm` program: ipvsadm's command line on our control socket.
//!
//! Model: `words` takes an argument vector apart as ipvsadm's option library does, by the table in `grammar`;
//! `parse` makes an `order` of it, with ipvsadm's checks in ipvsadm's order (`address` and `values` read what
//! options carry); `run` carries it out through a [`Client`] and prints, with `listing`, `save` and `conns` for
//! the formats (`words_of` prints commands for the daemon's log). `restore` does that for every line of its input, or, with `--atomic`, makes one transaction of all (`lines`). Each text, number and exit status is ipvsadm
//! 1.31's unless the manual says otherwise, since scripts read them.
//!
//! A [`Transport`] carries messages: the control socket, or in tests a server in the same process. Names of
//! hosts and services come from a [`Names`].
//!
//! A new option is a row in `grammar`, an arm in `parse`, and a sample in `tests/data`.
//!
//! Source: ipvsadm 1.31 (Debian 12) by its behaviour, recorded.

mod address;
mod client;
mod conns;
mod grammar;
mod lines;
mod listing;
mod names;
mod order;
mod parse;
mod restore;
mod run;
mod save;
mod text;
mod transport;
mod values;
mod words;
pub mod words_of;

pub use client::Client;
pub use conns::Entry;
pub use grammar::words_as_command;
pub use lines::{BadLine, Lines};
pub use names::{Names, SystemNames};
pub use run::{Console, run, save_all};
pub use text::help;
pub use transport::{SocketTransport, Transport};

/// Exit statuses of ipvsadm.
pub mod status {
    /// Done.
    pub const DONE: u8 = 0;
    /// A listing failed.
    pub const LISTING: u8 = 1;
    /// Wrong usage, or no daemon.
    pub const USAGE: u8 = 2;
    /// The daemon refused a command, or the words were not understood.
    pub const REFUSED: u8 = 255;
}

//! Control: boots, decides, publishes, answers; never touches a packet.
//!
//! Everything here runs on the control thread of the daemon (`weir-c`) or in a command's own process; the
//! only other code is the loop around a worker ([`daemon`], `worker_thread`), which hands the thread to the
//! data plane. A command talks to the daemon over the control socket only.
//!
//! | module | part |
//! |---|---|
//! | [`args`], [`commands`], [`check`], [`replay`], [`exec`], [`transactions`] | the commands of `weir` |
//! | [`daemon`] | `weir run` |
//! | [`api`] | the control socket: messages, rows, both ends |
//! | [`ipvs`] | the kernel's IPVS messages on any store |
//! | [`weiradm`] | ipvsadm's command line over them |
//! | [`manual`] | manual pages and completions, from the tables |
//! | [`show`] | text for people, made from rows |
//! | [`conn_filter`], [`failure`] | filters of connections; errors and exit statuses |
#![forbid(unsafe_code)]
pub mod api;
pub mod args;
pub mod check;
pub mod commands;
pub mod conn_filter;
mod counted;
pub mod daemon;
pub mod exec;
pub mod failure;
pub mod ipvs;
pub mod manual;
pub mod replay;
pub mod show;
pub mod transactions;
pub mod weiradm;

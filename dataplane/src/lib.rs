//! The balancer itself: wire views, services, connections, schedulers, forwarding and the worker that runs
//! them. Pure: no sockets, no files, no logs, no clock; DPDK appears in [`io::dpdk`] only.
//!
//! Life of a packet (module names are stage names): [`io`] `rx` → [`pipeline::parse`] → [`pipeline::probe`] →
//! decide (`fast`, `slow`, `host`) → `forward` →
//! [`neigh`] → `tx`. Per loop besides: mailbox, a bounded number of timers, housekeeping.
//!
//! Who writes what:
//!
//! | data | writer | readers |
//! |---|---|---|
//! | [`snapshot::Snapshot`] | control, through [`registry::Registry`] and [`publish`] | workers, one load a burst |
//! | [`conn`] table, timers, scheduler cursors | their worker | control by mailbox |
//! | [`dest::DestSlab`] | workers (counts, OVERLOAD), control (AVAILABLE, thresholds) | both |
//! | [`counters`] | their worker | control, estimators |
//! | [`neigh::NeighTable`] | workers | workers, control |

#![forbid(unsafe_code)]

mod addresses;
pub mod announcements;
pub mod conn;
pub mod counters;
pub mod dest;
pub mod est;
pub mod hash;
mod housekeeping;
pub mod io;
pub mod limits;
pub mod mailbox;
pub mod neigh;
pub mod pipeline;
pub mod publish;
pub mod registry;
pub mod route;
pub mod sched;
pub mod service;
pub mod snapshot;
pub mod steer;
mod sync;
pub mod verdict;
pub mod wire;
pub mod worker;

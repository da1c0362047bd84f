//! Services and their destinations as workers see them: immutable parts of a [`crate::snapshot::Snapshot`].
//!
//! Destinations stand in list order: a new or revived one at the head. Every scheduler, tie and listing walks this
//! order, as in kernel IPVS. Each destination carries an `order` number, larger the later it was added, so the list
//! is sorted by it (descending) and a cursor can be a number that stays meaningful when destinations come and go.

use std::net::Ipv4Addr;
use std::sync::Arc;

use config::{Method, Scheduler, ServiceFlags, ServiceKey, Unmatched};

use crate::sched::{RrPlan, Turn, WrrPlan};

/// One service.
#[derive(Clone, Debug)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// Dense index below `[limits] services`: place of a worker's scheduler state.
    pub index: u32,
    /// Object slot: place of its counters.
    pub slot: u32,
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Flag bits.
    pub flags: ServiceFlags,
    /// Answer to packets that no connection takes.
    pub unmatched: Unmatched,
    /// Answers ARP for the address and announces it.
    pub announce: bool,
    /// Number of this service object: a service that is deleted and made again has another one.
    pub born: u32,
    /// Number of this scheduler instance; another number means that workers start its state afresh.
    pub sched_gen: u32,
    /// Counts additions, removals and weight changes of destinations.
    pub version: u32,
    /// Destinations in list order, head first.
    pub dests: Vec<Dest>,
    /// The scheduler's position if all workers share it; each scheduler instance has its own.
    pub turn: Option<Arc<Turn>>,
    /// What rr needs beyond the list.
    pub rr: RrPlan,
    /// What wrr needs beyond the list.
    pub wrr: WrrPlan,
}

impl Service {
    /// The destination with that object slot, if it is in the list.
    pub fn dest(&self, slot: u32) -> Option<&Dest> {
        self.dests.iter().find(|d| d.slot == slot)
    }
}

/// One destination of one service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// Object slot: place of its counters and of its [`crate::dest::DestState`].
    pub slot: u32,
    /// Address of the server.
    pub addr: Ipv4Addr,
    /// L4 port of the server.
    pub port: u16,
    /// Forwarding method of new connections.
    pub method: Method,
    /// Share of new connections; 0 takes none.
    pub weight: u32,
    /// Connections at which it is overloaded; 0 never.
    pub upper: u32,
    /// Connections below which it is no longer overloaded.
    pub lower: u32,
    /// Larger the later it was added to the list.
    pub order: u64,
}

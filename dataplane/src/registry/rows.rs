//! The registry as listed: services, destinations and totals with their counts and rates. Control; never asks a worker,
//! nor waits for an estimator thread.

use std::collections::HashMap;
use std::sync::Arc;

use config::{DestKey, ServiceKey};

use super::{Registry, dest_key, ipv4};
use crate::counters::{self, Totals};
use crate::est::Snapshot;
use crate::route::Net;
use crate::service::{Dest, Service};

/// A service as listed.
#[derive(Clone, Debug)]
pub struct ServiceRow {
    /// The service as published.
    pub service: Arc<Service>,
    /// What it has counted by now.
    pub totals: Totals,
    /// What its last pass left: totals as the IPVS family shows them, and rates.
    pub stats: Snapshot,
    /// Its destinations, in list order.
    pub dests: Vec<DestRow>,
}

/// A destination as listed.
#[derive(Clone, Copy, Debug)]
pub struct DestRow {
    /// The destination as published.
    pub dest: Dest,
    /// Its connections in active states.
    pub active: u32,
    /// Its other connections.
    pub inactive: u32,
    /// At its upper threshold.
    pub overloaded: bool,
    /// What it has counted by now.
    pub totals: Totals,
    /// What its last pass left: totals as the IPVS family shows them, and rates.
    pub stats: Snapshot,
}

/// Who a statistic belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectName {
    /// The service.
    pub service: ServiceKey,
    /// The destination of it; `None` for the service itself.
    pub dest: Option<DestKey>,
}

impl Registry {
    /// What the last pass left of every service and destination, in an order that holds until the next change.
    pub fn stats_of_all(&self) -> impl Iterator<Item = (ObjectName, Snapshot)> {
        let of = |service: ServiceKey, dest, slot| (ObjectName { service, dest }, self.stats_of(slot));
        self.services.iter().flat_map(move |service| {
            let dests = service.dests.iter().map(move |d| of(service.key, Some(dest_key(d)), d.slot));
            std::iter::once(of(service.key, None, service.slot)).chain(dests)
        })
    }

    /// Every service with its counts and statistics, in no particular order. Never asks a worker.
    pub fn rows(&self) -> impl Iterator<Item = ServiceRow> {
        self.services.iter().map(|service| self.row(service))
    }

    /// One service.
    pub fn find(&self, key: ServiceKey) -> Option<ServiceRow> {
        let addr = ipv4(key.addr).ok()?;
        self.services.find(addr, key.port, key.proto.number()).map(|service| self.row(service))
    }

    /// What the last pass left of one service, its destinations left out.
    pub fn service_stats(&self, key: ServiceKey) -> Option<Snapshot> {
        self.service(key).ok().map(|service| self.stats_of(service.slot))
    }

    /// What the whole box has counted by now.
    pub fn totals(&self) -> Totals {
        self.totals_of(counters::TOTALS)
    }

    /// What the last pass left of the whole box.
    pub fn stats(&self) -> Snapshot {
        self.stats_of(counters::TOTALS)
    }

    /// Whether the destination was deleted and is kept: adding it again takes it back.
    pub fn is_trashed(&self, service: ServiceKey, dest: DestKey) -> bool {
        self.trash.holds(service, dest)
    }

    /// Services and destinations that exist.
    pub fn sizes(&self) -> (u32, u32) {
        (self.service_count, self.dest_count)
    }

    /// Deleted destinations that are kept for their connections.
    pub fn trashed(&self) -> usize {
        self.trash.len()
    }

    /// The service and the destination behind an object slot of a destination, deleted ones included.
    pub fn dest_names(&self) -> HashMap<u32, (ServiceKey, DestKey)> {
        let live = self.services.iter().flat_map(|s| s.dests.iter().map(|d| (d.slot, (s.key, dest_key(d)))));
        live.chain(self.trash.names()).collect()
    }

    /// The network side as published.
    pub fn net(&self) -> &Net {
        &self.net
    }

    fn row(&self, service: &Arc<Service>) -> ServiceRow {
        let dests = service.dests.iter().map(|dest| {
            let state = &self.shared.dests[dest.slot];
            DestRow {
                dest: *dest,
                active: state.active(),
                inactive: state.inactive(),
                overloaded: state.is_overloaded(),
                totals: self.totals_of(dest.slot),
                stats: self.stats_of(dest.slot),
            }
        });
        let (totals, stats) = (self.totals_of(service.slot), self.stats_of(service.slot));
        ServiceRow { service: Arc::clone(service), totals, stats, dests: dests.collect() }
    }

    fn totals_of(&self, slot: u32) -> Totals {
        self.estimators().live(slot).unwrap_or_default()
    }

    fn stats_of(&self, slot: u32) -> Snapshot {
        self.estimators().read(slot).unwrap_or_default()
    }
}

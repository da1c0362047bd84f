//! The registry as listed: services, destinations and totals with their counts. Control; never asks a worker.

use std::collections::HashMap;
use std::sync::Arc;

use config::{DestKey, ServiceKey};

use super::{Registry, dest_key, ipv4};
use crate::counters::{self, Totals};
use crate::route::Net;
use crate::service::{Dest, Service};

/// A service as listed.
#[derive(Clone, Debug)]
pub struct ServiceRow {
    /// The service as published.
    pub service: Arc<Service>,
    /// What it counted.
    pub totals: Totals,
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
    /// What it counted.
    pub totals: Totals,
}

impl Registry {
    /// Every service with its counts and statistics, in no particular order. Never asks a worker.
    pub fn rows(&self) -> impl Iterator<Item = ServiceRow> {
        self.services.iter().map(|service| self.row(service))
    }

    /// One service.
    pub fn find(&self, key: ServiceKey) -> Option<ServiceRow> {
        let addr = ipv4(key.addr).ok()?;
        self.services.find(addr, key.port, key.proto.number()).map(|service| self.row(service))
    }

    /// What one service counted, its destinations left out.
    pub fn service_totals(&self, key: ServiceKey) -> Option<Totals> {
        self.service(key).ok().map(|service| self.totals_of(service.slot))
    }

    /// What the whole box counted.
    pub fn totals(&self) -> Totals {
        self.totals_of(counters::TOTALS)
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
            }
        });
        let totals = self.totals_of(service.slot);
        ServiceRow { service: Arc::clone(service), totals, dests: dests.collect() }
    }

    pub(super) fn totals_of(&self, slot: u32) -> Totals {
        counters::sum(&self.slabs, slot).since(self.slots.base(slot))
    }
}

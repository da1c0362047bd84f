//! The plainest store: a table in memory that forwards nothing. What tests run against, and what the
//! daemon's table is compared with.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;

use rustix::io::Errno;

use super::store::Store;
use super::types::{
    self, Daemon, DaemonState, Dest, DestKey, DestOptions, Family, Info, Service, ServiceKey, ServiceOptions,
    Stats, Timeouts,
};

/// Schedulers of kernel 6.12, and the name that means none.
const SCHEDULERS: [&str; 15] =
    ["rr", "wrr", "lc", "wlc", "lblc", "lblcr", "dh", "sh", "sed", "nq", "fo", "ovf", "mh", "twos", "none"];
/// Persistence engines of kernel 6.12.
const ENGINES: [&str; 1] = ["sip"];
/// Size of the kernel's connection table unless it is told otherwise.
const TABLE_SIZE: u32 = 4096;

/// Place in the listing: mark services last, each kind as they were added.
type Place = (bool, u64);

/// A table in memory.
#[derive(Debug)]
pub struct MemoryStore {
    /// What GET_INFO reports.
    pub info: Info,
    /// Interfaces with their MTU in bytes.
    pub interfaces: HashMap<String, u32>,
    /// Services it takes; beyond, ENOMEM.
    pub services_max: usize,
    places: HashMap<ServiceKey, Place>,
    entries: BTreeMap<Place, (Service, Vec<Dest>)>,
    added: u64,
    daemons: Vec<Daemon>,
    timeouts: Timeouts,
}

impl Default for MemoryStore {
    fn default() -> MemoryStore {
        MemoryStore {
            info: Info { version: Info::VERSION, table_size: TABLE_SIZE },
            interfaces: HashMap::new(),
            services_max: usize::MAX,
            places: HashMap::new(),
            entries: BTreeMap::new(),
            added: 0,
            daemons: Vec::new(),
            timeouts: Timeouts::default(),
        }
    }
}

impl MemoryStore {
    /// A service with its destinations, to be changed by hand.
    pub fn entry_mut(&mut self, key: &ServiceKey) -> Option<&mut (Service, Vec<Dest>)> {
        self.entries.get_mut(self.places.get(key)?)
    }

    fn entry(&self, key: &ServiceKey) -> Option<&(Service, Vec<Dest>)> {
        self.entries.get(self.places.get(key)?)
    }
}

impl Store for MemoryStore {
    fn info(&self) -> Info {
        self.info
    }

    fn knows_scheduler(&self, name: &str) -> bool {
        SCHEDULERS.contains(&name)
    }

    fn knows_engine(&self, name: &str) -> bool {
        ENGINES.contains(&name)
    }

    fn interface_mtu(&self, name: &str) -> Option<u32> {
        self.interfaces.get(name).copied()
    }

    /// Without a routing table: by the form of the address alone.
    fn is_unicast(&self, address: IpAddr) -> bool {
        types::is_unicast(address)
    }

    fn service(&self, key: &ServiceKey) -> Option<Service> {
        self.entry(key).map(|(service, _)| service.clone())
    }

    fn services(&self) -> Box<dyn Iterator<Item = Service>> {
        Box::new(self.entries.values().map(|(service, _)| service.clone()).collect::<Vec<_>>().into_iter())
    }

    fn add_service(&mut self, key: ServiceKey, options: ServiceOptions) -> Result<(), Errno> {
        if self.entries.len() >= self.services_max {
            return Err(Errno::NOMEM);
        }
        let place = (key.mark() != 0, self.added);
        self.added += 1;
        self.places.insert(key, place);
        self.entries.insert(place, (Service { key, options, stats: Stats::default() }, Vec::new()));
        Ok(())
    }

    fn set_service(&mut self, key: &ServiceKey, options: ServiceOptions) -> Result<(), Errno> {
        self.entry_mut(key).ok_or(Errno::SRCH)?.0.options = options;
        Ok(())
    }

    fn remove_service(&mut self, key: &ServiceKey) -> Result<(), Errno> {
        let place = self.places.remove(key).ok_or(Errno::SRCH)?;
        self.entries.remove(&place);
        Ok(())
    }

    fn has_dest(&self, service: &ServiceKey, dest: &DestKey) -> bool {
        self.entry(service).is_some_and(|(_, dests)| dests.iter().any(|d| d.key == *dest))
    }

    fn has_waiting_dest(&self, _service: &ServiceKey, _dest: &DestKey) -> bool {
        false
    }

    fn dests(&self, service: &ServiceKey) -> Box<dyn Iterator<Item = Dest>> {
        let dests = self.entry(service).map(|(_, dests)| dests.clone()).unwrap_or_default();
        Box::new(dests.into_iter().rev())
    }

    fn add_dest(&mut self, service: &ServiceKey, dest: DestKey, options: DestOptions) -> Result<(), Errno> {
        let stats = Stats::default();
        let (_, dests) = self.entry_mut(service).ok_or(Errno::SRCH)?;
        dests.push(Dest { key: dest, options, active: 0, inactive: 0, persistent: 0, stats });
        Ok(())
    }

    fn set_dest(&mut self, service: &ServiceKey, dest: &DestKey, options: DestOptions) -> Result<(), Errno> {
        let (_, dests) = self.entry_mut(service).ok_or(Errno::SRCH)?;
        dests.iter_mut().find(|d| d.key == *dest).ok_or(Errno::NOENT)?.options = options;
        Ok(())
    }

    fn remove_dest(&mut self, service: &ServiceKey, dest: &DestKey) -> Result<(), Errno> {
        self.entry_mut(service).ok_or(Errno::SRCH)?.1.retain(|d| d.key != *dest);
        Ok(())
    }

    fn has_mixed_families(&self) -> bool {
        self.entries.values().any(|(service, dests)| {
            dests.iter().any(|dest| Family::of(dest.key.address) != service.key.family())
        })
    }

    fn zero(&mut self, service: Option<&ServiceKey>) {
        let entries = self.entries.values_mut();
        for (service, dests) in entries.filter(|(s, _)| service.is_none_or(|wanted| *wanted == s.key)) {
            service.stats = Stats::default();
            dests.iter_mut().for_each(|dest| dest.stats = Stats::default());
        }
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.places.clear();
        self.entries.clear();
        Ok(())
    }

    fn daemons(&self) -> Vec<Daemon> {
        self.daemons.clone()
    }

    fn start_daemon(&mut self, daemon: Daemon) -> Result<(), Errno> {
        self.daemons.push(daemon);
        self.daemons.sort_by_key(|daemon| daemon.state as u32);
        Ok(())
    }

    fn stop_daemon(&mut self, state: DaemonState) -> Result<(), Errno> {
        self.daemons.retain(|daemon| daemon.state != state);
        Ok(())
    }

    fn timeouts(&self) -> Timeouts {
        self.timeouts
    }

    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), Errno> {
        self.timeouts = timeouts;
        Ok(())
    }
}

//! What the IPVS family lists: everything that was asked for, by the file or over the socket.
//!
//! Model: the [`Table`] holds every service and destination with all its options, in the order of creation. The
//! registry holds those of them that this version forwards; the table says which (`forwarded`) and turns each
//! change of its own into changes of the registry. What is not forwarded lives here only: it is listed, kept
//! through reloads, and named by `weir status`.
//!
//! Two sources change it. A command of the socket changes one object (`running`). A reload brings the
//! difference between the file as last applied and the new file (`merge`), so what was set over the socket
//! stays unless its own line in the file changed. Either way the change is one or more [`Op`]s: the registry's
//! part of them is worked out first and applied whole, the table follows when it was taken, and the journal has
//! them. Control thread only.

mod describe;
mod forwarded;
mod merge;
mod op;
mod running;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::IpAddr;

use config::knobs::{Knob, Tunables};
use config::{Change, ServiceSettings, Unmatched, Valid};
use serde::{Deserialize, Serialize};
use tracing::warn;

pub use self::forwarded::Lack;
pub use self::merge::Merged;
pub use self::op::{Head, Op};
pub use self::running::{Running, stats};
use crate::ipvs::{Daemon, DestKey, DestOptions, ServiceKey, ServiceOptions};
use crate::weiradm::words_of;

/// Objects named in one line about what is not forwarded; the first ones tell the story.
const NAMED_MAX: usize = 3;

/// Place in the listing: mark services last, each kind in the order of creation.
type Place = (bool, u64);

/// One service with its destinations.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// Identity.
    pub key: ServiceKey,
    /// Everything the family can say of it.
    pub options: ServiceOptions,
    /// Whether the address is announced; `None`: as other services of the address, so if nothing is said.
    pub announce: Option<bool>,
    /// Answer to packets that no connection takes; `None`: as `[policy]` says.
    pub unmatched: Option<Unmatched>,
    /// Destinations, the oldest first.
    pub dests: Vec<DestEntry>,
}

/// One destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestEntry {
    /// Identity.
    pub key: DestKey,
    /// Everything the family can say of it.
    pub options: DestOptions,
}

/// Everything that was asked for.
#[derive(Clone, Debug)]
pub struct Table {
    places: HashMap<ServiceKey, Place>,
    entries: BTreeMap<Place, Entry>,
    /// Services ever added.
    added: u64,
    dest_count: u32,
    daemons: Vec<Daemon>,
    timeouts: config::Timeouts,
    /// Knobs of `net.ipv4.vs` that run.
    pub tunables: Tunables,
    policy: Unmatched,
    /// Addresses that the file does not want announced.
    silent: HashSet<IpAddr>,
    /// What the log was told of.
    warned: HashSet<Lack>,
    /// Knobs that the log was told of.
    warned_knobs: HashSet<&'static str>,
}

impl Default for Table {
    /// What there is before the first file: as the registry, every setting at its default.
    fn default() -> Table {
        let blank = Valid::empty();
        Table {
            places: HashMap::new(),
            entries: BTreeMap::new(),
            added: 0,
            dest_count: 0,
            daemons: Vec::new(),
            timeouts: blank.timeouts().clone(),
            tunables: Tunables::of(&blank),
            policy: blank.policy().unmatched,
            silent: HashSet::new(),
            warned: HashSet::new(),
            warned_knobs: HashSet::new(),
        }
    }
}

impl Table {
    /// One service.
    pub fn entry(&self, key: &ServiceKey) -> Option<&Entry> {
        self.entries.get(self.places.get(key)?)
    }

    /// All services: address services, then mark services, each kind in the order of creation.
    pub fn entries(&self) -> impl Iterator<Item = &Entry> {
        self.entries.values()
    }

    /// Services and destinations.
    pub fn sizes(&self) -> (u32, u32) {
        (self.entries.len() as u32, self.dest_count)
    }

    /// What is stored and not forwarded, a line for each reason: `persistence: tcp:192.0.2.1:80 and 7 more`.
    pub fn not_forwarded(&self) -> Vec<String> {
        let mut found: BTreeMap<Lack, (Vec<String>, usize)> = BTreeMap::new();
        let mut note = |lack, name: &dyn Fn() -> String| {
            let (names, count) = found.entry(lack).or_default();
            if names.len() < NAMED_MAX {
                names.push(name());
            }
            *count += 1;
        };
        for entry in self.entries() {
            if let Some(lack) = entry.lack() {
                note(lack, &|| entry.key.to_string());
            }
            if entry.is_forwarded() {
                for dest in &entry.dests {
                    if let Some(lack) = dest.lack() {
                        note(lack, &|| format!("{} of {}", dest.key, entry.key));
                    }
                }
            }
        }
        for daemon in &self.daemons {
            note(Lack::SyncDaemon, &|| format!("{:?} on {}", daemon.state, daemon.interface));
        }
        let line = |(lack, (names, count)): (Lack, (Vec<String>, usize))| {
            let more = count - names.len();
            let more = if more > 0 { format!(" and {more} more") } else { String::new() };
            format!("{lack}: {}{more}", names.join(", "))
        };
        found.into_iter().map(line).collect()
    }

    /// Services and timeouts as the file writes them, and in ipvsadm's words what it has no form for.
    pub fn as_file(&self) -> (Vec<config::Service>, config::Timeouts, Vec<String>) {
        let (mut services, mut others) = (Vec::new(), Vec::new());
        for entry in self.entries() {
            let key =
                entry.registry_key().ok().filter(|_| entry.is_forwarded() && entry.options.engine.is_none());
            let Some(key) = key else {
                others.push(words_of::service("-A", &entry.key, &entry.options));
                let dests = entry.dests.iter();
                others.extend(dests.map(|dest| words_of::dest("-a", &entry.key, &dest.key, &dest.options)));
                continue;
            };
            let mut destinations = Vec::new();
            for dest in &entry.dests {
                match dest.destination() {
                    Ok(dest) => destinations.push(dest),
                    Err(_) => others.push(words_of::dest("-a", &entry.key, &dest.key, &dest.options)),
                }
            }
            services.push(config::Service { key, settings: self.settings(entry), destinations });
        }
        (services, self.timeouts.clone(), others)
    }

    /// Takes over from `old` what ipvsadm's words cannot say of a service.
    pub fn keep_unsaid(&mut self, old: &Table) {
        for entry in self.entries.values_mut() {
            if let Some(old) = old.entry(&entry.key) {
                (entry.announce, entry.unmatched) = (old.announce, old.unmatched);
            }
        }
    }

    /// Logs that something is not forwarded, the first time that the reason is met.
    fn warn_once(&mut self, lack: Lack, name: impl FnOnce() -> String) {
        if self.warned.insert(lack) {
            warn!(
                target: "weir::config", object = name(),
                "{lack}: accepted, not forwarded by this version; weir status keeps the list"
            );
        }
    }

    /// Logs that a knob has no effect, the first time that it is set.
    fn warn_of_knob(&mut self, knob: Knob) {
        if !knob.key.built && self.warned_knobs.insert(knob.key.name) {
            warn!(
                target: "weir::config", knob = knob.key.name,
                "accepted, not in effect in this version; weir status keeps the list"
            );
        }
    }

    fn warn_of(&mut self, key: &ServiceKey) {
        let Some(entry) = self.entry(key) else { return };
        let dests = if entry.is_forwarded() { &entry.dests[..] } else { &[] };
        let of_dests = dests.iter().filter_map(|dest| Some((dest.lack()?, dest.key.to_string())));
        let of_service = entry.lack().map(|lack| (lack, entry.key.to_string()));
        let lacks: Vec<_> = of_service.into_iter().chain(of_dests).collect();
        lacks.into_iter().for_each(|(lack, name)| self.warn_once(lack, || name));
    }

    fn insert(&mut self, entry: Entry) {
        let place = (entry.key.mark() != 0, self.added);
        self.added += 1;
        self.dest_count += entry.dests.len() as u32;
        self.places.insert(entry.key, place);
        self.entries.insert(place, entry);
    }

    fn remove(&mut self, key: &ServiceKey) {
        let removed = self.places.remove(key).and_then(|place| self.entries.remove(&place));
        self.dest_count -= removed.map_or(0, |entry| entry.dests.len() as u32);
    }

    fn clear(&mut self) {
        self.places.clear();
        self.entries.clear();
        self.dest_count = 0;
    }

    fn entry_mut(&mut self, key: &ServiceKey) -> Option<&mut Entry> {
        self.entries.get_mut(self.places.get(key)?)
    }

    fn add_dest(&mut self, service: &ServiceKey, dest: DestEntry) {
        if let Some(entry) = self.entry_mut(service) {
            entry.dests.push(dest);
            self.dest_count += 1;
        }
    }

    fn set_dest(&mut self, service: &ServiceKey, dest: DestEntry) {
        let entry = self.entry_mut(service);
        if let Some(old) = entry.and_then(|e| e.dests.iter_mut().find(|d| d.key == dest.key)) {
            *old = dest;
        }
    }

    fn remove_dest(&mut self, service: &ServiceKey, dest: &DestKey) {
        let Some(entry) = self.entry_mut(service) else { return };
        let before = entry.dests.len();
        entry.dests.retain(|d| d.key != *dest);
        let gone = (before - entry.dests.len()) as u32;
        self.dest_count -= gone;
    }

    /// Settings of a service as the registry has them.
    fn settings(&self, entry: &Entry) -> ServiceSettings {
        ServiceSettings {
            scheduler: entry.scheduler(),
            flags: entry.scheduler_flags(),
            announce: entry
                .announce
                .unwrap_or_else(|| !entry.key.address().is_some_and(|a| self.silent.contains(&a))),
            unmatched: entry.unmatched.unwrap_or(self.policy),
        }
    }

    /// What the registry has to do when a service comes, goes or changes, its destinations included.
    fn service_changes(&self, old: Option<&Entry>, new: Option<&Entry>) -> Vec<Change> {
        let runs = |entry: &&Entry| entry.is_forwarded();
        match (old.filter(runs), new.filter(runs)) {
            (None, None) => Vec::new(),
            (Some(old), None) => {
                old.registry_key().map(|key| Change::DeleteService { key }).into_iter().collect()
            }
            (None, Some(new)) => {
                let Ok(key) = new.registry_key() else { return Vec::new() };
                let service = Change::AddService { key, settings: self.settings(new) };
                let dests = new.dests.iter().flat_map(|dest| new.dest_changes(None, Some(dest)));
                std::iter::once(service).chain(dests).collect()
            }
            (Some(old), Some(new)) => {
                let (from, to) = (self.settings(old), self.settings(new));
                let key = new.registry_key().ok().filter(|_| from != to);
                key.map(|key| Change::EditService { key, from, to }).into_iter().collect()
            }
        }
    }
}

impl Entry {
    /// A service without destinations, of which the file says nothing.
    fn new(key: ServiceKey, options: ServiceOptions) -> Entry {
        Entry { key, options, announce: None, unmatched: None, dests: Vec::new() }
    }

    fn dest(&self, key: &DestKey) -> Option<&DestEntry> {
        self.dests.iter().find(|dest| dest.key == *key)
    }

    /// What the registry has to do when a destination comes, goes or changes.
    fn dest_changes(&self, old: Option<&DestEntry>, new: Option<&DestEntry>) -> Option<Change> {
        let service = self.registry_key().ok().filter(|_| self.is_forwarded())?;
        let runs = |dest: Option<&DestEntry>| dest.and_then(|dest| dest.destination().ok());
        match (runs(old), runs(new)) {
            (None, None) => None,
            (None, Some(dest)) => Some(Change::AddDest { service, dest }),
            (Some(old), None) => Some(Change::DeleteDest { service, dest: old.key }),
            // The kernel tells the scheduler of every edit, whether or not something changed.
            (Some(from), Some(to)) => Some(Change::EditDest { service, from, to }),
        }
    }
}

#[cfg(test)]
mod tests;

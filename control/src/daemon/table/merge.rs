//! A file's changes on top of what runs.
//!
//! The plan is the difference between the file as last applied and the new one. What runs may have been changed
//! over the socket since, so each change of the plan is read as "this line of the file changed": it sets what
//! the line says and leaves the rest. What it expects and is gone stays gone, what it adds and is there takes
//! the file's form; neither makes a reload fail.

use config::knobs::Tunables;
use config::{Change, Destination, Plan, ServiceSettings, Timeouts};

use super::forwarded::{dest_entry, dest_key, method, service_key, service_options};
use super::{DestEntry, Entry, Table};
use crate::ipvs::ServiceKey;

/// What merging a plan comes to.
#[derive(Debug)]
pub struct Merged {
    /// The table with the plan in it.
    pub table: Table,
    /// What the registry has to do, in order.
    pub changes: Vec<Change>,
    /// Changes of the plan whose object was deleted over the socket.
    pub left_out: Vec<Change>,
}

impl Table {
    /// The plan on top of this table.
    pub fn merge(&self, plan: &Plan) -> Merged {
        let mut merged = Merged { table: self.clone(), changes: Vec::new(), left_out: Vec::new() };
        let silent = plan.in_force.services().iter().filter(|service| !service.settings.announce);
        merged.table.silent = silent.map(|service| service.key.addr).collect();
        for change in &plan.changes {
            if merged.take(change).is_none() {
                merged.left_out.push(change.clone());
            }
        }
        merged.follow_defaults(self);
        merged
    }

    /// Logs what of it is not forwarded, as far as the log was not told.
    pub fn warn_of_all(&mut self) {
        let keys: Vec<_> = self.entries().map(|entry| entry.key).collect();
        keys.iter().for_each(|key| self.warn_of(key));
    }
}

impl Merged {
    /// One change of the plan; `None` when its object is gone.
    fn take(&mut self, change: &Change) -> Option<()> {
        let table = &mut self.table;
        match change {
            Change::AddService { key, settings } => {
                let key = service_key(*key);
                let dests = table.entry(&key).map(|old| old.dests.clone()).unwrap_or_default();
                let new = Entry { dests, ..Entry::new(key, service_options(&key, settings)) };
                self.put_service(from_file(new, settings));
            }
            Change::EditService { key, from, to } => {
                let new = edited_service(table.entry(&service_key(*key))?.clone(), from, to);
                self.put_service(from_file(new, to));
            }
            Change::DeleteService { key } => {
                let key = service_key(*key);
                let old = table.entry(&key)?;
                self.changes.extend(table.service_changes(Some(old), None));
                table.remove(&key);
            }
            Change::AddDest { service, dest } => self.put_dest(service_key(*service), dest_entry(dest))?,
            Change::EditDest { service, from, to } => {
                let service = service_key(*service);
                let old = table.entry(&service)?.dest(&dest_key(to.key))?;
                let new = edited_dest(*old, from, to);
                self.put_dest(service, new)?;
            }
            Change::DeleteDest { service, dest } => {
                let (service, dest) = (service_key(*service), dest_key(*dest));
                let entry = table.entry(&service)?;
                self.changes.extend(entry.dest_changes(Some(entry.dest(&dest)?), None));
                table.remove_dest(&service, &dest);
            }
            Change::SetTimeouts { from, to } => {
                let old = table.timeouts.clone();
                let new = edited_timeouts(&old, from, to);
                table.timeouts = new.clone();
                self.changes.push(Change::SetTimeouts { from: old, to: new });
            }
            Change::SetKnobs { from, to } => self.tune(|tunables| tunables.edit_knobs(from, to)),
            Change::SetEstimators { from, to } => self.tune(|tunables| tunables.edit_estimators(from, to)),
            Change::SetPolicy { to, .. } => {
                table.policy = to.unmatched;
                self.changes.push(change.clone());
            }
            settings => self.changes.push(settings.clone()),
        }
        Some(())
    }

    fn tune(&mut self, edit: impl FnOnce(&mut Tunables)) {
        let old = self.table.tunables.clone();
        edit(&mut self.table.tunables);
        self.changes.extend(old.changes(&self.table.tunables));
    }

    fn put_service(&mut self, new: Entry) {
        let table = &mut self.table;
        let old = table.entry(&new.key);
        self.changes.extend(table.service_changes(old, Some(&new)));
        match table.entry_mut(&new.key) {
            Some(old) => *old = new,
            None => table.insert(new),
        }
    }

    fn put_dest(&mut self, service: ServiceKey, new: DestEntry) -> Option<()> {
        let table = &mut self.table;
        let entry = table.entry(&service)?;
        let old = entry.dest(&new.key);
        self.changes.extend(entry.dest_changes(old, Some(&new)));
        if old.is_some() {
            table.set_dest(&service, new);
        } else {
            table.add_dest(&service, new);
        }
        Some(())
    }

    /// Services that the file does not know follow its policy and the other services of their address.
    fn follow_defaults(&mut self, before: &Table) {
        let table = &self.table;
        if before.policy == table.policy && before.silent == table.silent {
            return;
        }
        let ours = |e: &&Entry| e.is_forwarded() && (e.announce.is_none() || e.unmatched.is_none());
        for entry in table.entries().filter(ours) {
            let (from, to) = (before.settings(entry), table.settings(entry));
            if let Some(key) = entry.registry_key().ok().filter(|_| from != to) {
                self.changes.push(Change::EditService { key, from, to });
            }
        }
    }
}

fn from_file(entry: Entry, settings: &ServiceSettings) -> Entry {
    Entry { announce: Some(settings.announce), unmatched: Some(settings.unmatched), ..entry }
}

/// What of a service's line changed, in the entry.
fn edited_service(mut entry: Entry, from: &ServiceSettings, to: &ServiceSettings) -> Entry {
    if from.scheduler != to.scheduler {
        to.scheduler.name().clone_into(&mut entry.options.scheduler);
    }
    let changed = from.flags.bits() ^ to.flags.bits();
    entry.options.flags = entry.options.flags & !changed | to.flags.bits() & changed;
    entry
}

/// What of a destination's line changed, in the entry.
fn edited_dest(mut entry: DestEntry, from: &Destination, to: &Destination) -> DestEntry {
    let options = &mut entry.options;
    let file = dest_entry(to).options;
    if from.method != to.method {
        options.method = method(to.method);
    }
    if from.weight != to.weight {
        options.weight = file.weight;
    }
    if (from.upper, from.lower) != (to.upper, to.lower) {
        (options.upper, options.lower) = (file.upper, file.lower);
    }
    entry
}

/// The socket sets three of the timeouts; they stay unless their own line changed.
fn edited_timeouts(running: &Timeouts, from: &Timeouts, to: &Timeouts) -> Timeouts {
    let pick = |running, from, to| if from == to { running } else { to };
    Timeouts {
        tcp: pick(running.tcp, from.tcp, to.tcp),
        tcpfin: pick(running.tcpfin, from.tcpfin, to.tcpfin),
        udp: pick(running.udp, from.udp, to.udp),
        ..to.clone()
    }
}

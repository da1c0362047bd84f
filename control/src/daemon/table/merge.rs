//! A file's changes on top of what runs.
//!
//! The plan is the difference between the file as last applied and the new one. What runs may have been changed
//! over the socket since, so each change of the plan is read as "this line of the file changed": it sets what
//! the line says and leaves the rest. What it expects and is gone stays gone, what it adds and is there takes
//! the file's form; neither makes a reload fail.

use config::knobs::Tunables;
use config::{Change, Destination, Plan, ServiceSettings, Timeouts};

use super::forwarded::{dest_entry, dest_key, method, service_key, service_options};
use super::op::seconds;
use super::{DestEntry, Entry, Head, Op, Table};
use crate::ipvs::ServiceKey;

/// What merging a plan comes to.
#[derive(Debug)]
pub struct Merged {
    /// The table with the plan in it.
    pub table: Table,
    /// What was done to the table.
    pub ops: Vec<Op>,
    /// What the registry has to do, in order.
    pub changes: Vec<Change>,
    /// Changes of the plan whose object was deleted over the socket.
    pub left_out: Vec<Change>,
}

impl Table {
    /// The plan on top of this table.
    pub fn merge(&self, plan: &Plan) -> Merged {
        let mut merged = self.staged();
        let silent = plan.in_force.services().iter().filter(|service| !service.settings.announce);
        let silent = silent.map(|service| service.key.addr).collect();
        let policy = plan.in_force.policy().unmatched;
        let defaults = Table { silent, policy, ..Table::default() }.defaults();
        if merged.table.defaults() != defaults {
            merged.op(defaults);
        }
        for change in &plan.changes {
            if merged.take(change).is_none() {
                merged.left_out.push(change.clone());
            }
        }
        merged
    }

    /// The ops on top of this table.
    pub fn stage(&self, ops: impl IntoIterator<Item = Op>) -> Merged {
        let mut merged = self.staged();
        ops.into_iter().for_each(|op| merged.op(op));
        merged
    }

    /// Logs what of it is not forwarded, as far as the log was not told.
    pub fn warn_of_all(&mut self) {
        let keys: Vec<_> = self.entries().map(|entry| entry.key).collect();
        keys.iter().for_each(|key| self.warn_of(key));
    }

    fn staged(&self) -> Merged {
        Merged { table: self.clone(), ops: Vec::new(), changes: Vec::new(), left_out: Vec::new() }
    }
}

impl Merged {
    /// One change of the plan; `None` when its object is gone.
    fn take(&mut self, change: &Change) -> Option<()> {
        let table = &self.table;
        match change {
            Change::AddService { key, settings } => {
                let key = service_key(*key);
                let new = Entry::new(key, service_options(&key, settings));
                self.op(Op::Service(Head::of(&from_file(new, settings))));
            }
            Change::EditService { key, from, to } => {
                let new = edited_service(table.entry(&service_key(*key))?.clone(), from, to);
                self.op(Op::Service(Head::of(&from_file(new, to))));
            }
            Change::DeleteService { key } => {
                let key = service_key(*key);
                table.entry(&key)?;
                self.op(Op::NoService(key));
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
                table.entry(&service)?.dest(&dest)?;
                self.op(Op::NoDest(service, dest));
            }
            Change::SetTimeouts { from, to } => {
                let new = edited_timeouts(&table.timeouts, from, to);
                self.op(Op::Timeouts(seconds(&new)));
            }
            Change::SetKnobs { from, to } => self.tune(|tunables| tunables.edit_knobs(from, to)),
            Change::SetEstimators { from, to } => self.tune(|tunables| tunables.edit_estimators(from, to)),
            settings => self.changes.push(settings.clone()),
        }
        Some(())
    }

    fn tune(&mut self, edit: impl FnOnce(&mut Tunables)) {
        let mut new = self.table.tunables.clone();
        edit(&mut new);
        self.op(Op::Tunables(new.to_toml()));
    }

    fn put_dest(&mut self, service: ServiceKey, new: DestEntry) -> Option<()> {
        self.table.entry(&service)?;
        self.op(Op::Dest(service, new));
        Some(())
    }

    fn op(&mut self, op: Op) {
        self.changes.extend(self.table.changes_of(&op));
        self.table.take(&op);
        self.ops.push(op);
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

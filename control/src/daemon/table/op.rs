//! The table's changes as values: what is done to it, written down, and done again after a restart.
//!
//! Model: nothing changes a [`Table`] but [`Table::take`] of an [`Op`]. A command of the socket is one, a reload or
//! a transaction several. The same ops go into the journal, so a replay makes the same table;
//! [`Table::changes_of`] is what the registry has to do for one, [`Table::difference`] the ops between two tables.

use std::net::IpAddr;

use config::knobs::Tunables;
use config::{Change, Timeouts, Unmatched};
use serde::{Deserialize, Serialize};

use super::{DestEntry, Entry, Table};
use crate::ipvs::{Daemon, DestKey, ServiceKey, ServiceOptions};

/// One change of the table.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Op {
    /// A service comes, or has other options; destinations stay.
    Service(Head),
    /// A service goes with its destinations.
    NoService(ServiceKey),
    /// A destination comes, or has other options.
    Dest(ServiceKey, DestEntry),
    /// A destination goes.
    NoDest(ServiceKey, DestKey),
    /// All services go.
    Clear,
    /// Idle times, seconds: tcp, tcpfin, udp, then the other TCP states in the order of the file's keys.
    Timeouts([u32; 11]),
    /// The knobs: `[sysctl]` and `[estimators]` as the file writes them.
    Tunables(String),
    /// The sync daemons that run.
    Daemons(Vec<Daemon>),
    /// What holds for services of which the file says nothing.
    Defaults {
        /// Answer to packets that no connection takes.
        #[serde(with = "unmatched")]
        policy: Unmatched,
        /// Addresses that are not announced, ascending.
        silent: Vec<IpAddr>,
    },
}

impl Op {
    /// The service and the destination that it is about.
    pub fn object(&self) -> (Option<ServiceKey>, Option<DestKey>) {
        match self {
            Op::Service(head) => (Some(head.key), None),
            Op::NoService(key) => (Some(*key), None),
            Op::Dest(service, dest) => (Some(*service), Some(dest.key)),
            Op::NoDest(service, dest) => (Some(*service), Some(*dest)),
            _ => (None, None),
        }
    }
}

/// A service without its destinations.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Head {
    key: ServiceKey,
    options: ServiceOptions,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    announce: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none", with = "unmatched::optional")]
    unmatched: Option<Unmatched>,
}

impl Head {
    /// The service's own part of an entry.
    pub fn of(entry: &Entry) -> Head {
        Head {
            key: entry.key,
            options: entry.options.clone(),
            announce: entry.announce,
            unmatched: entry.unmatched,
        }
    }

    /// Identity of the service.
    pub fn key(&self) -> ServiceKey {
        self.key
    }

    fn with(&self, dests: Vec<DestEntry>) -> Entry {
        let Head { key, options, announce, unmatched } = self.clone();
        Entry { key, options, announce, unmatched, dests }
    }
}

impl Table {
    /// Does it. What is about an object that is not there does nothing.
    pub fn take(&mut self, op: &Op) {
        match op {
            Op::Service(head) => match self.entry_mut(&head.key) {
                Some(entry) => *entry = head.with(std::mem::take(&mut entry.dests)),
                None => self.insert(head.with(Vec::new())),
            },
            Op::NoService(key) => self.remove(key),
            Op::Dest(service, dest) => match self.entry(service).map(|e| e.dest(&dest.key).is_some()) {
                Some(true) => self.set_dest(service, *dest),
                Some(false) => self.add_dest(service, *dest),
                None => {}
            },
            Op::NoDest(service, dest) => self.remove_dest(service, dest),
            Op::Clear => self.clear(),
            Op::Timeouts(seconds) => self.timeouts = timeouts(*seconds),
            Op::Tunables(text) => self.tunables = self.tunables_of(text),
            Op::Daemons(daemons) => self.daemons.clone_from(daemons),
            Op::Defaults { policy, silent } => {
                self.policy = *policy;
                self.silent = silent.iter().copied().collect();
            }
        }
    }

    /// What the registry has to do for an op that is about to be taken, in order.
    pub fn changes_of(&self, op: &Op) -> Vec<Change> {
        match op {
            Op::Service(head) => {
                let old = self.entry(&head.key);
                let dests = old.map(|entry| entry.dests.clone()).unwrap_or_default();
                self.service_changes(old, Some(&head.with(dests)))
            }
            Op::NoService(key) => self.service_changes(self.entry(key), None),
            Op::Dest(service, dest) => {
                let change = |entry: &Entry| entry.dest_changes(entry.dest(&dest.key), Some(dest));
                self.entry(service).and_then(change).into_iter().collect()
            }
            Op::NoDest(service, dest) => {
                let change = |entry: &Entry| entry.dest_changes(entry.dest(dest), None);
                self.entry(service).and_then(change).into_iter().collect()
            }
            Op::Clear => self.entries().flat_map(|entry| self.service_changes(Some(entry), None)).collect(),
            Op::Timeouts(seconds) => {
                vec![Change::SetTimeouts { from: self.timeouts.clone(), to: timeouts(*seconds) }]
            }
            Op::Tunables(text) => self.tunables.changes(&self.tunables_of(text)),
            Op::Daemons(_) => Vec::new(),
            Op::Defaults { .. } => self.following(op),
        }
    }

    /// The ops that make of this table one with what `target` has; what stays keeps its place. What comes is
    /// first, what goes is last, so that no service is without servers in between.
    pub fn difference(&self, target: &Table) -> Vec<Op> {
        let mut ops = Vec::new();
        if self.defaults() != target.defaults() {
            ops.push(target.defaults());
        }
        if self.timeouts != target.timeouts {
            ops.push(Op::Timeouts(seconds(&target.timeouts)));
        }
        if self.tunables != target.tunables {
            ops.push(Op::Tunables(target.tunables.to_toml()));
        }
        if self.daemons != target.daemons {
            ops.push(Op::Daemons(target.daemons.clone()));
        }
        let mut gone = Vec::new();
        for entry in target.entries() {
            let old = self.entry(&entry.key);
            if old.is_none_or(|old| Head::of(old) != Head::of(entry)) {
                ops.push(Op::Service(Head::of(entry)));
            }
            let stays = |dest: &&DestEntry| old.is_some_and(|old| old.dest(&dest.key) == Some(*dest));
            let come = entry.dests.iter().filter(|dest| !stays(dest));
            ops.extend(come.map(|dest| Op::Dest(entry.key, *dest)));
            let old_dests = old.map_or(&[][..], |old| &old.dests);
            let goes = old_dests.iter().filter(|dest| entry.dest(&dest.key).is_none());
            gone.extend(goes.map(|dest| Op::NoDest(entry.key, dest.key)));
        }
        ops.append(&mut gone);
        let services_gone = self.entries().filter(|entry| target.entry(&entry.key).is_none());
        ops.extend(services_gone.map(|entry| Op::NoService(entry.key)));
        ops
    }

    /// The op that sets what this table has as defaults.
    pub fn defaults(&self) -> Op {
        let mut silent: Vec<_> = self.silent.iter().copied().collect();
        silent.sort_unstable();
        Op::Defaults { policy: self.policy, silent }
    }

    /// The knobs of a text; a text of another version that has no meaning now leaves them as they are.
    pub(super) fn tunables_of(&self, text: &str) -> Tunables {
        config::parse(text, "journal").map_or_else(|_| self.tunables.clone(), |valid| Tunables::of(&valid))
    }

    /// Services of which the file says nothing follow its policy and the other services of their address.
    fn following(&self, defaults: &Op) -> Vec<Change> {
        if self.defaults() == *defaults {
            return Vec::new();
        }
        let mut after = Table::default();
        after.take(defaults);
        let follows = |e: &&Entry| e.is_forwarded() && (e.announce.is_none() || e.unmatched.is_none());
        let edit = |entry: &Entry| {
            let (from, to) = (self.settings(entry), after.settings(entry));
            let key = entry.registry_key().ok().filter(|_| from != to)?;
            Some(Change::EditService { key, from, to })
        };
        self.entries().filter(follows).filter_map(edit).collect()
    }
}

/// The timeouts as an op has them.
pub fn seconds(timeouts: &Timeouts) -> [u32; 11] {
    let Timeouts { tcp, tcpfin, udp, synsent, synrecv, timewait, close, closewait, lastack, listen, synack } =
        *timeouts;
    [tcp, tcpfin, udp, synsent, synrecv, timewait, close, closewait, lastack, listen, synack]
}

fn timeouts(seconds: [u32; 11]) -> Timeouts {
    let [tcp, tcpfin, udp, synsent, synrecv, timewait, close, closewait, lastack, listen, synack] = seconds;
    Timeouts { tcp, tcpfin, udp, synsent, synrecv, timewait, close, closewait, lastack, listen, synack }
}

/// The configuration's word for it.
mod unmatched {
    use config::Unmatched;
    use serde::de::Error;
    use serde::{Deserialize, Deserializer, Serializer};

    const ALL: [Unmatched; 2] = [Unmatched::Reset, Unmatched::Drop];

    pub(super) fn serialize<S: Serializer>(value: &Unmatched, to: S) -> Result<S::Ok, S::Error> {
        to.serialize_str(value.name())
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Unmatched, D::Error> {
        let word = String::deserialize(from)?;
        let known = ALL.into_iter().find(|value| value.name() == word);
        known.ok_or_else(|| D::Error::custom(format!("`{word}` is no answer")))
    }

    pub(super) mod optional {
        use super::{Deserializer, Serializer, Unmatched};

        pub(in super::super) fn serialize<S: Serializer>(
            value: &Option<Unmatched>,
            to: S,
        ) -> Result<S::Ok, S::Error> {
            match value {
                Some(value) => super::serialize(value, to),
                None => to.serialize_none(),
            }
        }

        pub(in super::super) fn deserialize<'de, D: Deserializer<'de>>(
            from: D,
        ) -> Result<Option<Unmatched>, D::Error> {
            super::deserialize(from).map(Some)
        }
    }
}

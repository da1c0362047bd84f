//! The daemon's table as a [`Store`]: commands of the socket, on what runs.
//!
//! Lives for one datagram of one client: its changes are applied to the registry's working copy one by one and
//! published together by the caller, before any of them is acknowledged.

use std::collections::HashMap;
use std::fs;
use std::net::{IpAddr, Ipv4Addr};

use config::knobs::{Cpus, Knob, KnobError, PREFIX};
use config::{Change, Scheduler, Valid};
use dataplane::est::Snapshot;
use dataplane::registry::Registry;
use ipnet::IpNet;
use rustix::io::Errno;
use tracing::warn;

use super::forwarded::registry_key;
use super::op::seconds;
use super::{DestEntry, Entry, Head, Lack, Op, Table};
use crate::daemon::whole::{RefusedChange, apply_whole};
use crate::ipvs::{
    Daemon, DaemonState, Dest, DestKey, DestOptions, Info, Service, ServiceKey, ServiceOptions, Stats, Store,
    Timeouts, is_unicast,
};
use crate::weiradm::words_of;

/// Persistence engines that services may name.
const ENGINES: [&str; 1] = ["sip"];

/// What runs, as a store.
pub struct Running<'a> {
    /// Everything that was asked for.
    pub table: &'a mut Table,
    /// What is forwarded of it; not published here.
    pub registry: &'a mut Registry,
    /// The file in force: ports, addresses and limits.
    pub valid: &'a Valid,
    /// Connections that there is room for.
    pub table_size: u32,
    /// What was done, in ipvsadm's words.
    pub done: Vec<String>,
    /// Changes of the registry that wait for publication.
    pub changes: Vec<Change>,
    /// Changes of the table.
    pub ops: Vec<Op>,
    /// Whether the registry is left alone: the table is a copy, to see what would be.
    trial: bool,
    /// Why nothing may be changed.
    refuses: Option<Errno>,
}

impl<'a> Running<'a> {
    /// Store of these parts.
    pub fn new(
        table: &'a mut Table,
        registry: &'a mut Registry,
        valid: &'a Valid,
        table_size: u32,
    ) -> Running<'a> {
        let (done, changes, ops) = (Vec::new(), Vec::new(), Vec::new());
        Running { table, registry, valid, table_size, done, changes, ops, trial: false, refuses: None }
    }

    /// The same, to see what commands would do to a copy of the table: the registry is only read.
    pub fn on_trial(self) -> Running<'a> {
        Running { trial: true, ..self }
    }

    /// The same, but whatever would change something is refused with this error.
    pub fn refusing(self, errno: Errno) -> Running<'a> {
        Running { refuses: Some(errno), ..self }
    }

    /// Does it: the registry takes its part of it, all or nothing, then the table.
    fn perform(&mut self, op: Op, words: String) -> Result<(), Errno> {
        if let Some(errno) = self.refuses {
            return Err(errno);
        }
        let changes = if self.trial { Vec::new() } else { self.table.changes_of(&op) };
        apply_whole(self.registry, &changes).map_err(|RefusedChange { change, error }| {
            warn!(target: "weir::api", %change, %error, "refused");
            Errno::NOMEM
        })?;
        self.changes.extend(changes);
        self.table.take(&op);
        self.ops.push(op);
        self.done.push(words);
        Ok(())
    }

    fn listed(&self, entry: &Entry) -> Service {
        let key = registry_key(&entry.key).ok().filter(|_| entry.is_forwarded());
        let shown = key.and_then(|key| self.registry.service_stats(key)).unwrap_or_default();
        Service { key: entry.key, options: entry.options.clone(), stats: stats(&shown) }
    }

    /// The service, for a change of one of its destinations.
    fn entry(&self, key: &ServiceKey) -> Result<&Entry, Errno> {
        self.table.entry(key).ok_or(Errno::SRCH)
    }
}

impl Store for Running<'_> {
    fn info(&self) -> Info {
        Info { version: Info::VERSION, table_size: self.table_size }
    }

    fn knows_scheduler(&self, name: &str) -> bool {
        Scheduler::from_name(name).is_some()
    }

    fn knows_engine(&self, name: &str) -> bool {
        ENGINES.contains(&name)
    }

    /// Our ports by their names in the configuration, then the machine's interfaces.
    fn interface_mtu(&self, name: &str) -> Option<u32> {
        let port = self.valid.ports().iter().find(|port| port.name == name);
        port.map(|port| port.mtu.into()).or_else(|| machine_mtu(name))
    }

    /// By form, and by the networks of our ports and the loopback: their broadcast addresses are none.
    fn is_unicast(&self, address: IpAddr) -> bool {
        const LOOPBACK_BROADCAST: Ipv4Addr = Ipv4Addr::new(127, 255, 255, 255);
        let networks = self.valid.network().ports.iter().flat_map(|port| &port.addresses);
        let is_broadcast = |net: &IpNet| match net {
            IpNet::V4(net) => net.prefix_len() < 31 && IpAddr::V4(net.broadcast()) == address,
            IpNet::V6(_) => false,
        };
        is_unicast(address) && address != LOOPBACK_BROADCAST && !networks.into_iter().any(is_broadcast)
    }

    fn service(&self, key: &ServiceKey) -> Option<Service> {
        self.table.entry(key).map(|entry| self.listed(entry))
    }

    fn services(&self) -> Box<dyn Iterator<Item = Service>> {
        Box::new(self.table.entries().map(|entry| self.listed(entry)).collect::<Vec<_>>().into_iter())
    }

    fn add_service(&mut self, key: ServiceKey, options: ServiceOptions) -> Result<(), Errno> {
        if self.table.sizes().0 >= self.valid.limits().services {
            return Err(Errno::NOMEM);
        }
        let new = Entry::new(key, options);
        let words = words_of::service("-A", &key, &new.options);
        self.perform(Op::Service(Head::of(&new)), words)?;
        self.warn_of(&key);
        Ok(())
    }

    fn set_service(&mut self, key: &ServiceKey, options: ServiceOptions) -> Result<(), Errno> {
        let words = words_of::service("-E", key, &options);
        let new = Entry { options, ..self.entry(key)?.clone() };
        self.perform(Op::Service(Head::of(&new)), words)?;
        self.warn_of(key);
        Ok(())
    }

    fn remove_service(&mut self, key: &ServiceKey) -> Result<(), Errno> {
        self.entry(key)?;
        self.perform(Op::NoService(*key), format!("-D {}", words_of::service_name(key)))
    }

    fn has_dest(&self, service: &ServiceKey, dest: &DestKey) -> bool {
        self.table.entry(service).is_some_and(|entry| entry.dest(dest).is_some())
    }

    fn has_waiting_dest(&self, service: &ServiceKey, dest: &DestKey) -> bool {
        let dest = config::DestKey::new(dest.address, dest.port);
        registry_key(service).is_ok_and(|service| self.registry.is_trashed(service, dest))
    }

    fn dests(&self, service: &ServiceKey) -> Box<dyn Iterator<Item = Dest>> {
        let Some(entry) = self.table.entry(service) else { return Box::new(std::iter::empty()) };
        let row = registry_key(service).ok().and_then(|key| self.registry.find(key));
        let rows = row.into_iter().flat_map(|row| row.dests);
        let rows: HashMap<_, _> =
            rows.map(|row| (DestKey { address: row.dest.addr.into(), port: row.dest.port }, row)).collect();
        let listed = |dest: &DestEntry| {
            let row = rows.get(&dest.key);
            Dest {
                key: dest.key,
                options: dest.options,
                active: row.map_or(0, |row| row.active),
                inactive: row.map_or(0, |row| row.inactive),
                persistent: 0,
                stats: stats(&row.map(|row| row.stats).unwrap_or_default()),
            }
        };
        Box::new(entry.dests.iter().rev().map(listed).collect::<Vec<_>>().into_iter())
    }

    fn add_dest(&mut self, service: &ServiceKey, dest: DestKey, options: DestOptions) -> Result<(), Errno> {
        if self.table.sizes().1 >= self.valid.limits().destinations {
            return Err(Errno::NOMEM);
        }
        self.entry(service)?;
        let new = DestEntry { key: dest, options };
        self.perform(Op::Dest(*service, new), words_of::dest("-a", service, &dest, &options))?;
        self.warn_of_dest(service, &new);
        Ok(())
    }

    fn set_dest(&mut self, service: &ServiceKey, dest: &DestKey, options: DestOptions) -> Result<(), Errno> {
        self.entry(service)?.dest(dest).ok_or(Errno::NOENT)?;
        let new = DestEntry { key: *dest, options };
        self.perform(Op::Dest(*service, new), words_of::dest("-e", service, dest, &options))?;
        self.warn_of_dest(service, &new);
        Ok(())
    }

    fn remove_dest(&mut self, service: &ServiceKey, dest: &DestKey) -> Result<(), Errno> {
        self.entry(service)?.dest(dest).ok_or(Errno::NOENT)?;
        let words = format!("-d {} -r {dest}", words_of::service_name(service));
        self.perform(Op::NoDest(*service, *dest), words)
    }

    fn has_mixed_families(&self) -> bool {
        let mixed = |entry: &Entry| {
            let ipv4 = entry.key.family() == crate::ipvs::Family::V4;
            entry.dests.iter().any(|dest| dest.key.address.is_ipv4() != ipv4)
        };
        self.table.entries().any(mixed)
    }

    /// Not on trial: nothing of the table changes.
    fn zero(&mut self, service: Option<&ServiceKey>) {
        if self.trial {
            return;
        }
        match service.map(registry_key) {
            None => self.registry.zero(None),
            Some(Ok(key)) => self.registry.zero(Some(key)),
            Some(Err(_)) => {}
        }
        self.done.push(
            service.map_or_else(|| "-Z".to_owned(), |key| format!("-Z {}", words_of::service_name(key))),
        );
    }

    fn flush(&mut self) -> Result<(), Errno> {
        self.perform(Op::Clear, "-C".to_owned())
    }

    fn daemons(&self) -> Vec<Daemon> {
        self.table.daemons.clone()
    }

    fn start_daemon(&mut self, daemon: Daemon) -> Result<(), Errno> {
        let words = words_of::start_daemon(&daemon);
        if !self.trial {
            self.table.warn_once(Lack::SyncDaemon, || daemon.interface.clone());
        }
        let mut daemons = self.table.daemons.clone();
        daemons.push(daemon);
        daemons.sort_by_key(|daemon| daemon.state as u32);
        self.perform(Op::Daemons(daemons), words)
    }

    fn stop_daemon(&mut self, state: DaemonState) -> Result<(), Errno> {
        let mut daemons = self.table.daemons.clone();
        daemons.retain(|daemon| daemon.state != state);
        self.perform(Op::Daemons(daemons), words_of::stop_daemon(state))
    }

    fn timeouts(&self) -> Timeouts {
        let config::Timeouts { tcp, tcpfin, udp, .. } = self.table.timeouts;
        Timeouts { tcp, tcp_fin: tcpfin, udp }
    }

    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), Errno> {
        let words = words_of::timeouts(&timeouts);
        let Timeouts { tcp, tcp_fin, udp } = timeouts;
        let to = config::Timeouts { tcp, tcpfin: tcp_fin, udp, ..self.table.timeouts.clone() };
        self.perform(Op::Timeouts(seconds(&to)), words)
    }
}

impl Running<'_> {
    /// Gives a knob the value that a program wrote.
    ///
    /// # Errors
    /// The kernel's numbers: EINVAL, ERANGE, EOVERFLOW; or the store's.
    pub fn set_knob(&mut self, knob: Knob, text: &str, cpus: &Cpus) -> Result<(), Errno> {
        let mut new = self.table.tunables.clone();
        new.set(knob, text, cpus).map_err(|error| match error {
            KnobError::Unknown => Errno::NOENT,
            KnobError::Invalid => Errno::INVAL,
            KnobError::Range => Errno::RANGE,
            KnobError::Overflow => Errno::OVERFLOW,
        })?;
        let words = format!("sysctl {PREFIX}{}={}", knob.key.name, new.text(knob, cpus));
        self.perform(Op::Tunables(new.to_toml()), words)?;
        self.table.warn_of_knob(knob);
        Ok(())
    }

    fn warn_of(&mut self, service: &ServiceKey) {
        if !self.trial {
            self.table.warn_of(service);
        }
    }

    fn warn_of_dest(&mut self, service: &ServiceKey, dest: &DestEntry) {
        if let Some(lack) = dest.lack().filter(|_| !self.trial) {
            self.table.warn_once(lack, || format!("{} of {service}", dest.key));
        }
    }
}

/// What the last pass left, as the family has it.
pub fn stats(Snapshot { totals, rates, .. }: &Snapshot) -> Stats {
    Stats {
        conns: totals.conns,
        in_packets: totals.inpkts,
        out_packets: totals.outpkts,
        in_bytes: totals.inbytes,
        out_bytes: totals.outbytes,
        conns_per_second: rates.cps,
        in_packets_per_second: rates.inpps,
        out_packets_per_second: rates.outpps,
        in_bytes_per_second: rates.inbps,
        out_bytes_per_second: rates.outbps,
    }
}

/// MTU of an interface of the machine, bytes.
fn machine_mtu(name: &str) -> Option<u32> {
    if name.is_empty() || name.starts_with('.') || name.contains('/') {
        return None;
    }
    fs::read_to_string(format!("/sys/class/net/{name}/mtu")).ok()?.trim().parse().ok()
}

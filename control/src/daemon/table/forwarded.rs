//! What of the family's objects this version forwards, and as what; why it does not forward the others.

use std::fmt;
use std::net::IpAddr;

use config::{Destination, Method, Proto, Scheduler, ServiceFlags};

use super::{DestEntry, Entry};
use crate::ipvs::{self, DestKey, DestOptions, ServiceKey, ServiceOptions, flag};

/// Why an object is stored and not forwarded. Printed: what it is that this version does not do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lack {
    /// An IPv6 address.
    Ipv6,
    /// Services by firewall mark.
    Mark,
    /// Neither TCP nor UDP.
    Protocol,
    /// L4 port 0.
    EveryPort,
    /// Persistence.
    Persistence,
    /// One-packet scheduling.
    OnePacket,
    /// A scheduler that picks nothing yet.
    Scheduler,
    /// A forwarding method other than NAT and direct routing.
    Method,
    /// The sync daemon.
    SyncDaemon,
}

impl fmt::Display for Lack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Lack::Ipv6 => "IPv6",
            Lack::Mark => "services by firewall mark",
            Lack::Protocol => "protocols other than TCP and UDP",
            Lack::EveryPort => "services for every port",
            Lack::Persistence => "persistence",
            Lack::OnePacket => "one-packet scheduling",
            Lack::Scheduler => "schedulers other than rr, wrr, lc and wlc",
            Lack::Method => "forwarding methods other than NAT and direct routing",
            Lack::SyncDaemon => "the sync daemon",
        })
    }
}

impl Entry {
    /// The registry's name of the service.
    ///
    /// # Errors
    /// It cannot be there.
    pub fn registry_key(&self) -> Result<config::ServiceKey, Lack> {
        registry_key(&self.key)
    }

    /// Whether the registry has it. With a scheduler that picks nothing yet it is there, and sends nothing.
    pub fn is_forwarded(&self) -> bool {
        self.lack().is_none_or(|lack| lack == Lack::Scheduler)
    }

    /// Why it is not forwarded; its destinations are not looked at.
    pub fn lack(&self) -> Option<Lack> {
        let flags = self.options.flags;
        match self.registry_key() {
            Err(lack) => Some(lack),
            Ok(_) if flags & flag::PERSISTENT != 0 => Some(Lack::Persistence),
            Ok(_) if flags & flag::ONE_PACKET != 0 => Some(Lack::OnePacket),
            Ok(_) if !self.scheduler().is_built() => Some(Lack::Scheduler),
            Ok(_) => None,
        }
    }

    /// Its scheduler; the server has checked the name.
    pub(super) fn scheduler(&self) -> Scheduler {
        Scheduler::from_name(&self.options.scheduler).unwrap_or(Scheduler::None)
    }

    pub(super) fn scheduler_flags(&self) -> ServiceFlags {
        let known = [ServiceFlags::SCHED_1, ServiceFlags::SCHED_2, ServiceFlags::SCHED_3];
        let set = known.into_iter().filter(|bit| self.options.flags & bit.bits() != 0);
        set.fold(ServiceFlags::default(), ServiceFlags::union)
    }
}

impl DestEntry {
    /// The destination as the registry has it, in a service that is there.
    ///
    /// # Errors
    /// It cannot be there.
    pub fn destination(&self) -> Result<Destination, Lack> {
        let method = match self.options.method {
            _ if self.key.address.is_ipv6() => return Err(Lack::Ipv6),
            ipvs::Method::MASQUERADE => Method::Nat,
            ipvs::Method::DIRECT_ROUTE => Method::Dr,
            _ => return Err(Lack::Method),
        };
        Ok(Destination {
            key: config::DestKey::new(self.key.address, self.key.port),
            method,
            weight: self.options.weight.unsigned_abs(),
            upper: self.options.upper,
            lower: self.options.lower,
        })
    }

    /// Why it is not forwarded.
    pub fn lack(&self) -> Option<Lack> {
        self.destination().err()
    }
}

/// The registry's name of a service.
///
/// # Errors
/// It cannot be there.
pub(super) fn registry_key(key: &ServiceKey) -> Result<config::ServiceKey, Lack> {
    match *key {
        ServiceKey::Mark { .. } => Err(Lack::Mark),
        ServiceKey::Address { address: IpAddr::V6(_), .. } => Err(Lack::Ipv6),
        ServiceKey::Address { port: 0, .. } => Err(Lack::EveryPort),
        ServiceKey::Address { protocol, address, port } => {
            let known = [Proto::Tcp, Proto::Udp].into_iter();
            let proto = known.into_iter().find(|proto| u16::from(proto.number()) == protocol);
            Ok(config::ServiceKey::new(proto.ok_or(Lack::Protocol)?, address, port))
        }
    }
}

/// The family's name of a service of the file.
pub(super) fn service_key(key: config::ServiceKey) -> ServiceKey {
    ServiceKey::Address { protocol: key.proto.number().into(), address: key.addr, port: key.port }
}

/// The family's name of a destination of the file.
pub(super) fn dest_key(key: config::DestKey) -> DestKey {
    DestKey { address: key.addr, port: key.port }
}

/// The family's options of a service of the file.
pub(super) fn service_options(key: &ServiceKey, settings: &config::ServiceSettings) -> ServiceOptions {
    ServiceOptions {
        scheduler: settings.scheduler.name().to_owned(),
        engine: None,
        flags: settings.flags.bits(),
        timeout_seconds: 0,
        netmask: key.family().full_netmask(),
    }
}

/// The family's form of a destination of the file.
pub(super) fn dest_entry(dest: &Destination) -> DestEntry {
    let options = DestOptions {
        method: method(dest.method),
        weight: i32::try_from(dest.weight).unwrap_or(i32::MAX),
        upper: dest.upper,
        lower: dest.lower,
        tunnel: ipvs::Tunnel::default(),
    };
    DestEntry { key: dest_key(dest.key), options }
}

/// The family's number of a method of the file.
pub(super) fn method(method: Method) -> ipvs::Method {
    match method {
        Method::Dr => ipvs::Method::DIRECT_ROUTE,
        // NAT; the file knows no third.
        _ => ipvs::Method::MASQUERADE,
    }
}

//! A configuration as accepted: every default filled in, every rule checked.
//!
//! Model: [`Valid`] is made by [`crate::parse()`] only and never changes afterwards; its parts are plain values
//! that can be copied out of it. The control thread owns it, reads it at start, and hands parts of it to the
//! data plane inside [`crate::Change`]s. What is written in several ways in a file has one form here, so two
//! configurations that mean the same compare equal.

mod settings;

use std::net::IpAddr;

use ipnet::IpNet;

use crate::types::{DestKey, Mac, Method, Scheduler, ServiceFlags, ServiceKey};

pub use settings::*;

/// An accepted configuration. Made by [`crate::parse()`] or [`Valid::empty`].
#[derive(Clone, Debug, PartialEq)]
pub struct Valid {
    pub(crate) boot: Boot,
    pub(crate) network: Network,
    pub(crate) policy: Policy,
    pub(crate) timeouts: Timeouts,
    pub(crate) knobs: Knobs,
    pub(crate) estimators: Estimators,
    pub(crate) services: Vec<Service>,
    /// Whether it stands for a daemon that has not started.
    pub(crate) blank: bool,
}

impl Valid {
    /// Settings that only a restart can change.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// `[daemon]`.
    pub fn daemon(&self) -> &Daemon {
        &self.boot.daemon
    }

    /// `[eal]`.
    pub fn eal(&self) -> &Eal {
        &self.boot.eal
    }

    /// `[[port]]`, the part fixed at start, in file order; a port's index is its position here.
    pub fn ports(&self) -> &[Port] {
        &self.boot.ports
    }

    /// `[workers]`.
    pub fn workers(&self) -> &Workers {
        &self.boot.workers
    }

    /// `[connections]`.
    pub fn connections(&self) -> &Connections {
        &self.boot.connections
    }

    /// `[limits]`.
    pub fn limits(&self) -> &Limits {
        &self.boot.limits
    }

    /// Addresses, routes and static neighbours: what can change while running.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// `[policy]`: what happens to packets that belong to no connection or service.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// `[timeouts]`.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// `[sysctl]`.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// `[estimators]`.
    pub fn estimators(&self) -> &Estimators {
        &self.estimators
    }

    /// `[[service]]`, in file order.
    pub fn services(&self) -> &[Service] {
        &self.services
    }
}

/// Everything that is fixed when the daemon starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Boot {
    /// `[daemon]`.
    pub daemon: Daemon,
    /// `[eal]`.
    pub eal: Eal,
    /// `[[port]]`: devices, in file order.
    pub ports: Vec<Port>,
    /// `[workers]`.
    pub workers: Workers,
    /// `[connections]`.
    pub connections: Connections,
    /// `[limits]`.
    pub limits: Limits,
}

/// One `[[port]]`: the device part.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Our name for it: 1..=32 of letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// PCI address (`0000:3b:00.0`) or virtual device (`net_af_packet0,iface=veth0`).
    pub device: String,
    /// Largest IP packet, bytes; Ethernet header and VLAN tag not counted.
    pub mtu: u16,
    /// MAC address to set instead of the device's own.
    pub mac: Option<Mac>,
    /// Whether the device also receives frames for other MAC addresses.
    pub promiscuous: bool,
}

/// What can change on the network side while running.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Addresses of each port, by port index.
    pub ports: Vec<PortAddresses>,
    /// `[[route]]`, in file order.
    pub routes: Vec<Route>,
    /// `[[neighbour]]`, in file order.
    pub neighbours: Vec<Neighbour>,
}

/// Addresses of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortAddresses {
    /// Name of the port.
    pub name: String,
    /// Own addresses with the prefix that is on-link there.
    pub addresses: Vec<IpNet>,
    /// Default gateways, on-link at this port, the preferred one first.
    pub gateways: Vec<IpAddr>,
}

/// One `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Destinations it covers; host bits are zero.
    pub prefix: IpNet,
    /// Where they are.
    pub via: Via,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// A router, on-link at the port of that index.
    Gateway {
        /// Address of the router.
        address: IpAddr,
        /// Index of the port it is on.
        port: usize,
    },
    /// On-link at the port of that index.
    Port(usize),
}

/// One `[[neighbour]]`: an address whose MAC is given, not resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Address, on-link at the port.
    pub address: IpAddr,
    /// Its MAC address, unicast.
    pub mac: Mac,
    /// Index of the port it is on.
    pub port: usize,
}

/// One `[[service]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// What can be edited.
    pub settings: ServiceSettings,
    /// Destinations, in file order, each identity once.
    pub destinations: Vec<Destination>,
}

/// What can be edited of a service without touching its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Flag bits.
    pub flags: ServiceFlags,
    /// Whether we answer ARP for the service address and announce it. One for all services of an address.
    pub announce: bool,
    /// Answer to packets for this service that no connection takes.
    pub unmatched: Unmatched,
}

/// One `[[service.destination]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Identity inside the service.
    pub key: DestKey,
    /// Forwarding method of new connections.
    pub method: Method,
    /// Share of new connections, 0..=2^31-1; 0: no new ones.
    pub weight: u32,
    /// Connections at which it is overloaded; 0: never.
    pub upper: u32,
    /// Connections under which it is not overloaded any more; 0: three quarters of `upper`.
    pub lower: u32,
}

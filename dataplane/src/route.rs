//! Ports, our own addresses and routes: the network side of a snapshot. Longest-prefix match is a crate's.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use config::{Network, Via};
use foldhash::fast::FixedState;
use ipnet::{IpNet, Ipv4Net};
use prefix_trie::PrefixMap;

use crate::io::PortIndex;

/// What a started port is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PortFacts {
    /// Its MAC address.
    pub mac: [u8; 6],
    /// Longest IPv4 packet it sends, bytes.
    pub mtu: u16,
}

/// One port with its addresses.
#[derive(Clone, Debug)]
pub struct NetPort {
    /// MAC address and MTU.
    pub facts: PortFacts,
    /// Own addresses with their on-link prefixes, the first one preferred.
    pub addresses: Vec<Ipv4Net>,
}

/// Where a packet goes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NextHop {
    /// Port it leaves on.
    pub port: PortIndex,
    /// Whose MAC address it is sent to: a router, or the destination itself.
    pub addr: Ipv4Addr,
}

/// Ports, addresses and routes.
#[derive(Clone, Debug)]
pub struct Net {
    /// Rises with each change; connections that cached a next hop of another generation look it up again.
    pub generation: u16,
    /// Ports by index.
    pub ports: Vec<NetPort>,
    /// Routers to resolve at start.
    pub gateways: Vec<NextHop>,
    local: HashMap<Ipv4Addr, PortIndex, FixedState>,
    routes: PrefixMap<Ipv4Net, Option<NextHop>>,
    on_link: PrefixMap<Ipv4Net, PortIndex>,
}

impl Net {
    /// Of `network` over ports that turned out to be `facts`. Control.
    pub fn new(network: &Network, facts: &[PortFacts], generation: u16) -> Self {
        let mut net = Self {
            generation,
            ports: Vec::new(),
            gateways: Vec::new(),
            local: HashMap::default(),
            routes: PrefixMap::new(),
            on_link: PrefixMap::new(),
        };
        for (index, (port, facts)) in network.ports.iter().zip(facts).enumerate() {
            net.add_port(index as PortIndex, &port.addresses, *facts);
        }
        for (index, port) in network.ports.iter().enumerate() {
            for gateway in port.gateways.iter().filter_map(ipv4) {
                let hop = NextHop { port: index as PortIndex, addr: gateway };
                net.routes.entry(Ipv4Net::default()).or_insert(Some(hop));
                net.gateways.push(hop);
            }
        }
        for route in &network.routes {
            let IpNet::V4(prefix) = route.prefix else { continue };
            match route.via {
                Via::Gateway { address: IpAddr::V4(addr), port } => {
                    let hop = NextHop { port: port as PortIndex, addr };
                    net.routes.insert(prefix, Some(hop));
                    net.gateways.push(hop);
                }
                Via::Port(port) => {
                    net.routes.insert(prefix, None);
                    net.on_link.insert(prefix, port as PortIndex);
                }
                _ => {}
            }
        }
        net
    }

    fn add_port(&mut self, index: PortIndex, addresses: &[IpNet], facts: PortFacts) {
        let addresses: Vec<Ipv4Net> = addresses
            .iter()
            .filter_map(|a| match a {
                IpNet::V4(net) => Some(*net),
                IpNet::V6(_) => None,
            })
            .collect();
        for net in &addresses {
            self.local.insert(net.addr(), index);
            self.routes.insert(net.trunc(), None);
            self.on_link.insert(net.trunc(), index);
        }
        self.ports.push(NetPort { facts, addresses });
    }

    /// The next hop towards `to`, by longest prefix. Slow path: connections cache the result.
    pub fn route(&self, to: Ipv4Addr) -> Option<NextHop> {
        let (_, hop) = self.routes.get_lpm(&host(to))?;
        match hop {
            Some(hop) => Some(*hop),
            None => self.route_on_link(to),
        }
    }

    /// `to` itself as the next hop, where it is on-link: direct routing never goes through a router.
    pub fn route_on_link(&self, to: Ipv4Addr) -> Option<NextHop> {
        let (_, port) = self.on_link.get_lpm(&host(to))?;
        Some(NextHop { port: *port, addr: to })
    }

    /// The port that has `addr` as its own address.
    pub fn local(&self, addr: Ipv4Addr) -> Option<PortIndex> {
        self.local.get(&addr).copied()
    }

    /// Every address of a port's own, in no particular order.
    pub(crate) fn own(&self) -> impl Iterator<Item = Ipv4Addr> {
        self.local.keys().copied()
    }

    /// Our address to speak from on `port`, best towards `to`: the one whose prefix holds it, else the first.
    pub fn source(&self, port: PortIndex, to: Ipv4Addr) -> Option<Ipv4Addr> {
        let addresses = &self.ports.get(usize::from(port))?.addresses;
        let near = addresses.iter().find(|net| net.contains(&to));
        near.or(addresses.first()).map(Ipv4Net::addr)
    }
}

fn host(addr: Ipv4Addr) -> Ipv4Net {
    Ipv4Net::from(addr)
}

fn ipv4(addr: &IpAddr) -> Option<Ipv4Addr> {
    match addr {
        IpAddr::V4(addr) => Some(*addr),
        IpAddr::V6(_) => None,
    }
}

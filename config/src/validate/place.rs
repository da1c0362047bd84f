//! Where the ports and routes of a file put an address.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};

use ipnet::IpNet;

/// Where addresses are, as far as the file says.
#[derive(Default)]
pub(super) struct Place {
    /// Next hop by prefix.
    pub(super) hops: HashMap<IpNet, Hop>,
    /// Prefix lengths that occur, longest first.
    lengths: Vec<u8>,
    /// Our own addresses, and the port each is on.
    pub(super) own: HashMap<IpAddr, usize>,
    /// Gateways, and the port each is on.
    pub(super) gateways: HashMap<IpAddr, usize>,
    /// Networks of port addresses.
    pub(super) nets: Vec<IpNet>,
    /// Names of the ports.
    pub(super) names: Vec<String>,
    /// Whether a port or route was refused: then nothing can be said of what is not found.
    pub(super) partial: bool,
}

/// Where packets to an address go.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Hop {
    /// To the address itself, on the wire of that port.
    OnLink(usize),
    /// To a router.
    Gateway(IpAddr),
}

impl Place {
    /// Next hop of an address by the longest prefix.
    pub(super) fn hop(&self, address: IpAddr) -> Option<Hop> {
        self.lengths.iter().find_map(|length| {
            let prefix = IpNet::new(address, *length).ok()?.trunc();
            self.hops.get(&prefix).copied()
        })
    }

    /// Name of the port that has this address.
    pub(super) fn own(&self, address: IpAddr) -> Option<&str> {
        self.own.get(&address).map(|port| self.names[*port].as_str())
    }

    /// Name of the port that has this gateway.
    pub(super) fn gateway(&self, address: IpAddr) -> Option<&str> {
        self.gateways.get(&address).map(|port| self.names[*port].as_str())
    }

    /// Why the address cannot be a host's on the networks of the ports.
    pub(super) fn not_a_host_here(&self, address: IpAddr) -> Option<String> {
        self.nets.iter().find_map(|net| edge_of(*net, address))
    }

    /// Prefixes on the wire of a port, or of any: some of them, for messages.
    pub(super) fn on_link(&self, port: Option<usize>) -> String {
        const SHOWN: usize = 8;
        let on_link = |hop: &Hop| matches!(hop, Hop::OnLink(on) if port.is_none_or(|port| port == *on));
        let mut nets: Vec<_> =
            self.hops.iter().filter(|(_, hop)| on_link(hop)).map(|(net, _)| *net).collect();
        nets.sort();
        let more = if nets.len() > SHOWN { ", ..." } else { "" };
        let nets: Vec<_> = nets.iter().take(SHOWN).map(IpNet::to_string).collect();
        nets.join(", ") + more
    }

    pub(super) fn insert(&mut self, prefix: IpNet, hop: Hop) {
        self.hops.insert(prefix, hop);
        if let Err(at) = self.lengths.binary_search_by(|length| prefix.prefix_len().cmp(length)) {
            self.lengths.insert(at, prefix.prefix_len());
        }
    }
}

/// Whether `address` is the first or last of `net`, which name the network and its broadcast (RFC 1122);
/// networks of one or two addresses have neither (RFC 3021).
pub(super) fn edge_of(net: IpNet, address: IpAddr) -> Option<String> {
    let IpNet::V4(v4) = net else { return None };
    if v4.prefix_len() >= 31 {
        return None;
    }
    if address == IpAddr::V4(v4.network()) {
        Some(format!("is the network {} itself, not a host in it", net.trunc()))
    } else if address == IpAddr::V4(v4.broadcast()) {
        Some(format!("is the broadcast address of {}, not a host in it", net.trunc()))
    } else {
        None
    }
}

/// Why an address is no single host's, if it is not (RFC 1122 section 3.2.1.3, RFC 5771).
pub(super) fn not_a_host(address: IpAddr) -> Option<&'static str> {
    match address {
        IpAddr::V4(v4) if v4.octets()[0] == 0 => Some("is an address of \"this network\", not of a host"),
        IpAddr::V4(v4) if v4.is_loopback() => Some("is a loopback address, which never leaves a host"),
        IpAddr::V4(v4) if v4.is_multicast() => Some("is a multicast address, not one host's"),
        IpAddr::V4(Ipv4Addr::BROADCAST) => Some("is the broadcast address, not one host's"),
        IpAddr::V6(v6) if v6.is_unspecified() || v6.is_loopback() || v6.is_multicast() => {
            Some("is not the address of one host")
        }
        _ => None,
    }
}

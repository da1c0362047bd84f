//! Texts that name addresses: of hosts, networks, services and destinations.

use std::net::{IpAddr, SocketAddr};

use ipnet::IpNet;

use super::{At, nearest, quoted};
use crate::save::service_url;
use crate::types::{Proto, ServiceKey};

impl At<'_> {
    pub(super) fn address(&mut self, text: &str) -> Option<IpAddr> {
        match text.parse() {
            Ok(IpAddr::V6(_)) => self.later("IPv6"),
            Ok(address) => Some(address),
            Err(_) => self.refuse(format!("{} is not an address", quoted(text)), address_help(text)),
        }
    }

    pub(super) fn interface(&mut self, text: &str) -> Option<IpNet> {
        match text.parse::<IpNet>() {
            Ok(IpNet::V6(_)) => self.later("IPv6"),
            Ok(net) => Some(net),
            Err(_) if text.parse::<IpAddr>().is_ok() => self.refuse(
                format!("{} has no prefix length", quoted(text)),
                Some(format!("add the length of its network, like \"{text}/24\"")),
            ),
            Err(_) => self.refuse(format!("{} is not an address with prefix length", quoted(text)), None),
        }
    }

    pub(super) fn prefix(&mut self, text: &str) -> Option<IpNet> {
        match text.parse::<IpNet>() {
            Ok(IpNet::V6(_)) => self.later("IPv6"),
            Ok(net) if net.trunc() == net => Some(net),
            Ok(net) => self.refuse(
                format!("{} has bits set beyond its length", quoted(text)),
                Some(format!("did you mean \"{}\"?", net.trunc())),
            ),
            Err(_) if text.parse::<IpAddr>().is_ok() => self.refuse(
                format!("{} has no prefix length", quoted(text)),
                Some(format!("for the one address write \"{text}/32\"")),
            ),
            Err(_) => self.refuse(format!("{} is not a prefix", quoted(text)), None),
        }
    }

    pub(super) fn service(&mut self, text: &str) -> Option<ServiceKey> {
        if text.starts_with("sctp:") {
            return self.later("SCTP");
        }
        if text.starts_with("fwmark:") || text.starts_with("fwmark6:") {
            return self.later("a service by firewall mark");
        }
        let Some((scheme, rest)) = text.split_once("://") else {
            let help = match (text.parse::<ServiceKey>(), text.parse::<SocketAddr>()) {
                (Ok(key), _) => Some(format!("write \"{}\"", service_url(&key))),
                (_, Ok(socket)) => {
                    Some(format!("say the protocol: \"tcp://{socket}\" or \"udp://{socket}\""))
                }
                _ => None,
            };
            return self.refuse(format!("{} is not a service", quoted(text)), help);
        };
        let Some(proto) = Proto::from_name(scheme) else {
            let help =
                nearest(scheme, ["tcp", "udp"]).map(|near| format!("did you mean \"{near}://{rest}\"?"));
            return self.refuse(format!("unknown protocol {}", quoted(scheme)), help);
        };
        match rest.parse::<SocketAddr>() {
            Ok(SocketAddr::V6(_)) => self.later("IPv6"),
            Ok(socket) if socket.port() == 0 => self.refuse(
                "port 0, for all ports, needs persistence, which is not supported yet by this version",
                None,
            ),
            Ok(socket) => Some(ServiceKey::new(proto, socket.ip(), socket.port())),
            Err(_) if rest.parse::<IpAddr>().is_ok() => self
                .refuse(format!("{} has no port", quoted(text)), Some(format!("add it, like \"{text}:80\""))),
            Err(_) => self.refuse(format!("{} is not an address and port", quoted(rest)), address_help(rest)),
        }
    }

    pub(super) fn destination(&mut self, text: &str) -> Option<(IpAddr, Option<u16>)> {
        match (text.parse::<SocketAddr>(), text.parse::<IpAddr>()) {
            (Ok(SocketAddr::V6(_)), _) | (_, Ok(IpAddr::V6(_))) => self.later("IPv6"),
            (Ok(socket), _) if socket.port() == 0 => self.refuse(
                "port 0 is no port",
                Some(format!("for the service's port write \"{}\"", socket.ip())),
            ),
            (Ok(socket), _) => Some((socket.ip(), Some(socket.port()))),
            (_, Ok(address)) => Some((address, None)),
            _ => self.refuse(format!("{} is not an address and port", quoted(text)), address_help(text)),
        }
    }
}

fn address_help(text: &str) -> Option<String> {
    let looks_like_a_name = text.bytes().any(|b| b.is_ascii_alphabetic()) && !text.contains("::");
    looks_like_a_name.then(|| "names are not looked up; write the address".to_string())
}

//! Names of hosts and services.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, ToSocketAddrs};
use std::sync::LazyLock;

/// Where names come from.
pub trait Names {
    /// First IPv4 address of a host.
    fn address_of(&self, host: &str) -> Option<Ipv4Addr>;

    /// Name of a host.
    fn host_of(&self, address: IpAddr) -> Option<String>;

    /// L4 port of a service of this IP protocol.
    fn port_of(&self, service: &str, protocol: u16) -> Option<u16>;

    /// Name of the service of this IP protocol on an L4 port.
    fn service_of(&self, port: u16, protocol: u16) -> Option<String>;
}

/// The system's resolver, and its list of services.
#[derive(Debug, Default)]
pub struct SystemNames;

/// File that lists services: name, `PORT/PROTOCOL`, other names.
const SERVICES_FILE: &str = "/etc/services";

static SERVICES: LazyLock<Services> =
    LazyLock::new(|| Services::read(&std::fs::read_to_string(SERVICES_FILE).unwrap_or_default()));

impl Names for SystemNames {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        let addresses = (host, 0).to_socket_addrs().ok()?;
        addresses.into_iter().find_map(|address| match address.ip() {
            IpAddr::V4(v4) => Some(v4),
            IpAddr::V6(_) => None,
        })
    }

    fn host_of(&self, address: IpAddr) -> Option<String> {
        dns_lookup::lookup_addr(&address).ok()
    }

    fn port_of(&self, service: &str, protocol: u16) -> Option<u16> {
        SERVICES.ports.get(&(service.to_owned(), protocol)).copied()
    }

    fn service_of(&self, port: u16, protocol: u16) -> Option<String> {
        SERVICES.names.get(&(port, protocol)).cloned()
    }
}

#[derive(Debug, Default)]
struct Services {
    ports: HashMap<(String, u16), u16>,
    names: HashMap<(u16, u16), String>,
}

impl Services {
    fn read(text: &str) -> Services {
        let mut services = Services::default();
        for line in text.lines() {
            let mut words = line.split('#').next().unwrap_or_default().split_whitespace();
            let (Some(name), Some((port, protocol))) =
                (words.next(), words.next().and_then(|w| w.split_once('/')))
            else {
                continue;
            };
            let (Ok(port), Some(protocol)) = (port.parse(), protocol_number(protocol)) else { continue };
            services.names.entry((port, protocol)).or_insert_with(|| name.to_owned());
            for name in std::iter::once(name).chain(words) {
                services.ports.entry((name.to_owned(), protocol)).or_insert(port);
            }
        }
        services
    }
}

fn protocol_number(name: &str) -> Option<u16> {
    match name {
        "tcp" => Some(6),
        "udp" => Some(17),
        "sctp" => Some(132),
        _ => None,
    }
}

#[cfg(test)]
pub(super) mod tests {
    use super::*;

    /// One host and one service.
    pub struct TestNames;

    impl Names for TestNames {
        fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
            (host == "localhost").then_some(Ipv4Addr::LOCALHOST)
        }

        fn host_of(&self, address: IpAddr) -> Option<String> {
            (address == Ipv4Addr::LOCALHOST).then(|| "localhost".to_owned())
        }

        fn port_of(&self, service: &str, protocol: u16) -> Option<u16> {
            (service == "http" && protocol == 6).then_some(80)
        }

        fn service_of(&self, port: u16, protocol: u16) -> Option<String> {
            (port == 80 && protocol == 6).then(|| "http".to_owned())
        }
    }

    #[test]
    fn the_list_of_services_is_read() {
        let services = Services::read(
            "# comment\n\nhttp\t80/tcp\twww # web\nhttp 80/udp\nwww2 80/tcp\nbad x/tcp\nodd 1/ddp\n",
        );
        assert_eq!(services.names.get(&(80, 6)).map(String::as_str), Some("http"));
        assert_eq!(services.ports.get(&("www".to_owned(), 6)), Some(&80));
        assert_eq!(services.ports.get(&("www2".to_owned(), 6)), Some(&80));
        assert_eq!(services.ports.get(&("www".to_owned(), 17)), None);
        assert_eq!(services.names.len(), 2);
    }
}

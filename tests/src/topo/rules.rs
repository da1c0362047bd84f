//! The rules file of a test: ports, hosts on their wires, services and knobs, as values that can be changed and
//! written again. Only what differs from a default is written.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::packets::{self, Mac};

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Proto {
    Tcp,
    Udp,
}

/// Forwarding method of a server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Method {
    Nat,
    Dr,
}

/// A whole rules file.
#[derive(Clone, Debug)]
pub struct Rules {
    /// Ports, by index.
    pub ports: Vec<Port>,
    /// Hosts whose MAC address is written down: port, address, MAC.
    pub neighbours: Vec<(usize, Ipv4Addr, Mac)>,
    /// Knobs that are not at their defaults.
    pub sysctl: Vec<(&'static str, i64)>,
    /// Any further lines, before the services: whole tables.
    pub extra: String,
    /// Services, in file order.
    pub services: Vec<Service>,
}

/// One port.
#[derive(Clone, Debug)]
pub struct Port {
    /// Its MAC address.
    pub mac: Mac,
    /// Own address and prefix length, `10.0.0.254/24` for instance.
    pub address: String,
    /// Default gateway.
    pub gateway: Option<Ipv4Addr>,
    /// Longest IPv4 packet, bytes.
    pub mtu: u16,
}

/// One service.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the configuration's")]
pub struct Service {
    pub proto: Proto,
    pub address: Ipv4Addr,
    pub port: u16,
    pub scheduler: String,
    pub announce: bool,
    pub servers: Vec<Server>,
}

/// One destination.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the configuration's")]
pub struct Server {
    pub address: Ipv4Addr,
    pub port: u16,
    pub method: Method,
    pub weight: u32,
    pub upper: u32,
    pub lower: u32,
}

impl Rules {
    /// The test network of [`crate::packets`], every host's MAC address known, without services.
    pub fn test_network() -> Self {
        Self {
            ports: vec![
                Port {
                    mac: packets::P0_MAC,
                    address: format!("{}/24", packets::P0),
                    gateway: Some(packets::GATEWAY),
                    mtu: 1500,
                },
                Port {
                    mac: packets::P1_MAC,
                    address: format!("{}/24", packets::DIP),
                    gateway: None,
                    mtu: 1500,
                },
            ],
            neighbours: vec![
                (0, packets::GATEWAY, packets::GATEWAY_MAC),
                (1, packets::SERVER, packets::SERVER_MAC),
            ],
            sysctl: Vec::new(),
            extra: String::new(),
            services: Vec::new(),
        }
    }

    /// The network that exchanges with kernel IPVS were recorded in, without services.
    pub fn kernel_network() -> Self {
        let port = |number: u8, address: &str| Port {
            mac: [2, 0, 0, 0, number, 1],
            address: address.to_owned(),
            gateway: None,
            mtu: 1500,
        };
        Self {
            ports: vec![port(1, "10.1.0.1/16"), port(2, "10.2.0.1/24")],
            neighbours: vec![
                (0, Ipv4Addr::new(10, 1, 0, 2), [2, 0, 0, 0, 1, 2]),
                (1, Ipv4Addr::new(10, 2, 0, 11), [2, 0, 0, 0, 2, 0x0b]),
            ],
            ..Self::test_network()
        }
    }

    /// Same rules with one more service.
    pub fn service(mut self, service: Service) -> Self {
        self.services.push(service);
        self
    }

    /// The file.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        for (index, port) in self.ports.iter().enumerate() {
            let Port { mac, address, gateway, mtu } = port;
            let _ = write!(out, "[[port]]\nname = \"p{index}\"\ndevice = \"memory{index}\"\n");
            let _ = write!(out, "mac = \"{}\"\naddresses = [\"{address}\"]\nmtu = {mtu}\n", text(*mac));
            if let Some(gateway) = gateway {
                let _ = writeln!(out, "gateway = [\"{gateway}\"]");
            }
        }
        for (port, address, mac) in &self.neighbours {
            let mac = text(*mac);
            let _ =
                write!(out, "[[neighbour]]\naddress = \"{address}\"\nmac = \"{mac}\"\nport = \"p{port}\"\n");
        }
        out.push_str("[sysctl]\n");
        for (knob, value) in &self.sysctl {
            let _ = writeln!(out, "{knob} = {value}");
        }
        out.push_str(&self.extra);
        for service in &self.services {
            service.write(&mut out);
        }
        out
    }
}

impl Service {
    /// A service without servers.
    pub fn new(proto: Proto, address: Ipv4Addr, port: u16, scheduler: &str) -> Self {
        let scheduler = scheduler.to_owned();
        Self { proto, address, port, scheduler, announce: true, servers: Vec::new() }
    }

    /// Same service with one more server.
    pub fn server(mut self, server: Server) -> Self {
        self.servers.push(server);
        self
    }

    fn write(&self, out: &mut String) {
        let proto = match self.proto {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
        };
        let Self { address, port, scheduler, announce, .. } = self;
        let _ = write!(out, "[[service]]\naddress = \"{proto}://{address}:{port}\"\n");
        let _ = write!(out, "scheduler = \"{scheduler}\"\nannounce = {announce}\n");
        for Server { address, port, method, weight, upper, lower } in &self.servers {
            let method = match method {
                Method::Nat => "nat",
                Method::Dr => "dr",
            };
            let _ = write!(
                out,
                "[[service.destination]]\naddress = \"{address}:{port}\"\nmethod = \"{method}\"\n"
            );
            let _ = write!(out, "weight = {weight}\nupper = {upper}\nlower = {lower}\n");
        }
    }
}

impl Server {
    /// A server of weight 1 without thresholds.
    pub fn new(address: Ipv4Addr, port: u16, method: Method) -> Self {
        Self { address, port, method, weight: 1, upper: 0, lower: 0 }
    }
}

/// A MAC address as it is written.
fn text(mac: Mac) -> String {
    mac.map(|byte| format!("{byte:02x}")).join(":")
}

//! What the family talks about, as values: services, destinations, daemons, timeouts.
//!
//! Numbers are kept as the wire has them (protocols, flags, methods), since the kernel stores values it does
//! not know and reports them again. Addresses carry their family.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use rustix::io::Errno;
use serde::{Deserialize, Serialize};

/// L4 port of the sync messages (`IP_VS_SYNC_PORT`), when none is given.
pub const SYNC_PORT: u16 = 8848;

/// Bits of a service's flags (`IP_VS_SVC_F_*`).
pub mod flag {
    /// Connections of one client go to one destination.
    pub const PERSISTENT: u32 = 0x0001;
    /// State, not settable: the service is in the table. Always reported.
    pub const HASHED: u32 = 0x0002;
    /// Every packet is scheduled for itself.
    pub const ONE_PACKET: u32 = 0x0004;
    /// Scheduler flags 1, 2, 3; `sh` and `mh` call the first two fallback and port.
    pub const SCHEDULER: [u32; 3] = [0x0008, 0x0010, 0x0020];
}

/// Bits of a tunnel's flags (`IP_VS_TUNNEL_ENCAP_FLAG_*`).
pub mod tunnel_flag {
    /// Outer checksum.
    pub const CHECKSUM: u16 = 0x1;
    /// Remote checksum offload.
    pub const REMOTE_CHECKSUM: u16 = 0x2;
}

/// Tunnel types (`IP_VS_CONN_F_TUNNEL_TYPE_*`).
pub mod tunnel_type {
    /// IP in IP.
    pub const IPIP: u8 = 0;
    /// Generic UDP encapsulation.
    pub const GUE: u8 = 1;
    /// GRE.
    pub const GRE: u8 = 2;
}

/// Address family, by the socket interface's numbers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[repr(u16)]
pub enum Family {
    /// IPv4 (`AF_INET`).
    V4 = 2,
    /// IPv6 (`AF_INET6`).
    V6 = 10,
}

impl Family {
    /// The family of this number.
    ///
    /// # Errors
    /// EAFNOSUPPORT for any other.
    pub fn from_number(number: u16) -> Result<Family, Errno> {
        match number {
            2 => Ok(Family::V4),
            10 => Ok(Family::V6),
            _ => Err(Errno::AFNOSUPPORT),
        }
    }

    /// The family of an address.
    pub fn of(address: IpAddr) -> Family {
        if address.is_ipv4() { Family::V4 } else { Family::V6 }
    }

    /// The address of zeros.
    pub fn unspecified(self) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        }
    }

    /// The netmask of a single client: all ones, or a prefix of 128.
    pub fn full_netmask(self) -> u32 {
        match self {
            Family::V4 => u32::MAX,
            Family::V6 => 128,
        }
    }
}

/// Identity of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub enum ServiceKey {
    /// By protocol number, virtual address and L4 port.
    Address {
        /// IP protocol; the kernel takes any.
        protocol: u16,
        /// Virtual address.
        address: IpAddr,
        /// L4 port; 0 is every port, for persistent services.
        port: u16,
    },
    /// By firewall mark, not 0.
    Mark {
        /// Family of the packets.
        family: Family,
        /// The mark.
        mark: u32,
    },
}

impl ServiceKey {
    /// Family of the service's packets.
    pub fn family(&self) -> Family {
        match *self {
            ServiceKey::Address { address, .. } => Family::of(address),
            ServiceKey::Mark { family, .. } => family,
        }
    }

    /// Virtual address; none of a mark service.
    pub fn address(&self) -> Option<IpAddr> {
        match *self {
            ServiceKey::Address { address, .. } => Some(address),
            ServiceKey::Mark { .. } => None,
        }
    }

    /// Firewall mark; 0 of an address service.
    pub fn mark(&self) -> u32 {
        match *self {
            ServiceKey::Address { .. } => 0,
            ServiceKey::Mark { mark, .. } => mark,
        }
    }

    /// Protocol as the family reports it: none, 0, for a mark service.
    pub fn protocol(&self) -> u16 {
        match *self {
            ServiceKey::Address { protocol, .. } => protocol,
            ServiceKey::Mark { .. } => 0,
        }
    }

    /// Virtual L4 port; 0 of a mark service.
    pub fn port(&self) -> u16 {
        match *self {
            ServiceKey::Address { port, .. } => port,
            ServiceKey::Mark { .. } => 0,
        }
    }
}

/// One identity, one text: `tcp:192.0.2.1:80`, `47:192.0.2.1:0`, `fwmark:7`, `fwmark6:7`.
impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            ServiceKey::Mark { family: Family::V4, mark } => write!(f, "fwmark:{mark}"),
            ServiceKey::Mark { family: Family::V6, mark } => write!(f, "fwmark6:{mark}"),
            ServiceKey::Address { protocol, address, port } => {
                let address = SocketAddr::new(address, port);
                match protocol {
                    6 => write!(f, "tcp:{address}"),
                    17 => write!(f, "udp:{address}"),
                    132 => write!(f, "sctp:{address}"),
                    number => write!(f, "{number}:{address}"),
                }
            }
        }
    }
}

/// What can be set on a service.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServiceOptions {
    /// Scheduler's name; `none` has none.
    pub scheduler: String,
    /// Persistence engine's name.
    pub engine: Option<String>,
    /// Bits of [`flag`], without [`flag::HASHED`].
    pub flags: u32,
    /// Persistence timeout, seconds.
    pub timeout_seconds: u32,
    /// IPv4: mask of the client address, as [`Ipv4Addr::to_bits`] counts; IPv6: length of the prefix.
    pub netmask: u32,
}

/// A change of a service: options, of whose flags only those in `mask` count.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ServiceEdit {
    /// Wanted options.
    pub options: ServiceOptions,
    /// Which flags are set or cleared; the others stay.
    pub mask: u32,
}

impl ServiceEdit {
    /// The options of a service that had these flags.
    pub fn over(self, old_flags: u32) -> ServiceOptions {
        let flags = (old_flags & !self.mask) | (self.options.flags & self.mask);
        ServiceOptions { flags: flags & !flag::HASHED, ..self.options }
    }
}

/// A service as it is listed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// Options.
    pub options: ServiceOptions,
    /// Counters and rates.
    pub stats: Stats,
}

/// Identity of a destination inside its service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
pub struct DestKey {
    /// Address.
    pub address: IpAddr,
    /// L4 port.
    pub port: u16,
}

impl fmt::Display for DestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.address, self.port).fmt(f)
    }
}

/// Whether a destination may have this address, as far as its form tells: a packet can be sent to it.
pub fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] != 0 && !v4.is_multicast() && !v4.is_broadcast(),
        IpAddr::V6(v6) => {
            v6 != Ipv6Addr::UNSPECIFIED
                && !v6.is_multicast()
                && !v6.is_unicast_link_local()
                && v6.to_ipv4_mapped().is_none()
        }
    }
}

/// Forwarding method: the low three bits of the connection flags.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Method(pub u8);

impl Method {
    /// Addresses and ports are rewritten.
    pub const MASQUERADE: Method = Method(0);
    /// The packet is for this machine.
    pub const LOCAL: Method = Method(1);
    /// The packet is sent in a tunnel.
    pub const TUNNEL: Method = Method(2);
    /// Only the next hop is chosen.
    pub const DIRECT_ROUTE: Method = Method(3);

    /// The method in a number from the wire, other bits ignored.
    pub fn from_wire(number: u32) -> Method {
        Method((number & 7) as u8)
    }
}

/// Encapsulation of a tunnelled destination.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tunnel {
    /// One of [`tunnel_type`].
    pub kind: u8,
    /// UDP port of GUE.
    pub port: u16,
    /// Bits of [`tunnel_flag`].
    pub flags: u16,
}

/// What can be set on a destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DestOptions {
    /// Forwarding method.
    pub method: Method,
    /// Weight; 0: no new connections. Negative is refused by the server.
    pub weight: i32,
    /// Connections at which the destination is overloaded; 0: never.
    pub upper: u32,
    /// Connections under which it is not overloaded any more.
    pub lower: u32,
    /// Encapsulation.
    pub tunnel: Tunnel,
}

/// A destination as it is listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dest {
    /// Identity.
    pub key: DestKey,
    /// Options.
    pub options: DestOptions,
    /// Connections in an active state.
    pub active: u32,
    /// Connections in another state.
    pub inactive: u32,
    /// Persistence templates.
    pub persistent: u32,
    /// Counters and rates.
    pub stats: Stats,
}

/// Counters of an object since they were zeroed, and rates per second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Connections scheduled.
    pub conns: u64,
    /// Packets from clients.
    pub in_packets: u64,
    /// Packets to clients.
    pub out_packets: u64,
    /// Bytes from clients.
    pub in_bytes: u64,
    /// Bytes to clients.
    pub out_bytes: u64,
    /// Connections per second.
    pub conns_per_second: u64,
    /// Packets from clients per second.
    pub in_packets_per_second: u64,
    /// Packets to clients per second.
    pub out_packets_per_second: u64,
    /// Bytes from clients per second.
    pub in_bytes_per_second: u64,
    /// Bytes to clients per second.
    pub out_bytes_per_second: u64,
}

/// Connection timeouts, seconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Timeouts {
    /// TCP, ESTABLISHED.
    pub tcp: u32,
    /// TCP, FIN_WAIT.
    pub tcp_fin: u32,
    /// UDP.
    pub udp: u32,
}

impl Default for Timeouts {
    /// The kernel's: 15 min, 2 min, 5 min.
    fn default() -> Timeouts {
        Timeouts { tcp: 900, tcp_fin: 120, udp: 300 }
    }
}

/// Which of the two sync daemons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[repr(u32)]
pub enum DaemonState {
    /// Sends connections.
    Master = 1,
    /// Receives them.
    Backup = 2,
}

impl DaemonState {
    /// The word for it on a command line.
    pub const fn name(self) -> &'static str {
        match self {
            DaemonState::Master => "master",
            DaemonState::Backup => "backup",
        }
    }
}

/// A running sync daemon.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Daemon {
    /// Which.
    pub state: DaemonState,
    /// Interface of the multicast group.
    pub interface: String,
    /// Identity of the pair.
    pub sync_id: u32,
    /// Longest sync message, bytes, without IP and UDP headers.
    pub max_bytes: u16,
    /// Multicast group.
    pub group: IpAddr,
    /// L4 port.
    pub port: u16,
    /// TTL or hop limit.
    pub ttl: u8,
}

/// Facts of the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Info {
    /// Version of IPVS, one byte each for major, minor, patch.
    pub version: u32,
    /// Size of the connection table.
    pub table_size: u32,
}

impl Info {
    /// Version 1.2.1, which current kernels report.
    pub const VERSION: u32 = 0x01_02_01;
}

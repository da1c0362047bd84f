//! Names that every crate shares: what a service and a destination are called, and how they are written.
//!
//! Model: an object has one identity and the identity has one text. A service is `tcp:198.51.100.1:80`,
//! a destination is `10.0.0.11:8080` inside its service. The text is the same in logs, JSON, metrics,
//! arguments and errors, it parses back to the same value, and two objects never share one.
//! All values here are small, `Copy`, and free of I/O; any thread may use them.

use std::fmt;
use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use thiserror::Error;

use crate::words::words;

/// Transport protocol of a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Proto {
    /// TCP, IP protocol 6.
    Tcp,
    /// UDP, IP protocol 17.
    Udp,
}

impl Proto {
    /// Number in the IP header's protocol field (IANA protocol numbers).
    pub const fn number(self) -> u8 {
        match self {
            Proto::Tcp => 6,
            Proto::Udp => 17,
        }
    }

    /// Lower-case name, as in the identity text: `tcp`, `udp`.
    pub const fn name(self) -> &'static str {
        match self {
            Proto::Tcp => "tcp",
            Proto::Udp => "udp",
        }
    }

    /// The protocol of that lower-case name, if we balance it.
    pub fn from_name(name: &str) -> Option<Proto> {
        [Proto::Tcp, Proto::Udp].into_iter().find(|p| p.name() == name)
    }
}

impl fmt::Display for Proto {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Identity of a service: protocol, virtual address, L4 port. Text: `tcp:198.51.100.1:80`, `udp:[2001:db8::1]:53`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceKey {
    /// Transport protocol.
    pub proto: Proto,
    /// Virtual address (VIP).
    pub addr: IpAddr,
    /// L4 port, host byte order, 1..=65535 in an accepted configuration.
    pub port: u16,
}

impl ServiceKey {
    /// Service of the three parts.
    pub const fn new(proto: Proto, addr: IpAddr, port: u16) -> ServiceKey {
        ServiceKey { proto, addr, port }
    }
}

impl fmt::Display for ServiceKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.proto, SocketAddr::new(self.addr, self.port))
    }
}

impl FromStr for ServiceKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<ServiceKey, KeyError> {
        let (proto, rest) = text.split_once(':').ok_or(KeyError::NoProtocol)?;
        let proto = Proto::from_name(proto).ok_or(KeyError::UnknownProtocol)?;
        let DestKey { addr, port } = rest.parse()?;
        Ok(ServiceKey { proto, addr, port })
    }
}

/// Identity of a destination inside its service: address and L4 port. Text: `10.0.0.11:8080`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DestKey {
    /// Address of the real server.
    pub addr: IpAddr,
    /// L4 port of the real server, host byte order.
    pub port: u16,
}

impl DestKey {
    /// Destination of the two parts.
    pub const fn new(addr: IpAddr, port: u16) -> DestKey {
        DestKey { addr, port }
    }
}

impl fmt::Display for DestKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        SocketAddr::new(self.addr, self.port).fmt(f)
    }
}

impl FromStr for DestKey {
    type Err = KeyError;

    fn from_str(text: &str) -> Result<DestKey, KeyError> {
        let socket: SocketAddr = text.parse().map_err(|_| KeyError::BadAddress)?;
        // A scope (`fe80::1%2`) is no part of an identity: it would be lost when printed.
        if matches!(socket, SocketAddr::V6(v6) if v6.scope_id() != 0) {
            return Err(KeyError::BadAddress);
        }
        Ok(DestKey { addr: socket.ip(), port: socket.port() })
    }
}

/// Why a text names no service or destination.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum KeyError {
    /// No `tcp:` or `udp:` in front.
    #[error("no protocol in front, expected a text like tcp:198.51.100.1:80")]
    NoProtocol,
    /// The protocol is none we balance.
    #[error("unknown protocol, expected tcp or udp")]
    UnknownProtocol,
    /// What should be `ADDRESS:PORT` is not.
    #[error("not an address and port, expected a text like 198.51.100.1:80")]
    BadAddress,
}

words! {
    /// Forwarding method: how a packet reaches the destination.
    pub enum Method {
        /// Address and port rewritten, replies come back through us (IPVS "masquerading", 0).
        Nat = "nat",
        /// Only the frame's MAC changes; the server owns the VIP and answers the client itself (IPVS "direct routing", 3).
        Dr = "dr",
    }
}

/// Scheduler of a service, by the kernel's name.
///
/// All names are accepted; one that is not built (see [`Scheduler::is_built`]) picks no destination, so the
/// service behaves as if it had none, like `none` itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Scheduler {
    /// Round robin.
    Rr,
    /// Weighted round robin.
    Wrr,
    /// Least connections.
    Lc,
    /// Weighted least connections.
    Wlc,
    /// Locality-based least connections.
    Lblc,
    /// Locality-based least connections with replication.
    Lblcr,
    /// Destination hashing.
    Dh,
    /// Source hashing.
    Sh,
    /// Shortest expected delay.
    Sed,
    /// Never queue.
    Nq,
    /// Weighted failover.
    Fo,
    /// Weighted overflow.
    Ovf,
    /// Maglev hashing.
    Mh,
    /// Power of two choices.
    Twos,
    /// No scheduler: the service exists and sends nothing.
    None,
}

impl Scheduler {
    /// Every name, in ipvsadm's order, `none` last.
    pub const ALL: [Scheduler; 15] = [
        Scheduler::Rr,
        Scheduler::Wrr,
        Scheduler::Lc,
        Scheduler::Wlc,
        Scheduler::Lblc,
        Scheduler::Lblcr,
        Scheduler::Dh,
        Scheduler::Sh,
        Scheduler::Sed,
        Scheduler::Nq,
        Scheduler::Fo,
        Scheduler::Ovf,
        Scheduler::Mh,
        Scheduler::Twos,
        Scheduler::None,
    ];

    /// The kernel's name, e.g. `wlc`.
    pub const fn name(self) -> &'static str {
        match self {
            Scheduler::Rr => "rr",
            Scheduler::Wrr => "wrr",
            Scheduler::Lc => "lc",
            Scheduler::Wlc => "wlc",
            Scheduler::Lblc => "lblc",
            Scheduler::Lblcr => "lblcr",
            Scheduler::Dh => "dh",
            Scheduler::Sh => "sh",
            Scheduler::Sed => "sed",
            Scheduler::Nq => "nq",
            Scheduler::Fo => "fo",
            Scheduler::Ovf => "ovf",
            Scheduler::Mh => "mh",
            Scheduler::Twos => "twos",
            Scheduler::None => "none",
        }
    }

    /// The scheduler of that name.
    pub fn from_name(name: &str) -> Option<Scheduler> {
        Scheduler::ALL.into_iter().find(|s| s.name() == name)
    }

    /// Whether it does what its name says; `none` does.
    pub const fn is_built(self) -> bool {
        matches!(self, Scheduler::Rr | Scheduler::Wrr | Scheduler::Lc | Scheduler::Wlc | Scheduler::None)
    }
}

impl fmt::Display for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Flag bits of a service, in the kernel's encoding (`IP_VS_SVC_F_*`).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ServiceFlags(u32);

impl ServiceFlags {
    /// First scheduler flag: `sh-fallback`, `mh-fallback` (0x0008).
    pub const SCHED_1: ServiceFlags = ServiceFlags(0x0008);
    /// Second scheduler flag: `sh-port`, `mh-port` (0x0010).
    pub const SCHED_2: ServiceFlags = ServiceFlags(0x0010);
    /// Third scheduler flag, used by no scheduler (0x0020).
    pub const SCHED_3: ServiceFlags = ServiceFlags(0x0020);

    /// The bits as the kernel encodes them.
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Both sets together.
    pub const fn union(self, other: ServiceFlags) -> ServiceFlags {
        ServiceFlags(self.0 | other.0)
    }

    /// Whether every bit of `other` is set.
    pub const fn contains(self, other: ServiceFlags) -> bool {
        self.0 & other.0 == other.0
    }
}

/// Ethernet address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// Whether one interface can own it: neither group nor all zero (IEEE 802).
    pub const fn is_unicast(self) -> bool {
        self.0[0] & 1 == 0 && !matches!(self.0, [0, 0, 0, 0, 0, 0])
    }
}

impl fmt::Display for Mac {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let [a, b, c, d, e, g] = self.0;
        write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
    }
}

impl FromStr for Mac {
    type Err = MacError;

    fn from_str(text: &str) -> Result<Mac, MacError> {
        let mut bytes = [0; 6];
        let mut parts = text.split(':');
        for byte in &mut bytes {
            let part = parts.next().ok_or(MacError)?;
            if part.len() != 2 || !part.bytes().all(|b| b.is_ascii_hexdigit()) {
                return Err(MacError);
            }
            *byte = u8::from_str_radix(part, 16).map_err(|_| MacError)?;
        }
        if parts.next().is_some() { Err(MacError) } else { Ok(Mac(bytes)) }
    }
}

/// The text is not six pairs of hexadecimal digits joined by colons.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not a MAC address, expected a text like 02:00:00:00:00:01")]
pub struct MacError;

/// Scheduler flags by ipvsadm's names: bits, and the scheduler it belongs to (any for the numbered ones).
pub(crate) const FLAGS: [(&str, ServiceFlags, Option<Scheduler>); 7] = [
    ("sh-fallback", ServiceFlags::SCHED_1, Some(Scheduler::Sh)),
    ("sh-port", ServiceFlags::SCHED_2, Some(Scheduler::Sh)),
    ("mh-fallback", ServiceFlags::SCHED_1, Some(Scheduler::Mh)),
    ("mh-port", ServiceFlags::SCHED_2, Some(Scheduler::Mh)),
    ("flag-1", ServiceFlags::SCHED_1, None),
    ("flag-2", ServiceFlags::SCHED_2, None),
    ("flag-3", ServiceFlags::SCHED_3, None),
];

//! The DAEMON nest: start, stop, listing of sync daemons.

use std::net::{IpAddr, Ipv4Addr};

use rustix::io::Errno;

use super::attr::{Attr, Attrs, Policy, Shape};
use super::types::{Daemon, DaemonState, Family, SYNC_PORT};

mod number {
    pub const STATE: u16 = 1;
    pub const INTERFACE: u16 = 2;
    pub const SYNC_ID: u16 = 3;
    pub const MAX_BYTES: u16 = 4;
    pub const GROUP: u16 = 5;
    pub const GROUP6: u16 = 6;
    pub const PORT: u16 = 7;
    pub const TTL: u16 = 8;
}

/// Longest name of an interface (`IP_VS_IFNAME_MAXLEN` less the NUL).
pub const INTERFACE_NAME_MAX: usize = 15;
/// Multicast group when none is given.
const DEFAULT_GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 81);
/// Bytes of the IP and UDP headers before a sync message.
const HEADER_BYTES_V4: u32 = 28;
const HEADER_BYTES_V6: u32 = 48;
/// Packet size a sync message is made for, whatever the interface takes (Ethernet's).
const ETHERNET_MTU: u32 = 1500;
/// Shortest buffer of a backup, which must hold what any master sends.
const BACKUP_BYTES_MIN: u32 = 1024;
const PACKET_BYTES_MAX: u32 = 65535;

/// What each attribute may hold.
pub(super) const POLICY: Policy = &[
    (number::STATE, Shape::AtLeast(4)),
    (number::INTERFACE, Shape::Text(INTERFACE_NAME_MAX)),
    (number::SYNC_ID, Shape::AtLeast(4)),
    (number::MAX_BYTES, Shape::AtLeast(2)),
    (number::GROUP, Shape::AtLeast(4)),
    (number::GROUP6, Shape::AtLeast(16)),
    (number::PORT, Shape::AtLeast(2)),
    (number::TTL, Shape::AtLeast(1)),
];

/// A request to start a daemon: what is `None` is left to us.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DaemonRequest {
    /// Number of the state; the server refuses what is no [`DaemonState`].
    pub state: u32,
    /// Interface of the multicast group.
    pub interface: String,
    /// Identity of the pair.
    pub sync_id: u32,
    /// Longest sync message, bytes.
    pub max_bytes: Option<u16>,
    /// Multicast group.
    pub group: Option<IpAddr>,
    /// L4 port.
    pub port: Option<u16>,
    /// TTL or hop limit.
    pub ttl: Option<u8>,
}

impl DaemonRequest {
    /// A request with everything but the interface left to the server, for a state of no number yet.
    pub fn named(interface: &str) -> DaemonRequest {
        DaemonRequest {
            state: 0,
            interface: interface.to_owned(),
            sync_id: 0,
            max_bytes: None,
            group: None,
            port: None,
            ttl: None,
        }
    }

    /// The daemon on an interface with this MTU, in bytes; what was not given has the kernel's defaults.
    pub fn resolve(&self, state: DaemonState, mtu: u32) -> Daemon {
        let group = self.group.unwrap_or(DEFAULT_GROUP.into());
        let headers = if group.is_ipv4() { HEADER_BYTES_V4 } else { HEADER_BYTES_V6 };
        let longest = PACKET_BYTES_MAX - headers;
        let max_bytes = match (self.max_bytes, state) {
            (Some(wanted), DaemonState::Master) => u32::from(wanted).clamp(1, longest),
            (Some(wanted), DaemonState::Backup) => u32::from(wanted).clamp(BACKUP_BYTES_MIN, longest),
            (None, DaemonState::Master) => ETHERNET_MTU - headers,
            (None, DaemonState::Backup) => mtu.clamp(ETHERNET_MTU, PACKET_BYTES_MAX) - headers,
        };
        Daemon {
            state,
            interface: self.interface.clone(),
            sync_id: self.sync_id,
            max_bytes: u16::try_from(max_bytes).unwrap_or(u16::MAX),
            group,
            port: self.port.unwrap_or(SYNC_PORT),
            ttl: self.ttl.unwrap_or(1),
        }
    }
}

impl DaemonState {
    /// The state of this number.
    ///
    /// # Errors
    /// EINVAL for any other.
    pub fn from_number(number: u32) -> Result<DaemonState, Errno> {
        match number {
            1 => Ok(DaemonState::Master),
            2 => Ok(DaemonState::Backup),
            _ => Err(Errno::INVAL),
        }
    }
}

/// Reads the number of a state.
///
/// # Errors
/// EINVAL when it is missing.
pub(super) fn read_state(nest: &Attrs<'_>) -> Result<u32, Errno> {
    nest.u32(number::STATE).ok_or(Errno::INVAL)
}

/// Reads a request to start a daemon.
///
/// # Errors
/// EINVAL when a required part is missing, or the group is no multicast address.
pub(super) fn read_request(nest: &Attrs<'_>) -> Result<DaemonRequest, Errno> {
    let group = match nest.get(number::GROUP) {
        Some(_) => nest.address(number::GROUP, Family::V4),
        None => nest.address(number::GROUP6, Family::V6),
    };
    let request = DaemonRequest {
        state: read_state(nest)?,
        interface: nest.text(number::INTERFACE).ok_or(Errno::INVAL)?,
        sync_id: nest.u32(number::SYNC_ID).ok_or(Errno::INVAL)?,
        max_bytes: nest.u16(number::MAX_BYTES).filter(|bytes| *bytes != 0),
        group,
        port: nest.u16(number::PORT).filter(|port| *port != 0),
        ttl: nest.u8(number::TTL).filter(|ttl| *ttl != 0),
    };
    match request.group {
        Some(group) if !group.is_multicast() => Err(Errno::INVAL),
        _ => Ok(request),
    }
}

/// Attributes of a request to start a daemon, in ipvsadm's order.
pub(super) fn requested(request: &DaemonRequest) -> Vec<Attr> {
    let mut attributes = vec![
        Attr::u32(number::STATE, request.state),
        Attr::text(number::INTERFACE, &request.interface),
        Attr::u32(number::SYNC_ID, request.sync_id),
    ];
    attributes.extend(request.max_bytes.map(|bytes| Attr::u16(number::MAX_BYTES, bytes)));
    attributes.extend(request.port.map(|port| Attr::u16(number::PORT, port)));
    attributes.extend(request.ttl.map(|ttl| Attr::u8(number::TTL, ttl)));
    attributes.extend(request.group.map(group));
    attributes
}

/// Attributes of a listed daemon.
pub(super) fn listed(daemon: &Daemon) -> Vec<Attr> {
    vec![
        Attr::u32(number::STATE, daemon.state as u32),
        Attr::text(number::INTERFACE, &daemon.interface),
        Attr::u32(number::SYNC_ID, daemon.sync_id),
        Attr::u16(number::MAX_BYTES, daemon.max_bytes),
        Attr::u16(number::PORT, daemon.port),
        Attr::u8(number::TTL, daemon.ttl),
        group(daemon.group),
    ]
}

/// Reads a listed daemon.
///
/// # Errors
/// EINVAL when a required part is missing.
pub(super) fn read(nest: &Attrs<'_>) -> Result<Daemon, Errno> {
    let request = read_request(nest)?;
    // What a listing leaves out is filled in as the kernel would; the MTU counts for the size alone.
    Ok(request.resolve(DaemonState::from_number(request.state)?, ETHERNET_MTU))
}

fn group(address: IpAddr) -> Attr {
    match address {
        IpAddr::V4(v4) => Attr::u32_be(number::GROUP, v4.to_bits()),
        IpAddr::V6(_) => Attr::address(number::GROUP6, address),
    }
}

//! The old socket options of IPVS (`IP_VS_SO_SET_*`, `IP_VS_SO_GET_*`), on any store.
//!
//! What programs without netlink use: fixed structures, host byte order but for addresses and ports, IPv4 only. The
//! order of checks and the error numbers are the kernel's (`net/netfilter/ipvs/ip_vs_ctl.c`); layouts are those of
//! `linux/ip_vs.h` on 64-bit machines. Pure functions of the structure and the store.

use std::net::{IpAddr, Ipv4Addr};

use rustix::io::Errno;

use super::daemon::DaemonRequest;
use super::server::{Rights, Server};
use super::service::SCHEDULER_NAME_MAX;
use super::store::Store;
use super::types::{
    Daemon, DaemonState, Dest, DestKey, DestOptions, Family, Info, Method, Service, ServiceEdit, ServiceKey,
    ServiceOptions, Stats, Timeouts, Tunnel, flag,
};

/// Number of the first option (`IP_VS_BASE_CTL`).
pub const FIRST: u32 = 1152;

/// Options to set, from [`FIRST`].
mod set {
    pub const ADD: u32 = 2;
    pub const EDIT: u32 = 3;
    pub const DELETE: u32 = 4;
    pub const FLUSH: u32 = 5;
    pub const ADD_DEST: u32 = 7;
    pub const DELETE_DEST: u32 = 8;
    pub const EDIT_DEST: u32 = 9;
    pub const TIMEOUTS: u32 = 10;
    pub const START_DAEMON: u32 = 11;
    pub const STOP_DAEMON: u32 = 12;
    pub const ZERO: u32 = 15;
}

/// Options to get, from [`FIRST`].
mod get {
    pub const VERSION: u32 = 0;
    pub const INFO: u32 = 1;
    pub const SERVICES: u32 = 2;
    pub const SERVICE: u32 = 3;
    pub const DESTS: u32 = 4;
    pub const TIMEOUTS: u32 = 6;
    pub const DAEMONS: u32 = 7;
}

const SERVICE_BYTES: usize = 44;
const DEST_BYTES: usize = 24;
const TIMEOUT_BYTES: usize = 12;
const DAEMON_BYTES: usize = 24;
const NAME_BYTES: usize = 16;
const INFO_BYTES: usize = 12;
const VERSION_ROOM: usize = 64;
const SERVICE_ENTRY_BYTES: usize = 104;
const DEST_ENTRY_BYTES: usize = 96;
/// What of the room for services comes before the entries: their number.
const SERVICES_HEAD_BYTES: usize = 8;
/// What of the room for destinations comes before the entries: the service and their number.
const DESTS_HEAD_BYTES: usize = 24;

/// IP protocol that mark services have inside.
const MARK_PROTOCOL: u16 = 6;

impl<S: Store> Server<S> {
    /// Sets the option of this number.
    ///
    /// # Errors
    /// The kernel's: EPERM, EINVAL for a structure of another length, EFAULT for another protocol than TCP, UDP and
    /// SCTP, then those of the command.
    pub fn set_option(&mut self, number: u32, data: &[u8], rights: Rights) -> Result<(), Errno> {
        if rights != Rights::Write {
            return Err(Errno::PERM);
        }
        let command = number.checked_sub(FIRST).ok_or(Errno::INVAL)?;
        let length = match command {
            set::ADD | set::EDIT | set::DELETE | set::ZERO => SERVICE_BYTES,
            set::FLUSH => 0,
            set::ADD_DEST | set::DELETE_DEST | set::EDIT_DEST => SERVICE_BYTES + DEST_BYTES,
            set::TIMEOUTS => TIMEOUT_BYTES,
            set::START_DAEMON | set::STOP_DAEMON => DAEMON_BYTES,
            _ => return Err(Errno::INVAL),
        };
        if data.len() != length {
            return Err(Errno::INVAL);
        }
        match command {
            set::FLUSH => self.store.flush(),
            set::TIMEOUTS => {
                let [tcp, tcp_fin, udp] = [0, 4, 8].map(|at| u32_at(data, at));
                self.set_timeouts(Timeouts { tcp, tcp_fin, udp })
            }
            set::START_DAEMON => {
                let (state, sync_id) = (u32_at(data, 0), u32_at(data, 20));
                self.new_daemon(&DaemonRequest { state, sync_id, ..DaemonRequest::named(&name_at(data, 4)) })
            }
            set::STOP_DAEMON => self.del_daemon(u32_at(data, 0)),
            _ => self.set_of_service(command, data),
        }
    }

    /// What the option of this number says, for a caller with room for `room` bytes that begins with `data`.
    ///
    /// # Errors
    /// The kernel's: EPERM, EINVAL for the wrong room, ESRCH.
    pub fn option(&self, number: u32, room: usize, data: &[u8], rights: Rights) -> Result<Vec<u8>, Errno> {
        if rights == Rights::None {
            return Err(Errno::PERM);
        }
        let command = number.checked_sub(FIRST).ok_or(Errno::INVAL)?;
        let least = match command {
            get::VERSION => VERSION_ROOM,
            get::INFO => INFO_BYTES,
            get::SERVICES => SERVICES_HEAD_BYTES,
            get::SERVICE => SERVICE_ENTRY_BYTES,
            get::DESTS => DESTS_HEAD_BYTES,
            get::TIMEOUTS => TIMEOUT_BYTES,
            get::DAEMONS => 2 * DAEMON_BYTES,
            _ => return Err(Errno::INVAL),
        };
        let asked = match command {
            get::SERVICE => SERVICE_BYTES,
            get::SERVICES | get::DESTS => least,
            _ => 0,
        };
        if room < least || data.len() < asked {
            return Err(Errno::INVAL);
        }
        let store = &self.store;
        Ok(match command {
            get::VERSION => version(&store.info()),
            get::INFO => {
                let info = store.info();
                let services = store.services().filter(is_visible).count() as u32;
                [info.version, info.table_size, services].into_iter().flat_map(u32::to_ne_bytes).collect()
            }
            get::SERVICES => {
                let count = exact(u32_at(data, 0), room, SERVICES_HEAD_BYTES, SERVICE_ENTRY_BYTES)?;
                let services = store.services().filter(is_visible).take(count);
                let entries = services.flat_map(|service| self.service_entry(&service));
                data[..SERVICES_HEAD_BYTES].iter().copied().chain(entries).collect()
            }
            get::SERVICE => {
                let service = store.service(&key_at(data, u16_at(data, 0), 12)).ok_or(Errno::SRCH)?;
                self.service_entry(&service)
            }
            get::DESTS => {
                let count = exact(u32_at(data, 16), room, DESTS_HEAD_BYTES, DEST_ENTRY_BYTES)?;
                let key = key_at(data, u16_at(data, 0), 12);
                self.require(&key)?;
                let dests = store.dests(&key).filter(|dest| dest.key.address.is_ipv4()).take(count);
                data[..DESTS_HEAD_BYTES].iter().copied().chain(dests.flat_map(|d| dest_entry(&d))).collect()
            }
            get::TIMEOUTS => {
                let Timeouts { tcp, tcp_fin, udp } = store.timeouts();
                [tcp, tcp_fin, udp].into_iter().flat_map(u32::to_ne_bytes).collect()
            }
            _ => {
                let running = store.daemons();
                let of = |state| running.iter().find(move |daemon| daemon.state == state);
                let both = [DaemonState::Master, DaemonState::Backup];
                both.into_iter().flat_map(|state| daemon_entry(of(state))).collect()
            }
        })
    }

    fn set_of_service(&mut self, command: u32, data: &[u8]) -> Result<(), Errno> {
        let has_name = data[16..16 + NAME_BYTES].contains(&0);
        if matches!(command, set::ADD | set::EDIT) && !has_name {
            return Err(Errno::INVAL);
        }
        let protocol = u16_at(data, 0);
        let key = key_at(data, protocol, 12);
        if command == set::ZERO && key == (ServiceKey::Address { protocol, address: NOBODY, port: 0 }) {
            self.store.zero(None);
            return Ok(());
        }
        if ![6, 17, 132].contains(&protocol) {
            return Err(Errno::FAULT);
        }
        if command != set::ADD {
            self.require(&key)?;
            if key.mark() != 0 && protocol != MARK_PROTOCOL {
                return Err(Errno::SRCH);
            }
        }
        let dest = || (dest_key_at(data), dest_options_at(data));
        match command {
            set::ADD => self.new_service(key, edit_at(data)),
            set::EDIT => self.set_service(&key, edit_at(data)),
            set::DELETE => self.store.remove_service(&key),
            set::ZERO => {
                self.store.zero(Some(&key));
                Ok(())
            }
            set::ADD_DEST => self.new_dest(&key, Ok(dest())),
            set::EDIT_DEST => self.set_dest(&key, Ok(dest())),
            _ => self.del_dest(&key, Ok(dest_key_at(data))),
        }
    }

    fn service_entry(&self, service: &Service) -> Vec<u8> {
        let (key, options) = (&service.key, &service.options);
        let mut bytes = vec![0; SERVICE_ENTRY_BYTES];
        let protocol = if key.mark() == 0 { key.protocol() } else { MARK_PROTOCOL };
        put(&mut bytes, 0, &protocol.to_ne_bytes());
        if let Some(IpAddr::V4(v4)) = key.address() {
            put(&mut bytes, 4, &v4.octets());
        }
        put(&mut bytes, 8, &key.port().to_be_bytes());
        put(&mut bytes, 12, &key.mark().to_ne_bytes());
        let name = options.scheduler.as_bytes();
        put(&mut bytes, 16, &name[..name.len().min(SCHEDULER_NAME_MAX)]);
        put(&mut bytes, 32, &(options.flags | flag::HASHED).to_ne_bytes());
        put(&mut bytes, 36, &options.timeout_seconds.to_ne_bytes());
        put(&mut bytes, 40, &options.netmask.to_be_bytes());
        let dests = self.store.dests(key).filter(|dest| dest.key.address.is_ipv4()).count() as u32;
        put(&mut bytes, 44, &dests.to_ne_bytes());
        put_stats(&mut bytes, 48, &service.stats);
        bytes
    }
}

const NOBODY: IpAddr = IpAddr::V4(Ipv4Addr::UNSPECIFIED);

/// Only IPv4 can be said in these structures.
fn is_visible(service: &Service) -> bool {
    service.key.family() == Family::V4
}

/// The number of entries, if there is room for exactly so many.
fn exact(count: u32, room: usize, head: usize, entry: usize) -> Result<usize, Errno> {
    let count = count as usize;
    let fits = count.checked_mul(entry).and_then(|bytes| bytes.checked_add(head)) == Some(room);
    fits.then_some(count).ok_or(Errno::INVAL)
}

fn version(info: &Info) -> Vec<u8> {
    let [major, minor, patch] = [16, 8, 0].map(|shift| info.version >> shift & 0xff);
    format!("IP Virtual Server version {major}.{minor}.{patch} (size={})\0", info.table_size).into_bytes()
}

/// Identity of a service: address at 4, port at 8, mark at `mark`.
fn key_at(data: &[u8], protocol: u16, mark: usize) -> ServiceKey {
    match u32_at(data, mark) {
        0 => ServiceKey::Address { protocol, address: address_at(data, 4), port: port_at(data, 8) },
        mark => ServiceKey::Mark { family: Family::V4, mark },
    }
}

fn edit_at(data: &[u8]) -> ServiceEdit {
    let options = ServiceOptions {
        scheduler: name_at(data, 16),
        engine: None,
        flags: u32_at(data, 32),
        timeout_seconds: u32_at(data, 36),
        netmask: u32_at(data, 40).to_be(),
    };
    ServiceEdit { options, mask: u32::MAX }
}

fn dest_key_at(data: &[u8]) -> DestKey {
    DestKey { address: address_at(data, SERVICE_BYTES), port: port_at(data, SERVICE_BYTES + 4) }
}

fn dest_options_at(data: &[u8]) -> DestOptions {
    let at = |offset: usize| u32_at(data, SERVICE_BYTES + offset);
    DestOptions {
        method: Method::from_wire(at(8)),
        weight: at(12).cast_signed(),
        upper: at(16),
        lower: at(20),
        tunnel: Tunnel::default(),
    }
}

fn dest_entry(dest: &Dest) -> Vec<u8> {
    let options = &dest.options;
    let mut bytes = vec![0; DEST_ENTRY_BYTES];
    if let IpAddr::V4(v4) = dest.key.address {
        put(&mut bytes, 0, &v4.octets());
    }
    put(&mut bytes, 4, &dest.key.port.to_be_bytes());
    let numbers = [
        u32::from(options.method.0),
        options.weight.cast_unsigned(),
        options.upper,
        options.lower,
        dest.active,
        dest.inactive,
        dest.persistent,
    ];
    for (at, number) in (8..).step_by(4).zip(numbers) {
        put(&mut bytes, at, &number.to_ne_bytes());
    }
    put_stats(&mut bytes, 40, &dest.stats);
    bytes
}

fn daemon_entry(daemon: Option<&Daemon>) -> Vec<u8> {
    let mut bytes = vec![0; DAEMON_BYTES];
    if let Some(daemon) = daemon {
        put(&mut bytes, 0, &(daemon.state as u32).to_ne_bytes());
        let name = daemon.interface.as_bytes();
        put(&mut bytes, 4, &name[..name.len().min(NAME_BYTES - 1)]);
        put(&mut bytes, 20, &daemon.sync_id.to_ne_bytes());
    }
    bytes
}

/// Counters and rates; all but the bytes are cut to their low 32 bits.
fn put_stats(bytes: &mut [u8], at: usize, stats: &Stats) {
    let small = [
        (0, stats.conns),
        (4, stats.in_packets),
        (8, stats.out_packets),
        (32, stats.conns_per_second),
        (36, stats.in_packets_per_second),
        (40, stats.out_packets_per_second),
        (44, stats.in_bytes_per_second),
        (48, stats.out_bytes_per_second),
    ];
    for (offset, value) in small {
        put(bytes, at + offset, &(value as u32).to_ne_bytes());
    }
    put(bytes, at + 16, &stats.in_bytes.to_ne_bytes());
    put(bytes, at + 24, &stats.out_bytes.to_ne_bytes());
}

fn put(bytes: &mut [u8], at: usize, value: &[u8]) {
    bytes[at..at + value.len()].copy_from_slice(value);
}

fn array<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    data[at..].first_chunk().copied().expect("lengths are checked before structures are read")
}

fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes(array(data, at))
}

fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes(array(data, at))
}

fn port_at(data: &[u8], at: usize) -> u16 {
    u16::from_be_bytes(array(data, at))
}

fn address_at(data: &[u8], at: usize) -> IpAddr {
    IpAddr::V4(Ipv4Addr::from(array::<4>(data, at)))
}

/// A name of at most 15 bytes before its NUL.
fn name_at(data: &[u8], at: usize) -> String {
    let name = &data[at..at + NAME_BYTES];
    let end = name.iter().position(|byte| *byte == 0).unwrap_or(NAME_BYTES);
    String::from_utf8_lossy(&name[..end]).into_owned()
}

#[cfg(test)]
mod tests;

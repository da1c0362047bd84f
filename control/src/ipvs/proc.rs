//! Texts of the kernel's `/proc/net/ip_vs*`, byte for byte, from a table of ours.
//!
//! Pure functions from values to lines. Destination counts, states and all else are those of the store; where the
//! kernel has a row for each CPU, ours is for each worker.

use std::fmt::Write;
use std::net::{IpAddr, Ipv6Addr, SocketAddr};

use super::types::{Dest, Family, Info, Method, Service, ServiceKey, Stats, flag};

/// Kernel's ticks a second, which persistence timeouts are printed in (Debian's kernels: `CONFIG_HZ` 250).
const TICKS_PER_SECOND: u32 = 250;

/// `ip_vs_conn` before its rows.
pub const CONN_HEAD: &str =
    "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Expires PEName PEData\n";
/// `ip_vs_conn_sync` before its rows.
pub const CONN_SYNC_HEAD: &str = "Pro FromIP   FPrt ToIP     TPrt DestIP   DPrt State       Origin Expires\n";
/// `ip_vs_app`, of which there are none.
pub const APP: &str = "prot port    usecnt name\n";

/// `ip_vs` before its services.
pub fn head(info: &Info) -> String {
    let [major, minor, patch] = [16, 8, 0].map(|shift| info.version >> shift & 0xff);
    format!(
        "IP Virtual Server version {major}.{minor}.{patch} (size={})\n\
         Prot LocalAddress:Port Scheduler Flags\n  \
         -> RemoteAddress:Port Forward Weight ActiveConn InActConn\n",
        info.table_size
    )
}

/// A service of `ip_vs` with its destinations, the newest first.
pub fn service(service: &Service, dests: impl Iterator<Item = Dest>) -> String {
    let options = &service.options;
    let one_packet = if options.flags & flag::ONE_PACKET != 0 { "ops " } else { "" };
    let scheduler = &options.scheduler;
    let mut text = match service.key {
        ServiceKey::Mark { mark, .. } => format!("FWM  {mark:08X} {scheduler} {one_packet}"),
        ServiceKey::Address { protocol, address: IpAddr::V4(v4), port } => {
            let protocol = protocol_name(protocol);
            format!("{protocol}  {:08X}:{port:04X} {scheduler} {one_packet} ", v4.to_bits())
        }
        // One-packet scheduling is not shown of these.
        ServiceKey::Address { protocol, address: IpAddr::V6(v6), port } => {
            format!("{}  [{}]:{port:04X} {scheduler} ", protocol_name(protocol), groups(v6))
        }
    };
    if options.flags & flag::PERSISTENT != 0 {
        let ticks = options.timeout_seconds.wrapping_mul(TICKS_PER_SECOND);
        let _ = write!(text, "persistent {} {:08X}", ticks.cast_signed(), netmask(service));
    }
    text.push('\n');
    for dest in dests {
        let address = match dest.key.address {
            IpAddr::V4(v4) => format!("{:08X}", v4.to_bits()),
            IpAddr::V6(v6) => format!("[{}]", groups(v6)),
        };
        let _ = writeln!(
            text,
            "  -> {address}:{:04X}      {:<7} {:<6} {:<10} {:<10}",
            dest.key.port,
            method_name(dest.options.method),
            dest.options.weight,
            dest.active,
            dest.inactive,
        );
    }
    text
}

/// A row of `ip_vs_conn`.
pub fn conn(entry: &Conn<'_>) -> String {
    let endpoints = endpoints(entry);
    let engine = entry.engine.map_or_else(String::new, |(name, data)| format!(" {name} {data}"));
    format!("{endpoints} {:<11} {:>7}{engine}\n", entry.state, entry.expires_seconds)
}

/// A row of `ip_vs_conn_sync`. Connections are all our own: none comes from a backup's master.
pub fn conn_sync(entry: &Conn<'_>) -> String {
    let endpoints = endpoints(entry);
    format!("{endpoints} {:<11} {:<6} {:>7}\n", entry.state, "LOCAL", entry.expires_seconds)
}

/// A connection.
#[derive(Clone, Copy, Debug)]
pub struct Conn<'a> {
    /// Protocol's name.
    pub protocol: &'a str,
    /// Client.
    pub client: SocketAddr,
    /// Virtual address and port.
    pub service: SocketAddr,
    /// Destination.
    pub dest: SocketAddr,
    /// State's name.
    pub state: &'a str,
    /// Time until it expires.
    pub expires_seconds: u64,
    /// Persistence engine and its data.
    pub engine: Option<(&'a str, &'a str)>,
}

/// `ip_vs_stats`: sums since the last zeroing, and rates.
pub fn stats(total: &Stats) -> String {
    format!(
        "   Total Incoming Outgoing         Incoming         Outgoing\n   \
         Conns  Packets  Packets            Bytes            Bytes\n\
         {}\n Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n{}",
        counters(total),
        rates(total),
    )
}

/// `ip_vs_stats_percpu`: each worker's counters since the start, sums since the last zeroing, and rates.
pub fn stats_percpu(workers: &[(usize, Stats)], total: &Stats) -> String {
    let mut text = "       Total Incoming Outgoing         Incoming         Outgoing\n\
                    CPU    Conns  Packets  Packets            Bytes            Bytes\n"
        .to_owned();
    for (cpu, stats) in workers {
        let _ = write!(text, "{cpu:>3X} {}", counters(stats));
    }
    let _ = write!(
        text,
        "  ~ {}\n     Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s\n    {}",
        counters(total),
        rates(total)
    );
    text
}

fn counters(of: &Stats) -> String {
    row([of.conns, of.in_packets, of.out_packets, of.in_bytes, of.out_bytes])
}

fn rates(of: &Stats) -> String {
    row([
        of.conns_per_second,
        of.in_packets_per_second,
        of.out_packets_per_second,
        of.in_bytes_per_second,
        of.out_bytes_per_second,
    ])
}

fn row([conns, in_packets, out_packets, in_bytes, out_bytes]: [u64; 5]) -> String {
    format!("{conns:8X} {in_packets:8X} {out_packets:8X} {in_bytes:16X} {out_bytes:16X}\n")
}

fn endpoints(entry: &Conn<'_>) -> String {
    let endpoint = |of: SocketAddr| match of.ip() {
        IpAddr::V4(v4) => format!("{:08X} {:04X}", v4.to_bits(), of.port()),
        IpAddr::V6(v6) => format!("{} {:04X}", groups(v6), of.port()),
    };
    let protocol = entry.protocol;
    format!("{protocol:<3} {} {} {}", endpoint(entry.client), endpoint(entry.service), endpoint(entry.dest))
}

/// The kernel's `%pI6`: eight groups of four digits.
fn groups(address: Ipv6Addr) -> String {
    address.segments().map(|group| format!("{group:04x}")).join(":")
}

fn netmask(service: &Service) -> u32 {
    match service.key.family() {
        Family::V4 => service.options.netmask,
        // A prefix length, printed with its bytes in the order of the network.
        Family::V6 => service.options.netmask.swap_bytes(),
    }
}

fn protocol_name(number: u16) -> String {
    match number {
        0 => "IP".to_owned(),
        1 => "ICMP".to_owned(),
        6 => "TCP".to_owned(),
        17 => "UDP".to_owned(),
        58 => "ICMPv6".to_owned(),
        132 => "SCTP".to_owned(),
        number => format!("IP_{number}"),
    }
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::MASQUERADE => "Masq",
        Method::LOCAL => "Local",
        Method::TUNNEL => "Tunnel",
        Method::DIRECT_ROUTE => "Route",
        _ => "Bypass",
    }
}

#[cfg(test)]
mod tests;

//! The ipvsadm listing: services and destinations in ipvsadm's columns, widths and order.
//!
//! Model: rows arrive in dump order (services as created, destinations newest first) and are sorted here as
//! ipvsadm sorts them, which is not a total order: addresses compare by a 32-bit difference taken as signed,
//! so the sorting algorithm shows and is part of the format. Widths count bytes; blanks at line ends belong
//! to the format; IPv6 text is never cut and pushes the columns right.
//!
//! Source: ipvsadm 1.31, by its output.

use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use crate::api::rows::{CounterFields, DestRow, ListRow, RateFields, ServiceRow};

/// Version of IPVS that the head line names; programs compare it.
const IPVS_VERSION: &str = "1.2.1";

/// Which columns follow the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Columns {
    /// Scheduler and flags; forwarding method, weight and connections.
    Plain,
    /// The five counters, shortened by K, M, G, T.
    Stats,
    /// The five counters in full.
    StatsExact,
    /// The five rates, shortened.
    Rate,
    /// The five rates in full.
    RateExact,
}

/// A whole listing.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Listing {
    /// Number in the head line.
    pub connection_table_size: u64,
    /// Services in dump order, each with its destinations in dump order.
    pub services: Vec<(ServiceRow, Vec<DestRow>)>,
}

impl Listing {
    /// Joins the rows of a listing; `None` when a destination comes before any service.
    pub fn from_rows(rows: impl IntoIterator<Item = ListRow>) -> Option<Listing> {
        let mut listing = Listing::default();
        for row in rows {
            match row {
                ListRow::Head(head) => listing.connection_table_size = head.connection_table_size,
                ListRow::Service(service) => listing.services.push((service, Vec::new())),
                ListRow::Dest(dest) => listing.services.last_mut()?.1.push(dest),
            }
        }
        Some(listing)
    }

    /// The text ipvsadm prints for `-L -n`, with `--stats` and `--exact` as `columns` says.
    pub fn text(&self, columns: Columns) -> String {
        let mut out =
            format!("IP Virtual Server version {IPVS_VERSION} (size={})\n", self.connection_table_size);
        out.push_str(&title(columns));
        let mut services: Vec<&(ServiceRow, Vec<DestRow>)> = self.services.iter().collect();
        ipvsadm_sort(&mut services, |a, b| service_order(&a.0, &b.0));
        for (service, dests) in services {
            out.push_str(&service_line(service, columns));
            let mut dests: Vec<&DestRow> = dests.iter().collect();
            ipvsadm_sort(&mut dests, |a, b| dest_order(a.dest, b.dest));
            for dest in dests {
                out.push_str(&dest_line(dest, columns));
            }
        }
        out
    }
}

fn title(columns: Columns) -> String {
    match columns {
        Columns::Plain => "Prot LocalAddress:Port Scheduler Flags\n  \
                           -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n"
            .to_owned(),
        Columns::Stats | Columns::StatsExact => format!(
            "{:<33} {:>8} {:>8} {:>8} {:>8} {:>8}\n  -> RemoteAddress:Port\n",
            "Prot LocalAddress:Port", "Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"
        ),
        Columns::Rate | Columns::RateExact => format!(
            "{:<33} {:>8} {:>8} {:>8} {:>8} {:>8}\n  -> RemoteAddress:Port\n",
            "Prot LocalAddress:Port", "CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"
        ),
    }
}

fn service_line(service: &ServiceRow, columns: Columns) -> String {
    let name = service_name(service);
    match columns {
        Columns::Plain => format!("{name} {}{}\n", service.scheduler, service_flags(service)),
        Columns::Stats | Columns::StatsExact => {
            format!("{name:<33}{}\n", counters(&service.counters, columns))
        }
        Columns::Rate | Columns::RateExact => format!("{name:<33}{}\n", rates(&service.rates, columns)),
    }
}

fn dest_line(dest: &DestRow, columns: Columns) -> String {
    match columns {
        Columns::Plain => format!(
            "  -> {:<28} {:<7} {:<6} {:<10} {:<10}\n",
            endpoint_text(dest.dest),
            method_name(&dest.method),
            dest.weight,
            dest.active_connections,
            dest.inactive_connections
        ),
        Columns::Stats | Columns::StatsExact => {
            format!("  -> {:<28}{}\n", endpoint_text(dest.dest), counters(&dest.counters, columns))
        }
        Columns::Rate | Columns::RateExact => {
            format!("  -> {:<28}{}\n", endpoint_text(dest.dest), dest_rates(&dest.rates, columns))
        }
    }
}

fn service_name(service: &ServiceRow) -> String {
    match service.address {
        Some(address) => {
            format!(
                "{:<4} {}",
                protocol_name(&service.protocol),
                endpoint_text(SocketAddr::new(address, service.port))
            )
        }
        None => format!("FWM  {}{}", service.fwmark, if service.fwmark_ipv6 { " IPv6" } else { "" }),
    }
}

/// What follows the scheduler: its flags, persistence, one-packet scheduling, in this order.
fn service_flags(service: &ServiceRow) -> String {
    let mut out = String::new();
    if !service.scheduler_flags.is_empty() {
        let names: Vec<&str> = (1..=3)
            .filter(|flag| service.scheduler_flags.contains(flag))
            .filter_map(|flag| flag_name(&service.scheduler, flag))
            .collect();
        let _ = write!(out, " ({})", names.join(","));
    }
    if service.persistent_seconds != 0 {
        let _ = write!(out, " persistent {}", service.persistent_seconds);
        if let Some(mask) = &service.persistent_mask {
            let _ = write!(out, " mask {mask}");
        }
        if let Some(engine) = &service.persistence_engine {
            let _ = write!(out, " pe {engine}");
        }
    }
    if service.one_packet {
        out.push_str(" ops");
    }
    out
}

/// Name of a scheduler flag; `sh` and `mh` name two of the three and leave the third nameless.
pub(crate) fn flag_name(scheduler: &str, flag: u8) -> Option<&'static str> {
    match (scheduler, flag) {
        ("sh", 1) => Some("sh-fallback"),
        ("sh", 2) => Some("sh-port"),
        ("mh", 1) => Some("mh-fallback"),
        ("mh", 2) => Some("mh-port"),
        ("sh" | "mh", _) => None,
        (_, 1) => Some("flag-1"),
        (_, 2) => Some("flag-2"),
        (_, 3) => Some("flag-3"),
        _ => None,
    }
}

fn protocol_name(protocol: &str) -> &'static str {
    match protocol {
        "tcp" => "TCP",
        "udp" => "UDP",
        "sctp" => "SCTP",
        _ => "?",
    }
}

/// Method names of ipvsadm; one it does not know prints as the C library prints a null string.
fn method_name(method: &str) -> &'static str {
    match method {
        "nat" => "Masq",
        "local" => "Local",
        "tunnel" => "Tunnel",
        "dr" => "Route",
        _ => "(null)",
    }
}

fn counters(counters: &CounterFields, columns: Columns) -> String {
    let number = if columns == Columns::StatsExact { exact_number } else { large_number };
    [
        counters.connections_total,
        counters.in_packets_total,
        counters.out_packets_total,
        counters.in_bytes_total,
        counters.out_bytes_total,
    ]
    .map(number)
    .concat()
}

fn rates(rates: &RateFields, columns: Columns) -> String {
    let number = if columns == Columns::RateExact { exact_number } else { large_number };
    [
        rates.connections_per_second,
        rates.in_packets_per_second,
        rates.out_packets_per_second,
        rates.in_bytes_per_second,
        rates.out_bytes_per_second,
    ]
    .map(number)
    .concat()
}

/// Of a destination the connection and packet rates are never shortened.
fn dest_rates(of: &RateFields, columns: Columns) -> String {
    if columns == Columns::RateExact {
        return rates(of, columns);
    }
    let plain = [of.connections_per_second, of.in_packets_per_second, of.out_packets_per_second];
    let shortened = [of.in_bytes_per_second, of.out_bytes_per_second].map(large_number);
    plain.map(|rate| format!(" {rate:>8}")).concat() + &shortened.concat()
}

/// A counter in 9 bytes; division truncates, and the limits are not the unit boundaries.
pub(crate) fn large_number(n: u64) -> String {
    match n {
        ..100_000_000 => format!("{n:>9}"),
        100_000_000..1_000_000_000 => format!("{:>8}K", n / 1_000),
        1_000_000_000..100_000_000_000 => format!("{:>8}M", n / 1_000_000),
        100_000_000_000..100_000_000_000_000 => format!("{:>8}G", n / 1_000_000_000),
        _ => format!("{:>8}T", n / 1_000_000_000_000),
    }
}

/// A counter in full: up to 8 digits in 9 bytes, longer ones with one blank before.
pub(crate) fn exact_number(n: u64) -> String {
    if n < 100_000_000 { format!("{n:>9}") } else { format!(" {n}") }
}

/// Merge sort as ipvsadm does it: left half n/2 entries, taking from the left while the comparison is not positive.
pub(crate) fn ipvsadm_sort<T: Copy>(items: &mut [T], order: impl Fn(T, T) -> i64 + Copy) {
    if items.len() < 2 {
        return;
    }
    let middle = items.len() / 2;
    ipvsadm_sort(&mut items[..middle], order);
    ipvsadm_sort(&mut items[middle..], order);
    let left = items[..middle].to_vec();
    let right = items[middle..].to_vec();
    let (mut l, mut r) = (left.iter().peekable(), right.iter().peekable());
    for slot in items {
        let from_left = match (l.peek(), r.peek()) {
            (Some(&&a), Some(&&b)) => order(a, b) <= 0,
            (next, _) => next.is_some(),
        };
        *slot =
            *if from_left { l.next() } else { r.next() }.expect("the halves hold as many items as the whole");
    }
}

/// Services by mark, family, protocol, address, port; negative, zero or positive.
fn service_order(a: &ServiceRow, b: &ServiceRow) -> i64 {
    first_nonzero([
        signed_difference(a.fwmark, b.fwmark),
        i64::from(is_ipv6(a)) - i64::from(is_ipv6(b)),
        protocol_number(&a.protocol) - protocol_number(&b.protocol),
        match (a.address, b.address) {
            (Some(a), Some(b)) => address_order(a, b),
            _ => 0,
        },
        i64::from(a.port) - i64::from(b.port),
    ])
}

/// An address as the C library prints it: as Rust does, but for IPv6 addresses that end in one of IPv4.
pub(crate) fn address_text(address: IpAddr) -> String {
    match address {
        // `::1.2.3.4`, deprecated as RFC 4291 2.5.5.1 says; `::1` and `::` are none.
        IpAddr::V6(v6) if v6.to_bits() >> 32 == 0 && v6.to_bits() >> 16 != 0 => {
            format!("::{}", Ipv4Addr::from_bits(v6.to_bits() as u32))
        }
        address => address.to_string(),
    }
}

/// `ADDRESS:PORT`, with brackets round an IPv6 address.
pub(crate) fn endpoint_text(of: SocketAddr) -> String {
    let address = address_text(of.ip());
    if of.is_ipv6() { format!("[{address}]:{}", of.port()) } else { format!("{address}:{}", of.port()) }
}

/// Destinations by address, then port.
fn dest_order(a: SocketAddr, b: SocketAddr) -> i64 {
    first_nonzero([address_order(a.ip(), b.ip()), i64::from(a.port()) - i64::from(b.port())])
}

/// Addresses by the signed 32-bit difference of their words; the words of IPv6 from the left. Of two families it is the
/// first one's that counts, as in ipvsadm: IPv4 looks at the first word alone, IPv6 at all four.
pub(crate) fn address_order(a: IpAddr, b: IpAddr) -> i64 {
    let words = |address: IpAddr| match address {
        IpAddr::V4(v4) => [v4.to_bits(), 0, 0, 0],
        IpAddr::V6(v6) => [96, 64, 32, 0].map(|shift| (v6.to_bits() >> shift) as u32),
    };
    let (left, right) = (words(a), words(b));
    let compared = if a.is_ipv4() { 1 } else { 4 };
    let mut differences = (0..compared).map(|i| signed_difference(left[i], right[i]));
    differences.find(|d| *d != 0).unwrap_or(0)
}

pub(crate) fn signed_difference(a: u32, b: u32) -> i64 {
    i64::from(a.wrapping_sub(b) as i32)
}

pub(crate) fn first_nonzero<const N: usize>(differences: [i64; N]) -> i64 {
    differences.into_iter().find(|d| *d != 0).unwrap_or(0)
}

fn is_ipv6(service: &ServiceRow) -> bool {
    service.address.map_or(service.fwmark_ipv6, |address| address.is_ipv6())
}

fn protocol_number(protocol: &str) -> i64 {
    match protocol {
        "tcp" => 6,
        "udp" => 17,
        "sctp" => 132,
        other => other.parse().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests;

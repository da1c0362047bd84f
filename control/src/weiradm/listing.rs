//! The listing of services and destinations, in ipvsadm's columns.
//!
//! The order and the shortened numbers are those of `show::listing`; here are the columns that `weir list`
//! does not have, and names of hosts and services.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use super::grammar::{self, Opt, Options};
use super::names::Names;
use super::values::cut;
use crate::ipvs::{Dest, Info, Method, Service, ServiceKey, Stats, flag, tunnel_flag, tunnel_type};
use crate::show;
use crate::show::listing::{
    address_order, address_text, endpoint_text, exact_number, first_nonzero, flag_name, ipvsadm_sort,
    large_number, signed_difference,
};

/// Longest name of an IPv4 service, and of an IPv4 destination; longer ones are cut. IPv6 never is.
const SERVICE_NAME_MAX: usize = 33;
const DEST_NAME_MAX: usize = 28;

/// Writes addresses and ports, by name or by number.
pub(super) struct Texts<'a> {
    names: Option<&'a dyn Names>,
}

impl<'a> Texts<'a> {
    /// Texts as the options say: numbers with `-n`.
    pub(super) fn new(options: Options, names: &'a dyn Names) -> Texts<'a> {
        Texts { names: (!options.has(Opt::Numeric)).then_some(names) }
    }

    /// Adds what [`Texts::endpoint`] says.
    pub(super) fn push_endpoint(&self, text: &mut String, of: SocketAddr, protocol: u16) {
        match self.names {
            None => show::conns::push_endpoint(text, of),
            Some(_) => text.push_str(&self.endpoint(of.ip(), of.port(), protocol)),
        }
    }

    /// `ADDRESS:PORT`, with brackets round an IPv6 address or its name.
    pub(super) fn endpoint(&self, address: IpAddr, port: u16, protocol: u16) -> String {
        let Some(names) = self.names else {
            return endpoint_text(SocketAddr::new(address, port));
        };
        let host = names.host_of(address).unwrap_or_else(|| address_text(address));
        let port = names.service_of(port, protocol).unwrap_or_else(|| port.to_string());
        if address.is_ipv6() { format!("[{host}]:{port}") } else { format!("{host}:{port}") }
    }
}

/// The columns after the names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Columns {
    Plain,
    Stats,
    Rate,
    Thresholds,
    PersistentConn,
    Tunnel,
}

/// A listing's form, from the options.
pub(super) struct Form<'a> {
    columns: Columns,
    exact: bool,
    sorted: bool,
    texts: Texts<'a>,
}

impl<'a> Form<'a> {
    pub(super) fn new(options: Options, names: &'a dyn Names) -> Form<'a> {
        let columns = [
            (Opt::Stats, Columns::Stats),
            (Opt::Rate, Columns::Rate),
            (Opt::Thresholds, Columns::Thresholds),
            (Opt::PersistentConn, Columns::PersistentConn),
            (Opt::TunnelInfo, Columns::Tunnel),
        ]
        .into_iter()
        .find(|(option, _)| options.has(*option))
        .map_or(Columns::Plain, |(_, columns)| columns);
        Form {
            columns,
            exact: options.has(Opt::Exact),
            sorted: !options.has(Opt::NoSort),
            texts: Texts::new(options, names),
        }
    }

    /// The two title lines.
    pub(super) fn title(&self) -> String {
        let five = |c: [&str; 5]| {
            let head = "Prot LocalAddress:Port";
            format!("{head:<33} {:>8} {:>8} {:>8} {:>8} {:>8}\n", c[0], c[1], c[2], c[3], c[4])
        };
        let four = |widths: [usize; 4], c: [&str; 4]| {
            let mut line = format!("{:<33}", "Prot LocalAddress:Port");
            for (width, column) in widths.into_iter().zip(c) {
                line.push_str(&format!(" {column:<width$}"));
            }
            line + "\n"
        };
        let plain = "Prot LocalAddress:Port Scheduler Flags\n";
        let short = "  -> RemoteAddress:Port\n";
        match self.columns {
            Columns::Stats => five(["Conns", "InPkts", "OutPkts", "InBytes", "OutBytes"]) + short,
            Columns::Rate => five(["CPS", "InPPS", "OutPPS", "InBPS", "OutBPS"]) + short,
            Columns::Thresholds => {
                four([10; 4], ["Uthreshold", "Lthreshold", "ActiveConn", "InActConn"]) + short
            }
            Columns::PersistentConn => {
                four([9, 11, 10, 10], ["Weight", "PersistConn", "ActiveConn", "InActConn"]) + short
            }
            Columns::Tunnel => format!(
                "{plain}  -> RemoteAddress:Port           Forward TunnelInfo    Weight ActiveConn InActConn\n"
            ),
            Columns::Plain => {
                format!("{plain}  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n")
            }
        }
    }

    /// Puts services in order.
    pub(super) fn sort_services(&self, services: &mut [Service]) {
        if self.sorted {
            sort_services(services);
        }
    }

    /// The lines of a service and its destinations.
    pub(super) fn service(&self, service: &Service, mut dests: Vec<Dest>) -> String {
        if self.sorted {
            sort_dests(&mut dests);
        }
        let name = self.service_name(&service.key);
        let mut out = match self.columns {
            Columns::Stats => format!("{name:<33}{}\n", self.totals(&service.stats)),
            Columns::Rate => format!("{name:<33}{}\n", self.numbers(rates(&service.stats))),
            _ => format!("{name} {}{}\n", service.options.scheduler, service_flags(service)),
        };
        for dest in &dests {
            out.push_str(&self.dest(dest, service.key.protocol()));
        }
        out
    }

    fn service_name(&self, key: &ServiceKey) -> String {
        match *key {
            ServiceKey::Mark { mark, .. } => {
                format!("FWM  {mark}{}", if key.family() == crate::ipvs::Family::V6 { " IPv6" } else { "" })
            }
            ServiceKey::Address { protocol, address, port } => {
                let endpoint = self.texts.endpoint(address, port, protocol);
                let name = format!("{:<4} {endpoint}", protocol_name(protocol));
                cut_ipv4(name, address, SERVICE_NAME_MAX)
            }
        }
    }

    fn dest(&self, dest: &Dest, protocol: u16) -> String {
        let DestLine { name, method, weight, active, inactive } = self.dest_line(dest, protocol);
        match self.columns {
            Columns::Stats => format!("  -> {name:<28}{}\n", self.totals(&dest.stats)),
            Columns::Rate => {
                let [conns, in_packets, out_packets, in_bytes, out_bytes] = rates(&dest.stats);
                format!(
                    "  -> {name:<28} {conns:>8} {in_packets:>8} {out_packets:>8}{}{}\n",
                    self.number(in_bytes),
                    self.number(out_bytes)
                )
            }
            Columns::Thresholds => {
                let (upper, lower) = (dest.options.upper, dest.options.lower);
                format!("  -> {name:<28} {upper:<10} {lower:<10} {active:<10} {inactive:<10}\n")
            }
            Columns::PersistentConn => {
                let weight = weight.cast_unsigned();
                format!("  -> {name:<28} {weight:<9} {:<11} {active:<10} {inactive:<10}\n", dest.persistent)
            }
            Columns::Tunnel => format!(
                "  -> {name:<28} {method:<7} {:<13} {weight:<6} {active:<10} {inactive:<10}\n",
                tunnel(dest)
            ),
            Columns::Plain => {
                format!("  -> {name:<28} {method:<7} {weight:<6} {active:<10} {inactive:<10}\n")
            }
        }
    }

    fn dest_line(&self, dest: &Dest, protocol: u16) -> DestLine {
        let address = dest.key.address;
        let name = self.texts.endpoint(address, dest.key.port, protocol);
        DestLine {
            name: cut_ipv4(name, address, DEST_NAME_MAX),
            method: method_name(dest.options.method),
            weight: dest.options.weight,
            active: dest.active,
            inactive: dest.inactive,
        }
    }

    fn totals(&self, stats: &Stats) -> String {
        self.numbers([stats.conns, stats.in_packets, stats.out_packets, stats.in_bytes, stats.out_bytes])
    }

    fn numbers(&self, numbers: [u64; 5]) -> String {
        numbers.map(|n| self.number(n)).concat()
    }

    fn number(&self, n: u64) -> String {
        if self.exact { exact_number(n) } else { large_number(n) }
    }
}

struct DestLine {
    name: String,
    method: &'static str,
    weight: i32,
    active: u32,
    inactive: u32,
}

/// The head line of a whole listing.
pub(super) fn version_line(info: &Info) -> String {
    let [_, major, minor, patch] = info.version.to_be_bytes();
    format!("IP Virtual Server version {major}.{minor}.{patch} (size={})\n", info.table_size)
}

/// Puts services in ipvsadm's order.
pub(super) fn sort_services(services: &mut [Service]) {
    let mut order: Vec<usize> = (0..services.len()).collect();
    ipvsadm_sort(&mut order, |a, b| service_order(&services[a].key, &services[b].key));
    let sorted: Vec<Service> = order.into_iter().map(|at| services[at].clone()).collect();
    services.clone_from_slice(&sorted);
}

/// Puts destinations in ipvsadm's order.
pub(super) fn sort_dests(dests: &mut [Dest]) {
    ipvsadm_sort(dests, |a, b| {
        first_nonzero([
            address_order(a.key.address, b.key.address),
            i64::from(a.key.port) - i64::from(b.key.port),
        ])
    });
}

fn service_order(a: &ServiceKey, b: &ServiceKey) -> i64 {
    first_nonzero([
        signed_difference(a.mark(), b.mark()),
        a.family() as i64 - b.family() as i64,
        i64::from(a.protocol()) - i64::from(b.protocol()),
        match (a, b) {
            (ServiceKey::Address { address: a, .. }, ServiceKey::Address { address: b, .. }) => {
                address_order(*a, *b)
            }
            _ => 0,
        },
        i64::from(a.port()) - i64::from(b.port()),
    ])
}

/// What follows the scheduler: its flags, persistence, one-packet scheduling, in this order.
fn service_flags(service: &Service) -> String {
    let options = &service.options;
    let mut out = String::new();
    if let Some(names) = scheduler_flag_names(service) {
        out.push_str(&format!(" ({names})"));
    }
    if options.flags & flag::PERSISTENT != 0 {
        out.push_str(&format!(" persistent {}", options.timeout_seconds));
        if let Some(mask) = partial_netmask(service) {
            out.push_str(&format!(" mask {mask}"));
        }
        if let Some(engine) = &options.engine {
            out.push_str(&format!(" pe {engine}"));
        }
    }
    if options.flags & flag::ONE_PACKET != 0 {
        out.push_str(" ops");
    }
    out
}

/// Names of the scheduler flags that are set; `None` when none is, and empty when one is that has no name.
pub(super) fn scheduler_flag_names(service: &Service) -> Option<String> {
    let set: Vec<u8> =
        (1..=3).filter(|n| service.options.flags & flag::SCHEDULER[usize::from(*n) - 1] != 0).collect();
    let names: Vec<&str> = set.iter().filter_map(|n| flag_name(&service.options.scheduler, *n)).collect();
    (!set.is_empty()).then(|| names.join(","))
}

/// The netmask when it is not that of a single client.
pub(super) fn partial_netmask(service: &Service) -> Option<String> {
    let (family, netmask) = (service.key.family(), service.options.netmask);
    (netmask != family.full_netmask()).then(|| match family {
        crate::ipvs::Family::V4 => Ipv4Addr::from_bits(netmask).to_string(),
        crate::ipvs::Family::V6 => netmask.to_string(),
    })
}

/// Checksum of a tunnel in the listing's short form.
fn tunnel(dest: &Dest) -> String {
    let tunnel = &dest.options.tunnel;
    if dest.options.method != Method::TUNNEL {
        return "n/a".to_owned();
    }
    let checksum = match tunnel.flags {
        flags if flags & tunnel_flag::REMOTE_CHECKSUM != 0 => "r+c",
        flags if flags & tunnel_flag::CHECKSUM != 0 => "+c",
        _ => "-c",
    };
    match (grammar::tunnel_word(tunnel.kind), tunnel.kind) {
        (Some(word), tunnel_type::GUE) => format!("{word}:{}:{checksum}", tunnel.port),
        (Some(word), tunnel_type::GRE) => format!("{word}:{checksum}"),
        (Some(word), _) => word.to_owned(),
        (None, _) => "(null)".to_owned(),
    }
}

/// A method that ipvsadm does not know prints as the C library prints a null string.
fn method_name(method: Method) -> &'static str {
    match method {
        Method::MASQUERADE => "Masq",
        Method::LOCAL => "Local",
        Method::TUNNEL => "Tunnel",
        Method::DIRECT_ROUTE => "Route",
        _ => "(null)",
    }
}

fn protocol_name(protocol: u16) -> &'static str {
    match protocol {
        6 => "TCP",
        17 => "UDP",
        132 => "SCTP",
        _ => "?",
    }
}

/// Number of a protocol that has L4 ports with names; 0 for any other.
pub(super) fn protocol_number(name: &str) -> u16 {
    match name {
        "TCP" => 6,
        "UDP" => 17,
        "SCTP" => 132,
        _ => 0,
    }
}

fn rates(stats: &Stats) -> [u64; 5] {
    [
        stats.conns_per_second,
        stats.in_packets_per_second,
        stats.out_packets_per_second,
        stats.in_bytes_per_second,
        stats.out_bytes_per_second,
    ]
}

fn cut_ipv4(text: String, address: IpAddr, max: usize) -> String {
    if address.is_ipv4() { cut(&text, max).to_owned() } else { text }
}

//! Random files, all of them legal: every key with every value its row admits, objects that agree.

use config::keys::{Key, Kind, TABLES, Table};
use proptest::collection::{btree_set, vec};
use proptest::prelude::*;
use proptest::sample::select;

/// Text of a legal file.
pub fn file() -> impl Strategy<Value = String> {
    (1..4_usize).prop_flat_map(|ports| {
        (settings(), vec(port_extras(), ports), routes(ports), neighbours(ports), services(ports)).prop_map(
            |(settings, extras, routes, neighbours, services)| {
                let ports = extras.iter().enumerate().map(|(i, extras)| port(i, extras));
                settings + &ports.collect::<String>() + &routes + &neighbours + &services
            },
        )
    })
}

/// Some keys of some tables that are written once, with any legal value.
fn settings() -> impl Strategy<Value = String> {
    let tables = TABLES.iter().filter(|table| !table.list).map(settings_of).collect::<Vec<_>>();
    tables.prop_map(|tables| tables.concat())
}

fn settings_of(table: &'static Table) -> impl Strategy<Value = String> {
    let lines =
        table.keys.iter().map(|key| proptest::option::weighted(0.2, line(table, key))).collect::<Vec<_>>();
    lines.prop_map(|lines| {
        let lines: String = lines.into_iter().flatten().collect();
        if lines.is_empty() { lines } else { format!("{}\n{lines}\n", table.header()) }
    })
}

fn line(table: &'static Table, key: &'static Key) -> BoxedStrategy<String> {
    // The file has a few objects: limits under that are refused by a rule, not by the row.
    let least = if table.name == "limits" { 64 } else { i64::MIN };
    let value = match key.kind {
        Kind::Int(min, max) => prop_oneof![Just(min.max(least)), Just(max), min.max(least)..=max]
            .prop_map(|n| n.to_string())
            .boxed(),
        Kind::PowerOfTwo(min, max) => {
            (min.ilog2()..=max.ilog2()).prop_map(|bit| (1_i64 << bit).to_string()).boxed()
        }
        Kind::Bool => any::<bool>().prop_map(|yes| yes.to_string()).boxed(),
        Kind::Text => text().boxed(),
        Kind::Texts => vec(text(), 0..3).prop_map(|texts| format!("[{}]", texts.join(", "))).boxed(),
        Kind::Word(words) => select(words).prop_map(|word| format!("\"{word}\"")).boxed(),
        Kind::Cpus => btree_set(0..200_usize, 1..9)
            .prop_map(|cpus| {
                let cpus: Vec<_> = cpus.iter().map(usize::to_string).collect();
                format!("\"{}\"", cpus.join(","))
            })
            .boxed(),
        Kind::Policy => (select(&["rr", "fifo"][..]), 1..100)
            .prop_map(|(name, priority)| format!("\"{name}:{priority}\""))
            .boxed(),
        Kind::Threshold => (0..i32::MAX, 1..=i32::MAX, any::<bool>())
            .prop_map(|(first, gap, off)| {
                let second = if off { 0 } else { first.saturating_add(gap) };
                format!("\"{first} {second}\"")
            })
            .boxed(),
        other => panic!("no table written once has a key of {other:?}"),
    };
    let name = key.name;
    value.prop_map(move |value| format!("{name} = {value}\n")).boxed()
}

/// A TOML string of any characters but NUL, not empty.
fn text() -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("NUL is no text", |c| *c != '\0'), 1..9).prop_map(|chars| {
        let escaped = chars.into_iter().map(|c| match c {
            '"' | '\\' => format!("\\{c}"),
            c if c.is_control() => format!("\\U{:08x}", u32::from(c)),
            c => c.to_string(),
        });
        format!("\"{}\"", escaped.collect::<String>())
    })
}

fn port_extras() -> impl Strategy<Value = String> {
    let mtu = (68..=9600_u32).prop_map(|mtu| format!("mtu = {mtu}\n"));
    let mac = any::<[u8; 5]>()
        .prop_map(|[a, b, c, d, e]| format!("mac = \"02:{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}\"\n"));
    let promiscuous = any::<bool>().prop_map(|yes| format!("promiscuous = {yes}\n"));
    let maybe = |line: BoxedStrategy<String>| proptest::option::of(line).prop_map(Option::unwrap_or_default);
    (maybe(mtu.boxed()), maybe(mac.boxed()), maybe(promiscuous.boxed())).prop_map(|(a, b, c)| a + &b + &c)
}

/// Port `i` has 10.`i`.0.1/24 and 10.`i`.1.1/28; the first has a gateway.
fn port(i: usize, extras: &str) -> String {
    let gateway = if i == 0 { "gateway = [\"10.0.0.254\"]\n" } else { "" };
    format!(
        "[[port]]\nname = \"p{i}\"\ndevice = \"net_tap{i}\"\n\
         addresses = [\"10.{i}.0.1/24\", \"10.{i}.1.1/28\"]\n{gateway}{extras}\n"
    )
}

/// Routes to prefixes outside 10/8, via a router on a port or on a port's wire.
fn routes(ports: usize) -> impl Strategy<Value = String> {
    let prefixes = btree_set((0..8_u8, select(&[16_u8, 20, 24][..])), 0..4);
    (prefixes, vec((0..ports, any::<bool>(), 100..200_u8), 4)).prop_map(|(prefixes, hops)| {
        let routes = prefixes.iter().zip(hops).map(|((net, length), (port, on_link, router))| {
            let hop = if on_link {
                format!("port = \"p{port}\"")
            } else {
                format!("via = \"10.{port}.0.{router}\"")
            };
            format!("[[route]]\nprefix = \"172.{}.0.0/{length}\"\n{hop}\n\n", 16 + net)
        });
        routes.collect()
    })
}

fn neighbours(ports: usize) -> impl Strategy<Value = String> {
    btree_set((0..ports, 2..99_u8), 0..4).prop_map(|hosts| {
        let entries = hosts.iter().map(|(port, host)| {
            format!("[[neighbour]]\naddress = \"10.{port}.0.{host}\"\nmac = \"02:00:00:00:0{port}:{host:02x}\"\n\n")
        });
        entries.collect()
    })
}

fn services(ports: usize) -> impl Strategy<Value = String> {
    let keys = btree_set((select(&["tcp", "udp"][..]), 1..4_u8, 1..5_u16), 0..6);
    let announces = vec(any::<bool>(), 4).boxed();
    keys.prop_flat_map(move |keys| {
        vec(service(ports), keys.len()).prop_map(move |bodies| (keys.clone(), bodies))
    })
    .prop_flat_map(|(keys, bodies)| {
        let pairs: Vec<_> = keys.into_iter().zip(bodies).collect();
        Just(pairs).prop_shuffle()
    })
    .prop_flat_map(move |pairs| (Just(pairs), announces.clone()))
    .prop_map(|(pairs, announces)| {
        let services = pairs.into_iter().map(|((proto, vip, port), body)| {
            let announce = announces[usize::from(vip)];
            format!(
                "[[service]]\naddress = \"{proto}://198.51.100.{vip}:{port}\"\nannounce = {announce}\n{}\n",
                body.replace("@PORT", &port.to_string())
            )
        });
        services.collect()
    })
}

/// The rest of a service and its destinations; `@PORT` stands for its own port.
fn service(ports: usize) -> impl Strategy<Value = String> {
    let scheduler = select(config::Scheduler::ALL.to_vec());
    let flags = btree_set(0..3_usize, 0..3);
    let unmatched = select(&["", "unmatched = \"reset\"\n", "unmatched = \"drop\"\n"][..]);
    let dests = btree_set((0..ports, 2..6_u8, 0..3_u8), 0..5);
    let dests = dests.prop_map(|dests| dests.into_iter().collect::<Vec<_>>()).prop_shuffle();
    (scheduler, flags, unmatched, dests, vec(numbers(), 5)).prop_map(
        |(scheduler, flags, unmatched, dests, numbers)| {
            let names = match scheduler {
                config::Scheduler::Sh => ["sh-fallback", "sh-port", "flag-3"],
                config::Scheduler::Mh => ["mh-fallback", "mh-port", "flag-3"],
                _ => ["flag-1", "flag-2", "flag-3"],
            };
            let flags: Vec<_> = flags.iter().map(|flag| format!("\"{}\"", names[*flag])).collect();
            let mut text =
                format!("scheduler = \"{scheduler}\"\nflags = [{}]\n{unmatched}", flags.join(", "));
            for ((port, host, kind), numbers) in dests.iter().zip(numbers) {
                // By direct routing with the service's port, written or not; by NAT other hosts and two ports.
                let (address, method) = match kind {
                    0 if host % 2 == 0 => (format!("10.{port}.0.{host}"), "dr"),
                    0 => (format!("10.{port}.0.{host}:@PORT"), "dr"),
                    l4_port => (format!("10.{port}.1.{host}:{l4_port}"), "nat"),
                };
                text += &format!(
                    "  [[service.destination]]\n  address = \"{address}\"\n  method = \"{method}\"\n{numbers}"
                );
            }
            text
        },
    )
}

/// Weight and thresholds.
fn numbers() -> impl Strategy<Value = String> {
    const MAX: u32 = i32::MAX as u32;
    let weight = prop_oneof![0..4_u32, Just(MAX)];
    (weight, 0..=MAX).prop_flat_map(|(weight, upper)| {
        (0..=upper)
            .prop_map(move |lower| format!("  weight = {weight}\n  upper = {upper}\n  lower = {lower}\n"))
    })
}

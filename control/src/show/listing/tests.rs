//! Every sample of `tests/data/ipvsadm`: the state it describes, listed, against what ipvsadm printed.

use std::net::IpAddr;

use super::*;
use crate::api::rows::ListHead;

macro_rules! sample {
    ($name:literal) => {
        ($name, include_str!(concat!("../../../tests/data/ipvsadm/", $name, ".txt")))
    };
}
const SAMPLES: &[(&str, &str)] = &[
    sample!("001-list-empty"),
    sample!("004-list-basic-lower-l"),
    sample!("005-list-mixed"),
    sample!("010-list-sort-wrap"),
    sample!("011-list-sort-dests-wrap"),
    sample!("014-list-v6-long"),
    sample!("015-list-persistent-v4"),
    sample!("016-list-persistent-v6"),
    sample!("017-list-sched-flags"),
    sample!("020-list-fwd-bypass"),
    sample!("022-list-sched-none"),
    sample!("025-stats-zero"),
    sample!("026-stats-small"),
    sample!("027-stats-big"),
    sample!("029-stats-dest-64bit-truncated"),
    sample!("030-stats-mixed"),
    sample!("032-rate"),
];

#[test]
fn every_sample_prints_as_ipvsadm_prints_it() {
    for (name, text) in SAMPLES {
        let mut listing = read_state(section(text, "--- state before"));
        feed(&mut listing, section(text, "--- fed"));
        let command = text.lines().find(|l| l.starts_with("command:")).expect(name);
        let has = |option| command.contains(option);
        let columns = match (has("--stats"), has("--rate"), has("--exact")) {
            (true, _, false) => Columns::Stats,
            (true, _, true) => Columns::StatsExact,
            (_, true, false) => Columns::Rate,
            (_, true, true) => Columns::RateExact,
            _ => Columns::Plain,
        };
        let mut expected = section(text, "--- stdout").to_owned();
        if *name == "029-stats-dest-64bit-truncated" {
            // ipvsadm cuts the packet and connection counters of a destination to 32 bits; we print them whole.
            expected = expected.replace(
                "192.168.1.10:8080                   1        2        3 ",
                "192.168.1.10:8080            4294967297 8589934594 12884901891 ",
            );
        }
        if *name == "032-rate" {
            // Byte rates of a destination too.
            expected = expected.replace("123456K    1912M", "123456K    1234G");
        }
        assert_eq!(listing.text(columns), expected, "{name}");
    }
}

#[test]
fn rows_join_into_a_listing() {
    let listing = read_state("-A -t 10.0.0.1:80 -s rr\n-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m\n");
    let (service, dests) = listing.services[0].clone();
    let rows = [
        ListRow::Head(ListHead { connection_table_size: 4096 }),
        ListRow::Service(service),
        ListRow::Dest(dests[0].clone()),
    ];
    assert_eq!(Listing::from_rows(rows), Some(listing));
    assert_eq!(Listing::from_rows([ListRow::Dest(dests[0].clone())]), None);
}

/// Text between a section's head and the next one.
fn section<'a>(text: &'a str, head: &str) -> &'a str {
    let start = text.find(&format!("\n{head}")).expect(head) + 1;
    let body = &text[start + text[start..].find('\n').unwrap() + 1..];
    &body[..body.find("--- ").unwrap_or(body.len())]
}

/// The listing that a sequence of `ipvsadm -R` lines leaves: the grammar of these samples only.
fn read_state(lines: &str) -> Listing {
    let mut listing = Listing { connection_table_size: 4096, ..Listing::default() };
    for line in lines.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let value =
            |option: &str| words.iter().position(|w| *w == option).and_then(|i| words.get(i + 1).copied());
        let service = service_of(&words);
        match words[0] {
            "-A" => {
                let ipv6 = is_ipv6(&service);
                let persistent =
                    words.contains(&"-p").then(|| value("-p").and_then(|v| v.parse().ok()).unwrap_or(360));
                let full = if ipv6 { "128" } else { "255.255.255.255" };
                let flags = value("-b").unwrap_or_default();
                let row = ServiceRow {
                    scheduler: value("-s").unwrap_or("wlc").to_owned(),
                    scheduler_flags: (1..=3)
                        .filter(|n| {
                            let names: &[&str] = [
                                &["flag-1", "sh-fallback", "mh-fallback"][..],
                                &["flag-2", "sh-port", "mh-port"],
                                &["flag-3"],
                            ][*n as usize - 1];
                            flags.split(',').any(|f| names.contains(&f))
                        })
                        .collect(),
                    persistent_seconds: persistent.unwrap_or(0),
                    persistent_mask: value("-M").filter(|m| *m != full).map(str::to_owned),
                    persistence_engine: value("--pe").map(str::to_owned),
                    one_packet: words.contains(&"-o"),
                    ..service
                };
                listing.services.push((row, Vec::new()));
            }
            "-a" => {
                let method = [("-m", "nat"), ("-i", "tunnel")]
                    .iter()
                    .find(|(o, _)| words.contains(o))
                    .map_or("dr", |m| m.1);
                let dest = DestRow {
                    service: service.service.clone(),
                    dest: value("-r").unwrap().parse().unwrap(),
                    method: method.to_owned(),
                    weight: value("-w").map_or(1, |w| w.parse().unwrap()),
                    upper_connections: 0,
                    lower_connections: 0,
                    active_connections: 0,
                    inactive_connections: 0,
                    persistent_connections: 0,
                    counters: CounterFields::default(),
                    rates: RateFields::default(),
                };
                let (_, dests) =
                    listing.services.iter_mut().find(|(s, _)| s.service == service.service).unwrap();
                dests.insert(0, dest); // newest first, as the kernel dumps them
            }
            other => panic!("sample line {other}"),
        }
    }
    listing
}

/// Identity fields from `-t`, `-u`, `--sctp-service` or `-f`.
fn service_of(words: &[&str]) -> ServiceRow {
    let at = words.iter().position(|w| ["-t", "-u", "--sctp-service", "-f"].contains(w)).unwrap();
    let (option, value) = (words[at], words[at + 1]);
    let mark = option == "-f";
    let ipv6 = mark && words.contains(&"-6");
    let socket: Option<SocketAddr> = (!mark).then(|| value.parse().unwrap());
    ServiceRow {
        service: format!("{option} {value} {ipv6}"),
        protocol: match option {
            "-u" => "udp",
            "--sctp-service" => "sctp",
            _ => "tcp",
        }
        .to_owned(),
        address: socket.map(|s| -> IpAddr { s.ip() }),
        port: socket.map_or(0, |s| s.port()),
        fwmark: if mark { value.parse().unwrap() } else { 0 },
        fwmark_ipv6: ipv6,
        ..ServiceRow::default()
    }
}

/// Counters and settings put into the server, e.g. `dst -t 10.0.0.1:80 192.168.1.10:8080 conns=1 active=2`.
fn feed(listing: &mut Listing, lines: &str) {
    for line in lines.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let service = service_of(&words).service;
        let (row, dests) = listing.services.iter_mut().find(|(s, _)| s.service == service).unwrap();
        let mut dest = (words[0] == "dst").then(|| {
            let key: SocketAddr = words[3].parse().unwrap();
            dests.iter_mut().find(|d| d.dest == key).unwrap()
        });
        for (name, value) in words.iter().filter_map(|w| w.split_once('=')) {
            let value: u64 = value.parse().unwrap();
            let (counters, rates) = match &mut dest {
                Some(dest) => (&mut dest.counters, &mut dest.rates),
                None => (&mut row.counters, &mut row.rates),
            };
            match name {
                "cps" => rates.connections_per_second = value,
                "inpps" => rates.in_packets_per_second = value,
                "outpps" => rates.out_packets_per_second = value,
                "inbps" => rates.in_bytes_per_second = value,
                "outbps" => rates.out_bytes_per_second = value,
                "conns" => counters.connections_total = value,
                "inpkts" => counters.in_packets_total = value,
                "outpkts" => counters.out_packets_total = value,
                "inbytes" => counters.in_bytes_total = value,
                "outbytes" => counters.out_bytes_total = value,
                "active" => dest.as_mut().unwrap().active_connections = value as u32,
                "inact" => dest.as_mut().unwrap().inactive_connections = value as u32,
                "fwd" => {
                    dest.as_mut().unwrap().method =
                        ["nat", "local", "tunnel", "dr", "bypass"][value as usize].to_owned()
                }
                other => panic!("fed {other}"),
            }
        }
    }
}

#[test]
fn addresses_are_printed_as_the_c_library_does() {
    for (address, text) in [
        ("::1.2.3.4", "::1.2.3.4"),
        ("::1:0", "::0.1.0.0"),
        ("::ffff", "::ffff"),
        ("::1", "::1"),
        ("::", "::"),
        ("::1:1.2.3.4", "::1:102:304"),
        ("::ffff:1.2.3.4", "::ffff:1.2.3.4"),
        ("2001:db8::1", "2001:db8::1"),
        ("192.0.2.7", "192.0.2.7"),
    ] {
        assert_eq!(address_text(address.parse().unwrap()), text);
    }
    assert_eq!(endpoint_text("[::102:304]:80".parse().unwrap()), "[::1.2.3.4]:80");
    assert_eq!(endpoint_text("192.0.2.7:80".parse().unwrap()), "192.0.2.7:80");
}

/// As ipvsadm 1.31 listed them, which were added from left to right and so came from right to left.
#[test]
fn destinations_of_two_families_sort_as_ipvsadm_sorts_them() {
    let [a, b, c] = ["129.0.0.198:2", "1.0.0.88:3", "[2001:bf97::1]:2"].map(|text| text.parse().unwrap());
    let mut sorted = [c, b, a];
    ipvsadm_sort(&mut sorted, dest_order);
    assert_eq!(sorted, [c, a, b]);
}

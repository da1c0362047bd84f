//! What monitoring programs read of the balancer under real traffic: the kernel's files under `/proc/net` by the rules of
//! node_exporter's parser, and ipvsadm's listing by columns, as scripts do. All agree with `weir list`.
#![forbid(unsafe_code)]

use std::net::Ipv4Addr;
use std::process::Command;
use std::thread;

use control::api::rows::CounterFields;
use tests::netns::daemon::{Daemon, STATISTICS_SETTLE, configuration, service};
use tests::netns::peers::{LineClient, ask_udp, start_line_server, start_udp_echo};
use tests::netns::{Net, Topology, VIP, text_of};

const PORT: u16 = 7000;

#[test]
fn netns_monitors_read_what_the_listing_says() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    for (number, name) in [(1, "rs1"), (2, "rs2")] {
        start_line_server(&net.server(number), PORT, name);
        start_udp_echo(&net.server(number), PORT, name);
    }
    let dests =
        [(1, 3), (2, 1)].map(|(number, weight)| (format!("{}:{PORT}", net.server_address(number)), weight));
    let vip = format!("{VIP}:{PORT}");
    let services =
        ["tcp", "udp"].map(|protocol| service(&format!("{protocol}://{vip}"), "wrr", "nat", &dests)).concat();
    let weir = Daemon::start(&net, &configuration(&net, &services));
    weir.weiradm("-A -f 7 -s rr");
    weir.weiradm("-a -f 7 -r 10.0.0.11 -m -w 9");

    let client = net.client();
    let _open: Vec<_> = (0..8).map(|_| LineClient::connect(&client, &vip).expect("it is served")).collect();
    client.run(|| (0..4).for_each(|_| drop(ask_udp(&vip, "who").expect("it is served"))));
    thread::sleep(STATISTICS_SETTLE);

    let listed = weir.list();
    let sum =
        |figure: fn(&CounterFields) -> u64| listed.iter().map(|service| figure(&service.row.counters)).sum();
    let totals: [u64; 5] = [
        sum(|of| of.connections_total),
        sum(|of| of.in_packets_total),
        sum(|of| of.out_packets_total),
        sum(|of| of.in_bytes_total),
        sum(|of| of.out_bytes_total),
    ];
    assert_eq!(totals[0], 12);
    assert!(totals.iter().all(|total| *total > 0), "{totals:?}");
    assert_eq!(node_exporter_totals(&file(&weir, "ip_vs_stats")), Ok(totals));

    let backends = node_exporter_backends(&file(&weir, "ip_vs")).expect("nothing to stumble over");
    let expected = listed.iter().flat_map(|service| {
        service.destinations.iter().map(|dest| Backend {
            protocol: if service.row.fwmark > 0 {
                "FWM".to_owned()
            } else {
                service.row.protocol.to_uppercase()
            },
            mark: if service.row.fwmark > 0 { format!("{:08X}", service.row.fwmark) } else { String::new() },
            local: service
                .row
                .address
                .map_or_else(|| ":0".to_owned(), |address| format!("{address}:{}", service.row.port)),
            remote: dest.dest.to_string(),
            figures: [
                u64::from(dest.weight),
                u64::from(dest.active_connections),
                u64::from(dest.inactive_connections),
            ],
        })
    });
    assert_eq!(backends, expected.collect::<Vec<_>>());
    let on_rs1 =
        backends.iter().find(|backend| backend.protocol == "TCP" && backend.remote.starts_with("10.0.0.11"));
    assert_eq!(on_rs1.map(|backend| backend.figures), Some([3, 6, 0]), "{backends:?}");

    // A script over ipvsadm's columns: the third word of each service's line is its connections.
    let mut ipvsadm = weir.ask(&["exec"]);
    let listing = output(ipvsadm.args(["--", "/usr/sbin/ipvsadm", "-L", "-n", "--stats", "--exact"]));
    let conns =
        listing.lines().filter(|line| ["TCP ", "UDP ", "FWM "].iter().any(|kind| line.starts_with(kind)));
    let conns: Vec<u64> = conns.filter_map(|line| line.split_whitespace().nth(2)?.parse().ok()).collect();
    assert_eq!(conns, [8, 4, 0]);
    assert!(weir.stop().status.success());
}

/// A file of the kernel's, as a program finds it under `/proc/net`; `weir proc` prints the same.
fn file(weir: &Daemon, name: &str) -> String {
    let text = output(weir.ask(&["exec"]).args(["--", "cat", &format!("/proc/net/{name}")]));
    assert_eq!(output(&mut weir.ask(&["proc", name])), text);
    text
}

/// A pair of a service and a destination.
#[derive(Debug, PartialEq)]
struct Backend {
    protocol: String,
    mark: String,
    local: String,
    remote: String,
    /// Weight, active and inactive connections.
    figures: [u64; 3],
}

/// The third of at least four lines: five hexadecimal numbers.
fn node_exporter_totals(text: &str) -> Result<[u64; 5], String> {
    let lines: Vec<&str> = text.splitn(4, '\n').collect();
    let [_, _, totals, _] = lines[..] else { return Err(format!("too short: {text}")) };
    let numbers: Result<Vec<u64>, _> =
        totals.split_whitespace().map(|word| u64::from_str_radix(word, 16)).collect();
    numbers.map_err(|error| error.to_string())?.try_into().map_err(|numbers| format!("not five: {numbers:?}"))
}

/// Lines by their first word; what it cannot read ends it.
fn node_exporter_backends(text: &str) -> Result<Vec<Backend>, String> {
    let mut backends = Vec::new();
    let (mut protocol, mut mark, mut local) = (String::new(), String::new(), String::new());
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["IP" | "Prot", ..] | [_, "RemoteAddress:Port", ..] => {}
            [kind @ ("TCP" | "UDP"), address, ..] => {
                (protocol, mark, local) = (kind.to_owned(), String::new(), endpoint(address)?);
            }
            ["FWM", number, ..] => {
                (protocol, mark, local) = ("FWM".to_owned(), number.to_owned(), ":0".to_owned());
            }
            ["->", address, _, weight, active, inactive, ..] => {
                let figure = |word: &str| word.parse().map_err(|error| format!("{line}: {error}"));
                let figures = [figure(weight)?, figure(active)?, figure(inactive)?];
                let (protocol, mark, local) = (protocol.clone(), mark.clone(), local.clone());
                backends.push(Backend { protocol, mark, local, remote: endpoint(address)?, figures });
            }
            _ => {}
        }
    }
    Ok(backends)
}

/// Eight hexadecimal digits, a colon, a hexadecimal port.
fn endpoint(word: &str) -> Result<String, String> {
    let read = |word: &str| {
        let (address, port) = word.split_once(':').filter(|(address, _)| address.len() == 8)?;
        let address = Ipv4Addr::from_bits(u32::from_str_radix(address, 16).ok()?);
        Some(format!("{address}:{}", u16::from_str_radix(port, 16).ok()?))
    };
    read(word).ok_or_else(|| format!("no address with a port: {word}"))
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("weir runs");
    assert!(output.status.success(), "{}", text_of(&output));
    String::from_utf8(output.stdout).expect("it is text")
}

//! Exchanges captured on both sides of the kernel's balancer, replayed through ours: what comes out, what is counted
//! and which connection is left must be the same.
//!
//! Frames that the kernel's machine did not send are made a capture file and replayed by its clock; those that it sent
//! must come out, per port and in order. Not compared: IP identification (generated packets have one of our choice), MAC addresses, and
//! ARP requests, which each machine sends when its own neighbour table wants.

use std::fmt::Write as _;
use std::fs;

use control::args::ReplayArgs;
use control::failure::Exit;
use dataplane::io::pcap::{self, Frame};
use tests::case::{Mask, Out, compare};
use tests::check::{self, Body};
use tests::kernel::packets::{Captured, Exchange, exchanges};
use tests::topo::{Method, Proto, Rules, Server, Service, Topo};

/// Captured exchanges that need what is not built yet.
const LATER: &[(&str, &str)] = &[
    ("nat4-fragments, dr4-fragments", "fragments"),
    ("nat4-out-mtu1400-nodf", "fragmentation on output"),
    ("nat4-icmp-from-client, nat4-icmp-in-*", "ICMP errors that carry a connection's packet"),
    ("nat6-*, dr6-*", "IPv6"),
    ("tun-*, tun4-*, tun6-*", "tunnels"),
];

#[test]
fn captured_exchanges_are_reproduced() {
    let mut failed = String::new();
    println!("{:<40} {:<8} actions", "exchange", "result");
    for exchange in exchanges() {
        let outcome = replay(&exchange);
        let result = if outcome.is_ok() { "equal" } else { "DIFFERS" };
        println!("{:<40} {result:<8} {}", exchange.name, exchange.actions);
        if let Err(why) = outcome {
            let _ = writeln!(failed, "=== {}\n{why}", exchange.name);
        }
    }
    for (names, reason) in LATER {
        println!("{names:<40} later    {reason}");
    }
    assert!(failed.is_empty(), "{failed}");
}

/// The same through the files that `weir replay` reads and writes.
#[test]
fn weir_replay_reproduces_captured_exchanges() {
    let dir = tempfile::tempdir().expect("a temporary directory");
    let file = |name: &str| dir.path().join(name);
    for exchange in exchanges() {
        let (ours, theirs) = exchange.split();
        fs::write(file("rules.toml"), rules(&exchange).to_toml()).unwrap();
        fs::write(file("in.pcap"), capture(theirs)).unwrap();
        let args = ReplayArgs {
            rules: file("rules.toml"),
            input: file("in.pcap"),
            output: file("out.pcap"),
            trace: false,
        };
        assert_eq!(control::replay::replay(&args), Exit::Done, "{}", exchange.name);
        let written = pcap::read(fs::File::open(file("out.pcap")).unwrap()).unwrap();
        // The file does not say on which port a frame left; its source does.
        let sent: Vec<Out> = written
            .into_iter()
            .map(|frame| Out { port: usize::from(frame.bytes[10]) - 1, frame: frame.bytes })
            .collect();
        sides(&ours, &sent).unwrap_or_else(|why| panic!("{}: {why}", exchange.name));
    }
}

fn replay(exchange: &Exchange) -> Result<(), String> {
    let mut topo = Topo::new(&rules(exchange));
    let (expected, theirs) = exchange.split();
    let sent = topo.replay(&capture(theirs));
    sides(&expected, &sent)?;

    let service = &topo.rules().services[0];
    let mut figures = vec![topo.service_figures(service)];
    figures.extend(service.servers.iter().map(|server| topo.server_figures(service, server)));
    same("listing", &exchange.listing, &figures)?;
    for (state, client) in &exchange.connections {
        let found = topo.conn(service.proto, (*client.ip(), client.port())).map(|conn| conn.state);
        same("state", &Some((*state).to_owned()), &found)?;
    }
    Ok(())
}

/// Compares what was captured with what was sent, side by side.
fn sides(expected: &[Out], sent: &[Out]) -> Result<(), String> {
    for port in 0..2 {
        let on_port = |all: &[Out]| -> Vec<Out> {
            all.iter().filter(|out| out.port == port && !is_arp_request(&out.frame)).cloned().collect()
        };
        let sent = on_port(sent);
        for out in &sent {
            check::valid(&out.frame);
        }
        compare(&on_port(expected), &sent, Mask::IpIdAndMacs)?;
    }
    Ok(())
}

/// The kernel's machine: addresses of its two sides, hosts on them, and the service under test.
fn rules(exchange: &Exchange) -> Rules {
    let proto = if exchange.service.udp { Proto::Udp } else { Proto::Tcp };
    let virtual_end = exchange.service.address;
    let mut service = Service::new(proto, *virtual_end.ip(), virtual_end.port(), "rr");
    if let Some((server, dr)) = exchange.service.server {
        let method = if dr { Method::Dr } else { Method::Nat };
        service.servers.push(Server::new(*server.ip(), server.port(), method));
    }
    let mut rules = Rules::kernel_network().service(service);
    if exchange.name.ends_with("frag-needed") {
        rules.ports[1].mtu = 1400;
    }
    rules
}

/// A capture file with these frames.
fn capture(frames: Vec<Captured>) -> Vec<u8> {
    let time_ns = |captured: &Captured| captured.at.as_nanos() as u64;
    let frames: Vec<Frame> =
        frames.into_iter().map(|c| Frame { time_ns: time_ns(&c), bytes: c.frame }).collect();
    let mut file = Vec::new();
    pcap::write(&mut file, &frames).expect("memory takes everything");
    file
}

fn is_arp_request(frame: &[u8]) -> bool {
    matches!(check::decode(frame), Ok(frame) if matches!(frame.body, Body::Arp { operation: 1, .. }))
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, expected: &T, found: &T) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}: expected {expected:?}, found {found:?}")) }
}

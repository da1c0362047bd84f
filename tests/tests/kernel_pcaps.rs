//! Exchanges captured on both sides of the kernel's balancer, replayed through ours: what comes out, what is counted
//! and which connection is left must be the same.
//!
//! Frames that the kernel's machine did not send are made a capture file and replayed by its clock; those that it sent
//! must come out, per port and in order. Not compared: IP identification (generated packets have one of our choice), MAC addresses, and
//! ARP requests, which each machine sends when its own neighbour table wants.

use std::fmt::Write as _;

use dataplane::io::pcap::{self, Frame};
use tests::case::{Mask, Out, compare};
use tests::check::{self, Body};
use tests::kernel::packets::{Captured, Exchange, Figures, exchanges};
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

fn replay(exchange: &Exchange) -> Result<(), String> {
    let mut topo = Topo::new(&rules(exchange));
    let (ours, theirs): (Vec<Captured>, Vec<Captured>) =
        exchange.frames().into_iter().partition(Captured::is_ours);
    let expected: Vec<Out> = ours.into_iter().map(|c| Out { port: c.port, frame: c.frame }).collect();
    let sent = topo.replay(&capture(theirs));
    for port in 0..2 {
        let on_port = |all: &[Out]| -> Vec<Out> {
            all.iter().filter(|out| out.port == port && !is_arp_request(&out.frame)).cloned().collect()
        };
        let sent = on_port(&sent);
        for out in &sent {
            check::valid(&out.frame);
        }
        compare(&on_port(&expected), &sent, Mask::IpIdAndMacs)?;
    }

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

/// The listing is what an operator sees of it, so figures of zero are figures too.
#[test]
fn the_recordings_count_something() {
    let all: Vec<Figures> = exchanges().iter().flat_map(|e| e.listing.clone()).collect();
    assert!(all.iter().any(|f| f.inpkts > 0) && all.iter().any(|f| *f == Figures::default()));
}

//! Under which rules, and with which faults, frames arrive.

use std::time::Duration;

use super::Rng;
use super::traffic::{SERVERS, SILENT, VIP_2, WEB_SERVER_PORT, port};
use crate::packets::{self, GATEWAY, VIP};
use crate::topo::{Method, Proto, Rules, Server, Service, Topo};

/// Rules, and what happens to them and to the hosts around.
pub struct Scenario {
    /// For the table of results.
    pub name: &'static str,
    /// Part of all frames, in sixteenths.
    pub share: usize,
    /// The rules at the start.
    pub rules: fn() -> Rules,
    /// Called before each burst is processed.
    pub disturb: fn(&mut Topo, &mut Rng),
}

/// All of them; their shares add up to 16.
pub const SCENARIOS: &[Scenario] = &[
    Scenario { name: "nothing else", share: 3, rules, disturb: |_, _| {} },
    Scenario { name: "silent and slow neighbours", share: 2, rules: unresolved, disturb: answer_sometimes },
    Scenario { name: "transmit blocked, pool empty", share: 2, rules: unresolved, disturb: starve },
    Scenario { name: "narrow links", share: 2, rules: narrow, disturb: |_, _| {} },
    Scenario { name: "knobs changed", share: 2, rules, disturb: turn_knobs },
    Scenario { name: "destinations come and go", share: 2, rules, disturb: change_destinations },
    Scenario { name: "connection table full", share: 1, rules: defended, disturb: |_, _| {} },
    Scenario { name: "no gateway, no neighbour left", share: 2, rules: crowded, disturb: answer_sometimes },
];

/// Bursts between two changes of the rules: each is a parse, a plan and a publication.
const RELOAD_EVERY: usize = 150;

/// Every service over servers whose MAC addresses are known, but for the silent one.
pub fn rules() -> Rules {
    let service = |proto, address, port, scheduler: &str| Service::new(proto, address, port, scheduler);
    let server = |number: usize, port, method| Server::new(SERVERS[number].0, port, method);
    let weighing = |weight, server| Server { weight, ..server };
    let mut rules = Rules::test_network()
        .service(
            service(Proto::Tcp, VIP, port::WEB, "wrr")
                .server(weighing(3, server(0, WEB_SERVER_PORT, Method::Nat)))
                .server(weighing(2, server(1, WEB_SERVER_PORT, Method::Nat)))
                .server(server(2, WEB_SERVER_PORT, Method::Nat)),
        )
        .service(
            service(Proto::Tcp, VIP, port::DIRECT, "lc")
                .server(server(0, port::DIRECT, Method::Dr))
                .server(server(1, port::DIRECT, Method::Dr)),
        )
        .service(
            service(Proto::Udp, VIP, port::DNS, "rr")
                .server(server(0, port::DNS, Method::Nat))
                .server(server(1, port::DNS, Method::Nat)),
        )
        .service(
            service(Proto::Udp, VIP_2, port::LOG, "wlc")
                .server(server(1, port::LOG, Method::Dr))
                .server(server(2, port::LOG, Method::Dr)),
        )
        .service(service(Proto::Tcp, VIP, port::EMPTY, "wlc"))
        .service(service(Proto::Tcp, VIP, port::SILENT, "rr").server(Server::new(
            SILENT.0,
            port::SILENT,
            Method::Nat,
        )));
    rules.neighbours = vec![(0, GATEWAY, packets::GATEWAY_MAC)];
    rules.neighbours.extend(SERVERS.map(|(address, mac)| (1, address, mac)));
    rules
}

/// Nobody's MAC address is written down.
fn unresolved() -> Rules {
    Rules { neighbours: Vec::new(), ..rules() }
}

/// The servers' link takes less than the clients'.
fn narrow() -> Rules {
    let mut rules = rules();
    rules.ports[1].mtu = 640;
    rules.extra = "[timeouts]\ntcp = 5\nudp = 5\n".to_owned();
    rules
}

/// Connections that last; the automatic defences are on.
fn defended() -> Rules {
    let sysctl = vec![("secure_tcp", 1), ("drop_packet", 1), ("sloppy_tcp", 1)];
    let extra = "[timeouts]\nudp = 90000\ntcp = 90000\nsynrecv = 90000\n".to_owned();
    Rules { sysctl, extra, ..rules() }
}

/// Half of the clients on the wire, no router to the others, and a neighbour table that a few fill.
fn crowded() -> Rules {
    let mut rules = rules();
    rules.ports[0].address = "198.51.100.254/25".to_owned();
    rules.ports[0].gateway = None;
    rules.neighbours.retain(|(port, ..)| *port == 1);
    rules.extra = "[limits]\nneighbours = 16\n".to_owned();
    rules
}

/// Now and then a host that was asked for answers.
fn answer_sometimes(topo: &mut Topo, rng: &mut Rng) {
    if rng.one_in(40) {
        let (address, mac) = *rng.pick(&[SILENT, SERVERS[0], SERVERS[1], SERVERS[2]]);
        let reply = packets::arp_reply((mac, address), (packets::P1_MAC, packets::DIP));
        topo.io.inject(1, &reply);
    }
    if rng.one_in(400) {
        topo.advance(Duration::from_secs(25));
    }
}

/// Ports that take nothing for a while, and a pool that has nothing to give for a moment.
fn starve(topo: &mut Topo, rng: &mut Rng) {
    answer_sometimes(topo, rng);
    if rng.one_in(30) {
        let room = *rng.pick(&[0, 0, 3, usize::MAX, usize::MAX, usize::MAX]);
        let port = rng.below(topo.io.tx_room.len());
        topo.io.tx_room[port] = room;
    }
    if rng.one_in(20) {
        topo.io.set_pool(0);
        topo.advance(Duration::from_millis(20));
    }
}

fn turn_knobs(topo: &mut Topo, rng: &mut Rng) {
    if !rng.one_in(RELOAD_EVERY) {
        return;
    }
    let mut rules = rules();
    for (knob, values) in [
        ("secure_tcp", 4),
        ("sloppy_tcp", 2),
        ("drop_packet", 4),
        ("am_droprate", 12),
        ("nat_icmp_send", 2),
        ("expire_nodest_conn", 2),
        ("conn_reuse_mode", 4),
    ] {
        rules.sysctl.push((knob, rng.below(values) as i64));
    }
    if rng.one_in(2) {
        rules.extra = "[policy]\nunmatched = \"drop\"\necho = false\n".to_owned();
    }
    topo.reload(&rules);
}

fn change_destinations(topo: &mut Topo, rng: &mut Rng) {
    if !rng.one_in(RELOAD_EVERY) {
        return;
    }
    let mut rules = rules();
    rules.sysctl.push(("expire_nodest_conn", rng.below(2) as i64));
    for service in &mut rules.services {
        service.servers.retain(|_| !rng.one_in(3));
        for server in &mut service.servers {
            server.weight = rng.below(4) as u32;
            server.upper = rng.below(2) as u32 * 40;
            server.lower = server.upper / 2;
        }
    }
    rules.services.retain(|_| !rng.one_in(10));
    topo.reload(&rules);
}

//! Lives of connections: which server they go to, what they count for, and when they end.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dataplane::conn::state::tcp_is_active;
use dataplane::io::mem::MemBuf;
use dataplane::worker::Worker;
use proptest::prelude::*;
use tests::check;
use tests::packets::{self, VIP, VIP_PORT, flags};
use tests::topo::{Method, Proto, Rules, Server, Service, Topo};

use crate::small_rules;

/// Servers of the service; their numbers are 1..=SERVERS.
const SERVERS: u8 = 4;

/// Client ports in use.
const CLIENTS: u16 = 12;

/// How late a connection may end, milliseconds: two ticks, as a kernel timer of this kind, and a step of the test's
/// clock.
const LATE_MS: u64 = 250;

#[derive(Clone, Copy, Debug)]
enum Event {
    /// A segment or datagram from a client.
    Request {
        client: u16,
        flags: u8,
    },
    /// One from the server that the client was last sent to.
    Reply {
        client: u16,
        flags: u8,
    },
    Weight {
        server: u8,
        weight: u32,
    },
    Limit {
        server: u8,
        upper: u32,
    },
    Delete {
        server: u8,
    },
    Restore {
        server: u8,
    },
    Pass {
        seconds: u64,
    },
}

fn event() -> impl Strategy<Value = Event> {
    use flags::{ACK, FIN, RST, SYN};
    let request = prop::sample::select(vec![SYN, SYN, SYN, ACK, ACK, FIN | ACK, RST]);
    let reply = prop::sample::select(vec![SYN | ACK, ACK, FIN | ACK, RST]);
    let server = 1..=SERVERS;
    prop_oneof![
        12 => (0..CLIENTS, request).prop_map(|(client, flags)| Event::Request { client, flags }),
        6 => (0..CLIENTS, reply).prop_map(|(client, flags)| Event::Reply { client, flags }),
        1 => (server.clone(), 0..4_u32).prop_map(|(server, weight)| Event::Weight { server, weight }),
        1 => (server.clone(), 0..4_u32).prop_map(|(server, upper)| Event::Limit { server, upper }),
        1 => server.clone().prop_map(|server| Event::Delete { server }),
        1 => server.prop_map(|server| Event::Restore { server }),
        2 => prop_oneof![0..3_u64, 0..100_u64].prop_map(|seconds| Event::Pass { seconds }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    /// Through any order of packets, reloads and time: the counts of each server are those of its connections, packets
    /// of one connection go to one server, and a new one goes to none that must not have it. In the end all is zero.
    #[test]
    fn counts_are_those_of_the_connections(
        udp in any::<bool>(),
        scheduler in prop::sample::select(vec!["rr", "wrr", "lc", "wlc"]),
        expire_nodest_conn in any::<bool>(),
        events in prop::collection::vec(event(), 1..120),
    ) {
        let mut world = World::new(if udp { Proto::Udp } else { Proto::Tcp }, scheduler, expire_nodest_conn);
        for event in events {
            world.happens(event)?;
            world.agrees()?;
        }
        world.topo.advance_secs(1000);
        world.agrees()?;
        prop_assert_eq!(world.topo.figures().conns, 0);
        prop_assert_eq!(world.slots.keys().map(|slot| world.total(*slot)).sum::<u32>(), 0);
    }

    /// Each connection ends once: not before its timeout, and no more than [`LATE_MS`] after it.
    #[test]
    fn every_connection_ends_once_and_in_time(gaps in prop::collection::vec(0..4000_u64, 1..60), timeout in 1..40_u64) {
        let mut rules = small_rules().service(service(Proto::Udp, "rr"));
        rules.extra += &format!("[timeouts]\nudp = {timeout}\n");
        let mut topo = Topo::new(&rules);
        let (mut now, mut ends) = (0, Vec::new());
        let before = topo.figures();
        for (number, gap) in gaps.iter().enumerate() {
            now += gap;
            topo.set_time(Duration::from_millis(now));
            topo.deliver(0, &packets::udp(client(number as u16), (VIP, VIP_PORT), b"x").bytes());
            ends.push(now + timeout * 1000);
            let alive = ends.iter().filter(|end| **end > now).count() as u64;
            let late = ends.iter().filter(|end| **end <= now && now <= **end + LATE_MS).count() as u64;
            let found = topo.figures().conns;
            prop_assert!(alive <= found && found <= alive + late, "{found} of {alive} + {late}");
        }
        topo.set_time(Duration::from_millis(now + timeout * 1000 + LATE_MS));
        let after = topo.figures();
        prop_assert_eq!(after.created - before.created, gaps.len() as u64);
        prop_assert_eq!(after.expired - before.expired, gaps.len() as u64);
        prop_assert_eq!(after.conns, 0);
    }

    /// A server takes up to its upper threshold, then none until it is below the lower one, or three quarters.
    #[test]
    fn overload(upper in 1..12_u32, lower in 0..12_u32, steps in prop::collection::vec(any::<bool>(), 1..80)) {
        let lower = lower.min(upper);
        let server = Server { upper, lower, ..Server::new(address(1), VIP_PORT, Method::Dr) };
        let mut topo = Topo::new(&network().service(Service::new(Proto::Tcp, VIP, VIP_PORT, "rr").server(server)));
        let (mut open, mut next, mut overloaded) = (Vec::new(), 0, false);
        for opens in steps {
            if opens {
                next += 1;
                let sent = topo.deliver(0, &packets::tcp(client(next), (VIP, VIP_PORT), flags::SYN).bytes());
                let taken = sent.iter().any(|out| out.port == 1);
                prop_assert_eq!(taken, !overloaded, "{} open", open.len());
                if taken {
                    open.push(next);
                    overloaded = open.len() as u32 >= upper;
                }
            } else if !open.is_empty() {
                // One is closed and runs out in 10 s; the others are kept for a minute.
                let closed = open.remove(0);
                topo.deliver(0, &packets::tcp(client(closed), (VIP, VIP_PORT), flags::ACK).bytes());
                topo.deliver(0, &packets::tcp(client(closed), (VIP, VIP_PORT), flags::RST).bytes());
                for kept in &open {
                    topo.deliver(0, &packets::tcp(client(*kept), (VIP, VIP_PORT), flags::SYN).bytes());
                }
                topo.advance_secs(11);
                let total = open.len() as u32;
                let below = if lower > 0 { total < lower } else { total * 4 < upper * 3 };
                overloaded = overloaded && !below;
            }
            prop_assert_eq!(topo.counts(address(1)).0 + topo.counts(address(1)).1, open.len() as u32);
        }
    }
}

/// A worker, its rules, and what the test knows of both.
struct World {
    topo: Topo,
    rules: Rules,
    proto: Proto,
    /// Servers that are in the rules or were.
    all: Vec<Server>,
    /// Server's number by object slot.
    slots: HashMap<u32, u8>,
    /// The server that each client was sent to last.
    last: HashMap<u16, u8>,
}

impl World {
    fn new(proto: Proto, scheduler: &str, expire_nodest_conn: bool) -> Self {
        let mut rules = network().service(service(proto, scheduler));
        rules.sysctl.push(("expire_nodest_conn", expire_nodest_conn.into()));
        let all = rules.services[0].servers.clone();
        let topo = Topo::new(&rules);
        let mut world = Self { topo, rules, proto, all, slots: HashMap::new(), last: HashMap::new() };
        world.note_slots();
        world
    }

    fn happens(&mut self, event: Event) -> Result<(), TestCaseError> {
        match event {
            Event::Request { client, flags } => return self.request(client, flags),
            Event::Reply { client: number, flags } => {
                let Some(server) = self.last.get(&number) else { return Ok(()) };
                let (from, to) = ((address(*server), 8080), client(number));
                let packet = match self.proto {
                    Proto::Tcp => packets::tcp(from, to, flags),
                    Proto::Udp => packets::udp(from, to, b"y"),
                };
                self.topo.deliver(1, &packet.from_server().bytes());
            }
            Event::Weight { server, weight } => self.edit(server, |s| s.weight = weight),
            Event::Limit { server, upper } => self.edit(server, |s| s.upper = upper),
            Event::Delete { server } => {
                self.rules.services[0].servers.retain(|s| s.address != address(server));
                self.topo.reload(&self.rules);
            }
            Event::Restore { server } => {
                let servers = &mut self.rules.services[0].servers;
                if servers.iter().all(|s| s.address != address(server)) {
                    servers.push(self.all[usize::from(server) - 1].clone());
                    self.topo.reload(&self.rules);
                    self.note_slots();
                }
            }
            Event::Pass { seconds } => self.topo.advance_secs(seconds),
        }
        Ok(())
    }

    fn request(&mut self, number: u16, flags: u8) -> Result<(), TestCaseError> {
        let known = self.server_of(number);
        let rows = self.topo.registry().rows().next().unwrap().dests;
        let before = self.topo.figures();
        let packet = match self.proto {
            Proto::Tcp => packets::tcp(client(number), (VIP, VIP_PORT), flags),
            Proto::Udp => packets::udp(client(number), (VIP, VIP_PORT), b"x"),
        };
        let sent = self.topo.deliver(0, &packet.bytes());
        let created = self.topo.figures().created - before.created;
        let went_to = sent.iter().find(|out| out.port == 1).map(|out| check::valid(&out.frame).dst[5]);
        if let Some(server) = went_to {
            let row = rows.iter().find(|row| row.dest.addr == address(server));
            let row =
                row.ok_or_else(|| TestCaseError::fail(format!("sent to {server}, which was deleted")))?;
            if created == 0 {
                prop_assert_eq!(Some(server), known, "a connection's packets go to one server");
            } else {
                prop_assert!(row.dest.weight > 0, "a new connection for weight 0");
                // The connection that this one took the place of may have been what overloaded the server.
                prop_assert!(!row.overloaded || known.is_some(), "a new connection for an overloaded server");
            }
            self.last.insert(number, server);
        } else {
            prop_assert_eq!(created, 0, "a connection without its first packet");
        }
        Ok(())
    }

    fn edit(&mut self, server: u8, change: impl FnOnce(&mut Server)) {
        let servers = &mut self.rules.services[0].servers;
        if let Some(found) = servers.iter_mut().find(|s| s.address == address(server)) {
            change(found);
            self.topo.reload(&self.rules);
        }
    }

    /// Counts by server, once from the servers' state and once from the connections.
    fn agrees(&self) -> Result<(), TestCaseError> {
        let worker = self.topo.worker();
        let mut counted: HashMap<u32, (u32, u32)> = HashMap::new();
        for slot in worker.conns().table().used(0..worker.conns().table().high_water()) {
            let conn = worker.conns().get(slot);
            let count = counted.entry(conn.dest).or_default();
            if conn.proto() == 6 && tcp_is_active(conn.state) {
                count.0 += 1;
            } else {
                count.1 += 1;
            }
        }
        for (slot, server) in &self.slots {
            let state = &self.topo.registry().shared().dests[*slot];
            let found = counted.remove(slot).unwrap_or_default();
            prop_assert_eq!((state.active(), state.inactive()), found, "server {}", server);
        }
        prop_assert!(counted.is_empty(), "connections of no server: {counted:?}");
        prop_assert_eq!(worker.conns().timers(), worker.conns().table().len());
        Ok(())
    }

    fn total(&self, slot: u32) -> u32 {
        self.topo.registry().shared().dests[slot].total()
    }

    fn note_slots(&mut self) {
        for row in self.topo.registry().rows().flat_map(|row| row.dests) {
            self.slots.insert(row.dest.slot, row.dest.addr.octets()[3]);
        }
    }

    /// The server of a client's connection, if there is one.
    fn server_of(&self, number: u16) -> Option<u8> {
        let worker: &Worker<MemBuf> = self.topo.worker();
        let table = worker.conns().table();
        let (address, port) = client(number);
        let mut conns = table.used(0..table.high_water()).map(|slot| table.get(slot));
        let conn =
            conns.find(|conn| (conn.tuple().caddr, conn.tuple().cport) == (address.to_bits(), port))?;
        Some(conn.tuple().daddr as u8)
    }
}

/// The test network with all servers on it.
fn network() -> Rules {
    let mut rules = small_rules();
    rules.neighbours.retain(|(port, ..)| *port == 0);
    rules.neighbours.extend((1..=SERVERS).map(|number| (1, address(number), [2, 0, 0, 0, 2, number])));
    rules
}

fn service(proto: Proto, scheduler: &str) -> Service {
    (1..=SERVERS).fold(Service::new(proto, VIP, VIP_PORT, scheduler), |service, number| {
        service.server(Server::new(address(number), 8080, Method::Nat))
    })
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

fn client(number: u16) -> (Ipv4Addr, u16) {
    (packets::CLIENT, 10_000 + number)
}

//! lbgen against the real worker, over memory: what it calls a connection is one for the balancer.

use std::sync::atomic::Ordering::Relaxed;

use dataplane::io::mem::{MemBuf, MemIo};
use dataplane::route::PortFacts;
use dataplane::wire::checksum;
use dataplane::worker::Worker;

use super::*;
use crate::engine::{lab, lb};
use crate::settings::LbSettings;

const PEER_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 9, 0], [2, 0, 0, 0, 9, 1]];
const OWN_MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 1, 0], [2, 0, 0, 0, 1, 1]];
/// Polls until every neighbour is known.
const KNOWN: usize = 1000;
/// Time between two polls, nanoseconds.
const STEP_NS: u64 = 100_000;

/// A generator and a balancer with wires between their ports.
struct Wires {
    peers: Peers,
    waiting: Waiting<MemBuf>,
    peers_io: MemIo,
    worker: Worker<MemBuf>,
    worker_io: MemIo,
    stats: Arc<GenStats>,
    now_ns: u64,
    first_drops: u64,
    _setup: lb::Setup,
}

impl Wires {
    fn new(ports: usize, method: &str, settings: LbGenSettings) -> Wires {
        let lb = LbSettings { config: None, method: method.into(), conns: 4096 };
        let text = lab::configuration(&["a", "b"][..ports], &lb).unwrap();
        let valid = config::parse(&text, "lab").unwrap_or_else(|errors| panic!("{errors}"));
        let facts = OWN_MACS[..ports].iter().map(|mac| PortFacts { mac: *mac, mtu: 1500 }).collect();
        let mut setup = lb::Setup::over(&valid, facts, 1, 0).unwrap();
        let settings = Settings { lbgen: settings, ..Settings::new(ports, 1) };
        let stats: Arc<GenStats> = Arc::default();
        let opened = Opened::new(settings.lbgen.flows);
        let peers = Peers::new(&settings, &PEER_MACS[..ports], (0, 1), opened, Arc::clone(&stats));
        let mut wires = Wires {
            waiting: peers.waiting(),
            peers,
            peers_io: MemIo::new(ports, 4096),
            worker: setup.starts.remove(0).worker().unwrap(),
            worker_io: MemIo::new(ports, 4096),
            stats,
            now_ns: 1_000_000_000,
            first_drops: 0,
            _setup: setup,
        };
        wires.run(KNOWN);
        wires.first_drops = wires.worker.stats().read().dropped();
        wires
    }

    fn run(&mut self, polls: usize) {
        for _ in 0..polls {
            self.now_ns += STEP_NS;
            self.peers.poll(self.now_ns, &mut self.peers_io, &mut self.waiting);
            for (port, frame) in self.peers_io.drain() {
                valid(&frame);
                assert!(self.worker_io.inject(port, &frame));
            }
            while self.worker_io.waiting() > 0 {
                self.worker.poll(self.now_ns, &mut self.worker_io);
            }
            self.worker.poll(self.now_ns, &mut self.worker_io);
            for (port, frame) in self.worker_io.drain() {
                assert!(self.peers_io.inject(port, &frame));
            }
        }
    }

    fn count(&self, cell: fn(&GenStats) -> &AtomicU64) -> u64 {
        cell(&self.stats).load(Relaxed)
    }

    /// Packets the balancer dropped since it knows its neighbours: before, too many wait for them.
    fn drops(&self) -> u64 {
        self.worker.stats().read().dropped() - self.first_drops
    }
}

/// Every checksum of a frame that the generator sends is right.
fn valid(frame: &[u8]) {
    if frame[12..14] != [8, 0] {
        return;
    }
    assert_eq!(checksum::sum(&frame[14..34]), 0xffff, "{frame:02x?}");
    let end = 14 + usize::from(be16(frame, 16));
    let check = checksum::transport(be32(frame, SRC), be32(frame, DST), frame[PROTOCOL], &frame[34..end]);
    assert_eq!(check, 0, "{frame:02x?}");
}

fn settings(flows: u32, traffic: Traffic, rate: u64) -> LbGenSettings {
    LbGenSettings { flows, rate, traffic, ..Settings::new(1, 1).lbgen }
}

#[test]
fn a_turn_says_how_many_packets_moved() {
    let mut wires = Wires::new(1, "nat", settings(100, Traffic::Udp, 0));
    let mut received = 0;
    while wires.peers_io.waiting() > 0 {
        let before = wires.peers_io.waiting();
        let moved = wires.peers.poll(wires.now_ns, &mut wires.peers_io, &mut wires.waiting);
        let came = before - wires.peers_io.waiting();
        assert_eq!(moved, came + wires.peers_io.drain().len());
        received += came;
    }
    assert!(received > 0, "the balancer's last packets");
    // Nothing to take and nothing to send: a turn that only waits.
    wires.peers_io.set_pool(0);
    assert_eq!(wires.peers.poll(wires.now_ns, &mut wires.peers_io, &mut wires.waiting), 0);
}

#[test]
fn lasting_connections_open_once_and_talk_both_ways() {
    for (ports, method) in [(1, "nat"), (2, "nat"), (1, "dr"), (2, "dr")] {
        let mut wires = Wires::new(ports, method, settings(100, Traffic::Established, 0));
        wires.run(200);
        let what = format!("{ports} ports, {method}");
        assert_eq!((wires.count(|s| &s.opened), wires.count(|s| &s.resets)), (100, 0), "{what}");
        assert_eq!(wires.worker.conns().table().len(), 100, "{what}");
        assert_eq!(wires.drops(), 0, "{what}");
        let (servers, clients) = (wires.count(|s| &s.requests), wires.count(|s| &s.replies));
        assert!(servers > 4000 && clients > 4000, "{what}: {servers} at servers, {clients} at clients");
    }
}

#[test]
fn short_connections_come_to_their_end_at_the_rate_asked_for() {
    let mut wires = Wires::new(2, "nat", settings(10, Traffic::Mixed, 1000));
    wires.run(10_000);
    // 11 000 polls are 1.1 seconds. The first connections wait for ARP, too many of them.
    let (asked, closed) = (wires.count(|s| &s.asked), wires.count(|s| &s.closed));
    assert!((1095..=1120).contains(&asked), "{asked} asked");
    assert!(asked - closed < 150, "{closed} of {asked} closed");
    assert_eq!((wires.drops(), wires.count(|s| &s.resets)), (0, 0));
}

#[test]
fn new_connections_and_datagrams_are_answered() {
    let mut wires = Wires::new(2, "nat", settings(500, Traffic::Syn, 0));
    wires.run(100);
    assert_eq!(wires.worker.conns().table().len(), 500);
    assert!(wires.count(|s| &s.opened) >= 500);
    let mut wires = Wires::new(1, "nat", settings(64, Traffic::Udp, 0));
    wires.run(100);
    assert_eq!((wires.worker.conns().table().len(), wires.drops()), (64, 0));
    assert!(wires.count(|s| &s.replies) > 1000);
}

#[test]
fn each_round_has_every_flow_once_in_an_order_of_its_own() {
    for len in [1, 2, 3, 100, 1024] {
        let mut order = Order::new(len);
        let mut rounds: Vec<Vec<u32>> = (0..4).map(|_| (0..len).map(|_| order.next()).collect()).collect();
        assert!(len < 100 || rounds[1] != rounds[2], "{len}");
        for round in &mut rounds {
            round.sort_unstable();
            assert!(round.iter().copied().eq(0..len), "{len}: {round:?}");
        }
    }
}

#[test]
fn flows_are_known_again_by_their_ends() {
    let wires = Wires::new(1, "nat", settings(10, Traffic::Established, 0));
    let template = Template::new(&wires.peers.settings);
    let mut frame = [0; FRAME];
    for (flow, port, short) in [(0, LASTING, false), (77_777, LASTING, false), (FLOWS_MAX - 1, SHORT, true)] {
        template.write(&mut frame, flow, port, SYN);
        valid(&frame);
        assert_eq!(wires.peers.client_of(&frame, SRC, SPORT), Some((flow, short)));
        assert_eq!(wires.peers.client_of(&frame, DST, DPORT), None);
    }
}

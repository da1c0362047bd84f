//! Neighbours through their states, with the table and one worker's resolver together; a packet is a number.

use arrayvec::ArrayVec;

use super::resolve::{Ask, Resolver};
use super::*;
use crate::limits::{ARP_RETRY_NS, ARP_TRIES, PARKED_MAX, PARKED_PER_NEIGHBOUR, RESOLVING_MAX};

const SECOND: u64 = 1_000_000_000;
/// Time at which tests begin.
const START: u64 = 100 * SECOND;
const PORT: PortIndex = 1;
const MAC: Mac = Mac([2, 0, 0, 0, 0, 9]);
const ORIGIN: Option<(u32, u16)> = Some((0xcb00_710a, 80));

struct Bench {
    table: NeighTable,
    resolver: Resolver<usize>,
}

impl Bench {
    fn new(max: usize) -> Self {
        let table = NeighTable::new(max).unwrap();
        let resolver = Resolver::new(&table);
        Self { table, resolver }
    }

    fn hop(&self, number: u8, now: u64) -> Hop {
        self.table.find(PORT, address(number), now).unwrap()
    }

    fn park(&mut self, hop: Hop, packet: usize, now: u64) -> Option<usize> {
        self.resolver.park(&self.table, hop, packet, ORIGIN, now)
    }

    /// Requests that are due and neighbours that are settled.
    fn due(&mut self, now: u64) -> (Vec<(Hop, bool)>, Vec<Hop>) {
        let (mut asks, mut settled) = (ArrayVec::<Ask, RESOLVING_MAX>::new(), ArrayVec::new());
        self.resolver.due(&self.table, now, &mut asks, &mut settled);
        (asks.iter().map(|ask| (ask.hop, ask.probe)).collect(), settled.to_vec())
    }

    fn release(&mut self, hop: Hop) -> Vec<usize> {
        std::iter::from_fn(|| self.resolver.release(hop).map(|(packet, _)| packet)).collect()
    }

    fn state(&self, number: u8) -> &'static str {
        self.table.rows().find(|row| row.addr == address(number)).map_or("none", |row| row.state)
    }

    fn learn(&self, number: u8, now: u64) {
        self.table.learn(PORT, address(number), MAC, false, now).unwrap();
    }

    fn upkeep(&mut self, now: u64) {
        self.resolver.upkeep(&self.table, self.table.len(), now);
    }

    /// Lets a neighbour fail for want of answers.
    fn fail(&mut self, number: u8, now: u64) -> Hop {
        let hop = self.hop(number, now);
        self.resolver.kick(&self.table, hop, now);
        for second in 0..=u64::from(ARP_TRIES) {
            self.due(now + second * ARP_RETRY_NS);
        }
        assert_eq!(self.release(hop), []);
        hop
    }
}

fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

#[test]
fn packets_wait_in_order_and_leave_when_the_answer_comes() {
    let mut bench = Bench::new(64);
    let hop = bench.hop(1, START);
    assert_eq!((bench.state(1), bench.table.reach(hop)), ("idle", Reach::Waiting { port: PORT }));

    for packet in 1..=3 {
        assert_eq!(bench.park(hop, packet, START), None);
    }
    assert_eq!((bench.state(1), bench.resolver.waiting()), ("incomplete", 3));
    assert_eq!(bench.due(START), (vec![(hop, false)], vec![]), "one request for all three");
    assert_eq!(bench.due(START + SECOND - 1), (vec![], vec![]));

    bench.learn(1, START + SECOND / 2);
    assert_eq!(bench.table.reach(hop), Reach::Ready { mac: MAC, port: PORT });
    assert_eq!(bench.resolver.release(hop), Some((1, ORIGIN)));
    assert_eq!(bench.release(hop), [2, 3]);
    assert_eq!((bench.state(1), bench.resolver.waiting()), ("reachable", 0));
    assert_eq!(bench.due(START + 5 * SECOND), (vec![], vec![]), "the resolution is forgotten");
}

#[test]
fn a_silent_neighbour_fails_after_three_requests_a_second_apart() {
    let mut bench = Bench::new(64);
    let hop = bench.hop(1, START);
    bench.park(hop, 7, START);
    let (mut asked, mut failed) = (Vec::new(), None);
    for ms in (0..5000).step_by(10) {
        let (asks, settled) = bench.due(START + ms * 1_000_000);
        asked.extend(asks.iter().map(|ask| (ms, *ask)));
        if settled == [hop] {
            failed = Some(ms);
            break;
        }
    }
    assert_eq!(asked, [(0, (hop, false)), (1000, (hop, false)), (2000, (hop, false))]);
    assert_eq!(failed, Some(3000));
    assert_eq!((bench.state(1), bench.table.reach(hop)), ("failed", Reach::Failed { port: PORT }));
    assert_eq!(bench.release(hop), [7]);
    assert_eq!(bench.resolver.waiting(), 0);

    // Left alone for a second, then asked again, by the next packet.
    let failed_at = START + 3 * SECOND;
    assert!(!bench.table.may_retry(hop, failed_at + SECOND - 1));
    assert!(bench.table.may_retry(hop, failed_at + SECOND));
    assert_eq!(bench.park(hop, 8, failed_at + SECOND), None);
    assert_eq!(bench.state(1), "incomplete");
    assert_eq!(bench.due(failed_at + SECOND).0, [(hop, false)]);
}

#[test]
fn any_arp_from_a_failed_neighbour_brings_it_back() {
    let mut bench = Bench::new(64);
    let hop = bench.fail(1, START);
    assert_eq!(bench.state(1), "failed");
    bench.learn(1, START + 4 * SECOND);
    assert_eq!(bench.table.reach(hop), Reach::Ready { mac: MAC, port: PORT });
}

#[test]
fn a_reachable_neighbour_is_probed_after_twenty_seconds() {
    let mut bench = Bench::new(64);
    let hop = bench.hop(1, START);
    bench.learn(1, START);
    bench.upkeep(START + NEIGH_REFRESH_NS - 1);
    assert_eq!(bench.state(1), "reachable");

    let probed = START + NEIGH_REFRESH_NS;
    bench.upkeep(probed);
    assert_eq!(bench.state(1), "probing");
    assert_eq!(bench.table.reach(hop), Reach::Ready { mac: MAC, port: PORT }, "packets pass meanwhile");
    assert_eq!(bench.due(probed), (vec![(hop, true)], vec![]), "by unicast");
    bench.learn(1, probed + SECOND);
    assert_eq!(bench.state(1), "reachable");
    assert_eq!(bench.due(probed + SECOND), (vec![], vec![hop]));
    assert_eq!(bench.release(hop), []);

    // No answer to three probes: packets start a resolution anew.
    let probed = probed + SECOND + NEIGH_REFRESH_NS;
    bench.upkeep(probed);
    let asked: usize = (0..3).map(|second| bench.due(probed + second * SECOND).0.len()).sum();
    assert_eq!((asked, bench.state(1)), (3, "probing"));
    assert_eq!(bench.due(probed + 3 * SECOND), (vec![], vec![hop]));
    assert_eq!((bench.state(1), bench.table.reach(hop)), ("idle", Reach::Waiting { port: PORT }));
    assert_eq!(bench.release(hop), []);
    assert_eq!(bench.park(hop, 1, probed + 4 * SECOND), None);
    assert_eq!(bench.state(1), "incomplete");
}

#[test]
fn the_oldest_packet_makes_room() {
    let mut bench = Bench::new(64);
    let hop = bench.hop(1, START);
    for packet in 0..PARKED_PER_NEIGHBOUR {
        assert_eq!(bench.park(hop, packet, START), None);
    }
    assert_eq!(bench.park(hop, 100, START), Some(0));
    assert_eq!(bench.park(hop, 101, START), Some(1));
    assert_eq!(bench.resolver.waiting(), PARKED_PER_NEIGHBOUR);
    let expected: Vec<usize> = (2..PARKED_PER_NEIGHBOUR).chain([100, 101]).collect();
    assert_eq!(bench.release(hop), expected);
}

#[test]
fn waiting_packets_and_resolutions_are_bounded() {
    let mut bench = Bench::new(1024);
    let hops: Vec<Hop> = (0..=16).map(|number| bench.hop(number, START)).collect();
    let all = PARKED_MAX + PARKED_PER_NEIGHBOUR;
    let refused =
        (0..all).filter(|n| bench.park(hops[n / PARKED_PER_NEIGHBOUR], *n, START) == Some(*n)).count();
    assert_eq!((refused, bench.resolver.waiting()), (PARKED_PER_NEIGHBOUR, PARKED_MAX));
    assert_eq!(bench.resolver.drain().count(), PARKED_MAX);

    let mut bench = Bench::new(1024);
    for number in 0..RESOLVING_MAX {
        let hop = bench.table.find(PORT, Ipv4Addr::new(10, 1, 0, number as u8), START).unwrap();
        assert_eq!(bench.park(hop, number, START), None);
    }
    let one_more = bench.hop(1, START);
    assert_eq!(bench.park(one_more, 999, START), Some(999));
    assert_eq!(bench.due(START).0.len(), RESOLVING_MAX);
}

/// Resolutions end in any order; each still finds its own packets.
#[test]
fn resolutions_end_in_any_order() {
    let mut bench = Bench::new(256);
    let hops: Vec<Hop> = (0..50).map(|number| bench.hop(number, START)).collect();
    for packet in 0..200 {
        bench.park(hops[packet % 50], packet, START);
    }
    for step in 0..50 {
        let number = step * 17 % 50;
        bench.learn(number as u8, START);
        assert_eq!(bench.release(hops[number]), [number, number + 50, number + 100, number + 150]);
    }
    assert_eq!(bench.resolver.waiting(), 0);
    assert_eq!(bench.due(START + SECOND), (vec![], vec![]));
}

#[test]
fn a_full_table_gives_up_who_failed_and_its_hop_is_gone() {
    let mut bench = Bench::new(1);
    let cells = bench.table.len();
    let mut known = Vec::new();
    for number in 0..=255 {
        known.extend(bench.table.find(PORT, address(number), START).map(|_| number));
    }
    assert!(known.len() <= cells && known.len() >= WINDOW, "{} of {cells}", known.len());
    let new = Ipv4Addr::new(10, 9, 9, 9);
    assert_eq!(bench.table.find(PORT, new, START), None);

    let old: Vec<Hop> = known.iter().map(|number| bench.fail(*number, START)).collect();
    let hop = bench.table.find(PORT, new, START + 9 * SECOND).unwrap();
    assert_eq!(bench.table.reach(hop), Reach::Waiting { port: PORT });
    let gone = old.iter().filter(|hop| bench.table.reach(**hop) == Reach::Gone).count();
    assert_eq!(gone, 1);
}

#[test]
fn a_reused_cell_has_another_generation() {
    let mut bench = Bench::new(16);
    let mut now = START;
    let mut hops = Vec::new();
    for _ in 0..100 {
        let hop = bench.hop(1, now);
        bench.learn(1, now);
        assert!(hops.iter().all(|old| bench.table.reach(*old) == Reach::Gone), "old names are void");
        hops.push(hop);
        // Nobody looks for it for so long that it is given up.
        now += (u64::from(UNUSED_S) + 1) * SECOND;
        bench.upkeep(now);
        assert_eq!((bench.state(1), bench.table.reach(hop)), ("none", Reach::Gone));
    }
}

#[test]
fn a_written_mac_address_stays() {
    let mut bench = Bench::new(16);
    let hop = bench.hop(1, START);
    bench.park(hop, 5, START);
    assert!(bench.table.set_permanent(PORT, address(1), Mac([4; 6]), START));
    let written = Reach::Ready { mac: Mac([4; 6]), port: PORT };
    assert_eq!(bench.table.reach(hop), written);
    assert_eq!(bench.due(START), (vec![], vec![hop]), "packets that waited can go");
    assert_eq!(bench.release(hop), [5]);

    bench.learn(1, START + SECOND);
    assert_eq!(bench.table.reach(hop), written, "ARP changes nothing");
    bench.upkeep(START + 10_000 * SECOND);
    assert_eq!(bench.state(1), "permanent");

    bench.table.clear_permanent(PORT, address(1), START);
    assert_eq!((bench.state(1), bench.table.reach(hop)), ("idle", Reach::Waiting { port: PORT }));
    bench.learn(1, START);
    bench.table.clear_permanent(PORT, address(1), START);
    assert_eq!(bench.state(1), "reachable", "only a written one is taken back");
}

#[test]
fn strangers_are_learned_only_when_asked_to() {
    let bench = Bench::new(16);
    assert_eq!(bench.table.learn(PORT, address(1), MAC, false, START), None);
    assert_eq!(bench.table.rows().count(), 0);
    let hop = bench.table.learn(PORT, address(1), MAC, true, START).unwrap();
    assert_eq!(bench.table.reach(hop), Reach::Ready { mac: MAC, port: PORT });
    let row = NeighRow { addr: address(1), port: PORT, mac: Some(MAC), state: "reachable" };
    assert_eq!(bench.table.rows().collect::<Vec<_>>(), [row]);
    // The same address behind another port is another neighbour.
    assert_ne!(bench.table.find(0, address(1), START), Some(hop));
}

/// Two workers want the same neighbour: one asks at once, the other only if the first does not get through with it.
#[test]
fn one_of_two_workers_asks() {
    let mut bench = Bench::new(16);
    let mut second = Resolver::new(&bench.table);
    let hop = bench.hop(1, START);
    bench.park(hop, 1, START);
    assert_eq!(second.park(&bench.table, hop, 2, ORIGIN, START), None);
    assert_eq!(bench.due(START).0, [(hop, false)]);
    let (mut asks, mut settled) = (ArrayVec::new(), ArrayVec::new());
    second.due(&bench.table, START, &mut asks, &mut settled);
    assert!(asks.is_empty() && settled.is_empty());

    bench.learn(1, START + 1);
    second.due(&bench.table, START + 2, &mut asks, &mut settled);
    assert_eq!(settled[..], [hop], "the second one notices by itself");
    assert_eq!(second.release(hop), Some((2, ORIGIN)));
}

/// Two workers come upon the same new neighbours at the same time: each has one cell, and both know it.
#[test]
fn two_workers_find_one_cell() {
    const NEIGHBOURS: u32 = 200;
    for _ in 0..100 {
        let (table, barrier) = (NeighTable::new(4096).unwrap(), std::sync::Barrier::new(2));
        let find = || -> Vec<Hop> {
            (0..NEIGHBOURS)
                .map(|n| {
                    barrier.wait();
                    table.find(PORT, Ipv4Addr::from_bits(0x0a00_0000 + n), START).unwrap()
                })
                .collect()
        };
        let (one, other) = std::thread::scope(|scope| {
            let other = scope.spawn(find);
            (find(), other.join().unwrap())
        });
        assert_eq!(one, other);
        assert_eq!(table.rows().count(), NEIGHBOURS as usize);
    }
}

/// The other worker took the cell between a search that did not find the neighbour and the claim.
#[test]
fn a_claim_finds_what_another_worker_claimed() {
    for evict in [false, true] {
        let table = NeighTable::new(16).unwrap();
        let hop = table.find(PORT, address(1), START).unwrap();
        let key = key(PORT, address(1));
        let claimed = table.window(key).find_map(|index| table.claim(index, key, PORT, 100, evict));
        assert_eq!((claimed, table.rows().count()), (Some(hop), 1), "evict {evict}");
    }
}

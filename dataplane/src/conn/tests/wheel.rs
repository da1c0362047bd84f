//! The wheel against a sorted map of ends.

use std::collections::{BTreeMap, BTreeSet};

use dpdk_sys::Prefault;
use proptest::prelude::*;

use crate::conn::record::{Record, Tuple, flag};
use crate::conn::table::Slot;
use crate::conn::wheel::{MAX_TICKS, TICK_NS, tick_of, ticks_of_secs};
use crate::conn::{Conns, NO_DEST};
use crate::hash::FlowHasher;

const MAX: usize = 24;

fn conns(max: usize, now_tick: u32) -> Conns {
    Conns::new(max, FlowHasher::new(1, 2), Prefault::Lazy, now_tick).unwrap()
}

fn record(n: u32) -> Record {
    let tuple = Tuple { proto: 6, caddr: n, cport: 1, vaddr: 2, vport: 3, daddr: 4, dport: 5 };
    Record::new(tuple, flag::NAT)
}

#[derive(Clone, Debug)]
enum Step {
    Insert { timeout: u32 },
    Touch { which: usize, timeout: u32 },
    Remove { which: usize },
    Advance { ticks: u32 },
    Expire { budget: usize, again: Option<u32> },
}

/// Ticks that meet every level, its edges, the far end and beyond.
fn any_ticks(longest: u32) -> impl Strategy<Value = u32> {
    prop_oneof![
        6 => 0u32..5,
        3 => 200u32..600,
        2 => 65_000u32..66_200,
        1 => 0u32..1 << 20,
        1 => (1u32 << 24) - 70_000..(1 << 24) + 70_000,
        1 => longest - 300..=longest,
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let timeout = || any_ticks(MAX_TICKS);
    prop_oneof![
        4 => timeout().prop_map(|timeout| Step::Insert { timeout }),
        4 => (any::<usize>(), timeout()).prop_map(|(which, timeout)| Step::Touch { which, timeout }),
        1 => any::<usize>().prop_map(|which| Step::Remove { which }),
        4 => any_ticks(1 << 29).prop_map(|ticks| Step::Advance { ticks }),
        6 => (0usize..4, proptest::option::weighted(0.2, timeout()))
            .prop_map(|(budget, again)| Step::Expire { budget, again }),
        2 => Just(Step::Expire { budget: usize::MAX, again: None }),
    ]
}

/// Ends in ticks that do not wrap; `start` is where the real ones begin.
struct Model {
    start: u32,
    now: u64,
    /// When the wheel last said that nothing was due.
    caught_up: u64,
    ends: BTreeMap<Slot, u64>,
}

impl Model {
    fn now_tick(&self) -> u32 {
        self.start.wrapping_add(self.now as u32)
    }

    fn nth(&self, which: usize) -> Option<Slot> {
        self.ends.keys().nth(which.checked_rem(self.ends.len())?).copied()
    }

    fn end_in(&mut self, slot: Slot, timeout: u32) {
        self.ends.insert(slot, self.now + u64::from(timeout) + 1);
    }
}

fn run(start: u32, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut conns = conns(MAX, start);
    let mut model = Model { start, now: 0, caught_up: 0, ends: BTreeMap::new() };
    let mut next = 0;
    for step in steps {
        let now_tick = model.now_tick();
        match step {
            Step::Insert { timeout } => {
                next += 1;
                if let Ok(slot) = conns.insert(record(next), now_tick, timeout) {
                    model.end_in(slot, timeout);
                }
            }
            Step::Touch { which, timeout } => {
                if let Some(slot) = model.nth(which) {
                    conns.touch(slot, now_tick, timeout);
                    prop_assert_eq!(conns.get(slot).remaining(now_tick), timeout);
                    model.end_in(slot, timeout);
                }
            }
            Step::Remove { which } => {
                if let Some(slot) = model.nth(which) {
                    prop_assert!(conns.remove(slot));
                    model.ends.remove(&slot);
                }
            }
            Step::Advance { ticks } => {
                let farthest = model.caught_up + u64::from(MAX_TICKS) - 1;
                model.now = (model.now + u64::from(ticks)).min(farthest);
            }
            Step::Expire { budget, again } => {
                let mut left = budget;
                let mut given = BTreeSet::new();
                while let Some(slot) = conns.expire_next(now_tick, &mut left) {
                    let end = model.ends.remove(&slot);
                    prop_assert!(end.is_some_and(|end| end <= model.now), "{:?} at {}", end, model.now);
                    given.insert(slot);
                    match again {
                        Some(timeout) => {
                            conns.touch(slot, now_tick, timeout);
                            model.end_in(slot, timeout);
                        }
                        None => prop_assert!(conns.remove(slot)),
                    }
                }
                prop_assert!(given.len() <= budget - left);
                if left > 0 {
                    let late = model.ends.values().filter(|&&end| end <= model.now).count();
                    prop_assert_eq!(late, 0);
                    model.caught_up = model.now;
                }
            }
        }
        prop_assert_eq!(conns.timers(), model.ends.len());
    }
    Ok(())
}

proptest! {
    #[test]
    fn every_end_comes_once_and_in_time(
        start in prop_oneof![Just(0), Just(u32::MAX - 300), Just(u32::MAX - 66_000), any::<u32>()],
        steps in proptest::collection::vec(any_step(), 1..200),
    ) {
        run(start, steps)?;
    }
}

/// Polls each millisecond, as a slow worker would, and packets at odd times.
#[test]
fn a_connection_ends_within_134_ms_after_its_timeout() {
    const POLL_NS: u64 = 1_000_000;
    for (secs, offset_ns) in [(2, 0), (2, TICK_NS - 1), (10, 12_345_678), (60, 1), (120, 50_000_000)] {
        let mut now_ns = (u64::from(u32::MAX) - 100) * TICK_NS + offset_ns;
        let mut conns = conns(1, tick_of(now_ns));
        let slot = conns.insert(record(1), tick_of(now_ns), ticks_of_secs(3)).unwrap();
        let mut last_packet_ns = now_ns;
        for _ in 0..3 {
            now_ns += 1_777_777_777;
            last_packet_ns = now_ns;
            conns.touch(slot, tick_of(now_ns), ticks_of_secs(secs));
            assert_eq!(conns.expire_next(tick_of(now_ns), &mut 8), None);
        }
        let end_ns = loop {
            if conns.expire_next(tick_of(now_ns), &mut 1).is_some() {
                break now_ns;
            }
            now_ns += POLL_NS;
        };
        let nominal_ns = last_packet_ns + u64::from(secs) * 1_000_000_000;
        assert!(end_ns > nominal_ns, "{secs} s: early");
        assert!(end_ns <= nominal_ns + 2 * TICK_NS + POLL_NS, "{secs} s: {} ns late", end_ns - nominal_ns);
    }
}

#[test]
fn time_may_jump_without_a_visit_to_each_tick() {
    let mut conns = conns(2, 7);
    conns.insert(record(1), 7, ticks_of_secs(900)).unwrap();
    conns.insert(record(2), 7, MAX_TICKS).unwrap();
    let later = 7 + (1 << 29);
    let mut budget = 100;
    assert_eq!(conns.expire_next(later, &mut budget).map(Slot::index), Some(0));
    assert_eq!(conns.expire_next(later, &mut budget), None);
    // One visit for the end; one for each turn of the last level that the other one waited.
    assert!(budget >= 100 - 1 - (1 << 29 >> 24) - 1, "{budget} left");
}

#[test]
fn a_quiet_connection_is_looked_at_once_a_level() {
    let timeout = ticks_of_secs(900);
    let mut conns = conns(1, 100);
    conns.insert(record(1), 100, timeout).unwrap();
    let mut budget = 100;
    let end = (100..).find(|&tick| conns.expire_next(tick, &mut budget).is_some());
    assert_eq!(end, Some(100 + timeout + 1));
    assert!(budget >= 100 - 2, "{budget} left");
}

#[test]
fn a_small_budget_keeps_its_place() {
    let mut conns = conns(1000, 0);
    for n in 0..1000 {
        conns.insert(record(n), 0, 300).unwrap();
    }
    let mut ended = BTreeSet::new();
    let mut polls = 0;
    while ended.len() < 1000 {
        let mut budget = 7;
        while let Some(slot) = conns.expire_next(301, &mut budget) {
            assert!(ended.insert(slot));
            conns.remove(slot);
        }
        polls += 1;
    }
    assert_eq!(polls, 1000_usize.div_ceil(7));
    assert_eq!(conns.timers(), 0);
}

#[test]
fn an_empty_wheel_follows_any_clock() {
    let mut conns = conns(1, 5);
    for now in [5, u32::MAX, 3, 1 << 31, 1000] {
        assert_eq!(conns.expire_next(now, &mut 1), None);
    }
    let slot = conns.insert(record(1), 1000, 10).unwrap();
    assert_eq!(conns.get(slot).dest, NO_DEST);
    assert_eq!(conns.expire_next(1010, &mut 1), None);
    assert_eq!(conns.expire_next(1011, &mut 1), Some(slot));
}

#[test]
fn a_clock_gone_mad_neither_hangs_nor_repeats() {
    for jump in [1 << 30, (1 << 31) - 1, 1 << 31, 3 << 30, u32::MAX - 1] {
        let mut conns = conns(3, 9);
        for (n, timeout) in [(1, 0), (2, 300), (3, MAX_TICKS)] {
            conns.insert(record(n), 9, timeout).unwrap();
        }
        let mut ended = BTreeSet::new();
        for now in [9u32.wrapping_add(jump), 10, 400, 9 + (1 << 30), 9 + (1 << 30) + 300] {
            let mut budget = usize::MAX;
            while let Some(slot) = conns.expire_next(now, &mut budget) {
                assert!(ended.insert(slot));
            }
        }
        assert_eq!(ended.len(), 3 - conns.timers());
    }
}

#[test]
fn an_end_behind_the_wheel_has_come() {
    let mut conns = conns(2, 9);
    conns.insert(record(1), 9, MAX_TICKS).unwrap();
    assert_eq!(conns.expire_next(1 << 29, &mut 100), None);
    // The clock goes back, then so far ahead that the end looks like the future.
    let slot = conns.insert(record(2), 9, 0).unwrap();
    assert_eq!(conns.expire_next((1 << 31) + 15, &mut 100), Some(slot));
}

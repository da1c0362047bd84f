//! Random lives of random estimators against slow references: one for rates and totals, one for the choice of a row.

use std::collections::{BTreeMap, HashMap};

use proptest::prelude::*;

use super::world::{SECOND, World};
use crate::counters::{BLOCK, TOTALS, Totals};
use crate::est::block::Home;
use crate::est::filter::{bytes_shown, packets_shown};
use crate::est::plan::Plan;
use crate::est::{PERIOD_NS, ROWS, Rates, Settings, TICK_NS};

/// An estimator as one would write it without knowing of blocks.
#[derive(Default)]
struct Naive {
    live: bool,
    added: u64,
    passed: Option<u64>,
    base: u64,
    last: u64,
    rate: i128,
    byte_rate: i128,
}

impl Naive {
    fn pass(&mut self, sum: u64, now: u64) {
        let delta = i128::from(sum - self.last);
        self.rate += (delta * 512 - self.rate).div_euclid(4);
        self.byte_rate += (delta * 100 * 16 - self.byte_rate).div_euclid(4);
        self.last = sum;
        self.passed = Some(now);
    }
}

#[derive(Clone, Debug)]
enum Op {
    Add(u16),
    Release(prop::sample::Index),
    Suspend(prop::sample::Index),
    Revive(prop::sample::Index),
    Zero(prop::sample::Index),
    Count(prop::sample::Index, u16),
    Run(u16),
}

fn op() -> impl Strategy<Value = Op> {
    use prop::sample::Index;
    prop_oneof![
        3 => (1..40u16).prop_map(Op::Add),
        1 => Just(Op::Add(1500)),
        3 => any::<Index>().prop_map(Op::Release),
        2 => any::<Index>().prop_map(Op::Suspend),
        2 => any::<Index>().prop_map(Op::Revive),
        2 => any::<Index>().prop_map(Op::Zero),
        9 => (any::<Index>(), 0..3000u16).prop_map(|(i, n)| Op::Count(i, n)),
        6 => (1..3000u16).prop_map(Op::Run),
    ]
}

/// What each slot counted, since the world began.
type Counted = HashMap<u32, u64>;

/// After a turn: who was passed now, was due to be, and shows what the reference shows.
fn compare(world: &World, naive: &mut BTreeMap<u32, Naive>, counted: &Counted) {
    for (&slot, n) in naive.iter_mut().filter(|(_, n)| n.live) {
        let snapshot = world.est.read(slot).expect("a slot in use");
        if snapshot.passed_ns != n.passed {
            let now = snapshot.passed_ns.expect("passes are not forgotten");
            match n.passed {
                Some(before) => assert_eq!(now - before, PERIOD_NS, "slot {slot}"),
                None => assert!(now - n.added <= PERIOD_NS + 2 * TICK_NS, "slot {slot}"),
            }
            n.pass(counted.get(&slot).copied().unwrap_or(0), now);
        }
        let since = world.host.now - n.passed.unwrap_or(n.added);
        assert!(since <= PERIOD_NS + 2 * TICK_NS, "slot {slot} was left out");
        let rates = Rates {
            inpps: packets_shown(n.rate as u64),
            inbps: bytes_shown(n.byte_rate as u64),
            ..Rates::default()
        };
        let packets = n.last - n.base;
        let totals = Totals { inpkts: packets, inbytes: packets * 100, ..Totals::default() };
        assert_eq!((snapshot.rates, snapshot.totals), (rates, totals), "slot {slot}");
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn rates_and_totals_are_the_references(ops in prop::collection::vec(op(), 1..80), workers in 1..7usize) {
        // Blocks are cheap enough that a row may have three: bursts spill, but no second thread is needed.
        let mut world = World::new(workers, 40, Settings::default(), 1500);
        let mut naive: BTreeMap<u32, Naive> = BTreeMap::new();
        let mut counted = Counted::new();
        for op in ops {
            let pick = |index: prop::sample::Index| {
                (!naive.is_empty()).then(|| *naive.keys().nth(index.index(naive.len())).unwrap())
            };
            match op {
                Op::Add(n) => for _ in 0..n {
                    let Some(slot) = world.est.add(world.host.now) else { break };
                    let base = counted.get(&slot).copied().unwrap_or(0);
                    let new = Naive { live: true, added: world.host.now, base, last: base, ..Naive::default() };
                    prop_assert!(naive.insert(slot, new).is_none(), "slot {slot} twice");
                },
                Op::Release(i) => if let Some(slot) = pick(i) {
                    world.est.release(slot);
                    naive.remove(&slot);
                },
                Op::Suspend(i) => if let Some(slot) = pick(i) {
                    world.est.suspend(slot);
                    naive.get_mut(&slot).unwrap().live = false;
                },
                Op::Revive(i) => if let Some(slot) = pick(i) {
                    world.est.revive(slot);
                    let n = naive.get_mut(&slot).unwrap();
                    if !n.live {
                        // Its next pass may come at any time within a period.
                        (n.live, n.added) = (true, world.host.now);
                        if n.passed.is_some() {
                            n.passed = world.est.read(slot).unwrap().passed_ns;
                        }
                    }
                },
                Op::Zero(i) => if let Some(slot) = pick(i) {
                    world.est.zero(slot);
                    let n = naive.get_mut(&slot).unwrap();
                    (n.base, n.rate, n.byte_rate) = (n.last, 0, 0);
                },
                Op::Count(i, packets) => if let Some(slot) = pick(i).filter(|slot| naive[slot].live) {
                    world.count(slot, packets.into());
                    *counted.entry(slot).or_default() += u64::from(packets);
                },
                Op::Run(ms) => {
                    let until = world.host.now + u64::from(ms) * 1_000_000;
                    world.run_to(until, |world| compare(world, &mut naive, &counted));
                }
            }
            world.check();
        }
        // Conservation: the totals are what all slots counted together, once for each of the two objects a packet has.
        world.run(PERIOD_NS + TICK_NS);
        let all: u64 = counted.values().sum();
        prop_assert_eq!(world.est.read(TOTALS).unwrap().totals.inpkts, 2 * all);
    }

    /// The row of an addition is the one of all with room whose turn comes last, lower threads first.
    #[test]
    fn the_row_is_the_references(
        turns in prop::collection::vec((0..3usize, 0..ROWS), 1..4),
        fills in prop::collection::vec((0..3usize, 0..ROWS, 0..3usize), 0..160),
        frees in prop::collection::vec(any::<prop::sample::Index>(), 0..30),
    ) {
        let world = World::new(1, 200, Settings::default(), 1500);
        let mut plan = world.est.plan();
        // Three threads, each somewhere in its revolution, with rows that have blocks, full but for a few slots.
        for (t, row) in turns {
            while plan.threads.len() <= t {
                let now = world.host.now;
                plan.activate(now);
                let t = plan.threads.len() - 1;
                fill(&mut plan, Home { thread: t, row: 7 });
            }
            plan.threads[t].next_row = row;
        }
        for (t, row, blocks) in fills {
            let most = plan.row_blocks(t.min(plan.threads.len() - 1));
            let home = Home { thread: t.min(plan.threads.len() - 1), row };
            while plan.threads[home.thread].rows[row].blocks.len() < blocks.min(most) {
                fill(&mut plan, home);
            }
        }
        let placed: Vec<usize> = (0..plan.placed.len()).filter(|&b| plan.placed[b].home.is_some()).collect();
        for index in frees {
            let block = placed[index.index(placed.len())];
            if plan.placed[block].free == 0 {
                let home = plan.placed[block].home.unwrap();
                plan.placed[block].free = 1;
                plan.placed[block].taken.set(3, false);
                plan.threads[home.thread].rows[home.row].free += 1;
            }
        }
        let expected = naive_row(&plan);
        let chosen = plan.choose(world.host.now).map(|(home, away)| (home.thread, home.row, away));
        if let Some(expected) = expected {
            prop_assert_eq!(chosen, Some(expected));
        }
    }
}

/// Puts a full block into a row.
fn fill(plan: &mut Plan, home: Home) {
    let std::cmp::Reverse(block) = plan.unopened.pop().unwrap();
    plan.place(block, home);
    let size = plan.placed[block].size;
    (0..size).for_each(|i| plan.placed[block].taken.set(i, true));
    plan.placed[block].free = 0;
    plan.threads[home.thread].rows[home.row].free -= size;
}

fn naive_row(plan: &Plan) -> Option<(usize, usize, usize)> {
    let mut all = Vec::new();
    for t in 0..plan.threads.len() {
        for row in 0..ROWS {
            let blocks: Vec<usize> = (0..plan.placed.len())
                .filter(|&b| plan.placed[b].home == Some(Home { thread: t, row }))
                .collect();
            let free: usize = blocks.iter().map(|&b| plan.placed[b].free).sum();
            let may_open = blocks.len() < plan.row_blocks(t) && !plan.unopened.is_empty();
            let away = (row + ROWS - plan.threads[t].next_row) % ROWS;
            if free > 0 || may_open {
                all.push((t, row, away));
            }
        }
    }
    all.into_iter().max_by_key(|&(t, _, away)| (away, std::cmp::Reverse(t)))
}

/// Every block is in the row that it says, or free; counts agree.
pub fn check(plan: &Plan) {
    let mut seen = vec![false; plan.placed.len()];
    for (t, thread) in plan.threads.iter().enumerate() {
        assert!(thread.wanted || thread.blocks() == 0, "thread {t} has blocks and was never told of");
        for (r, row) in thread.rows.iter().enumerate() {
            for &block in &row.blocks {
                assert!(!std::mem::replace(&mut seen[block], true), "block {block} twice");
                assert_eq!(plan.placed[block].home, Some(Home { thread: t, row: r }));
            }
            assert_eq!(
                row.free,
                row.blocks.iter().map(|&b| plan.placed[b].free).sum::<usize>(),
                "row {t}.{r}"
            );
        }
    }
    for (block, placed) in plan.placed.iter().enumerate() {
        assert_eq!(placed.home.is_some(), seen[block], "block {block}");
        let taken = (0..BLOCK).filter(|&i| placed.taken.get(i)).count();
        assert_eq!(placed.free, placed.size - taken, "block {block}");
        assert!(placed.ests <= taken as u64);
    }
    assert_eq!(plan.unopened.len(), seen.iter().filter(|seen| !**seen).count());
    assert_eq!(plan.placed[0].home.map(|home| home.thread), Some(0), "the totals stay in thread 0");
}

#[test]
fn a_second_is_twenty_five_ticks() {
    assert_eq!(SECOND, 25 * TICK_NS);
}

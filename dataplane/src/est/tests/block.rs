//! Passes of single estimators: zeroing, pauses, slots that come and go, work that is left out.

use std::sync::Arc;

use super::world::{SECOND, World};
use crate::counters::{self, CounterSlab, TOTALS, Totals, sum_range};
use crate::est::block::{Block, Home, Lanes, Visit, When, Work};
use crate::est::{PERIOD_NS, Rates, Settings, TICK_NS};

/// Estimated for long at 1000 packets a second: one slot, just after its pass.
fn steady(settings: Settings) -> (World, u32) {
    let mut world = World::new(3, 4, settings, 100);
    world.run(SECOND / 2);
    let slot = world.add();
    for _ in 0..60 {
        world.count(slot, 2000);
        world.run(PERIOD_NS);
    }
    assert_eq!(world.inpps(slot), 1000);
    (world, slot)
}

fn series(world: &mut World, slot: u32, passes: usize) -> Vec<u64> {
    let each = |_| {
        world.count(slot, 2000);
        world.run(PERIOD_NS);
        world.inpps(slot)
    };
    (0..passes).map(each).collect()
}

#[test]
fn zeroing_starts_totals_and_rates_over() {
    let (mut world, slot) = steady(Settings::default());
    let other = world.add();
    world.count(other, 10);
    world.run(PERIOD_NS);
    world.count(slot, 7);
    world.est.zero(slot);
    let zeroed = world.est.read(slot).unwrap();
    assert_eq!((zeroed.totals, zeroed.rates), Default::default());
    // What was counted since the last pass is not lost; nobody else is touched.
    assert_eq!(world.est.live(slot).unwrap().inpkts, 7);
    assert_eq!(world.est.read(other).unwrap().totals.inpkts, 10);
    assert!(world.est.read(0).unwrap().totals.inpkts > 120_000);
    world.count(slot, 1993);
    world.run(PERIOD_NS);
    assert_eq!(world.inpps(slot), 250);
    assert_eq!(series(&mut world, slot, 9), [437, 578, 684, 763, 822, 867, 900, 925, 944]);
    let snapshot = world.est.read(slot).unwrap();
    assert_eq!((snapshot.totals.inpkts, snapshot.totals.inbytes), (20_000, 2_000_000));
}

/// Threads start long after the configuration was read: what is counted from then on is a first period like any other.
#[test]
fn first_periods_count_from_the_start_of_the_threads() {
    let mut world = World::new(1, 4, Settings::default(), 100);
    let slot = world.add();
    world.host.now += 60 * SECOND;
    world.est.begin(world.host.now);
    world.count(slot, 2000);
    world.run(PERIOD_NS);
    assert_eq!(world.inpps(slot), 250);
}

#[test]
fn a_pause_makes_no_spike() {
    let (mut world, slot) = steady(Settings::default());
    for pause in [SECOND, 10 * SECOND] {
        world.est.set(Settings { running: false, ..Settings::default() });
        world.run(TICK_NS);
        let before = world.est.read(slot).unwrap();
        world.count(slot, 1000 * (pause / SECOND));
        let late = world.add();
        world.count(late, 1000);
        world.run(pause);
        // Nothing moves, and the age tells.
        assert_eq!(world.est.read(slot), Some(before));
        assert_eq!(world.est.read(late).unwrap().passed_ns, None);
        world.est.set(Settings::default());
        world.wake();
        world.count(slot, 1500);
        world.run(PERIOD_NS + TICK_NS);
        let after = world.est.read(slot).unwrap();
        assert_eq!(after.rates, before.rates, "the first pass only notes the sums");
        assert_eq!(after.totals.inpkts, before.totals.inpkts + 1000 * (pause / SECOND) + 1500);
        assert_eq!(world.inpps(late), 0);
        assert_eq!(world.est.read(late).unwrap().totals.inpkts, 1000);
        world.count(slot, 2000);
        world.run(PERIOD_NS);
        assert_eq!(world.inpps(slot), 1000);
    }
}

#[test]
fn the_kernel_makes_a_spike() {
    let settings = Settings { resume_spike: true, ..Settings::default() };
    let (mut world, slot) = steady(settings);
    world.est.set(Settings { running: false, ..settings });
    world.run(8 * SECOND);
    world.count(slot, 8000);
    world.est.set(settings);
    world.wake();
    assert_eq!(series(&mut world, slot, 6), [2000, 1750, 1562, 1422, 1316, 1237]);
}

#[test]
fn who_comes_back_from_the_trash_goes_on() {
    let (mut world, slot) = steady(Settings::default());
    world.est.suspend(slot);
    world.run(5 * PERIOD_NS);
    assert_eq!(world.inpps(slot), 1000, "rates stay as they were");
    world.est.revive(slot);
    world.run(PERIOD_NS);
    assert_eq!(world.inpps(slot), 750);
    world.check();
}

#[test]
fn an_inherited_slot_starts_at_zero() {
    let (mut world, slot) = steady(Settings::default());
    world.count(slot, 500);
    world.est.release(slot);
    assert_eq!(world.add(), slot, "the lowest free slot of the row whose turn comes last");
    world.run(PERIOD_NS);
    let snapshot = world.est.read(slot).unwrap();
    assert_eq!((snapshot.totals, snapshot.rates), (Totals::default(), Rates::default()));
    world.count(slot, 2000);
    world.run(PERIOD_NS);
    assert_eq!(world.est.read(slot).unwrap().totals.inpkts, 2000);
    assert_eq!(world.inpps(slot), 250);
}

/// What control does between a pass's summing and its filter waits for the next pass: the sums at hand are older than the
/// point that a new slot started from, and lack a slot that came back.
#[test]
fn what_happens_during_a_pass_is_left_for_the_next() {
    let slabs = [Arc::new(CounterSlab::new(2 * 1024).unwrap())];
    let (home, number) = (Home { thread: 0, row: 3 }, 1);
    let at = |period: u64| When { ns: period * PERIOD_NS, resumes: 0 };
    let base = |slot: u32| counters::sum(&slabs, 1024 + slot);
    let block = Block::default();
    block.open(home, 1);
    block.add(2, at(0), || base(2));
    block.add(700, at(0), || base(700));
    let pass = |period: u64, between: &dyn Fn()| {
        let (mut visit, mut sums) = (Visit::default(), Lanes::new());
        let work = block.begin(home, at(period), number, &slabs, &mut visit);
        if let Work::Sum(slots) = work {
            let Lanes { packets, conns } = &mut sums;
            sum_range(&visit.workers, 1024, &mut packets[..slots], &mut conns[..slots]);
        }
        between();
        block.finish(at(period), false, &visit, if work == Work::Decay { None } else { Some(&sums) });
    };
    let count = |slot: u32| (0..2000).for_each(|_| slabs[0].count_in(1024 + slot, TOTALS, 100));
    let shown =
        |slot: usize| block.read(slot).map(|s| (s.totals.inpkts, s.rates.inpps, s.passed_ns.is_some()));

    count(700);
    pass(1, &|| {});
    assert_eq!(shown(700), Some((2000, 250, true)));
    assert!(block.set_live(700, false));
    pass(2, &|| {
        count(9);
        block.add(9, at(2), || base(9));
        block.set_live(700, true);
    });
    assert_eq!(
        (shown(2), shown(9), shown(700)),
        (Some((0, 0, true)), Some((0, 0, false)), Some((2000, 250, true)))
    );
    count(9);
    pass(3, &|| count(2));
    assert_eq!(
        (shown(2), shown(9), shown(700)),
        (Some((0, 0, true)), Some((2000, 250, true)), Some((2000, 187, true)))
    );
    // A block that went out of use under a pass, and came back in use, is new.
    pass(4, &|| {
        block.close();
        block.open(home, 1);
        block.add(2, at(4), || base(2));
    });
    assert_eq!(shown(2), Some((0, 0, false)));
    count(2);
    pass(5, &|| {});
    assert_eq!(shown(2), Some((2000, 250, true)));
    // And one that moved is its new owner's only.
    block.set_home(Home { row: 4, ..home });
    assert_eq!(block.begin(home, at(6), number, &slabs, &mut Visit::default()), Work::Elsewhere);
}

/// A block in which nothing is counted costs nothing once its rates are 0, and its rates fall exactly all the same.
#[test]
fn idle_blocks_are_left_out() {
    let mut world = World::new(3, 4, Settings::default(), 100);
    world.run(SECOND / 2);
    let slot = world.add();
    assert!(slot >= 1024, "not in the block of the totals, which is always summed");
    let pieces = |world: &mut World| {
        let before = world.host.pieces;
        world.run(PERIOD_NS);
        world.host.pieces - before
    };
    // Each row's own bracket; two pieces for the totals; two for the slot's block.
    world.count(slot, 2000);
    assert_eq!(pieces(&mut world), 50 + 2 + 2);
    assert_eq!(world.inpps(slot), 250);
    for shown in [187, 141, 105, 79] {
        assert_eq!(pieces(&mut world), 50 + 2 + 1, "the sums are known");
        assert_eq!(world.inpps(slot), shown);
    }
    world.run(40 * PERIOD_NS);
    assert_eq!(world.inpps(slot), 0);
    let age = |world: &World| world.host.now - world.est.read(slot).unwrap().passed_ns.unwrap();
    assert!(age(&world) <= PERIOD_NS, "left out is passed too");
    world.count(slot, 2000);
    assert_eq!(pieces(&mut world), 50 + 2 + 2);
    assert_eq!(world.inpps(slot), 250);
}

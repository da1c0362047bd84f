//! Threads come with the load and go with it; no estimator's period suffers.

use super::world::{SECOND, World};
use crate::est::{Event, PERIOD_NS, Settings, TICK_NS};

const BLOCKS: usize = 400;

/// One percent of a CPU, in which a row has 0.4 ms.
const SMALL: Settings = Settings { running: true, load: 1, threads_max: 4, resume_spike: false };

/// Eight full blocks in each row of thread 0, which take 40 us each: four fifths of the budget.
fn full() -> (World, Vec<u32>) {
    let mut world = World::new(1, BLOCKS, SMALL, 40);
    world.host.piece_ns = 20_000;
    let mut slots = Vec::new();
    for _ in 0..50 {
        slots.extend((0..8 * 1024).map_while(|_| world.est.add(world.host.now)));
        world.run(TICK_NS);
    }
    (world, slots)
}

/// Runs for `periods` with something counted in every block, so that all are summed; no interval may be off by more than a tick.
fn run(world: &mut World, slots: &[u32], periods: u64) {
    let mut passed: Vec<Option<u64>> = slots.iter().map(|&s| world.est.read(s).unwrap().passed_ns).collect();
    for _ in 0..periods {
        for block in 0..BLOCKS as u32 {
            world.count(block * 1024, 1);
        }
        let until = world.host.now + PERIOD_NS / 2;
        for until in [until, until + PERIOD_NS / 2] {
            world.run_to(until, |_| {});
            for (slot, before) in slots.iter().step_by(64).zip(passed.iter_mut().step_by(64)) {
                let now = world.est.read(*slot).unwrap().passed_ns;
                if let (Some(now), Some(before)) = (now, *before) {
                    let off = (now - before).abs_diff(PERIOD_NS);
                    assert!(now == before || off <= TICK_NS + 5_000_000, "slot {slot}: {off} ns off");
                }
                *before = now;
            }
        }
        world.check();
    }
}

fn worst(world: &World) -> u64 {
    world.est.status().iter().map(|t| t.load_ns).max().unwrap()
}

#[test]
fn load_starts_threads_and_ends_them() {
    let budget = PERIOD_NS / 100;
    let (mut world, slots) = full();
    run(&mut world, &slots, 6);
    assert_eq!(world.threads(), 1);
    assert!(worst(&world) < budget, "{:?}", world.est.status());

    // Memory becomes slower: twice the budget. The excess goes within a minute.
    world.host.piece_ns = 50_000;
    run(&mut world, &slots, 30);
    assert!(world.threads() > 1, "{:?}", world.est.status());
    assert!(worst(&world) <= budget * 5 / 4, "{:?}", world.est.status());
    let rows: Vec<u64> =
        world.est.plan().threads.iter().flat_map(|t| t.rows.iter().map(|r| r.cpu_ns)).collect();
    assert!(rows.iter().all(|&ns| ns <= budget / 50 * 5 / 4), "{rows:?}");
    assert!(world.events.iter().any(|e| matches!(e, Event::Moved { from: 0, .. })));
    assert!(world.events.iter().any(|e| matches!(e, Event::Recalibrated { thread: 0, .. })));

    // Fast again: the threads are merged, at 2 % a revolution.
    world.host.piece_ns = 4_000;
    run(&mut world, &slots, 170);
    assert_eq!(world.threads(), 1, "{:?}", world.est.status());
    assert!(world.events.iter().any(|e| matches!(e, Event::ThreadUnused(_))));
    assert_eq!(world.est.status()[0].ests, slots.len() as u64 + 1);
}

#[test]
fn fewer_threads_allowed_empties_the_others() {
    let (mut world, slots) = full();
    world.host.piece_ns = 50_000;
    run(&mut world, &slots, 20);
    assert!(world.threads() > 1);
    world.est.set(Settings { threads_max: 1, ..SMALL });
    run(&mut world, &slots, 150);
    assert_eq!(world.threads(), 1, "{:?}", world.est.status());
}

/// Without a thread that may be started, everything is estimated all the same, and it is told.
#[test]
fn nothing_is_left_unplaced() {
    // A row may have one block; 60 blocks for 50 rows and one thread.
    let mut world = World::new(1, 60, Settings { threads_max: 1, ..Settings::default() }, 10_000);
    world.run(SECOND);
    let slots: Vec<u32> = std::iter::from_fn(|| world.est.add(world.host.now)).collect();
    assert_eq!(slots.len(), 60 * 1024 - 1);
    assert_eq!(world.est.over_budget(), 10);
    assert!(world.est.take_events().contains(&Event::OverBudget));
    world.run(PERIOD_NS + TICK_NS);
    assert!(slots.iter().all(|&s| world.est.read(s).unwrap().passed_ns.is_some()));
    world.check();
}

#[test]
fn additions_beyond_a_thread_start_another() {
    let mut world = World::new(1, 60, Settings::default(), 10_000);
    world.run(SECOND);
    let slots: Vec<u32> = std::iter::from_fn(|| world.est.add(world.host.now)).collect();
    world.run(PERIOD_NS + 2 * TICK_NS);
    assert_eq!((world.threads(), world.est.over_budget()), (2, 0));
    assert!(slots.iter().all(|&s| world.est.read(s).unwrap().passed_ns.is_some()));
    // After a pause both are to be started again.
    assert_eq!(world.est.wanted(), [0, 1]);
    // Lower threads are filled first, and an empty one ends.
    slots[40_000..].iter().for_each(|&s| world.est.release(s));
    world.run(PERIOD_NS);
    let first = world.est.status()[0];
    (0..first.est_max.min(1000)).for_each(|_| assert!(world.est.add(world.host.now).is_some()));
    world.run(PERIOD_NS);
    assert_eq!((world.threads(), world.est.wanted()), (1, vec![0]), "{:?}", world.est.status());
    world.check();
}

//! Rows, ticks, lateness, first periods, calibration.

use super::world::{SECOND, Sim, World};
use crate::est::calibrate::{Calibration, Cost, PASS_SLOTS, Took, chain_factor};
use crate::est::{Event, Host, LATE_TICKS, PERIOD_NS, ROWS, Settings, TICK_NS};

#[test]
fn first_periods_are_whole_while_rows_have_room() {
    let mut world = World::new(1, 60, Settings::default(), 100);
    for tick in 0..120 {
        world.run(TICK_NS + tick * 1000);
        let (slot, added) = (world.add(), world.host.now);
        world.run_to(added + PERIOD_NS, |_| {});
        let passed = world.est.read(slot).unwrap().passed_ns.expect("a pass within two seconds");
        assert!(passed - added > PERIOD_NS - TICK_NS, "{} ns", passed - added);
    }
    assert_eq!(world.est.spilled(), 0);
    world.check();
}

/// A burst fills the row due last, then earlier ones: periods get shorter, rates read low, never high, and it is counted.
#[test]
fn a_burst_spills_to_earlier_rows() {
    // 4.8 ms of a row at 2.2 us an estimator: two blocks.
    let mut world = World::new(1, 60, Settings::default(), 2200);
    world.run(SECOND);
    let slots: Vec<u32> = (0..3 * 2048).map(|_| world.add()).collect();
    assert_eq!(world.est.spilled(), 2 * 2048);
    world.run(PERIOD_NS - 4 * TICK_NS);
    slots.iter().for_each(|&slot| world.count(slot, 20));
    world.run(4 * TICK_NS);
    let shown: Vec<u64> = slots.iter().map(|&slot| world.inpps(slot)).collect();
    assert!(shown.iter().all(|&rate| rate <= 3), "20 packets in a period show 3 at most");
    assert!(slots.iter().all(|&slot| world.est.read(slot).unwrap().passed_ns.is_some()));
    world.check();
}

#[test]
fn rows_are_caught_up_after_eight_ticks_and_stretched_after_more() {
    for (late, caught_up) in [(LATE_TICKS, true), (LATE_TICKS + 1, false)] {
        let mut world = World::new(1, 4, Settings::default(), 100);
        world.run(10 * SECOND);
        let rows = |world: &World| {
            let plan = world.est.plan();
            plan.threads[0].load.revolutions * ROWS as u64 + plan.threads[0].next_row as u64
        };
        let before = rows(&world);
        // The thread gets no CPU for so long after its next row was due.
        world.host.now += (late + 1) * TICK_NS;
        world.run(SECOND);
        assert_eq!(rows(&world) - before, 25 + if caught_up { late + 1 } else { 1 });
        let told = world.events.iter().any(|e| matches!(e, Event::Late { .. }));
        assert_eq!(told, !caught_up);
        let late = world.est.status()[0].late_ticks;
        assert!(late >= LATE_TICKS, "{late}");
    }
}

#[test]
fn each_row_is_taken_once_in_a_revolution() {
    let mut world = World::new(2, 60, Settings::default(), 100);
    let mut slots = vec![0];
    for _ in 0..ROWS {
        world.run(TICK_NS);
        slots.push(world.add());
    }
    world.run(2 * PERIOD_NS);
    let before: Vec<_> = slots.iter().map(|&s| world.est.read(s).unwrap().passed_ns.unwrap()).collect();
    for revolution in 1..20 {
        world.run(PERIOD_NS);
        let now = slots.iter().map(|&s| world.est.read(s).unwrap().passed_ns.unwrap());
        assert!(now.zip(&before).all(|(now, before)| now - before == revolution * PERIOD_NS));
    }
}

/// Clock for calibrations: each run of passes lasts the next of a list.
struct Runs {
    lasts: Vec<u64>,
    now: u64,
    calls: usize,
}

impl Host for Runs {
    fn now_ns(&mut self) -> u64 {
        self.calls += 1;
        if self.calls.is_multiple_of(2) {
            self.now += self.lasts[(self.calls / 2 - 1).min(self.lasts.len() - 1)];
        }
        self.now
    }

    fn cpu_ns(&mut self) -> u64 {
        self.now
    }

    fn between_pieces(&mut self) -> std::ops::ControlFlow<()> {
        std::ops::ControlFlow::Continue(())
    }
}

fn calibrate(lasts: &[u64]) -> Calibration {
    let mut host = Runs { lasts: lasts.to_vec(), now: 0, calls: 0 };
    let mut calibration = Calibration::new();
    let mut steps = 1;
    while !calibration.advance(&mut host, || {}) {
        steps += 1;
    }
    assert_eq!((steps, calibration.tests), (3, 12));
    calibration
}

/// Singles and chain limits of the machines on which the kernel's procedure was published.
#[test]
fn calibration_gives_the_kernels_limits() {
    for (single, chain_max) in [
        (11171, 8),
        (4138, 22),
        (7319, 12),
        (2834, 33),
        (2444, 38),
        (1775, 53),
        (13090, 7),
        (8230, 11),
        (66250, 1),
        (95_001, 1),
        (500_000, 1),
    ] {
        let result = calibrate(&[single * PASS_SLOTS as u64]);
        assert_eq!((result.chain_max, result.single_ns, result.loops), (chain_max, single, 1));
    }
}

#[test]
fn calibration_takes_the_best_usable_run() {
    // Short runs double the loops and are used up; long ones are ignored.
    let long = [4400, 20_000_000, 5000, 4404, 4000, 7000, 9000, 4800, 40_000_000, 6000];
    let lasts: Vec<u64> = [1000, 900].into_iter().chain(long.map(|ns| ns * PASS_SLOTS as u64)).collect();
    let result = calibrate(&lasts);
    assert_eq!((result.loops, result.single_ns, result.chain_max), (4, 1000, 95));
    assert_eq!(result.diff_ns, 6000 * PASS_SLOTS as u64);
    let none = calibrate(&[2_000_000_000]);
    assert_eq!((none.single_ns, none.chain_max), (0, 8));
    let short = calibrate(&[10]);
    assert_eq!((short.loops, short.single_ns, short.chain_max), (4096, 0, 8));
}

#[test]
fn limits_follow_the_chain_limit() {
    assert_eq!([4, 8, 16].map(chain_factor), [96, 48, 24]);
    let limits = [1, 7, 8, 11, 12, 16, 22, 33, 36, 38, 39, 53]
        .map(|chain_max| Calibration { chain_max, ..Calibration::new() }.limits());
    assert_eq!(
        limits.map(|(_, thread)| thread),
        [2400, 16800, 19200, 26400, 28800, 38400, 52800, 79200, 86400, 91200, 93600, 127200]
    );
    assert!(limits.iter().all(|(row, thread)| row * 50 == *thread));
}

#[test]
fn calibration_comes_first_and_again_when_asked() {
    let mut world = World::new(1, 4, Settings::default(), 100);
    world.est.plan().calibrated = None;
    world.est.recalibrate();
    let start = world.host.now;
    world.run(50_000_000);
    assert_eq!(world.est.calibration(), None, "three waits of 20 ms");
    assert_eq!(world.est.read(0).unwrap().passed_ns, None);
    world.run(PERIOD_NS);
    assert_eq!(world.est.calibration().unwrap().tests, 12);
    let passed = world.est.read(0).unwrap().passed_ns.unwrap();
    assert_eq!(passed, start + 60_000_000 + (ROWS as u64 - 1) * TICK_NS);
    let told = |world: &World| world.events.iter().filter(|e| matches!(e, Event::Calibrated(_))).count();
    let before = told(&world);
    world.est.recalibrate();
    world.run(PERIOD_NS);
    assert_eq!(told(&world), before + 1);
    assert_eq!(world.est.read(0).unwrap().passed_ns, Some(passed + PERIOD_NS), "no pass was lost");
}

#[test]
fn preempted_pieces_say_nothing() {
    let mut cost = Cost::new(100_000);
    cost.summed(1024, Took { cpu_ns: 500_000, wall_ns: 560_000 });
    assert_eq!(cost.total_ps(), 100_000);
    cost.summed(31, Took { cpu_ns: 500_000, wall_ns: 500_000 });
    assert_eq!(cost.total_ps(), 100_000, "too short to time");
    (0..60).for_each(|_| cost.summed(1024, Took { cpu_ns: 1_024_000, wall_ns: 1_100_000 }));
    assert!((990_000..=1_000_000).contains(&cost.total_ps()), "{cost:?}");
    assert_eq!((cost.piece(), cost.chain_max()), (64, 95));
    (0..60).for_each(|_| cost.summed(1024, Took { cpu_ns: 102_400, wall_ns: 102_400 }));
    assert_eq!(cost.piece(), 896, "95 us of 0.1 us each, in steps of 64");
}

#[test]
fn a_stop_leaves_the_rest_of_the_row() {
    let mut world = World::new(1, 60, Settings::default(), 100);
    world.run(SECOND);
    let slots: Vec<u32> = (0..2048).map(|_| world.add()).collect();
    world.run(PERIOD_NS - 4 * TICK_NS);
    slots.iter().for_each(|&slot| world.count(slot, 1));
    world.host.stop = true;
    world.host.piece_ns = 60_000;
    world.run(4 * TICK_NS);
    let passed = slots.iter().filter(|&&s| world.est.read(s).unwrap().passed_ns.is_some()).count();
    assert_eq!(passed, 1024);
    world.host.stop = false;
    world.run(PERIOD_NS);
    assert!(slots.iter().all(|&s| world.est.read(s).unwrap().passed_ns.is_some()));
}

/// Short pieces share a yield; a thread that is late does not yield at all, but gets on.
#[test]
fn yields_come_between_stretches_and_not_when_late() {
    for (piece_ns, late_ns, yields) in [(10_000, 0, 8), (60_000, 0, 60), (10_000, 2 * TICK_NS, 0)] {
        let mut world = World::new(1, 60, Settings::default(), 100);
        world.run(SECOND);
        // Twenty blocks in a row: a filter each, and a sum in one piece or two.
        let slots: Vec<u32> = (0..20 * 1024).map(|_| world.add()).collect();
        world.run(PERIOD_NS - TICK_NS / 2);
        slots.iter().step_by(1024).for_each(|&slot| world.count(slot, 1));
        world.host.piece_ns = piece_ns;
        world.host.now += late_ns;
        let before = world.host.yields;
        world.run(TICK_NS);
        assert_eq!(world.host.yields - before, yields, "{piece_ns} ns, {late_ns} ns late");
    }
}

#[test]
fn a_simulated_piece_is_on_the_cpu() {
    let mut sim = Sim::default();
    sim.piece_ns = 7;
    sim.cpu_ns();
    let took = Took::measure(&mut sim, || {});
    assert_eq!((took.cpu_ns, took.wall_ns), (7, 7));
}

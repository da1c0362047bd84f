//! Rows in real time: an engine's thread that sleeps between its rows, beside what else a machine does.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread;
use std::time::Duration;

use dataplane::counters::BLOCK;
use dataplane::est::{Engine, Estimators, Host, Next, ROWS, Settings};
use dpdk_sys::{CpuSet, Tid, set_timer_slack_ns};
use tests::est::{Clock, Rig, thread_cpu_ns};

use super::push;
use crate::Bench;
use crate::feed::{L4, Pattern};

/// Budget of a million estimators over sixteen workers, percent of a core.
const BUDGET_PERCENT: f64 = 2.5;

/// Share of a core that a million estimators take over `workers` workers, all blocks active, in real time.
pub fn share_rows(bench: &mut Bench<'_>) -> Result<(), String> {
    const ESTS: usize = 1_000_000;
    for workers in [2, 16] {
        let id = format!("est.cpu.1m.{workers}");
        if !bench.wants(&id) {
            continue;
        }
        let mut rig = Rig::new(workers, ESTS)?;
        rig.fill();
        // The first revolution faults in what it writes.
        rig.revolution();
        let slots = std::mem::take(&mut rig.slots);
        let toucher = rig.slabs[0].clone();
        let seconds = if bench.rounds < 5 { 6 } else { 20 };
        let stop = AtomicBool::new(false);
        let share = thread::scope(|scope| {
            scope.spawn(|| {
                while !stop.load(Relaxed) {
                    slots.iter().step_by(BLOCK / 2).for_each(|&slot| toucher.count_in(slot, slot, 100));
                    thread::sleep(Duration::from_millis(500));
                }
            });
            let (from, until) = (thread_cpu_ns(), rig.clock.now_ns() + seconds * 1_000_000_000);
            while rig.clock.now_ns() < until {
                rig.turn(Clock::sleep_until);
            }
            stop.store(true, Relaxed);
            (thread_cpu_ns() - from) as f64 / (seconds * 10_000_000) as f64
        });
        let budget = if workers == 16 { vec![BUDGET_PERCENT] } else { Vec::new() };
        push(bench, &id, vec![share], "% of a core", "budget", budget);
    }
    Ok(())
}

/// A worker's rate with 100 000 active estimators walked on another CPU over the rate without.
pub fn worker_row(bench: &mut Bench<'_>) -> Result<(), String> {
    const ID: &str = "est.worker";
    const ESTS: u32 = 100_000;
    /// Pairs of slices.
    const PAIRS: usize = 24;
    if !bench.wants(ID) {
        return Ok(());
    }
    let Some(other) = bench.other_cpu else {
        eprintln!("bench: {ID} left out: there is no second CPU");
        return Ok(());
    };
    let (mut subject, mut feed) = bench.established("nat", L4::Tcp, 1_000)?;
    feed.frames.start(Pattern::BothWays);
    let slab = subject.counters();
    let settings = Settings { load: 100, threads_max: 1, ..Settings::default() };
    let est = Estimators::new(vec![Arc::clone(&slab)], settings);
    let (walking, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let ready = AtomicBool::new(false);
    let mut ratios = thread::scope(|scope| -> Result<Vec<f64>, String> {
        let engine = scope.spawn(|| walk(&est, ESTS, other, &ready, &walking, &stop));
        while !ready.load(Relaxed) && !engine.is_finished() {
            thread::sleep(Duration::from_millis(10));
        }
        let mut ratios = Vec::new();
        for pair in 0..=PAIRS {
            let mut slice = |with: bool| {
                walking.store(with, Relaxed);
                let mut at = 0u32;
                // Besides its packets' objects the worker counts in every other one in turn: their lines are its own.
                subject.sample_with(&mut feed, &bench.clock, bench.span, || {
                    at = (at + 1) % ESTS;
                    slab.count_in(at, at, 64);
                })
            };
            // Each comes first in every other pair.
            let first = slice(pair % 2 == 0);
            let second = slice(pair % 2 != 0);
            let (with, without) = if pair % 2 == 0 { (first, second) } else { (second, first) };
            // The first pair warms up.
            if pair > 0 {
                ratios.push(without / with);
            }
        }
        stop.store(true, Relaxed);
        engine.join().map_err(|_| "the engine's thread panicked")??;
        Ok(ratios)
    })?;
    ratios.sort_by(f64::total_cmp);
    // Order statistics around the median: 12 +- 0.98 sqrt(24).
    let half = (0.98 * (PAIRS as f64).sqrt()).ceil() as usize;
    let (low, high) = (ratios[PAIRS / 2 - half], ratios[PAIRS / 2 + half - 1]);
    push(bench, ID, ratios, "rate with/without", "without", vec![1.0]);
    push(bench, "est.worker.low", vec![low], "rate with/without", "95 % interval from", Vec::new());
    push(bench, "est.worker.high", vec![high], "rate with/without", "95 % interval to", Vec::new());
    Ok(())
}

/// An engine's thread on `cpu`: takes its rows as long as `walking` is set.
fn walk(
    est: &Arc<Estimators>,
    ests: u32,
    cpu: usize,
    ready: &AtomicBool,
    walking: &AtomicBool,
    stop: &AtomicBool,
) -> Result<(), String> {
    Tid::current().set_affinity(&CpuSet::from_iter([cpu])).map_err(|e| e.to_string())?;
    set_timer_slack_ns(1).map_err(|e| e.to_string())?;
    let (mut engine, mut clock) = (Engine::new(Arc::clone(est), 0), Clock::default());
    while est.calibration().is_none() {
        turn(&mut engine, &mut clock);
    }
    // A fiftieth a tick, so that every row has its part.
    for part in 1..=ROWS as u32 {
        for _ in (part - 1) * ests / ROWS as u32..part * ests / ROWS as u32 {
            est.add(clock.now_ns()).ok_or("no slot is left")?;
        }
        turn(&mut engine, &mut clock);
    }
    ready.store(true, Relaxed);
    while !stop.load(Relaxed) {
        if walking.load(Relaxed) {
            turn(&mut engine, &mut clock);
        } else {
            thread::sleep(Duration::from_millis(1));
        }
    }
    Ok(())
}

fn turn(engine: &mut Engine, clock: &mut Clock) {
    if let Next::At(at) = engine.turn(clock) {
        clock.sleep_until(at);
    }
}

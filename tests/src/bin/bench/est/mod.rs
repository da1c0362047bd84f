//! Rows `est.*`: what rates cost. Workers are simulated by slabs, so lines come from memory and never from another
//! worker's cache; every figure is CPU time of the walking thread, so that other work of the machine disturbs little.

mod founding;
mod list;
mod live;

use tests::est::{Rig, thread_cpu_ns};

use crate::Bench;
use crate::report::{Row, median};
use list::{List, Stream};

/// Counters of an estimator and worker, bytes.
const BYTES: usize = 40;
/// Revolutions after which every rate is 0 (2^38 of a state's 2^62 needs 90).
const TO_ZERO: usize = 90;
/// Estimators that are active in `est.idle`, of a hundred.
const ACTIVE_PERCENT: usize = 1;

/// Workers and estimators of the `est.walk` rows: as many as a few gigabytes hold twice.
const WALKS: [(usize, usize, &str); 4] =
    [(2, 1_000_000, "1m"), (16, 1_000_000, "1m"), (64, 500_000, "500k"), (128, 250_000, "250k")];

pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    for (workers, ests, name) in WALKS {
        walk(bench, workers, ests, name)?;
    }
    idle(bench)?;
    live::share_rows(bench)?;
    live::worker_row(bench)?;
    add(bench)?;
    founding::rows(bench)
}

/// A whole revolution with every block active, against the list and against reading alone.
fn walk(bench: &mut Bench<'_>, workers: usize, ests: usize, name: &str) -> Result<(), String> {
    let id = format!("est.walk.{workers}.{name}");
    if !bench.wants(&id) {
        return Ok(());
    }
    let mut rig = Rig::new(workers, ests)?;
    rig.fill();
    let mut list = List::new(&rig)?;
    let bytes = workers * ests * BYTES;
    let stream = Stream::new(bytes)?;
    let (mut ours, mut theirs, mut rate, mut reading) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for round in 0..=bench.rounds {
        let (ours_ns, theirs_ns) = (rig.revolution().cpu_ns as f64, list.walk() as f64);
        rig.touch(&rig.slots);
        // The first of each faults in what it writes.
        if round > 0 {
            ours.push(ours_ns / ests as f64);
            theirs.push(theirs_ns / ests as f64);
            rate.push(bytes as f64 / ours_ns);
            reading.push(stream.read());
        }
    }
    list.compare(&rig).map_err(|e| format!("{id}: rates differ from the list's: {e}"))?;
    let kernel = (0..bench.rounds).map(|_| list.walk_kernel() as f64 / ests as f64).collect();
    push(bench, &format!("{id}.kernel"), ours.clone(), "ns/estimator", "list, 40-byte counters", kernel);
    push(bench, &id, ours, "ns/estimator", "list in random order, same counters", theirs);
    push(bench, &format!("{id}.read"), rate, "GB/s", "reading alone, one core", reading);
    Ok(())
}

/// Revolutions in which nearly all blocks are idle and their rates 0.
fn idle(bench: &mut Bench<'_>) -> Result<(), String> {
    const WORKERS: usize = 16;
    const ESTS: usize = 1_000_000;
    const ACTIVE: usize = ESTS * ACTIVE_PERCENT / 100;
    if !bench.wants("est.idle") {
        return Ok(());
    }
    let mut rig = Rig::new(WORKERS, ESTS)?;
    rig.fill();
    let mut full = Vec::new();
    for _ in 0..bench.rounds {
        rig.touch(&rig.slots);
        full.push(rig.revolution().cpu_ns as f64 / 1e6);
    }
    for _ in 0..TO_ZERO {
        rig.revolution();
    }
    let together = rig.slots[ESTS / 2..ESTS / 2 + ACTIVE].to_vec();
    let mut seed = 1u64;
    let apart = |_| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        rig.slots[(seed >> 33) as usize % ESTS]
    };
    let mut apart: Vec<u32> = (0..ACTIVE).map(apart).collect();
    apart.sort_unstable();
    for (id, active) in [("est.idle", together), ("est.idle.random", apart)] {
        let mut ours = Vec::new();
        for _ in 0..bench.rounds {
            for &slot in &active {
                rig.slabs[slot as usize % WORKERS].count_in(slot, slot, 100);
            }
            ours.push(rig.revolution().cpu_ns as f64 / 1e6);
        }
        push(bench, id, ours, "ms/revolution", "all active", full.clone());
    }
    Ok(())
}

/// Additions as fast as they come.
fn add(bench: &mut Bench<'_>) -> Result<(), String> {
    const ID: &str = "est.add";
    const ADDS: usize = 500_000;
    /// One `ipvsadm` process after the other.
    const FOUNDING_NS: f64 = 1e9 / 840.0;
    if !bench.wants(ID) {
        return Ok(());
    }
    let mut samples = Vec::new();
    let mut slowest = 0;
    for _ in 0..bench.rounds.min(3) {
        let mut rig = Rig::with_room(2, ADDS)?;
        let from = thread_cpu_ns();
        let mut last = from;
        for _ in 0..ADDS {
            rig.add()?;
            let now = thread_cpu_ns();
            slowest = slowest.max(now - last);
            last = now;
        }
        samples.push((last - from) as f64 / ADDS as f64);
    }
    eprintln!("est.add: slowest of {ADDS}: {slowest} ns");
    push(bench, ID, samples, "ns", "founding: 840 adds/s", vec![FOUNDING_NS]);
    Ok(())
}

fn push(
    bench: &mut Bench<'_>,
    id: &str,
    mut ours: Vec<f64>,
    unit: &'static str,
    reference: &'static str,
    mut theirs: Vec<f64>,
) {
    let (value, spread) = median(&mut ours);
    let reference_value = (!theirs.is_empty()).then(|| median(&mut theirs).0);
    let ratio = reference_value.map(|r| value / r);
    bench.push(Row {
        value,
        unit,
        reference: reference.into(),
        reference_value,
        ratio,
        spread,
        ..Row::new(id)
    });
}

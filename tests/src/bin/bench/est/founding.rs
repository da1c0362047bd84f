//! The rows of the founding documents: measured rows (ticks) of kernel IPVS on machines with many CPUs, beside ours over as
//! many simulated workers and as many estimators. Theirs read counters that other CPUs had written; ours come from memory.

use tests::est::Rig;

use super::push;
use crate::Bench;

const ROWS: usize = dataplane::est::ROWS;

/// One row measured by others.
struct Tick {
    id: &'static str,
    machine: &'static str,
    workers: usize,
    /// Estimators in the row.
    ests: usize,
    /// Time of the row, milliseconds.
    ms: f64,
}

const fn tick(id: &'static str, machine: &'static str, workers: usize, ests: usize, ms: f64) -> Tick {
    Tick { id, machine, workers, ests, ms }
}

/// Medians or middles of the ranges that were published.
const TICKS: [Tick; 13] = [
    tick("B2", "6326, 64 CPUs, 1728 ests", 64, 1728, 3.78),
    tick("B3", "6326 performance, 2544 ests", 64, 2544, 2.06),
    tick("B4", "6326 powersave, 2544 ests", 64, 2544, 5.75),
    tick("B5", "EPYC 7601 ondemand, 384 ests", 128, 384, 2.94),
    tick("B6", "EPYC 7601 performance, 1056 ests", 128, 1056, 5.56),
    tick("B7", "EPYC 7601 saturated, 1056 ests", 128, 1056, 7.21),
    tick("B8", "ARM performance, 576 ests", 128, 576, 1.61),
    tick("B9.48", "E5-2670 v3, 48 CPUs, 768 ests", 48, 768, 1.220),
    tick("B9.64", "6326, 64 CPUs, 768 ests", 64, 768, 0.920),
    tick("B9.80", "Neoverse-N1, 80 CPUs, 768 ests", 80, 768, 1.833),
    tick("B9.128", "Kunpeng, 128 CPUs, 768 ests", 128, 768, 3.822),
    tick("B9.192", "6330H, 192 CPUs, 768 ests", 192, 768, 3.957),
    tick("B9.256", "EPYC 7713, 256 CPUs, 768 ests", 256, 768, 3.927),
];

pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    for tick in TICKS {
        let id = format!("est.founding.{}", tick.id);
        if bench.wants(&id) {
            let rows = revolutions(bench, tick.workers, tick.ests * ROWS, 1e6 * ROWS as f64)?.0;
            push(bench, &id, rows, "ms/row", tick.machine, vec![tick.ms]);
        }
    }
    if bench.wants("est.founding.B1") {
        // A revolution of two seconds, as a share.
        let (share, stretch) = revolutions(bench, 64, 1_000_000, 2e9 / 100.0)?;
        push(bench, "est.founding.B1", share, "% of a core", "64 CPUs, 1 M rules, 31 threads", vec![67.0]);
        push(bench, "est.founding.B11", vec![stretch], "ms", "timer: longest without a yield", vec![321.0]);
    }
    if bench.wants("est.founding.B10") {
        let pass = revolutions(bench, 104, 50_000, 1e6)?.0;
        push(bench, "est.founding.B10", pass, "ms/revolution", "104 CPUs, 50 k services", vec![268.5]);
    }
    if bench.wants("est.founding.B13") {
        let mut hot = Vec::new();
        for _ in 0..bench.rounds {
            // Four hot passes are what a calibration calls a single one.
            let single_ns = Rig::new(64, 1)?.est.calibration().map_or(0, |c| c.single_ns);
            hot.push(single_ns as f64 / 4e3);
        }
        push(bench, "est.founding.B13", hot, "us hot", "6326, 64 CPUs: 0.44 to 0.71", vec![0.57]);
    }
    Ok(())
}

/// CPU times of revolutions with every block active, over `unit`; and the longest stretch without a yield, milliseconds.
fn revolutions(bench: &Bench<'_>, workers: usize, ests: usize, unit: f64) -> Result<(Vec<f64>, f64), String> {
    let mut rig = Rig::new(workers, ests)?;
    rig.fill();
    rig.revolution();
    rig.clock.longest_ns = 0;
    let mut all = Vec::new();
    for _ in 0..bench.rounds {
        rig.touch(&rig.slots);
        all.push(rig.revolution().cpu_ns as f64 / unit);
    }
    Ok((all, rig.clock.longest_ns as f64 / 1e6))
}

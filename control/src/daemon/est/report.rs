//! Rows of `weir est` and `weir rates`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;
use std::time::Instant;

use dataplane::est::calibrate::CHAIN_FACTOR;
use dataplane::est::{PERIOD_NS, ROWS, Rates, Snapshot, Status};
use dataplane::registry::{ObjectName, Registry};
use dpdk_sys::monotonic_ns;

use super::Estimation;
use crate::api::codec::RateOrder;
use crate::api::rows::{EstRow, EstSummaryRow, EstThreadRow, RateFields, RateRow};

/// Objects of `weir rates` at most: a screen is shorter, and control makes the rows in one go.
const TOP_MAX: u32 = 100_000;

/// The rows of `weir est`: the whole, then each thread.
pub fn rows(estimation: &Estimation) -> Vec<EstRow> {
    let status = estimation.est.status();
    let whole = whole(estimation, &status);
    let workers = estimation.journal.workers();
    let threads = status.iter().map(|status| EstRow::Thread(thread_row(estimation, status, workers)));
    std::iter::once(EstRow::Summary(whole)).chain(threads).collect()
}

/// The whole alone, for `weir status`.
pub fn summary(estimation: &Estimation) -> EstSummaryRow {
    whole(estimation, &estimation.est.status())
}

fn whole(estimation: &Estimation, status: &[Status]) -> EstSummaryRow {
    let settings = estimation.settings();
    let calibration = estimation.est.calibration();
    let chain_max = calibration.map_or(0, |_| status[0].chain_max);
    EstSummaryRow {
        running: estimation.is_running(),
        run_estimation: settings.run_estimation,
        cpus: estimation.cpus().to_string(),
        nice: settings.est_nice,
        policy: settings.est_sched.to_string(),
        load_limit_percent: settings.est_load,
        workers: estimation.journal.workers(),
        threads: estimation.threads.values().filter(|thread| thread.is_alive()).count(),
        threads_max: estimation.threads_max(),
        chain_max,
        thread_estimators_max: chain_max * CHAIN_FACTOR * ROWS as u64,
        estimators: status.iter().map(|status| status.ests).sum(),
        blocks: status.iter().map(|status| status.blocks).sum(),
        load_percent: status.iter().map(|status| load_percent(status.load_ns)).sum(),
        late_ticks_total: status.iter().map(|status| status.late_ticks).sum(),
        short_first_periods_total: estimation.est.spilled(),
        over_budget_total: estimation.est.over_budget(),
        calibration_single_ns: calibration.map_or(0, |result| result.single_ns),
        calibration_chain_max: calibration.map_or(0, |result| result.chain_max),
        calibration_age_seconds: estimation.calibrated.map(|at| Instant::now().duration_since(at).as_secs()),
    }
}

fn thread_row(estimation: &Estimation, status: &Status, workers: usize) -> EstThreadRow {
    let thread = estimation.threads.get(&status.thread);
    EstThreadRow {
        est_thread: status.thread,
        tid: thread.and_then(|thread| thread.tid()).map_or(0, |tid| tid.number()),
        running: thread.is_some_and(|thread| thread.is_alive()),
        cpus: estimation.cpus().to_string(),
        estimators: status.ests,
        blocks: status.blocks,
        load_percent: load_percent(status.load_ns),
        worst_row_ns: status.worst_row_ns,
        late_ticks_total: status.late_ticks,
        chain_max: status.chain_max,
        estimators_max: status.est_max,
        cost_ps: status.cost_ps,
        cost_per_worker_ps: status.cost_ps / workers.max(1) as u64,
        revolutions_total: status.revolutions,
        draining: status.draining,
    }
}

/// CPU time of a revolution as a share of it, in hundredths of a percent.
fn load_percent(load_ns: u64) -> f64 {
    (load_ns as f64 * 10_000.0 / PERIOD_NS as f64).round() / 100.0
}

/// The rows of `weir rates`: the whole box, then the objects with the highest rates.
pub fn rates(registry: &Registry, order: RateOrder, top: u32) -> Vec<RateRow> {
    let now_ns = monotonic_ns();
    let top = top.min(TOP_MAX) as usize;
    // The smallest of the best on top; of equal ones those listed first stay.
    let mut best: BinaryHeap<Reverse<(u64, Reverse<usize>)>> = BinaryHeap::new();
    for (i, (_, stats)) in registry.stats_of_all().enumerate() {
        best.push(Reverse((key(order, &stats.rates), Reverse(i))));
        if best.len() > top {
            best.pop();
        }
    }
    let mut best: Vec<_> = best.into_iter().map(|Reverse(entry)| entry).collect();
    best.sort_unstable_by_key(|entry| Reverse(*entry));
    let mut found: Vec<_> = best.iter().map(|(_, Reverse(i))| (*i, None)).collect();
    let mut wanted: Vec<(usize, usize)> = found.iter().enumerate().map(|(rank, (i, _))| (*i, rank)).collect();
    wanted.sort_unstable();
    let mut wanted = wanted.into_iter().peekable();
    for (i, (name, stats)) in registry.stats_of_all().enumerate() {
        if let Some((_, rank)) = wanted.next_if(|(want, _)| *want == i) {
            found[rank].1 = Some(row(Some(name), &stats, now_ns));
        }
    }
    let rest = found.into_iter().filter_map(|(_, row)| row);
    std::iter::once(row(None, &registry.stats(), now_ns)).chain(rest).collect()
}

fn key(order: RateOrder, rates: &Rates) -> u64 {
    match order {
        RateOrder::Packets => rates.inpps + rates.outpps,
        RateOrder::Bytes => rates.inbps + rates.outbps,
        RateOrder::Connections => rates.cps,
    }
}

fn row(name: Option<ObjectName>, stats: &Snapshot, now_ns: u64) -> RateRow {
    RateRow {
        service: name.as_ref().map(|name| name.service.to_string()),
        dest: name.and_then(|name| name.dest).map(|dest| dest.to_string()),
        age_ms: stats.passed_ns.map(|at| now_ns.saturating_sub(at) / 1_000_000),
        rates: fields(&stats.rates),
    }
}

fn fields(rates: &Rates) -> RateFields {
    RateFields {
        connections_per_second: rates.cps,
        in_packets_per_second: rates.inpps,
        out_packets_per_second: rates.outpps,
        in_bytes_per_second: rates.inbps,
        out_bytes_per_second: rates.outbps,
    }
}

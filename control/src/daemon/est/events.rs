//! Log lines of the estimators: kernel IPVS's texts where it has one, with the same figures as fields.
//!
//! The kernel's `dequeue` line has no counterpart: after a calibration nothing is relinked, so nothing is dequeued.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use dataplane::est::Event;
use dataplane::est::calibrate::Calibration;
use tracing::{debug, info, warn};

/// Time between two lines about something that may happen at every row: the kernel's rhythm, 32 revolutions.
const PAUSE: Duration = Duration::from_secs(64);

/// Writes events down; what can come often is counted and told now and then.
pub struct Journal {
    /// Workers that count.
    workers: usize,
    /// Blocks and estimators that moved, by thread from and to.
    moved: BTreeMap<(usize, usize), (u64, u64)>,
    over_budget: Limited,
    late: BTreeMap<usize, Limited>,
}

/// How often something happened that was not told yet, and when it was told last.
#[derive(Default)]
struct Limited {
    count: u64,
    told: Option<Instant>,
    /// Worst of them, nanoseconds.
    worst_ns: u64,
}

impl Limited {
    fn note(&mut self, ns: u64) {
        self.count += 1;
        self.worst_ns = self.worst_ns.max(ns);
    }

    /// Count and worst since the last time, if it is time to tell.
    fn due(&mut self, now: Instant) -> Option<(u64, u64)> {
        if self.count == 0 || self.told.is_some_and(|told| now.duration_since(told) < PAUSE) {
            return None;
        }
        self.told = Some(now);
        Some((std::mem::take(&mut self.count), std::mem::take(&mut self.worst_ns)))
    }
}

/// A thread is started.
pub fn starting(id: usize) {
    info!(target: "weir::est", event = "est.thread_start", est_thread = id, "starting estimator thread {id}...");
}

/// A thread ends, what it passes stays its own.
pub fn stopping(id: usize) {
    info!(target: "weir::est", event = "est.thread_stop", est_thread = id, "stopping estimator thread {id}...");
}

/// A thread ends for good.
pub fn unused(id: usize) {
    info!(target: "weir::est", event = "est.thread_unused", est_thread = id, "stop unused estimator thread {id}...");
}

impl Journal {
    /// For `workers` workers.
    pub fn new(workers: usize) -> Journal {
        Journal { workers, moved: BTreeMap::new(), over_budget: Limited::default(), late: BTreeMap::new() }
    }

    /// Workers that count.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Writes an event, or keeps it for [`Journal::flush`].
    pub fn write(&mut self, event: &Event) {
        match *event {
            Event::Calibrated(result) => calibrated(&result),
            Event::Recalibrated { thread, from, to, cost_ps } => info!(
                target: "weir::est", event = "est.recalc", est_thread = thread, from, to, cost_ps,
                "chain limit {from} -> {to}: an estimator takes {} ns", cost_ps.div_ceil(1000)
            ),
            Event::Tick { thread, ns, ests, chains, chain_max } => {
                self.tick(thread, ns, ests, chains, chain_max)
            }
            Event::Late { thread, ns } => self.late.entry(thread).or_default().note(ns),
            Event::Moved { ests, from, to } => {
                let (blocks, moved) = self.moved.entry((from, to)).or_default();
                (*blocks, *moved) = (*blocks + 1, *moved + ests);
            }
            Event::OverBudget => self.over_budget.note(0),
            _ => {}
        }
    }

    /// Writes what was kept, as far as it is time.
    pub fn flush(&mut self, now: Instant) {
        for ((from, to), (blocks, n)) in std::mem::take(&mut self.moved) {
            info!(
                target: "weir::est", event = "est.move", n, blocks, from, to,
                "{n} estimators went from thread {from} to thread {to}"
            );
        }
        for (thread, late) in &mut self.late {
            if let Some((count, worst_ns)) = late.due(now) {
                warn!(
                    target: "weir::est", event = "est.late", est_thread = thread, count, worst_ns,
                    "estimator thread {thread} was more than 8 ticks late: the revolution is stretched"
                );
            }
        }
        if let Some((count, _)) = self.over_budget.due(now) {
            warn!(
                target: "weir::est", event = "est.unplaced", count,
                "no estimator thread has room: passed all the same, at more than est_load"
            );
        }
    }

    /// One row of the first thread, as the kernel tells it; of the others for who wants to know.
    fn tick(&self, id: usize, ns: u64, ests: u64, chains: usize, chain_max: u64) {
        let workers = self.workers;
        macro_rules! line {
            ($level:ident) => {
                $level!(
                    target: "weir::est", event = "est.tick", est_thread = id, tick_ns = ns, workers, ests, chains, chain_max,
                    "{}", tick_text(ns, workers, ests, chains, chain_max)
                )
            };
        }
        if id == 0 {
            line!(info);
        } else {
            line!(debug);
        }
    }
}

fn calibrated(result: &Calibration) {
    let Calibration { chain_max, single_ns, diff_ns, loops, tests, .. } = *result;
    info!(
        target: "weir::est", event = "est.calc", chain_max, single_ns, diff_ns, loops, ntest = tests,
        "{}", calc_text(result)
    );
    let (chain, thread) = result.limits();
    info!(target: "weir::est", event = "est.limits", chain, thread, "{}", limits_text(chain, thread));
}

fn calc_text(result: &Calibration) -> String {
    let Calibration { chain_max, single_ns, diff_ns, loops, tests, .. } = result;
    format!(
        "calc: chain_max={chain_max}, single est={single_ns}ns, diff={diff_ns}, loops={loops}, ntest={tests}"
    )
}

fn limits_text(chain: u64, thread: u64) -> String {
    format!("using max {chain} ests per chain, {thread} per kthread")
}

fn tick_text(ns: u64, workers: usize, ests: u64, chains: usize, chain_max: u64) -> String {
    format!("tick time: {ns}ns for {workers} CPUs, {ests} ests, {chains} chains, chain_max={chain_max}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_the_kernels() {
        let result = Calibration { chain_max: 8, single_ns: 11171, diff_ns: 11301, loops: 1, tests: 12 };
        assert_eq!(
            calc_text(&result),
            "calc: chain_max=8, single est=11171ns, diff=11301, loops=1, ntest=12"
        );
        let (chain, thread) = result.limits();
        assert_eq!(limits_text(chain, thread), "using max 384 ests per chain, 19200 per kthread");
        assert_eq!(
            tick_text(3_059_313, 128, 384, 1, 384),
            "tick time: 3059313ns for 128 CPUs, 384 ests, 1 chains, chain_max=384"
        );
    }

    #[test]
    fn what_comes_often_is_told_once_a_minute() {
        let start = Instant::now();
        let mut limited = Limited::default();
        assert_eq!(limited.due(start), None);
        limited.note(5);
        assert_eq!(limited.due(start), Some((1, 5)));
        limited.note(7);
        limited.note(3);
        assert_eq!(limited.due(start + PAUSE / 2), None);
        assert_eq!(limited.due(start + PAUSE), Some((2, 7)));
        assert_eq!(limited.due(start + 2 * PAUSE), None);
    }
}

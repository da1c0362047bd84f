//! What one estimator costs at start, measured as kernel IPVS does: the best of twelve runs over counters that are hot, times
//! four for the caches of real operation. The kernel passes one estimator again and again; a pass here is [`PASS_SLOTS`] of
//! them, as a piece of a row is, for of one alone it is chance what it costs (where its few lines happen to lie, what
//! reading the clock takes). Later each thread goes by `Cost`, which its own work measures.

use crate::counters::BLOCK;
use crate::est::{Host, PIECE_NS};

/// Runs of a calibration.
pub const TESTS: u32 = 12;

/// Estimators of a pass: sixteen times as long as reading the clock with one worker, and 2.5 KiB of counters for each worker.
pub const PASS_SLOTS: usize = 64;

/// Runs between two waits: three waits in all.
const TESTS_PER_WAIT: u32 = 4;

/// Wait before tests 0, 4 and 8, nanoseconds: what a frequency governor needs to notice (kernel: HZ/50).
pub const WAIT_NS: u64 = 20_000_000;

/// Hot passes for each loop: a hot pass times four is about a cold one.
const CACHE_FACTOR: u64 = 4;

/// A run must last longer than this to mean anything, nanoseconds; else its loops are doubled.
const SHORT_NS: u64 = 1_000;

/// A run that long was disturbed, nanoseconds.
const LONG_NS: u64 = 1_000_000_000;

/// The chain limit if no run was usable.
const UNKNOWN_CHAIN: u64 = 8;

/// Chains of a row: 2 s x 1000 x 10 / 8 (an eighth of a CPU) / 50 rows, in units of 100 us, down to a multiple of 8: 4.8 ms of 40.
pub const CHAIN_FACTOR: u64 = chain_factor(8);

/// [`CHAIN_FACTOR`] for a share of one `divisor`-th of a CPU.
pub const fn chain_factor(divisor: u64) -> u64 {
    2 * 1000 * 10 / divisor / super::ROWS as u64 / 8 * 8
}

/// A calibration's result, as far as it got.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Calibration {
    /// Estimators that pass in 95 us.
    pub chain_max: u64,
    /// Four hot passes of an estimator, the best run's, nanoseconds; 0 if no run was usable.
    pub single_ns: u64,
    /// Length of the last run, nanoseconds.
    pub diff_ns: u64,
    /// Loops of the last run.
    pub loops: u64,
    /// Runs made.
    pub tests: u32,
}

impl Calibration {
    pub(super) fn new() -> Self {
        Self { chain_max: UNKNOWN_CHAIN, single_ns: 0, diff_ns: 0, loops: 1, tests: 0 }
    }

    /// Makes the runs up to the next wait, or to the end; whether this was the end. `pass` is a pass over [`PASS_SLOTS`]
    /// estimators, which the compiler must not see through.
    pub(super) fn advance(&mut self, host: &mut impl Host, mut pass: impl FnMut()) -> bool {
        for _ in 0..TESTS_PER_WAIT {
            pass();
            let start = host.now_ns();
            for _ in 0..self.loops * CACHE_FACTOR {
                pass();
            }
            let diff = host.now_ns() - start;
            self.test(diff);
        }
        self.tests >= TESTS
    }

    /// Takes in a run of `diff` nanoseconds.
    fn test(&mut self, diff: u64) {
        self.tests += 1;
        self.diff_ns = diff;
        if diff <= SHORT_NS {
            self.loops *= 2;
            return;
        }
        if diff >= LONG_NS {
            return;
        }
        let single = (diff / (self.loops * PASS_SLOTS as u64)).max(1);
        if self.single_ns == 0 || single < self.single_ns {
            self.single_ns = single;
            self.chain_max = (PIECE_NS / single).max(1);
        }
    }

    /// The kernel's limits for the log: estimators of a row, and of a thread.
    pub fn limits(&self) -> (u64, u64) {
        let row = CHAIN_FACTOR * self.chain_max;
        (row, row * super::ROWS as u64)
    }

    /// Cost of an estimator, picoseconds.
    pub(super) fn cost_ps(&self) -> u64 {
        if self.single_ns > 0 { self.single_ns * 1000 } else { PIECE_NS * 1000 / UNKNOWN_CHAIN }
    }
}

/// Smallest share of a piece, slots, that is timed: below it the clocks' own cost shows.
const TIMED_SLOTS: usize = 32;

/// What an estimator costs on this thread now, picoseconds over all workers that count in its block, smoothed over
/// about eight pieces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Cost {
    sum_ps: u64,
    filter_ps: u64,
}

/// Time that a piece took.
#[derive(Clone, Copy, Debug)]
pub(super) struct Took {
    pub wall_ns: u64,
    pub cpu_ns: u64,
}

impl Took {
    /// Time of `work`.
    pub fn measure<H: Host>(host: &mut H, work: impl FnOnce()) -> Took {
        let (wall, cpu) = (host.now_ns(), host.cpu_ns());
        work();
        let cpu_ns = host.cpu_ns() - cpu;
        Took { wall_ns: host.now_ns() - wall, cpu_ns }
    }

    /// Off the CPU for more than a tenth of the time: caches were someone else's.
    fn is_preempted(&self) -> bool {
        self.cpu_ns * 10 < self.wall_ns * 9
    }
}

impl Cost {
    /// All of it in summing, until measured.
    pub fn new(cost_ps: u64) -> Self {
        Self { sum_ps: cost_ps, filter_ps: 0 }
    }

    /// Summing of `slots` slots took so long.
    pub fn summed(&mut self, slots: usize, took: Took) {
        smooth(&mut self.sum_ps, slots, took);
    }

    /// Filtering of `slots` slots took so long.
    pub fn filtered(&mut self, slots: usize, took: Took) {
        smooth(&mut self.filter_ps, slots, took);
    }

    /// An estimator's whole cost, picoseconds, at least 1.
    pub fn total_ps(&self) -> u64 {
        (self.sum_ps + self.filter_ps).max(1)
    }

    /// Estimators that pass in 95 us.
    pub fn chain_max(&self) -> u64 {
        (PIECE_NS * 1000 / self.total_ps()).max(1)
    }

    /// Slots to sum in one piece: what 95 us allow, in steps of 64, at most a block.
    pub fn piece(&self) -> usize {
        let slots = PIECE_NS * 1000 / self.sum_ps.max(1);
        (slots as usize / 64 * 64).clamp(64, BLOCK)
    }
}

fn smooth(ps: &mut u64, slots: usize, took: Took) {
    if slots < TIMED_SLOTS || took.is_preempted() {
        return;
    }
    let now = took.cpu_ns * 1000 / slots as u64;
    *ps = if *ps == 0 { now } else { (*ps * 7 + now) / 8 };
}

//! Estimators: from counters to rates, every two seconds, without asking a packet core anything.
//!
//! # The model
//!
//! An **estimator** is the rate state of one object slot. Slots lie in **blocks** of 1024, which are what kernel IPVS calls
//! chains: a block is summed over all workers in one go, belongs to one **row** of one **thread**, and moves as a whole.
//! A thread has 50 rows and takes one every 40 ms (a **tick**), so it is through after two seconds (a
//! **revolution**), the period that the filter assumes. A new object gets a slot in the row whose turn is furthest away, so its
//! first period is a whole one while that row has room; else a shorter one, which under-reads and is counted.
//!
//! # The parts
//!
//! | part | what | written by |
//! |---|---|---|
//! | [`filter`] | the arithmetic | |
//! | `block` | last sums, rates, zero points behind the block's lock | its thread; control adds, removes, zeroes |
//! | `plan` | which block is in which row of which thread; budgets, loads, moves; behind one lock | control and threads, briefly |
//! | [`calibrate`] | what one estimator costs, measured as the kernel does at start; then by every piece of work | threads |
//! | [`Estimators`] | what control and threads share | |
//! | [`Engine`] | one estimator thread's work, a turn a tick; the caller sleeps in between | its thread |
//!
//! Locks: the plan's, then a block's; either for microseconds. Counters are summed with neither held, in pieces of
//! at most 95 us, between which the [`Host`] may yield, unless the thread is late. Cost is CPU time, so neither other threads nor other machines change it;
//! a piece that was preempted says nothing and is not counted.

pub mod calibrate;
pub mod filter;

mod balance;
mod block;
mod engine;
mod estimators;
mod plan;

use std::ops::ControlFlow;

pub use balance::Status;
pub use engine::{Engine, Next};
pub use estimators::Estimators;

use crate::counters::Totals;
use calibrate::Calibration;

/// Rows of a thread (kernel: `IPVS_EST_NTICKS`).
pub const ROWS: usize = 50;

/// Time between two rows, nanoseconds: the period of two seconds over [`ROWS`].
pub const TICK_NS: u64 = PERIOD_NS / ROWS as u64;

/// Time between two passes of an estimator, nanoseconds (kernel: 2 s).
pub const PERIOD_NS: u64 = 2_000_000_000;

/// Lateness that is caught up by taking rows back to back; beyond it the backlog is given up (kernel: 8 ticks).
pub const LATE_TICKS: u64 = 8;

/// Longest interval that is still taken as a period, nanoseconds: two of them. After a longer one a pass only notes the sums.
pub const GUARD_NS: u64 = 2 * PERIOD_NS;

/// Longest piece of work without a yield, nanoseconds (kernel: the goal of a chain, 95 us of 100).
pub const PIECE_NS: u64 = 95_000;

/// What an estimator thread runs on: its clocks, and its way to let others run. Real in control, simulated in tests.
pub trait Host {
    /// Monotonic clock, nanoseconds.
    fn now_ns(&mut self) -> u64;
    /// CPU time of the calling thread, nanoseconds.
    fn cpu_ns(&mut self) -> u64;
    /// Called between two pieces of work: yields; `Break` leaves the rest of the row for later.
    fn between_pieces(&mut self) -> ControlFlow<()>;
}

/// What may be changed at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// Whether passes are made (kernel: `run_estimation`, and a CPU list that is not empty).
    pub running: bool,
    /// Share of a CPU that one thread may use before another is started, percent (kernel: 12).
    pub load: u8,
    /// Threads there may be, at least 1 (kernel: 4 for each CPU of the list).
    pub threads_max: usize,
    /// After a pause, take what was counted meanwhile as one period's, as the kernel does.
    pub resume_spike: bool,
}

impl Default for Settings {
    fn default() -> Self {
        Self { running: true, load: 12, threads_max: 4, resume_spike: false }
    }
}

impl Settings {
    fn clamped(self) -> Self {
        Self { load: self.load.clamp(1, 100), threads_max: self.threads_max.max(1), ..self }
    }
}

/// Rates as shown: connections, packets and bytes a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Rates {
    /// Connections a second.
    pub cps: u64,
    /// Packets a second, client to server.
    pub inpps: u64,
    /// Packets a second, server to client.
    pub outpps: u64,
    /// Bytes a second, client to server.
    pub inbps: u64,
    /// Bytes a second, server to client.
    pub outbps: u64,
}

/// What the last pass left of an object: at most two seconds old.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Snapshot {
    /// Counted since it was added or zeroed.
    pub totals: Totals,
    /// Rates.
    pub rates: Rates,
    /// When the pass was, on the host's clock, nanoseconds; `None` before the first: all zeros.
    pub passed_ns: Option<u64>,
}

/// What happened, for the log. Thread numbers are those of [`Engine`]s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Event {
    /// A thread is wanted: make its [`Engine`] and run it.
    ThreadWanted(usize),
    /// A thread has nothing left; its engine's turn says [`Next::Unused`].
    ThreadUnused(usize),
    /// The cost at start was measured.
    Calibrated(Calibration),
    /// The measured cost has moved the chain limit by more than a tenth.
    Recalibrated {
        /// Thread that measured it.
        thread: usize,
        /// Chain limit so far.
        from: u64,
        /// Chain limit now.
        to: u64,
        /// Cost of an estimator over all workers, picoseconds.
        cost_ps: u64,
    },
    /// The first row of a thread that is not empty, then one every 32 revolutions.
    Tick {
        /// Thread.
        thread: usize,
        /// Wall time of the row, preemption included, nanoseconds.
        ns: u64,
        /// Estimators in it.
        ests: u64,
        /// Blocks in it.
        chains: usize,
        /// The thread's chain limit.
        chain_max: u64,
    },
    /// A row came more than [`LATE_TICKS`] late; the revolution is stretched.
    Late {
        /// Thread.
        thread: usize,
        /// Lateness, nanoseconds.
        ns: u64,
    },
    /// A block went to another row.
    Moved {
        /// Estimators in it.
        ests: u64,
        /// From thread.
        from: usize,
        /// To thread.
        to: usize,
    },
    /// No thread may be added and no row has room in its budget: blocks are passed all the same, at more than it.
    OverBudget,
}

#[cfg(test)]
mod tests;

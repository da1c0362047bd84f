//! What came of watching the worker, and how it is told.

use std::fmt;
use std::time::Duration;

use super::feed::Seen;
use super::late::{Gaps, Interrupts};

/// Results of a task.
#[derive(Clone, Copy, Debug, Default)]
pub struct Report {
    /// Packets per second at most: the median of all that was measured.
    pub maximum: f64,
    /// The worker's slices.
    pub loaded: Side,
    /// The empty loop's.
    pub empty: Side,
}

/// Slices of one kind.
#[derive(Clone, Copy, Debug, Default)]
pub struct Side {
    /// Time in those that were alone on the CPU.
    pub time: Duration,
    /// Slices in which something else ran on the CPU, left out of all figures.
    pub shared: u64,
    /// Slices during which the machine was slower than around them, left out likewise.
    pub slow: u64,
    /// Packets offered.
    pub offered: f64,
    /// Packets that found the ring full, or would have if the empty loop took them as it polls.
    pub dropped: f64,
    /// Those of them that the worker itself was too slow for: a ring that does not fill while the thread does not run
    /// would have lost them too.
    pub own_dropped: f64,
    /// Slices in which that happened.
    pub behind: u64,
    /// Gaps between polls.
    pub gaps: Gaps,
    /// Interrupts of the CPU and page faults of the thread, in this much time: looks at the maximum are in it.
    pub counted: Duration,
    pub interrupts: Interrupts,
    pub faults: u64,
}

impl Side {
    /// Gaps per second; 0 when there is no time.
    pub fn gaps_per_second(&self) -> f64 {
        self.gaps.count as f64 / self.time.as_secs_f64().max(1e-9)
    }

    /// Takes a slice in.
    pub fn take(&mut self, time: Duration, seen: &Seen) {
        self.time += time;
        self.offered += seen.offered;
        self.dropped += seen.ring.dropped;
        self.own_dropped += seen.own.dropped;
        self.behind += u64::from(seen.own.dropped >= 1.0);
        self.gaps.add(&seen.gaps);
    }
}

impl fmt::Display for Side {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let seconds = self.time.as_secs_f64().max(1e-9);
        let counted = self.counted.as_secs_f64().max(1e-9);
        let gaps = &self.gaps;
        writeln!(
            f,
            "{seconds:.1} s alone ({} slices shared, {} slow), {:.3} million packets offered, {:.0} lost, {:.0} of them \
             while the thread ran ({} slices)",
            self.shared,
            self.slow,
            self.offered / 1e6,
            self.dropped,
            self.own_dropped,
            self.behind,
        )?;
        writeln!(
            f,
            "             {:.1} gaps over 100 us a second, longest {:.0} us: {} taken by the hypervisor, {} by other threads, \
             {} page faults, {} ran (longest {:.0} us); {:.1} ms of {:.0} taken",
            self.gaps_per_second(),
            gaps.max_ns as f64 / 1e3,
            gaps.stolen,
            gaps.switched,
            gaps.faulted,
            gaps.ran,
            gaps.ran_max_ns as f64 / 1e3,
            gaps.taken_ns as f64 / 1e6,
            seconds * 1e3,
        )?;
        write!(
            f,
            "             a second: {}, {:.0} page faults",
            self.interrupts.per_second(counted),
            self.faults as f64 / counted
        )
    }
}

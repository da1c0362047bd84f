//! Polls that come late, and what kept the thread: the hypervisor, the kernel, the thread itself.
//!
//! Model: the kernel leaves time that the hypervisor took from the CPU out of a thread's CPU time, and time of other
//! threads of course. So what a gap is longer than the thread ran in it was taken from the thread: by another thread if
//! the kernel counted a switch, else by the hypervisor. A gap in which the thread ran is the program's own, or an
//! interrupt's. The CPU time is read at gaps and once a millisecond besides, so that short thefts before a gap are not
//! held for part of it. Worker's thread only; a look costs a microsecond, after a gap some fifty, which count nowhere.

use std::fs;

use dpdk_sys::{TscClock, thread_cpu_ns};

/// Gaps between two polls above this are counted, nanoseconds.
pub const GAP_NS: u64 = 100_000;
/// Between two looks at the CPU time, nanoseconds.
const LOOK_NS: u64 = 1_000_000;

/// Gaps above [`GAP_NS`], by what was most of them.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gaps {
    /// How many.
    pub count: u64,
    /// The longest, nanoseconds.
    pub max_ns: u64,
    /// In so many the hypervisor had the CPU.
    pub stolen: u64,
    /// In so many the kernel gave the CPU to another thread.
    pub switched: u64,
    /// In so many the thread ran and took page faults.
    pub faulted: u64,
    /// In so many the thread ran: a long poll, or an interrupt. Nanoseconds of the longest.
    pub ran: u64,
    pub ran_max_ns: u64,
    /// Nanoseconds that were taken from the thread, in gaps of any length.
    pub taken_ns: u64,
}

impl Gaps {
    /// Takes those of another slice in.
    pub fn add(&mut self, other: &Gaps) {
        self.count += other.count;
        self.max_ns = self.max_ns.max(other.max_ns);
        self.stolen += other.stolen;
        self.switched += other.switched;
        self.faulted += other.faulted;
        self.ran += other.ran;
        self.ran_max_ns = self.ran_max_ns.max(other.ran_max_ns);
        self.taken_ns += other.taken_ns;
    }
}

/// A gap between two polls.
#[derive(Clone, Copy, Debug, Default)]
pub struct Gap {
    /// How long, nanoseconds.
    pub ns: u64,
    /// What was taken from the thread since the last look, nanoseconds; 0 when this was no look.
    pub taken_ns: u64,
}

/// Watches the polls of this thread.
pub struct Watch {
    clock: TscClock,
    /// Time of the last poll, and of the last look.
    last_ns: u64,
    looked_ns: u64,
    /// CPU time at the last look.
    ran_ns: u64,
    usage: Usage,
    /// What was seen.
    pub gaps: Gaps,
}

impl Watch {
    /// Begins now.
    pub fn new(clock: TscClock) -> Watch {
        let mut watch = Watch {
            clock,
            last_ns: 0,
            looked_ns: 0,
            ran_ns: 0,
            usage: Usage::default(),
            gaps: Gaps::default(),
        };
        watch.begin();
        watch
    }

    /// Begins anew now.
    pub fn begin(&mut self) {
        (self.usage, self.gaps) = (Usage::now(), Gaps::default());
        self.look();
    }

    /// Notes a poll; the gap before it.
    #[inline(always)]
    pub fn poll(&mut self) -> Gap {
        let now = self.clock.now_ns();
        let ns = now.saturating_sub(self.last_ns);
        self.last_ns = now;
        if ns > GAP_NS {
            return self.late(ns);
        }
        let taken_ns = if now - self.looked_ns > LOOK_NS { self.taken() } else { 0 };
        Gap { ns, taken_ns }
    }

    /// Time of the last poll, nanoseconds.
    pub fn last_ns(&self) -> u64 {
        self.last_ns
    }

    #[cold]
    fn late(&mut self, ns: u64) -> Gap {
        let taken_ns = self.taken();
        let usage = Usage::now();
        let gaps = &mut self.gaps;
        gaps.count += 1;
        gaps.max_ns = gaps.max_ns.max(ns);
        if taken_ns > ns / 2 {
            let switched = usage.switches != self.usage.switches;
            *(if switched { &mut gaps.switched } else { &mut gaps.stolen }) += 1;
        } else if usage.faults != self.usage.faults {
            gaps.faulted += 1;
        } else {
            gaps.ran += 1;
            gaps.ran_max_ns = gaps.ran_max_ns.max(ns);
        }
        self.usage = usage;
        self.look();
        Gap { ns, taken_ns }
    }

    /// What was taken from the thread since the last look, up to the last poll.
    #[inline(never)]
    fn taken(&mut self) -> u64 {
        let ran_ns = thread_cpu_ns() - self.ran_ns;
        let taken_ns = (self.last_ns - self.looked_ns).saturating_sub(ran_ns);
        self.gaps.taken_ns += taken_ns;
        self.look();
        taken_ns
    }

    fn look(&mut self) {
        self.ran_ns = thread_cpu_ns();
        self.last_ns = self.clock.now_ns();
        self.looked_ns = self.last_ns;
    }
}

/// What the kernel counts of this thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Usage {
    /// How often it gave this thread's CPU to another thread.
    pub switches: u64,
    /// Page faults.
    pub faults: u64,
}

impl Usage {
    /// Up to now.
    pub fn now() -> Usage {
        let status = fs::read_to_string("/proc/thread-self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("nonvoluntary_ctxt_switches:")).unwrap();
        let stat = fs::read_to_string("/proc/thread-self/stat").unwrap();
        // Field 10, of which the name in brackets is the second.
        let faults = stat.rsplit_once(')').unwrap().1.split_whitespace().nth(7).unwrap();
        Usage { switches: line.trim().parse().unwrap(), faults: faults.parse().unwrap() }
    }
}

/// Interrupts of one CPU that other CPUs or a clock cause, as counted by the kernel.
#[derive(Clone, Copy, Debug, Default)]
pub struct Interrupts([u64; Interrupts::NAMES.len()]);

impl Interrupts {
    /// Rows of /proc/interrupts, and what they are.
    const NAMES: [(&str, &str); 4] =
        [("LOC:", "timer"), ("RES:", "wakeup"), ("CAL:", "function call"), ("TLB:", "TLB flush")];

    /// Up to now.
    pub fn now(cpu: usize) -> Interrupts {
        let text = fs::read_to_string("/proc/interrupts").unwrap();
        let column = format!("CPU{cpu}");
        let column = text.lines().next().unwrap().split_whitespace().position(|name| name == column).unwrap();
        let of = |(row, _)| {
            let line = text.lines().find_map(|line| line.trim_start().strip_prefix(row));
            line.and_then(|line| line.split_whitespace().nth(column)?.parse().ok()).unwrap_or(0)
        };
        Interrupts(Interrupts::NAMES.map(of))
    }

    /// Takes in those between two moments.
    pub fn add(&mut self, before: &Interrupts, after: &Interrupts) {
        for (sum, (before, after)) in self.0.iter_mut().zip(before.0.iter().zip(&after.0)) {
            *sum += after - before;
        }
    }

    /// As text, per second.
    pub fn per_second(&self, seconds: f64) -> String {
        let of = |(count, (_, name)): (&u64, (&str, &str))| format!("{:.0} {name}", *count as f64 / seconds);
        self.0.iter().zip(Interrupts::NAMES).map(of).collect::<Vec<_>>().join(", ")
    }
}

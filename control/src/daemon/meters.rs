//! Figures that need a past: drops per second and the load of workers, from samples once a second.

use std::time::{Duration, Instant};

use dataplane::counters::WorkerFigures;
use dataplane::verdict::DropReason;
use tracing::warn;

use super::cpus::Mode;

/// Drops of all workers by reason, as of the last two samples.
#[derive(Debug)]
pub struct DropMeter {
    older: (Instant, [u64; DropReason::COUNT]),
    newer: (Instant, [u64; DropReason::COUNT]),
}

impl DropMeter {
    /// From nothing dropped at `now`.
    pub fn new(now: Instant) -> DropMeter {
        let zero = (now, [0; DropReason::COUNT]);
        DropMeter { older: zero, newer: zero }
    }

    /// Takes the sample of this second.
    pub fn sample(&mut self, now: Instant, totals: [u64; DropReason::COUNT]) {
        self.older = std::mem::replace(&mut self.newer, (now, totals));
    }

    /// Drops per second for one reason, over the last one to two seconds.
    pub fn per_second(&self, now: Instant, reason: DropReason, total: u64) -> f64 {
        let (since, then) = self.older;
        per_second(total.saturating_sub(then[reason as usize]), now.duration_since(since))
    }
}

/// Clients of the control socket, and those there was no place for.
#[derive(Clone, Copy, Debug, Default)]
pub struct Clients {
    /// Connected now.
    pub connected: u64,
    /// Turned away since the start.
    turned_away: u64,
    /// Of these, how many the log was told of.
    logged: u64,
}

impl Clients {
    /// Takes the server's figures.
    pub fn note(&mut self, connected: usize, turned_away: u64) {
        self.connected = connected as u64;
        self.turned_away = turned_away;
    }

    /// Logs those turned away since the last call. Once a second: anybody can cause them.
    pub fn report(&mut self) {
        let clients = self.turned_away - std::mem::replace(&mut self.logged, self.turned_away);
        if clients > 0 {
            warn!(
                target: "weir::api", clients, connected = self.connected,
                "clients of the control socket turned away: no place left for them or their user"
            );
        }
    }
}

/// What one worker did in the last second; while that has not passed, what a worker does that has nothing to do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Load {
    /// Share of the time that went into work, 0 to 100.
    pub percent: f64,
    /// Packets received or taken over.
    pub packets_per_second: f64,
    /// Cycles for each of them, of turns that had any.
    pub cycles_per_packet: f64,
    /// Packets in each turn that had any.
    pub packets_per_poll: f64,
    /// Share of turns without packets, 0 to 100.
    pub empty_polls_percent: f64,
}

impl Default for Load {
    fn default() -> Load {
        Load {
            percent: 0.0,
            packets_per_second: 0.0,
            cycles_per_packet: 0.0,
            packets_per_poll: 0.0,
            empty_polls_percent: 100.0,
        }
    }
}

/// Load of one worker, sampled once a second.
#[derive(Clone, Copy, Debug)]
pub struct LoadMeter {
    at: Instant,
    last: Sample,
    load: Load,
}

/// Totals of a worker's figures.
#[derive(Clone, Copy, Debug, Default)]
struct Sample {
    polls: u64,
    busy_polls: u64,
    busy_ns: u64,
    packets: u64,
    cpu_ns: u64,
}

impl LoadMeter {
    /// Of a worker that starts at `now`.
    pub fn new(now: Instant) -> LoadMeter {
        LoadMeter { at: now, last: Sample::default(), load: Load::default() }
    }

    /// Takes the sample of this second. A worker that sleeps when idle works for its CPU time; one that spins always
    /// uses the CPU and works in turns that find packets. `tsc_hz` is the rate of the cycles that are shown.
    pub fn sample(&mut self, now: Instant, mode: Mode, figures: &WorkerFigures, cpu_ns: u64, tsc_hz: u64) {
        let WorkerFigures { polls, busy_polls, busy_ns, .. } = *figures;
        let packets = figures.rx + figures.handed_in;
        let sample = Sample { polls, busy_polls, busy_ns, packets, cpu_ns };
        let last = std::mem::replace(&mut self.last, sample);
        let time = now.duration_since(std::mem::replace(&mut self.at, now));
        let (packets, busy_ns) = (packets - last.packets, busy_ns - last.busy_ns);
        let (polls, busy_polls) = (polls - last.polls, busy_polls - last.busy_polls);
        let worked_ns = match mode {
            Mode::Shared => cpu_ns.saturating_sub(last.cpu_ns),
            Mode::Exclusive => busy_ns,
        };
        let cycles = busy_ns as f64 * tsc_hz as f64 / 1e9;
        self.load = Load {
            percent: tenths(100.0 * ratio(worked_ns, time.as_nanos() as u64)),
            packets_per_second: per_second(packets, time),
            cycles_per_packet: tenths(cycles / packets.max(1) as f64),
            packets_per_poll: tenths(packets as f64 / busy_polls.max(1) as f64),
            empty_polls_percent: tenths(100.0 - 100.0 * ratio(busy_polls, polls)),
        };
    }

    /// What the last two samples say.
    pub fn load(&self) -> Load {
        self.load
    }
}

/// CPU time of a thread of ours so far, nanoseconds; 0 when the system does not say.
pub fn thread_cpu_ns(tid: i32) -> u64 {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/schedstat")).unwrap_or_default();
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Memory of the process that is in RAM; 0 when the system does not say.
pub fn resident_bytes() -> u64 {
    let text = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kib = text
        .lines()
        .find_map(|line| line.strip_prefix("VmRSS:")?.trim().strip_suffix(" kB")?.parse::<u64>().ok());
    kib.unwrap_or(0) * 1024
}

fn per_second(count: u64, time: Duration) -> f64 {
    let seconds = time.as_secs_f64();
    if seconds < 0.001 { 0.0 } else { (count as f64 / seconds * 10.0).round() / 10.0 }
}

fn tenths(value: f64) -> f64 {
    (value * 10.0).round() / 10.0
}

fn ratio(part: u64, whole: u64) -> f64 {
    (part as f64 / whole.max(1) as f64).clamp(0.0, 1.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn drops_per_second_are_those_of_the_last_samples() {
        let start = Instant::now();
        let at = |ms| start + Duration::from_millis(ms);
        let totals = |n| std::array::from_fn(|i| if i == DropReason::NoDest as usize { n } else { 0 });
        let mut meter = DropMeter::new(start);
        assert_eq!(meter.per_second(start, DropReason::NoDest, 9), 0.0, "no time has passed");
        meter.sample(at(1000), totals(100));
        meter.sample(at(2000), totals(100));
        assert_eq!(meter.per_second(at(3000), DropReason::NoDest, 130), 15.0);
        assert_eq!(meter.per_second(at(3000), DropReason::Ttl, 0), 0.0);
        meter.sample(at(3000), totals(130));
        assert_eq!(meter.per_second(at(4000), DropReason::NoDest, 130), 15.0);
        meter.sample(at(4000), totals(130));
        assert_eq!(meter.per_second(at(5000), DropReason::NoDest, 130), 0.0);
    }

    #[test]
    fn load_is_cpu_time_or_the_time_of_busy_turns() {
        let start = Instant::now();
        let later = start + Duration::from_secs(1);
        let figures = |polls, busy_polls, busy_ns, rx, handed_in| WorkerFigures {
            polls,
            busy_polls,
            busy_ns,
            rx,
            handed_in,
            ..WorkerFigures::default()
        };
        for (mode, percent) in [(Mode::Shared, 30.0), (Mode::Exclusive, 25.0)] {
            let mut meter = LoadMeter::new(start - Duration::from_secs(1));
            assert_eq!(meter.load().empty_polls_percent, 100.0);
            meter.sample(start, mode, &figures(100, 50, 5, 10, 10), 7, 2_000_000_000);
            assert_eq!((meter.load().packets_per_second, meter.load().empty_polls_percent), (20.0, 50.0));
            meter.sample(later, mode, &figures(500, 150, 250_000_005, 610, 410), 300_000_007, 2_000_000_000);
            let expected = Load {
                percent,
                packets_per_second: 1000.0,
                cycles_per_packet: 500_000.0,
                packets_per_poll: 10.0,
                empty_polls_percent: 75.0,
            };
            assert_eq!(meter.load(), expected);
        }
        // The kernel adds up a running thread's time at its ticks.
        while start.elapsed() < Duration::from_millis(50) {
            std::hint::spin_loop();
        }
        let cpu_ns = thread_cpu_ns(rustix::thread::gettid().as_raw_pid());
        assert!((1_000_000..10_000_000_000).contains(&cpu_ns), "{cpu_ns}");
        assert_eq!(thread_cpu_ns(0), 0);
        assert!(resident_bytes() > 100_000);
    }
}

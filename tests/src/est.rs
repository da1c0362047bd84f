//! Estimator engines on the real clocks over slabs of our own making: what the benchmarks and the long runs walk.
//!
//! Slabs stand for workers, also for more of them than the machine has CPUs; then no lines move between caches. One CPU's
//! time counts, read as thread CPU time, so that what else the machine does changes little.

pub mod live;

use std::ops::ControlFlow;
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::counters::{BLOCK, CounterSlab};
use dataplane::est::{Engine, Estimators, Host, Next, ROWS, Settings};
use rustix::time::{ClockId, clock_gettime};

/// The machine's clocks. Sleeps can be skipped: [`Clock::skip_to`] moves the time that engines see.
#[derive(Clone, Copy, Debug)]
pub struct Clock {
    start: Instant,
    skipped_ns: u64,
    yielded_cpu_ns: u64,
    /// Longest CPU time from one yield to the next, nanoseconds.
    pub longest_ns: u64,
}

impl Default for Clock {
    fn default() -> Self {
        Self { start: Instant::now(), skipped_ns: 0, yielded_cpu_ns: thread_cpu_ns(), longest_ns: 0 }
    }
}

impl Clock {
    /// Goes on from `at_ns`, if that is ahead.
    pub fn skip_to(&mut self, at_ns: u64) {
        self.skipped_ns += at_ns.saturating_sub(self.now_ns());
    }

    /// Takes back what passed since `at_ns`: it was none of the engines' time.
    pub fn back_to(&mut self, at_ns: u64) {
        let since = self.now_ns().saturating_sub(at_ns);
        self.start += Duration::from_nanos(since);
    }

    /// Sleeps until `at_ns`, if that is ahead.
    pub fn sleep_until(&mut self, at_ns: u64) {
        let left = at_ns.saturating_sub(self.now_ns());
        if left > 0 {
            thread::sleep(Duration::from_nanos(left));
        }
        self.yielded();
    }

    /// A stretch of work starts.
    pub fn starts(&mut self) {
        self.yielded_cpu_ns = thread_cpu_ns();
    }

    /// The thread gives the CPU up: a stretch of work ends.
    pub fn yielded(&mut self) {
        let now = thread_cpu_ns();
        self.longest_ns = self.longest_ns.max(now - self.yielded_cpu_ns);
        self.yielded_cpu_ns = now;
    }

    /// Another thread's view of the same time.
    pub fn fork(&self) -> Self {
        Self { yielded_cpu_ns: thread_cpu_ns(), longest_ns: 0, ..*self }
    }
}

impl Host for Clock {
    fn now_ns(&mut self) -> u64 {
        self.start.elapsed().as_nanos() as u64 + self.skipped_ns
    }

    fn cpu_ns(&mut self) -> u64 {
        thread_cpu_ns()
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        self.yielded();
        thread::yield_now();
        ControlFlow::Continue(())
    }
}

/// CPU time of the calling thread, nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64
}

/// CPU time of what a revolution did, nanoseconds.
#[derive(Clone, Copy, Debug, Default)]
pub struct Revolution {
    /// All rows.
    pub cpu_ns: u64,
    /// The longest row.
    pub row_ns: u64,
}

/// One engine over the slabs of simulated workers; its sleeps are skipped.
pub struct Rig {
    /// A worker's counters each.
    pub slabs: Vec<Arc<CounterSlab>>,
    /// What control would hold.
    pub est: Arc<Estimators>,
    /// The engine's clocks.
    pub clock: Clock,
    /// Object slots added, in order.
    pub slots: Vec<u32>,
    engine: Engine,
    /// When the last revolution ended.
    left_ns: u64,
}

impl Rig {
    /// Estimators over the counters of `workers` workers, `ests` added: calibrated, one thread that may take a whole CPU.
    pub fn new(workers: usize, ests: usize) -> Result<Self, String> {
        let mut rig = Self::with_room(workers, ests)?;
        (0..ests).try_for_each(|_| rig.add())?;
        rig.left_ns = rig.clock.now_ns();
        Ok(rig)
    }

    /// The same with nothing but the totals so far, and room for `ests`.
    pub fn with_room(workers: usize, ests: usize) -> Result<Self, String> {
        let room = (ests + 1).next_multiple_of(BLOCK);
        let slab = |_| CounterSlab::new(room).map(Arc::new).map_err(|e| e.to_string());
        let slabs: Vec<_> = (0..workers).map(slab).collect::<Result<_, _>>()?;
        let est =
            Estimators::new(slabs.clone(), Settings { load: 100, threads_max: 1, ..Settings::default() });
        let engine = Engine::new(Arc::clone(&est), 0);
        let mut rig = Self { slabs, est, clock: Clock::default(), slots: Vec::new(), engine, left_ns: 0 };
        while rig.est.calibration().is_none() {
            rig.turn(Clock::skip_to);
        }
        rig.left_ns = rig.clock.now_ns();
        Ok(rig)
    }

    /// Adds an estimator.
    pub fn add(&mut self) -> Result<(), String> {
        let slot = self.est.add(self.clock.now_ns()).ok_or("no slot is left")?;
        self.slots.push(slot);
        Ok(())
    }

    /// Counts in every slot of every worker: packets, bytes, connections, different ones for different slots.
    pub fn fill(&self) {
        for (w, slab) in self.slabs.iter().enumerate() {
            for &slot in &self.slots {
                let n = u64::from(slot).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 50;
                slab.count_in(slot, slot, 40 + n + w as u64);
                if n % 2 == 0 {
                    slab.count_out(slot, slot, 1000 + n);
                    slab.count_conn(slot, slot);
                }
            }
        }
    }

    /// Worker 0 counts a packet of 100 bytes twice in one slot of each block of `slots`: all of them have to be summed.
    pub fn touch(&self, slots: &[u32]) {
        let mut touched: Vec<u32> = slots.to_vec();
        touched.dedup_by_key(|slot| *slot as usize / BLOCK);
        for slot in touched {
            self.slabs[0].count_in(slot, slot, 100);
        }
    }

    /// Takes every row once. What the caller did since the last one took no time.
    pub fn revolution(&mut self) -> Revolution {
        self.clock.back_to(self.left_ns);
        let mut all = Revolution::default();
        for _ in 0..ROWS {
            let row_ns = self.turn(Clock::skip_to);
            all.cpu_ns += row_ns;
            all.row_ns = all.row_ns.max(row_ns);
        }
        self.est.take_events();
        self.left_ns = self.clock.now_ns();
        all
    }

    /// One turn, then `wait` until the time of the next; the turn's CPU time.
    pub fn turn(&mut self, wait: fn(&mut Clock, u64)) -> u64 {
        self.clock.starts();
        let before = thread_cpu_ns();
        let next = self.engine.turn(&mut self.clock);
        let took = thread_cpu_ns() - before;
        self.clock.yielded();
        if let Next::At(at) = next {
            wait(&mut self.clock, at);
        }
        took
    }
}

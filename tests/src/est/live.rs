//! Engines in real time, each on a thread of its own, started and ended as the estimators ask for.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use dataplane::counters::{BLOCK, CounterSlab};
use dataplane::est::{Engine, Estimators, Event, Host, Next, Settings};
use dpdk_sys::{CpuSet, Tid, set_timer_slack_ns};

use super::Clock;

/// How often an engine that may do nothing looks again.
const STOPPED: Duration = Duration::from_millis(10);

/// Estimators with their threads.
pub struct Live {
    /// What control holds.
    pub est: Arc<Estimators>,
    /// Events so far but those of threads.
    pub events: Vec<Event>,
    cpu: Option<usize>,
    clock: Clock,
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
}

#[derive(Default)]
struct Shared {
    stop: AtomicBool,
    longest_ns: AtomicU64,
}

impl Live {
    /// Estimators over `slabs`, threads on `cpu` if one is named. Call [`Live::tend`] often.
    pub fn start(slabs: Vec<Arc<CounterSlab>>, settings: Settings, cpu: Option<usize>) -> Self {
        let est = Estimators::new(slabs, settings);
        Self {
            est,
            events: Vec::new(),
            cpu,
            clock: Clock::default(),
            shared: Arc::default(),
            threads: Vec::new(),
        }
    }

    /// Starts the threads that are wanted, and keeps other events.
    pub fn tend(&mut self) {
        for event in self.est.take_events() {
            if let Event::ThreadWanted(id) = event {
                let engine = Engine::new(Arc::clone(&self.est), id);
                let (clock, shared, cpu) = (self.clock, Arc::clone(&self.shared), self.cpu);
                self.threads.push(thread::spawn(move || run(engine, clock, &shared, cpu)));
            }
            self.events.push(event);
        }
    }

    /// Lets `ns` pass, tending the threads.
    pub fn run(&mut self, ns: u64) {
        let until = self.now_ns() + ns;
        while self.now_ns() < until {
            self.tend();
            thread::sleep(Duration::from_millis(5));
        }
    }

    /// Waits until the cost at start is known.
    pub fn calibrate(&mut self) {
        while self.est.calibration().is_none() {
            self.tend();
            thread::sleep(Duration::from_millis(1));
        }
    }

    /// The engines' time, nanoseconds.
    pub fn now_ns(&self) -> u64 {
        self.clock.clone().now_ns()
    }

    /// Ends the threads; the longest CPU time that any of them took without a yield, nanoseconds.
    pub fn end(self) -> u64 {
        self.shared.stop.store(true, Relaxed);
        for thread in self.threads {
            thread.join().expect("an engine's thread panicked");
        }
        self.shared.longest_ns.load(Relaxed)
    }
}

fn run(mut engine: Engine, clock: Clock, shared: &Shared, cpu: Option<usize>) {
    if let Some(cpu) = cpu {
        Tid::current().set_affinity(&CpuSet::from_iter([cpu])).expect("a CPU of this process");
    }
    set_timer_slack_ns(1).expect("a slack");
    let mut clock = clock.fork();
    while !shared.stop.load(Relaxed) {
        match engine.turn(&mut clock) {
            Next::At(at) => clock.sleep_until(at),
            Next::Stopped => thread::sleep(STOPPED),
            Next::Unused => break,
        }
    }
    shared.longest_ns.fetch_max(clock.longest_ns, Relaxed);
}

/// Other CPUs' work, until dropped: `fill` memory for ever, or just spin.
pub struct Load {
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Load {
    /// A thread on `cpu` that reads and writes a stream of memory far larger than any cache.
    pub fn streaming(cpu: usize) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            Tid::current().set_affinity(&CpuSet::from_iter([cpu])).expect("a CPU of this process");
            let mut words = vec![1u64; 64 << 20];
            while !stopped.load(Relaxed) {
                for chunk in words.chunks_mut(1 << 16) {
                    chunk.iter_mut().for_each(|word| *word = word.wrapping_mul(3));
                    if stopped.load(Relaxed) {
                        break;
                    }
                }
            }
        });
        Self { stop, threads: vec![thread] }
    }

    /// One spinning thread on each of `cpus`.
    pub fn spinning(cpus: &CpuSet) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let spin = |cpu| {
            let stopped = Arc::clone(&stop);
            thread::spawn(move || {
                Tid::current().set_affinity(&CpuSet::from_iter([cpu])).expect("a CPU of this process");
                while !stopped.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let threads = cpus.iter().map(spin).collect();
        Self { stop, threads }
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One packet in each block of `slabs[0]`, so that all of them are summed.
pub fn touch_blocks(slabs: &[Arc<CounterSlab>]) {
    for block in 0..slabs[0].slots() / BLOCK {
        let slot = (block * BLOCK + 1) as u32;
        slabs[0].count_in(slot, slot, 100);
    }
}

/// Time that the calling thread waited for a CPU since it started, nanoseconds; 0 where the kernel does not say.
pub fn run_queue_ns() -> u64 {
    let text = fs::read_to_string("/proc/thread-self/schedstat").unwrap_or_default();
    text.split_whitespace().nth(1).and_then(|ns| ns.parse().ok()).unwrap_or(0)
}

/// Memory of the process that is resident, bytes.
pub fn resident_bytes() -> u64 {
    let text = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let kb = text.lines().find_map(|l| l.strip_prefix("VmRSS:")?.trim().strip_suffix("kB"));
    kb.and_then(|kb| kb.trim().parse::<u64>().ok()).unwrap_or(0) * 1024
}

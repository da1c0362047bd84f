//! The worker's thread under test: the real worker over the [`Feed`], doing what the test asks for.
//!
//! Model: the thread polls for ever, fed with nothing, and takes [`Task`]s one by one. While it watches, slices of
//! the worker under load take turns with slices of an empty loop on the same CPU; before these the worker rests, so
//! publications do not wait for it. A slice in which the kernel gave the CPU to something else is told apart: the
//! worker was not alone then. On a machine that is shared, memory may be half as fast again or a third slower from one
//! second to the next. So the load is a share of what the worker forwards at most *now*, in looks before and after each
//! slice, and a slice during which that fell is told apart too.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender};
use dataplane::worker::Worker;
use dpdk_sys::{LcoreToken, Mbuf, Tid};

use super::feed::{Feed, Offer, Ring, Seen};
use super::late::{Gap, Interrupts, Usage, Watch};
use super::report::{Report, Side};
use crate::daemon::worker_thread::{Born, Life, Start, Threads, settle};

/// Load of the worker in its maximum.
const LOAD: f64 = 0.8;
/// Length of one slice.
const SLICE: Duration = Duration::from_millis(50);
/// Length of a look at what the worker forwards at most.
const LOOK: Duration = Duration::from_millis(10);
/// The maximum is the median of so many looks: those of the last half second.
const LOOKS: usize = 8;
/// Both looks beside a slice must show so much of the maximum, else the machine was slower during the slice.
const STEADY: f64 = 0.9;

/// What the worker does next.
pub enum Task {
    /// Sets up a connection of every flow.
    Connect,
    /// Finds the packets per second that it forwards at most: the median of this many slices.
    Maximum(usize),
    /// Is watched under load until the flag is set.
    Watch {
        /// With slices of the empty loop in between.
        alternate: bool,
        /// Set by the test.
        enough: Arc<AtomicBool>,
    },
}

/// Where the worker under test runs, and what it is asked.
pub struct Watched {
    /// Flows of the feed.
    pub flows: u32,
    /// Its tasks.
    pub tasks: Receiver<Task>,
    /// Their results.
    pub reports: Sender<Report>,
}

impl Threads for Watched {
    fn spawn<'scope, 'port: 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        start: Start<'port>,
        life: Arc<Life>,
        born: Sender<Result<Born, String>>,
    ) -> std::io::Result<()> {
        let (flows, tasks, reports) = (self.flows, self.tasks.clone(), self.reports.clone());
        Builder::new().name("weir-w:0".to_owned()).spawn_scoped(scope, move || {
            settle(&start).unwrap();
            let _lcore = LcoreToken::register(start.eal).unwrap();
            let feed = Feed::new(start.pool, start.clock, flows);
            let worker = Worker::new(
                start.config,
                &start.shared,
                start.counters,
                start.stats,
                start.subscriber,
                start.inbox,
                start.outbox,
            );
            let looks = VecDeque::with_capacity(LOOKS);
            let mut bench =
                Bench { worker: worker.unwrap(), feed, clock: start.clock, cpu: start.cpu, flows, looks };
            life.set_alive();
            let table = bench.worker.conns().table();
            let report =
                Born { tid: Tid::current(), capacity: table.capacity(), table_bytes: table.memory_bytes() };
            born.send(Ok(report)).unwrap();
            while !life.is_stopping() {
                match tasks.try_recv() {
                    Ok(task) => reports.send(bench.run(&task)).unwrap(),
                    Err(_) => bench.poll(),
                }
            }
            bench.worker.release_packets();
        })?;
        Ok(())
    }
}

struct Bench<'port> {
    worker: Worker<Mbuf<'port>>,
    feed: Feed<'port>,
    clock: dpdk_sys::TscClock,
    cpu: usize,
    flows: u32,
    /// Packets per second at most, the last first.
    looks: VecDeque<f64>,
}

impl Bench<'_> {
    fn poll(&mut self) {
        self.worker.poll(self.clock.now_ns(), &mut self.feed);
    }

    fn run(&mut self, task: &Task) -> Report {
        let mut report = Report::default();
        match task {
            Task::Connect => {
                for offer in [Offer::Syns, Offer::All] {
                    self.feed.offer(offer);
                    while self.feed.seen().taken < u64::from(self.flows) {
                        self.poll();
                    }
                }
            }
            Task::Maximum(slices) => {
                report.maximum = median((0..*slices).map(|_| self.slice(Offer::All, SLICE).1));
            }
            Task::Watch { alternate, enough } => {
                let mut maxima = Vec::new();
                (0..LOOKS).for_each(|_| _ = self.look());
                while !enough.load(Ordering::Relaxed) {
                    let maximum = self.watch(&mut report.loaded);
                    maxima.push(maximum);
                    if *alternate {
                        self.spin(LOAD * maximum, &mut report.empty);
                    }
                }
                report.maximum = median(maxima.into_iter());
            }
        }
        self.feed.offer(Offer::Nothing);
        report
    }

    /// Polls for so long; how long it was and the packets taken per second.
    fn slice(&mut self, offer: Offer, length: Duration) -> (Duration, f64) {
        self.feed.offer(offer);
        let begun = Instant::now();
        while begun.elapsed() < length {
            for _ in 0..16 {
                self.poll();
            }
        }
        let time = begun.elapsed();
        (time, self.feed.seen().taken as f64 / time.as_secs_f64())
    }

    /// What the worker forwards at most just now, packets per second.
    fn look(&mut self) -> f64 {
        let rate = self.slice(Offer::All, LOOK).1;
        self.looks.truncate(LOOKS - 1);
        self.looks.push_front(rate);
        rate
    }

    /// A slice under load; the maximum that the load is a share of.
    fn watch(&mut self, side: &mut Side) -> f64 {
        let begun = Begun::now(self.cpu);
        let ahead = self.look();
        let maximum = median(self.looks.iter().copied());
        let (time, _) = self.slice(Offer::Rate(LOAD * maximum), SLICE);
        let seen = self.feed.seen();
        let behind = self.look();
        self.feed.offer(Offer::Nothing);
        if ahead.min(behind) < STEADY * maximum {
            side.slow += 1;
        } else {
            begun.end(side, time, &seen);
        }
        maximum
    }

    fn spin(&mut self, rate: f64, side: &mut Side) {
        self.worker.rest();
        let begun = Begun::now(self.cpu);
        let mut watch = Watch::new(self.clock);
        let mut seen = Seen::default();
        let (start, mut last) = (Instant::now(), 0);
        let first = watch.last_ns();
        while last < first + SLICE.as_nanos() as u64 {
            let Gap { ns, taken_ns } = watch.poll();
            seen.ring.arrive(ns, rate);
            seen.own.arrive_alone(ns, taken_ns, rate);
            [&mut seen.ring, &mut seen.own].into_iter().for_each(Ring::give_all);
            last = watch.last_ns();
        }
        let time = start.elapsed();
        seen.offered = time.as_secs_f64() * rate;
        seen.gaps = watch.gaps;
        begun.end(side, time, &seen);
    }
}

/// What the kernel had counted when a slice began.
struct Begun {
    cpu: usize,
    at: Instant,
    usage: Usage,
    interrupts: Interrupts,
}

impl Begun {
    fn now(cpu: usize) -> Begun {
        let (interrupts, usage) = (Interrupts::now(cpu), Usage::now());
        Begun { cpu, at: Instant::now(), usage, interrupts }
    }

    /// Takes the slice in.
    fn end(&self, side: &mut Side, time: Duration, seen: &Seen) {
        let (counted, usage) = (self.at.elapsed(), Usage::now());
        if usage.switches != self.usage.switches {
            side.shared += 1;
            return;
        }
        side.interrupts.add(&self.interrupts, &Interrupts::now(self.cpu));
        side.counted += counted;
        side.faults += usage.faults - self.usage.faults;
        side.take(time, seen);
    }
}

fn median(of: impl Iterator<Item = f64>) -> f64 {
    let mut of: Vec<f64> = of.collect();
    of.sort_by(f64::total_cmp);
    of.get(of.len() / 2).copied().unwrap_or_default()
}

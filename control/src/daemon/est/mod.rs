//! Estimator threads as control has them: started when the engine asks, told of settings, ended.
//!
//! Model: the engine ([`dataplane::est`]) decides which threads there are and puts what happened into a list of events.
//! A thread that sees one wakes control through an event descriptor; control takes the list, starts what is wanted, buries
//! what has ended and writes the log. Settings go the other way: those of the engine behind its lock, CPU list, niceness
//! and policy straight to the threads while they run, so that no pass is lost. Control never waits for a thread but at the
//! stop of the daemon.
//!
//! Estimator threads touch no packet and no buffer: they need no lcore of DPDK's.
//!
//! | file | part |
//! |---|---|
//! | `thread` | one thread: its clock, its sleep, its end |
//! | `events` | log lines |
//! | `report` | rows of `weir est` and `weir rates` |

mod events;
mod report;
mod thread;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Instant;

use config::SchedPolicy;
use config::knobs::Cpus;
use dataplane::est::{Estimators, Event, Settings};
use dpdk_sys::{CpuSet, Policy};
use rustix::event::EventfdFlags;
use rustix::fd::OwnedFd;
use rustix::io::Errno;
use tracing::{info, warn};

use self::events::Journal;
pub use self::report::{rates, rows, summary};
use self::thread::{Attributes, EstThread, Surroundings};
use super::cpus::CpuPlan;

/// Threads for each CPU of the list, so that half of each CPU is used at most (kernel: `IPVS_EST_CPU_KTHREADS`).
const THREADS_PER_CPU: usize = 4;

/// All estimator threads.
pub struct Estimation {
    est: Arc<Estimators>,
    /// `[estimators]` as in force: the file's, and what was set since.
    settings: config::Estimators,
    /// CPUs that they may use, and where they run while no list is set.
    cpus: Cpus,
    /// CPUs of workers.
    workers: CpuSet,
    surroundings: Arc<Surroundings>,
    threads: BTreeMap<usize, EstThread>,
    /// Threads that end by themselves and have not yet.
    leaving: Vec<JoinHandle<()>>,
    journal: Journal,
    calibrated: Option<Instant>,
}

impl Estimation {
    /// The threads of `est` on the CPUs of `plan`; none is started yet.
    ///
    /// # Errors
    /// No event descriptor; a setting that [`Estimation::check`] refuses (EINVAL).
    pub fn new(
        est: Arc<Estimators>,
        plan: &CpuPlan,
        settings: config::Estimators,
    ) -> Result<Estimation, Errno> {
        let waker = rustix::event::eventfd(0, EventfdFlags::NONBLOCK | EventfdFlags::CLOEXEC)?;
        let mut new = Estimation {
            est,
            settings,
            cpus: plan.estimators.clone(),
            workers: plan.workers.iter().map(|(cpu, _)| *cpu).collect(),
            journal: Journal::new(plan.workers.len()),
            surroundings: Arc::new(Surroundings::new(waker)),
            threads: BTreeMap::new(),
            leaving: Vec::new(),
            calibrated: None,
        };
        new.check(&new.settings)?;
        new.put_in_force();
        Ok(new)
    }

    /// Starts the first threads, from whose start first periods count. Once, when everything is in place.
    pub fn begin(&mut self, now_ns: u64) {
        self.est.begin(now_ns);
        self.follow();
    }

    /// Readable when [`Estimation::follow`] has something to do.
    pub fn waker(&self) -> &OwnedFd {
        &self.surroundings.waker
    }

    /// Settings in force.
    pub fn settings(&self) -> &config::Estimators {
        &self.settings
    }

    /// CPUs that the threads may run on; without one estimation stands still.
    pub fn cpus(&self) -> CpuSet {
        self.cpus_of(&self.settings)
    }

    /// Whether rates are computed.
    pub fn is_running(&self) -> bool {
        self.settings.run_estimation && !self.cpus().is_empty()
    }

    /// Threads there may be.
    pub fn threads_max(&self) -> usize {
        match self.settings.est_threads_max {
            0 => (THREADS_PER_CPU * self.cpus().len()).max(1),
            max => max as usize,
        }
    }

    /// Whether these settings can be put in force here.
    ///
    /// # Errors
    /// EINVAL: a real-time policy on a worker's CPU.
    pub fn check(&self, to: &config::Estimators) -> Result<(), Errno> {
        let shared = self.cpus_of(to).iter().any(|cpu| self.workers.contains(cpu));
        if shared && to.est_sched != SchedPolicy::Other { Err(Errno::INVAL) } else { Ok(()) }
    }

    /// Puts settings that [`Estimation::check`] let pass in force; returns at once, threads follow with their next turn.
    pub fn set(&mut self, to: config::Estimators) {
        let was_running = self.is_running();
        self.settings = to;
        let config::Estimators { run_estimation, est_nice, est_sched, est_load, .. } = self.settings;
        info!(
            target: "weir::est", event = "est.settings", run_estimation, est_cpulist = %self.cpus(), est_nice,
            %est_sched, est_load, "estimator settings in force"
        );
        self.put_in_force();
        match (was_running, self.is_running()) {
            (false, true) => {
                for id in self.est.wanted() {
                    self.start(id);
                }
            }
            (true, false) => self.stop(),
            _ => {}
        }
        self.follow();
    }

    /// Has the cost measured anew, as after every write of `est_cpulist`.
    pub fn measure(&self) {
        self.est.recalibrate();
    }

    /// Takes in what happened: starts threads, buries them, writes the log.
    pub fn follow(&mut self) {
        self.surroundings.quiet();
        for event in self.est.take_events() {
            match event {
                Event::ThreadWanted(id) if self.is_running() => self.start(id),
                // Started when estimation is switched on.
                Event::ThreadWanted(_) => {}
                Event::ThreadUnused(id) => {
                    self.leaving.extend(self.threads.remove(&id).and_then(EstThread::leave));
                    events::unused(id);
                }
                Event::Calibrated(_) => {
                    self.calibrated = Some(Instant::now());
                    self.journal.write(&event);
                }
                _ => self.journal.write(&event),
            }
        }
        self.journal.flush(Instant::now());
        self.leaving.retain(|thread| !thread.is_finished());
    }

    fn put_in_force(&mut self) {
        let config::Estimators { est_nice, est_sched, est_load, resume_spike, .. } = self.settings;
        self.est.set(Settings {
            running: self.is_running(),
            load: est_load,
            threads_max: self.threads_max(),
            resume_spike,
        });
        let policy = match est_sched {
            SchedPolicy::Other => Policy::Other,
            SchedPolicy::RoundRobin(priority) => Policy::RoundRobin(priority),
            SchedPolicy::Fifo(priority) => Policy::Fifo(priority),
        };
        let cpus = self.cpus();
        if self.surroundings.set(Attributes { cpus, nice: est_nice, policy }) {
            self.threads.values().for_each(|thread| self.surroundings.apply(thread));
        }
    }

    fn cpus_of(&self, settings: &config::Estimators) -> CpuSet {
        match &settings.est_cpulist {
            None => self.cpus.preset.iter().copied().collect(),
            Some(list) => list.iter().copied().filter(|cpu| self.cpus.allowed.contains(cpu)).collect(),
        }
    }

    /// Starts a thread, or lets one go on that was about to end.
    fn start(&mut self, id: usize) {
        events::starting(id);
        if self.threads.get(&id).is_some_and(EstThread::resume) {
            return;
        }
        match EstThread::spawn(id, Arc::clone(&self.est), Arc::clone(&self.surroundings)) {
            Ok(thread) => {
                let before = self.threads.insert(id, thread);
                self.leaving.extend(before.and_then(EstThread::leave));
            }
            Err(error) => {
                warn!(target: "weir::est", est_thread = id, %error, "the thread does not start: its rates stand still");
            }
        }
    }

    /// Tells every thread to end.
    fn stop(&mut self) {
        for (id, thread) in &self.threads {
            thread.stop();
            events::stopping(*id);
        }
    }
}

impl Drop for Estimation {
    /// Ends all threads and waits for them: a piece of work of each, about 0.1 ms.
    fn drop(&mut self) {
        for (id, thread) in std::mem::take(&mut self.threads) {
            if thread.is_alive() {
                events::unused(id);
            }
            thread.quit();
            self.leaving.extend(thread.leave());
        }
        for thread in self.leaving.drain(..) {
            // Whoever panicked has said so.
            let _ = thread.join();
        }
    }
}

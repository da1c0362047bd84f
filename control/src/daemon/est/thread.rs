//! One estimator thread: the engine's turns at the times it asks for, with a sleep in between.
//!
//! Model: a word says what the thread shall do. Control writes RUN, STOP and QUIT, the thread ENDED, after which it never
//! touches the engine again. STOP is for a pause of estimation: the engine notices itself, the thread then ends unless the pause is over
//! by then. Deadlines are the engine's, absolute and on CLOCK_MONOTONIC; sleeping is `park_timeout`, so that control can end it at once.

use std::io;
use std::ops::ControlFlow;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use dataplane::est::{Engine, Estimators, Host, Next, TICK_NS};
use dpdk_sys::{CpuSet, Policy, Tid, monotonic_ns, set_timer_slack_ns, thread_cpu_ns};
use rustix::fd::OwnedFd;
use tracing::{error, warn};

use crate::failure::panic_text;

const RUN: u8 = 0;
const STOP: u8 = 1;
const QUIT: u8 = 2;
const ENDED: u8 = 3;

/// How the system treats the threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// CPUs they may run on.
    pub cpus: CpuSet,
    /// Niceness.
    pub nice: i8,
    /// Policy.
    pub policy: Policy,
}

/// What all estimator threads share with control.
pub struct Surroundings {
    attributes: Mutex<Option<Attributes>>,
    /// Written by a thread that saw an event, read by control.
    pub waker: OwnedFd,
}

impl Surroundings {
    /// Nothing said yet; `waker` is an event descriptor.
    pub fn new(waker: OwnedFd) -> Surroundings {
        Surroundings { attributes: Mutex::new(None), waker }
    }

    /// New attributes; whether they differ.
    pub fn set(&self, new: Attributes) -> bool {
        let mut attributes = self.lock();
        let changed = attributes.as_ref() != Some(&new);
        *attributes = Some(new);
        changed
    }

    /// Gives a thread the attributes, unless it has not come so far as to do it itself.
    pub fn apply(&self, thread: &EstThread) {
        if let Some(tid) = thread.life.tid.get() {
            self.apply_to(thread.id, *tid);
        }
    }

    /// Takes back what the threads wrote.
    pub fn quiet(&self) {
        // Nothing to read: nobody woke us.
        let _ = rustix::io::read(&self.waker, &mut [0; 8]);
    }

    fn wake(&self) {
        // Full: control is awake for a long time.
        let _ = rustix::io::write(&self.waker, &1u64.to_ne_bytes());
    }

    fn apply_to(&self, id: usize, tid: Tid) {
        let attributes = self.lock();
        let Some(Attributes { cpus, nice, policy }) = &*attributes else { return };
        let refused = |what: &str, error: io::Error| {
            warn!(target: "weir::est", est_thread = id, %error, "the system refuses {what}");
        };
        // Without a CPU the thread stands still anyway.
        if !cpus.is_empty()
            && let Err(error) = tid.set_affinity(cpus)
        {
            refused("the CPU list", error);
        }
        if tid.nice().ok() != Some(i32::from(*nice))
            && let Err(error) = tid.set_nice(i32::from(*nice))
        {
            refused("the niceness", error);
        }
        if let Err(error) = tid.set_policy(*policy) {
            refused("the policy", error);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Attributes>> {
        self.attributes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Control's end of a thread.
pub struct EstThread {
    id: usize,
    life: Arc<Life>,
    handle: JoinHandle<()>,
}

#[derive(Default)]
struct Life {
    word: AtomicU8,
    tid: OnceLock<Tid>,
}

impl EstThread {
    /// Starts thread `id`.
    pub fn spawn(id: usize, est: Arc<Estimators>, around: Arc<Surroundings>) -> io::Result<EstThread> {
        let life = Arc::new(Life::default());
        let lives = Arc::clone(&life);
        let handle = Builder::new().name(format!("weir-e:0:{id}")).spawn(move || {
            if let Err(panic) = catch_unwind(AssertUnwindSafe(|| work(id, est, &around, &lives))) {
                let cause = panic_text(&*panic);
                error!(target: "weir::est", est_thread = id, cause, "estimator thread ended by a fault of ours");
            }
            lives.word.store(ENDED, Release);
        })?;
        Ok(EstThread { id, life, handle })
    }

    /// The thread's number in the system, once it runs.
    pub fn tid(&self) -> Option<Tid> {
        self.life.tid.get().copied()
    }

    /// Whether it runs.
    pub fn is_alive(&self) -> bool {
        self.life.word.load(Acquire) != ENDED
    }

    /// Lets it end, now that estimation is off.
    pub fn stop(&self) {
        self.tell(RUN, STOP);
    }

    /// Estimation is on again: whether the thread goes on. Else another is needed.
    pub fn resume(&self) -> bool {
        self.tell(STOP, RUN);
        self.life.word.load(Acquire) == RUN
    }

    /// Ends it wherever it is.
    pub fn quit(&self) {
        self.life.word.store(QUIT, Release);
        self.handle.thread().unpark();
    }

    /// Gives it up: what is left to wait for.
    pub fn leave(self) -> Option<JoinHandle<()>> {
        (!self.handle.is_finished()).then_some(self.handle)
    }

    fn tell(&self, from: u8, to: u8) {
        // It may have ended by itself.
        let _ = self.life.word.compare_exchange(from, to, AcqRel, Acquire);
        self.handle.thread().unpark();
    }
}

fn work(id: usize, est: Arc<Estimators>, around: &Surroundings, life: &Life) {
    let tid = *life.tid.get_or_init(Tid::current);
    around.apply_to(id, tid);
    if let Err(error) = set_timer_slack_ns(1) {
        warn!(target: "weir::est", est_thread = id, %error, "the system refuses fine timers");
    }
    let mut engine = Engine::new(Arc::clone(&est), id);
    let mut host = Clocks { life };
    while life.word.load(Acquire) != QUIT {
        let next = engine.turn(&mut host);
        if est.has_events() {
            around.wake();
        }
        match next {
            Next::At(at) => sleep_until(at),
            Next::Stopped if life.word.compare_exchange(STOP, ENDED, AcqRel, Acquire).is_ok() => return,
            // Control is about to say so.
            Next::Stopped => sleep_until(monotonic_ns() + TICK_NS),
            Next::Unused => return,
        }
    }
}

/// Sleeps, or not if it is past; a little less if control wants something.
fn sleep_until(at_ns: u64) {
    let left = at_ns.saturating_sub(monotonic_ns());
    if left > 0 {
        std::thread::park_timeout(Duration::from_nanos(left));
    }
}

/// The system's clocks.
struct Clocks<'a> {
    life: &'a Life,
}

impl Host for Clocks<'_> {
    fn now_ns(&mut self) -> u64 {
        monotonic_ns()
    }

    fn cpu_ns(&mut self) -> u64 {
        thread_cpu_ns()
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        std::thread::yield_now();
        if self.life.word.load(Relaxed) == QUIT { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

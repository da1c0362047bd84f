//! A worker's thread: CPU, niceness, DPDK registration, the loop with its clock and its sleep.
//!
//! Model: control makes the channels and queues, the thread makes the [`Worker`] itself (its packets never
//! change thread), reports that it lives, and polls until told to stop. It hands every packet back before it
//! gives up its lcore. A panic is caught, logged and leaves the worker marked as dead; control then stops the
//! daemon.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, Scope};
use std::time::Duration;

use crossbeam::channel::{Receiver, Sender};
use dataplane::counters::{CounterSlab, WorkerStats, bump};
use dataplane::io::dpdk::DpdkIo;
use dataplane::mailbox::{FromWorker, ToWorker};
use dataplane::publish::Subscriber;
use dataplane::worker::{Shared, Worker, WorkerConfig};
use dpdk_sys::{EalHandle, LcoreToken, Mempool, Tid, TscClock, set_timer_slack_ns};
use tracing::{error, warn};

use super::cpus::Mode;
use super::wiring::Wires;
use crate::failure::panic_text;

/// Empty polls before a worker in `shared` mode sleeps: about the gap inside a burst of packets.
const EMPTY_POLLS: u32 = 64;
/// Sleep of an idle worker in `shared` mode. With 1 ns of timer slack it adds about 70 us to the first packet.
const IDLE_SLEEP: Duration = Duration::from_micros(50);

/// Everything a worker starts with.
pub struct Start<'port> {
    /// Sizes; its id is the worker's number.
    pub config: WorkerConfig,
    /// CPU it is bound to.
    pub cpu: usize,
    /// How it waits when idle.
    pub mode: Mode,
    /// Niceness.
    pub nice: i8,
    /// What workers share.
    pub shared: Shared,
    /// Its counters.
    pub counters: Arc<CounterSlab>,
    /// Its figures.
    pub stats: Arc<WorkerStats>,
    /// Its end of the publication.
    pub subscriber: Subscriber,
    /// Messages to it.
    pub inbox: Receiver<ToWorker>,
    /// Messages from it.
    pub outbox: Sender<FromWorker>,
    /// Its queues and rings.
    pub wires: Wires<'port>,
    /// Where it takes buffers from.
    pub pool: Mempool<'port>,
    /// Proof that DPDK runs.
    pub eal: EalHandle<'port>,
    /// Its clock.
    pub clock: TscClock,
}

/// What the thread reports once it polls.
#[derive(Clone, Copy, Debug)]
pub struct Born {
    /// The thread.
    pub tid: Tid,
    /// Connections its table holds.
    pub capacity: usize,
    /// Memory of the table.
    pub table_bytes: usize,
}

/// Flags between control and the workers' threads.
#[derive(Debug, Default)]
pub struct Life {
    /// Set by control: the worker ends after its turn.
    stop: AtomicBool,
    /// Cleared by the thread when it ends, however it ends.
    alive: AtomicBool,
}

impl Life {
    /// Tells the worker to end.
    pub fn stop(&self) {
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether the worker is to end.
    pub(super) fn is_stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }

    /// Says that the worker polls; its thread only.
    pub(super) fn set_alive(&self) {
        self.alive.store(true, Ordering::Release);
    }

    /// Whether the worker polls.
    pub fn is_alive(&self) -> bool {
        self.alive.load(Ordering::Acquire)
    }
}

/// Where workers run.
pub trait Threads {
    /// Starts the thread of one worker. It reports to `born` once it polls, or why it cannot.
    fn spawn<'scope, 'port: 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        start: Start<'port>,
        life: Arc<Life>,
        born: Sender<Result<Born, String>>,
    ) -> std::io::Result<()>;
}

/// Threads that poll the ports.
pub struct PortThreads;

impl Threads for PortThreads {
    fn spawn<'scope, 'port: 'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        start: Start<'port>,
        life: Arc<Life>,
        born: Sender<Result<Born, String>>,
    ) -> std::io::Result<()> {
        spawn(scope, start, life, born)
    }
}

/// Starts the thread. It reports to `born` once it polls, or why it cannot.
fn spawn<'scope, 'port: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    start: Start<'port>,
    life: Arc<Life>,
    born: Sender<Result<Born, String>>,
) -> std::io::Result<()> {
    let name = format!("weir-w:{}", start.config.id);
    Builder::new().name(name).spawn_scoped(scope, move || {
        let id = start.config.id;
        let ended = catch_unwind(AssertUnwindSafe(|| work(start, &life, &born)));
        life.alive.store(false, Ordering::Release);
        match ended {
            Ok(Ok(())) => {}
            Ok(Err(why)) => drop(born.send(Err(why))),
            Err(panic) => {
                error!(target: "weir::worker", worker = id, cause = panic_text(&*panic), "worker ended by a fault of ours");
            }
        }
    })?;
    Ok(())
}

fn work(start: Start<'_>, life: &Life, born: &Sender<Result<Born, String>>) -> Result<(), String> {
    let id = start.config.id;
    settle(&start)?;
    let _lcore = LcoreToken::register(start.eal).map_err(|error| error.to_string())?;
    let mut io = DpdkIo::new(start.wires.ports, start.wires.peers, start.pool);
    let mut worker = Worker::new(
        start.config,
        &start.shared,
        start.counters,
        start.stats,
        start.subscriber,
        start.inbox,
        start.outbox,
    )
    .map_err(|error| format!("worker {id}: {error}"))?;
    life.set_alive();
    let table = worker.conns().table();
    let report = Born { tid: Tid::current(), capacity: table.capacity(), table_bytes: table.memory_bytes() };
    let _ = born.send(Ok(report));

    let mut empty_polls = 0;
    while !life.is_stopping() {
        if worker.poll(start.clock.now_ns(), &mut io) > 0 {
            empty_polls = 0;
        } else if start.mode == Mode::Exclusive {
            std::hint::spin_loop();
        } else if empty_polls < EMPTY_POLLS {
            empty_polls += 1;
        } else {
            worker.rest();
            std::thread::sleep(IDLE_SLEEP);
            bump(&worker.stats().sleeps, 1);
        }
    }
    worker.release_packets();
    Ok(())
}

/// Takes the thread to its CPU. What the system refuses beyond that costs speed only.
pub(super) fn settle(start: &Start<'_>) -> Result<(), String> {
    let tid = Tid::current();
    tid.set_affinity(&[start.cpu].into_iter().collect())
        .map_err(|error| format!("worker {}: cannot run on CPU {}: {error}", start.config.id, start.cpu))?;
    let refused = |what: &str, error: std::io::Error| {
        warn!(target: "weir::worker", worker = start.config.id, %error, "the system refuses {what}");
    };
    if start.nice != 0
        && let Err(error) = tid.set_nice(start.nice.into())
    {
        refused("the niceness", error);
    }
    if start.mode == Mode::Shared
        && let Err(error) = set_timer_slack_ns(1)
    {
        refused("fine timers", error);
    }
    Ok(())
}

#[cfg(test)]
mod tests;

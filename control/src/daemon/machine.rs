//! From started ports to a serving daemon, and the control thread's loop.
//!
//! Model: workers are scoped threads that borrow their queues from the ports, so the ports cannot stop before
//! the workers have ended. The loop waits for signals, the control socket and the next tick, and nothing else.
//! It ends on SIGTERM or SIGINT, or when a worker has died.

use std::cell::RefCell;
use std::path::Path;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::Scope;
use std::time::{Duration, Instant};

use config::Valid;
use crossbeam::channel::{Receiver, Sender, bounded};
use dataplane::counters::WorkerFigures;
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::steer::Steer;
use dataplane::worker::WorkerConfig;
use dpdk_sys::{CALIBRATION, Eal, Mempool, Prefault, TscClock, monotonic_ns};
use rustix::event::{PollFd, PollFlags, Timespec};
use rustix::io::Errno;
use sd_notify::NotifyState;
use tracing::{info, warn};

use super::boot::{BootedPort, random_key};
use super::cpus::CpuPlan;
use super::est::Estimation;
use super::exchange::Exchange;
use super::hints::Hints;
use super::meters::{Clients, DropMeter, LoadMeter};
use super::recall::Recalled;
use super::revise::is_setting;
use super::signals::Signals;
use super::state::{Daemon, TICK, WorkerHandle};
use super::table::Table;
use super::whole::apply_whole;
use super::wiring::wire;
use super::worker_thread::{Born, Life, Start, Threads};
use crate::api::access::Access;
use crate::api::budget::Budget;
use crate::api::server::Server;
use crate::failure::Failure;

/// Messages that may wait in a mailbox; a listing has one piece on its way.
const MAILBOX_MESSAGES: usize = 4;
/// A worker touches all of its table before it reports: 16 GiB take about 10 s.
const BIRTH_LIMIT: Duration = Duration::from_secs(60);

/// What is started before the workers, and outlives them.
pub struct Machine<'a> {
    /// DPDK.
    pub eal: &'a Eal,
    /// The mbuf pool.
    pub pool: &'a Mempool<'a>,
    /// Started ports.
    pub ports: &'a [BootedPort<'a>],
    /// CPUs of the threads.
    pub cpus: &'a CpuPlan,
    /// Owners of flows.
    pub steer: &'a Steer,
    /// When the daemon started.
    pub started: Instant,
}

/// Tells every worker to end, whatever way control leaves.
struct StopOnDrop(Vec<Arc<Life>>);

impl Drop for StopOnDrop {
    fn drop(&mut self) {
        self.0.iter().for_each(|life| life.stop());
    }
}

impl<'a> Machine<'a> {
    /// Starts the workers on `threads`, serves until told to stop, tells the workers to end. Returns the server:
    /// its socket file stays until it is dropped.
    pub fn serve<'scope>(
        &self,
        scope: &'scope Scope<'scope, '_>,
        threads: &impl Threads,
        config_path: &Path,
        valid: &Valid,
        recalled: Recalled,
        signals: &mut Signals,
    ) -> Result<Server, Failure>
    where
        'a: 'scope,
    {
        let clock = TscClock::calibrate(CALIBRATION);
        let table = recalled.table.clone();
        let mut registry = self.registry(valid, &table, &clock)?;
        let stats: Vec<_> = self.cpus.workers.iter().map(|_| Registry::worker_stats()).collect();
        let publisher = Publisher::new(registry.snapshot(), stats.clone());
        let lives = StopOnDrop(self.cpus.workers.iter().map(|_| Arc::default()).collect());
        let wires = wire(self.eal, self.ports, self.cpus.workers.len())
            .map_err(|error| Failure::environment("queues and rings", error))?;
        // All at once: each touches the whole of its table before it polls.
        let mut starting = Vec::new();
        for ((id, stats), wires) in stats.into_iter().enumerate().zip(wires) {
            let (to, inbox) = bounded(MAILBOX_MESSAGES);
            let (outbox, from) = bounded(MAILBOX_MESSAGES);
            let (cpu, mode) = self.cpus.workers[id];
            let start = Start {
                config: self.worker_config(id, valid, &registry, &clock)?,
                cpu,
                mode,
                nice: valid.workers().nice,
                shared: registry.shared().clone(),
                counters: registry.counters(id),
                stats: Arc::clone(&stats),
                subscriber: publisher.subscribe(),
                inbox,
                outbox,
                wires,
                pool: self.pool.clone(),
                eal: self.eal.handle(),
                clock,
            };
            let born = start_worker(scope, threads, start, &lives.0[id])?;
            starting.push((stats, to, from, born));
        }
        let mut workers = Vec::new();
        for (id, (stats, to, from, born)) in starting.into_iter().enumerate() {
            let (born, life) = (await_worker(id, &born)?, Arc::clone(&lives.0[id]));
            let (cpu, mode) = self.cpus.workers[id];
            info!(
                target: "weir::worker", worker = id, cpu, mode = %mode, tid = born.tid.number(),
                connections = born.capacity, table_bytes = born.table_bytes, "worker polls"
            );
            let exchange = Rc::new(RefCell::new(Exchange::new(to, from, Arc::clone(&life))));
            let load = LoadMeter::new(Instant::now());
            workers.push(WorkerHandle { id, cpu, mode, stats, life, born, exchange, load });
        }
        let settings = table.tunables.estimators.clone();
        let estimation = Estimation::new(Arc::clone(registry.estimators()), self.cpus, settings);
        let estimation = estimation.map_err(|error| {
            Failure::usage("estimators.est_sched", error).hint(
                "real time only on CPUs without a worker: name others in est_cpulist, or take \"other\"",
            )
        })?;
        let (journal, revision) = recalled.settle()?;
        let mut daemon = Daemon {
            config_path: config_path.to_owned(),
            valid: valid.clone(),
            table,
            registry,
            estimation,
            publisher,
            workers,
            ports: self.ports,
            pool: self.pool,
            pages: self.eal.pages(),
            knob_cpus: self.cpus.estimators.clone(),
            clock,
            started: self.started,
            revision,
            journal,
            idle_ticks: 0,
            budget: Budget::new(valid.daemon().write_rate, valid.daemon().write_burst),
            clients: Clients::default(),
            hints: Hints::default(),
            drops: DropMeter::new(Instant::now()),
            ticks: 0,
            past: [WorkerFigures::default(); 2],
        };
        for setting in daemon.not_forwarded() {
            warn!(target: "weir::config", setting, "accepted, not in effect in this version");
        }
        daemon.table.warn_of_all();
        daemon.estimation.begin(monotonic_ns());
        let mut server = Server::open(valid.daemon().socket.as_ref(), Access::new(valid.daemon()))?;
        let (services, destinations) = daemon.registry.sizes();
        info!(
            target: "weir::boot", services, destinations, socket = valid.daemon().socket,
            elapsed_ms = self.started.elapsed().as_millis() as u64, "ready"
        );
        notify(&[NotifyState::Ready]);
        let ended = control_loop(&mut daemon, &mut server, signals);
        if let Err(error) = daemon.journal.sync() {
            warn!(target: "weir::journal", %error, "the last changes may not be on disk");
        }
        notify(&[NotifyState::Stopping]);
        drop(lives);
        ended.map(|()| server)
    }

    /// The model with everything the configuration and the table say.
    fn registry(&self, valid: &Valid, table: &Table, clock: &TscClock) -> Result<Registry, Failure> {
        let facts = self.ports.iter().map(|booted| booted.facts).collect();
        let mut registry = Registry::new(valid, facts, self.cpus.workers.len()).map_err(|error| {
            Failure::environment("too little memory", error).hint("lower [limits] services and destinations")
        })?;
        registry.set_time(clock.now_ns());
        registry.set_est_time(monotonic_ns());
        let settings = config::plan(&Valid::empty(), valid).changes.into_iter().filter(is_setting);
        let blank = Table::default();
        let of_table = blank.stage(blank.difference(table)).changes;
        apply_whole(&mut registry, &settings.chain(of_table).collect::<Vec<_>>())
            .map_err(|refused| Failure::usage(format!("configuration: {}", refused.change), refused.error))?;
        Ok(registry)
    }

    fn worker_config(
        &self,
        id: usize,
        valid: &Valid,
        registry: &Registry,
        clock: &TscClock,
    ) -> Result<WorkerConfig, Failure> {
        Ok(WorkerConfig {
            id,
            steer: self.steer.clone(),
            ports: self.ports.len(),
            conns: connections_per_worker(valid.connections().max as usize, self.cpus.workers.len()),
            services: registry.service_indices(),
            hash_key: random_key().map_err(|error| Failure::environment("/dev/urandom", error))?,
            prefault: Prefault::Now,
            now_ns: clock.now_ns(),
        })
    }
}

/// What a worker reports at its start.
type Birth = Result<Born, String>;

/// Starts one worker; where it will report.
fn start_worker<'scope, 'port: 'scope>(
    scope: &'scope Scope<'scope, '_>,
    threads: &impl Threads,
    start: Start<'port>,
    life: &Arc<Life>,
) -> Result<Receiver<Birth>, Failure> {
    let id = start.config.id;
    let (report, born): (Sender<Birth>, _) = bounded(1);
    threads
        .spawn(scope, start, Arc::clone(life), report)
        .map_err(|error| Failure::environment(format!("worker {id}"), error))?;
    Ok(born)
}

/// Waits until a worker polls.
fn await_worker(id: usize, born: &Receiver<Birth>) -> Result<Born, Failure> {
    match born.recv_timeout(BIRTH_LIMIT) {
        Ok(Ok(born)) => Ok(born),
        Ok(Err(why)) => Err(Failure::environment("workers", why)
            .hint("lower `max` in [connections] if memory is short, or name other `cpus` in [workers]")),
        Err(_) => Err(Failure::run(format!("worker {id}"), "it did not start; the log says more")),
    }
}

/// Serves until told to stop.
fn control_loop(daemon: &mut Daemon<'_>, server: &mut Server, signals: &mut Signals) -> Result<(), Failure> {
    let mut next_tick = Instant::now() + TICK;
    loop {
        let ready = wait(signals, &daemon.estimation, server, next_tick)?;
        if signals.stop.take() {
            info!(target: "weir::boot", "stopping");
            return Ok(());
        }
        if signals.reload.take() {
            reload(daemon);
        }
        daemon.estimation.follow();
        server.serve(&ready, Instant::now(), daemon);
        daemon.clients.note(server.clients(), server.turned_away());
        let now = Instant::now();
        if now >= next_tick {
            // After a long pause one tick is enough.
            next_tick = (next_tick + TICK).max(now);
            daemon.tick(now);
        }
        if let Some(id) = daemon.dead_worker() {
            return Err(Failure::run(format!("worker {id}"), "it has ended; the log says why"));
        }
    }
}

/// Waits for a signal, an estimator thread, the server or the tick; what is ready of the server.
fn wait(
    signals: &Signals,
    estimation: &Estimation,
    server: &Server,
    next_tick: Instant,
) -> Result<Vec<PollFlags>, Failure> {
    let now = Instant::now();
    let until = server.deadline(now).map_or(next_tick, |deadline| deadline.min(next_tick));
    let timeout = Timespec::try_from(until.saturating_duration_since(now)).expect("less than a second fits");
    let mut fds = vec![
        PollFd::new(&signals.stop, PollFlags::IN),
        PollFd::new(&signals.reload, PollFlags::IN),
        PollFd::new(estimation.waker(), PollFlags::IN),
    ];
    let ours = fds.len();
    fds.extend(server.interests());
    match rustix::event::poll(&mut fds, Some(&timeout)) {
        Ok(_) | Err(Errno::INTR) => Ok(fds[ours..].iter().map(PollFd::revents).collect()),
        Err(error) => Err(Failure::run("poll", error)),
    }
}

fn reload(daemon: &mut Daemon<'_>) {
    match NotifyState::monotonic_usec_now() {
        Ok(now) => notify(&[NotifyState::Reloading, now]),
        Err(error) => warn!(target: "weir::boot", %error, "the service manager is not told of the reload"),
    }
    daemon.reload();
    notify(&[NotifyState::Ready]);
}

/// Tells the service manager, if there is one.
fn notify(state: &[NotifyState<'_>]) {
    if let Err(error) = sd_notify::notify(state) {
        warn!(target: "weir::boot", %error, "the service manager does not listen");
    }
}

/// Connections that each worker's table holds: its share of the total and a quarter more, as the share by
/// client address is never even; a single worker gets the total.
fn connections_per_worker(max: usize, workers: usize) -> usize {
    match workers {
        0 | 1 => max,
        _ => (max / workers).saturating_mul(5) / 4,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tables_hold_their_share_and_a_quarter_more() {
        assert_eq!(connections_per_worker(1000, 1), 1000);
        assert_eq!(connections_per_worker(1000, 4), 312);
    }
}

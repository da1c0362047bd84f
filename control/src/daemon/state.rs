//! What the control thread holds while the daemon runs, and what it does with it.
//!
//! Model: [`Daemon`] owns the table of what was asked for, the registry of what is forwarded, the publisher and
//! control's side of every worker. A change (a plan of the file, or the commands in one datagram of a client)
//! goes into table and registry, each whole or not at all, then one publication follows that is in force when
//! every worker has taken it. Once a second [`Daemon::tick`] samples figures, frees what workers
//! have left, and looks for the classic mistakes. As a [`Handler`] it answers the control socket.

use std::cell::RefCell;
use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::knobs::Cpus;
use config::{Change, Valid};
use dataplane::counters::{WorkerFigures, WorkerStats};
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dpdk_sys::{Mempool, PageChoice, TscClock, monotonic_ns};
use rustix::io::Errno;
use tracing::{debug, warn};

use super::boot::BootedPort;
use super::cpus::Mode;
use super::est::{self, Estimation};
use super::exchange::{ConnRows, Exchange};
use super::hints::{self, Hints};
use super::journal::Journal;
use super::meters::{self, Clients, DropMeter, LoadMeter};
use super::table::{Running, Table};
use super::worker_thread::{Born, Life};
use super::{facts, report};
use crate::api::budget::Budget;
use crate::api::codec::{self, Incoming, Refusal, Request};
use crate::api::handler::{Handler, Outcome, Peer};
use crate::api::rows::{HelloRow, to_json};
use crate::conn_filter::ConnFilter;
use crate::ipvs;

/// Time between two samples of the figures.
pub const TICK: Duration = Duration::from_secs(1);
/// Ticks between two looks for mistakes: they scan destinations and neighbours.
const TICKS_PER_LOOK: u64 = 5;
/// Ticks that figures count as recent: one to two minutes, as they are replaced once a minute.
const TICKS_RECENT: u64 = 60;
/// Ticks without a change after which the journal may be compacted.
const IDLE_TICKS: u64 = 2;
/// A publication is awaited by spinning so long, then by short sleeps: workers take it within a poll.
const SETTLE_SPIN: Duration = Duration::from_micros(20);
/// Sleep between two looks whether a publication is in force.
const SETTLE_NAP: Duration = Duration::from_micros(50);
/// A worker that does not take a publication for so long is stuck.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);

/// Control's side of one worker.
pub struct WorkerHandle {
    /// Number of the worker.
    pub id: usize,
    /// CPU it is bound to.
    pub cpu: usize,
    /// How it waits when idle.
    pub mode: Mode,
    /// Its figures.
    pub stats: Arc<WorkerStats>,
    /// Whether it lives.
    pub life: Arc<Life>,
    /// What it reported at its start.
    pub born: Born,
    /// Its mailbox.
    pub exchange: Rc<RefCell<Exchange>>,
    /// Its load.
    pub load: LoadMeter,
}

/// The running daemon's state.
pub struct Daemon<'a> {
    /// File that SIGHUP reads again.
    pub config_path: PathBuf,
    /// The file as last applied; services, destinations and timeouts may have been changed since.
    pub valid: Valid,
    /// Services and destinations as asked for.
    pub table: Table,
    /// Services and destinations that are forwarded.
    pub registry: Registry,
    /// Estimator threads.
    pub estimation: Estimation,
    /// Publication to workers.
    pub publisher: Publisher,
    /// Control's side of the workers.
    pub workers: Vec<WorkerHandle>,
    /// Started ports.
    pub ports: &'a [BootedPort<'a>],
    /// The mbuf pool.
    pub pool: &'a Mempool<'a>,
    /// Pages of packet memory.
    pub pages: PageChoice,
    /// CPUs, as far as knobs name them.
    pub knob_cpus: Cpus,
    /// The workers' clock.
    pub clock: TscClock,
    /// When the daemon started.
    pub started: Instant,
    /// Number of the last change, restarts included.
    pub revision: u64,
    /// What users other than root may still change.
    pub budget: Budget,
    /// Clients of the control socket.
    pub clients: Clients,
    /// What was changed, on disk.
    pub journal: Journal,
    /// Ticks since something was changed.
    pub idle_ticks: u64,
    /// Mistakes that show.
    pub hints: Hints,
    pub(super) drops: DropMeter,
    pub(super) ticks: u64,
    /// Figures of one to two minutes ago, and of less than one.
    pub(super) past: [WorkerFigures; 2],
}

impl Daemon<'_> {
    /// Publishes what the registry has taken; returns once it is in force on every worker.
    pub(super) fn put_in_force(&mut self, changes: &[Change]) {
        self.publish();
        for change in changes {
            if let Change::SetEstimators { from, to } = change {
                self.estimation.set(to.clone());
                if from.est_cpulist != to.est_cpulist {
                    self.estimation.measure();
                }
            }
        }
        let removed = |c: &Change| matches!(c, Change::DeleteDest { .. } | Change::DeleteService { .. });
        if self.table.tunables.knobs.expire_nodest_conn != 0 && changes.iter().any(removed) {
            self.end_unavailable();
        }
    }

    /// Once a second.
    pub fn tick(&mut self, now: Instant) {
        let figures = self.figures();
        self.drops.sample(now, figures.drops);
        for worker in &mut self.workers {
            let cpu_ns = meters::thread_cpu_ns(worker.born.tid.number());
            worker.load.sample(now, worker.mode, &worker.stats.read(), cpu_ns, self.clock.hz());
        }
        self.clients.report();
        self.set_time();
        self.estimation.follow();
        self.publisher.reclaim();
        let generation = self.publisher.current().generation;
        if self.publisher.is_settled(generation) {
            self.registry.reclaim(generation);
        }
        self.idle_ticks += 1;
        let idle = self.idle_ticks > IDLE_TICKS;
        if let Err(error) = self.journal.tick(idle) {
            warn!(target: "weir::journal", %error, "not compacted");
        }
        self.ticks += 1;
        if self.ticks.is_multiple_of(TICKS_PER_LOOK) {
            let facts = facts::gather(self, now, &figures);
            self.hints.update(now, hints::hints(&facts));
        }
        if self.ticks.is_multiple_of(TICKS_RECENT) {
            self.past = [self.past[1], figures];
        }
    }

    /// The worker that has ended without being told to, if any.
    pub fn dead_worker(&self) -> Option<usize> {
        self.workers.iter().find(|worker| !worker.life.is_alive()).map(|worker| worker.id)
    }

    /// Figures of all workers together.
    pub fn figures(&self) -> WorkerFigures {
        let mut sum = WorkerFigures::default();
        self.workers.iter().for_each(|worker| sum += worker.stats.read());
        sum
    }

    /// Connections that all tables hold.
    pub fn connection_capacity(&self) -> u64 {
        self.workers.iter().map(|worker| worker.born.capacity as u64).sum()
    }

    /// Settings in force that this version stores and does not act on.
    pub fn not_forwarded(&self) -> Vec<String> {
        let mut settings = self.valid.unbuilt_at_boot();
        settings.extend(self.table.tunables.unbuilt());
        settings
    }

    /// Publishes the registry's state and waits until it is in force.
    fn publish(&mut self) {
        let snapshot = self.registry.snapshot();
        let generation = snapshot.generation;
        self.publisher.publish(snapshot);
        let begun = Instant::now();
        while !self.publisher.is_settled(generation) {
            let waited = begun.elapsed();
            if waited < SETTLE_SPIN {
                std::hint::spin_loop();
            } else if waited < SETTLE_LIMIT {
                std::thread::sleep(SETTLE_NAP);
            } else {
                warn!(target: "weir::worker", generation, "a worker does not take the new configuration");
                return;
            }
        }
        self.publisher.reclaim();
        self.registry.reclaim(generation);
        // New objects may want another estimator thread.
        self.estimation.follow();
    }

    /// Tells the registry the time, on both its clocks.
    pub(super) fn set_time(&mut self) {
        self.registry.set_time(self.clock.now_ns());
        self.registry.set_est_time(monotonic_ns());
    }

    /// What runs, as the IPVS family has it.
    pub(super) fn running(&mut self) -> Running<'_> {
        let table_size = self.table_size();
        Running::new(&mut self.table, &mut self.registry, &self.valid, table_size)
    }

    /// Size of the connection table as the family reports it.
    pub(super) fn table_size(&self) -> u32 {
        u32::try_from(self.connection_capacity()).unwrap_or(u32::MAX)
    }

    /// Whether each message is within what its user may change now.
    fn within_budget(&mut self, messages: &[Incoming], peer: Peer) -> Vec<bool> {
        let now = Instant::now();
        messages.iter().map(|m| !ipvs::is_change(m) || self.budget.take(peer.uid, now)).collect()
    }

    /// Takes one change from the budget of this user.
    pub(super) fn spend(&mut self, peer: Peer) -> Result<(), Refusal> {
        let within = self.budget.take(peer.uid, Instant::now());
        within.then_some(()).ok_or_else(|| Refusal::new(Errno::BUSY, "too many changes of this user at once"))
    }

    fn end_unavailable(&self) {
        for worker in &self.workers {
            worker.exchange.borrow().end_unavailable();
        }
    }
}

impl Handler for Daemon<'_> {
    fn ipvs(&mut self, messages: &[Incoming], peer: Peer) -> Vec<ipvs::Answer> {
        let within = self.within_budget(messages, peer);
        self.change(peer, |running| {
            let mut server = ipvs::Server::new(running);
            let answer = |(message, within): (&Incoming, bool)| match within {
                true => server.answer(message, peer.rights),
                false => ipvs::Answer::refused(message, Errno::BUSY),
            };
            let answers = messages.iter().zip(within.iter().copied()).map(answer).collect();
            (server.into_store(), answers)
        })
    }

    fn write_knob(&mut self, knob: &str, value: &str, peer: Peer) {
        self.take_knob_value(knob, value, peer);
    }

    fn answer(&mut self, request: Request, peer: Peer) -> Result<Outcome, Refusal> {
        debug!(target: "weir::api", uid = peer.uid, pid = peer.pid, command = ?request.command(), "request");
        if request.changes() {
            peer.require_write()?;
            self.spend(peer)?;
        }
        let now = Instant::now();
        let rows: Vec<Vec<u8>> = match request {
            Request::Hello => vec![to_json(&hello(peer))],
            Request::Status => report::status(self).iter().map(to_json).collect(),
            Request::Workers => report::workers(self).iter().map(to_json).collect(),
            Request::Drops { all } => {
                report::drops(&self.drops, &self.figures(), now, all).iter().map(to_json).collect()
            }
            Request::Est => est::rows(&self.estimation).iter().map(to_json).collect(),
            Request::Rates { order, top } => {
                est::rates(&self.registry, order, top).iter().map(to_json).collect()
            }
            Request::List => {
                return Ok(Outcome::Rows(Box::new(report::list(&self.running()).map(|row| to_json(&row)))));
            }
            Request::Conns(text) => {
                let mailboxes = self.workers.iter().map(|worker| Rc::clone(&worker.exchange)).collect();
                let rows = ConnRows::new(mailboxes, ConnFilter::parse(&text)?);
                return Ok(Outcome::Rows(Box::new(rows)));
            }
            Request::SysctlGet { name } => self.knobs(name.as_deref())?.iter().map(to_json).collect(),
            Request::SysctlSet { name, text } => return self.set_knob(&name, &text, peer),
            Request::TextOpen { name, write } => return self.open_text(&name, write, peer),
            Request::OptionSet { number, data } => return self.set_option(number, &data, peer),
            Request::OptionGet { number, length, data } => {
                return self.option(number, length, &data, peer);
            }
            Request::Transact(transaction) => {
                self.transact(&transaction, peer)?.iter().map(to_json).collect()
            }
            Request::Rollback { revision, dry_run } => {
                self.rollback(revision, dry_run, peer)?.iter().map(to_json).collect()
            }
            Request::Content(_) => {
                return Err(Refusal::new(Errno::OPNOTSUPP, "content belongs to a transaction"));
            }
            Request::Log => self.history()?.iter().map(to_json).collect(),
            Request::Save => report::file(self).iter().map(to_json).collect(),
        };
        Ok(Outcome::Rows(Box::new(rows.into_iter())))
    }
}

fn hello(peer: Peer) -> HelloRow {
    HelloRow {
        name: "weir".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
        protocol: codec::FAMILY_VERSION,
        rights: peer.rights.name().to_owned(),
    }
}

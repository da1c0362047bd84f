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
use config::{Change, Plan, Valid};
use dataplane::counters::{WorkerFigures, WorkerStats};
use dataplane::publish::Publisher;
use dataplane::registry::{ApplyError, Registry};
use dpdk_sys::{Mempool, PageChoice, TscClock};
use rustix::io::Errno;
use tracing::{debug, info, warn};

use super::boot::BootedPort;
use super::cpus::Mode;
use super::exchange::{ConnRows, Exchange};
use super::hints::{self, Hints};
use super::meters::{self, Clients, DropMeter, LoadMeter};
use super::table::{Merged, Running, Table};
use super::worker_thread::{Born, Life};
use super::{facts, report};
use crate::api::budget::Budget;
use crate::api::codec::{self, Incoming, Refusal, Request};
use crate::api::rows::{HelloRow, to_json};
use crate::api::server::{Handler, Outcome, Peer};
use crate::conn_filter::ConnFilter;
use crate::ipvs;

/// Time between two samples of the figures.
pub const TICK: Duration = Duration::from_secs(1);
/// Ticks between two looks for mistakes: they scan destinations and neighbours.
const TICKS_PER_LOOK: u64 = 5;
/// Ticks that figures count as recent: one to two minutes, as they are replaced once a minute.
const TICKS_RECENT: u64 = 60;
/// A publication is awaited by spinning so long, then by short sleeps: workers take it within a poll.
const SETTLE_SPIN: Duration = Duration::from_micros(20);
/// Sleep between two looks whether a publication is in force.
const SETTLE_NAP: Duration = Duration::from_micros(50);
/// A worker that does not take a publication for so long is stuck.
const SETTLE_LIMIT: Duration = Duration::from_secs(2);
/// Changes logged one by one; a larger plan is summed up.
const CHANGES_LOGGED: usize = 200;

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

/// A change that the registry refuses.
#[derive(Debug)]
pub struct RefusedChange {
    /// The change.
    pub change: Box<Change>,
    /// Why.
    pub error: ApplyError,
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
    /// Changes of configuration since the start.
    pub revision: u64,
    /// What users other than root may still change.
    pub budget: Budget,
    /// Clients of the control socket.
    pub clients: Clients,
    /// Mistakes that show.
    pub hints: Hints,
    pub(super) drops: DropMeter,
    pub(super) ticks: u64,
    /// Figures of one to two minutes ago, and of less than one.
    pub(super) past: [WorkerFigures; 2],
}

impl Daemon<'_> {
    /// Applies a plan on top of what runs and publishes it; returns once it is in force on every worker.
    ///
    /// # Errors
    /// The change that was refused, and why. Nothing is changed.
    pub fn apply(&mut self, plan: &Plan) -> Result<(), RefusedChange> {
        let begun = Instant::now();
        self.registry.set_time(self.clock.now_ns());
        let Merged { table, changes, left_out } = self.table.merge(plan);
        apply_whole(&mut self.registry, &changes)?;
        for change in &left_out {
            warn!(target: "weir::config", %change, "left out: deleted over the control socket since");
        }
        self.table = table;
        self.table.warn_of_all();
        self.valid = plan.in_force.clone();
        self.put_in_force(&changes);
        log_changes(&changes, self.revision > 0);
        info!(
            target: "weir::plan", revision = self.revision, changes = changes.len(),
            elapsed_us = begun.elapsed().as_micros() as u64, "configuration in force"
        );
        Ok(())
    }

    /// Publishes what the registry has taken; returns once it is in force on every worker.
    fn put_in_force(&mut self, changes: &[Change]) {
        self.publish();
        let removed = |c: &Change| matches!(c, Change::DeleteDest { .. } | Change::DeleteService { .. });
        if self.table.tunables.knobs.expire_nodest_conn != 0 && changes.iter().any(removed) {
            self.end_unavailable();
        }
    }

    /// Reads the configuration file again and applies what differs. A file with errors changes nothing.
    pub fn reload(&mut self) {
        let valid = match crate::check::load(&self.config_path) {
            Ok(valid) => valid,
            Err(error) => {
                warn!(target: "weir::config", "the configuration is kept, the file is refused:\n{error}");
                return;
            }
        };
        let plan = config::plan(&self.valid, &valid);
        for setting in &plan.restart_needed {
            warn!(target: "weir::config", setting, "a change that waits for a restart");
        }
        if plan.changes.is_empty() {
            info!(target: "weir::config", "nothing to change");
            return;
        }
        self.revision += 1;
        if let Err(RefusedChange { change, error }) = self.apply(&plan) {
            self.revision -= 1;
            warn!(target: "weir::config", change = %change, %error, "the configuration is kept, a change is refused");
            return;
        }
        for setting in self.not_forwarded() {
            warn!(target: "weir::config", setting, "accepted, not in effect in this version");
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
        self.registry.set_time(self.clock.now_ns());
        self.publisher.reclaim();
        let generation = self.publisher.current().generation;
        if self.publisher.is_settled(generation) {
            self.registry.reclaim(generation);
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
    }

    /// What runs, as the IPVS family has it.
    pub(super) fn running(&mut self) -> Running<'_> {
        let table_size = u32::try_from(self.connection_capacity()).unwrap_or(u32::MAX);
        Running::new(&mut self.table, &mut self.registry, &self.valid, table_size)
    }

    /// Lets `commands` change what runs. Everything they change is published together and in force when this
    /// returns, before any of it is acknowledged.
    pub(super) fn change<R>(
        &mut self,
        peer: Peer,
        commands: impl FnOnce(Running<'_>) -> (Running<'_>, R),
    ) -> R {
        self.registry.set_time(self.clock.now_ns());
        let (Running { changes, done, .. }, result) = commands(self.running());
        for command in &done {
            info!(target: "weir::plan", uid = peer.uid, pid = peer.pid, command, "changed over the control socket");
        }
        if !changes.is_empty() {
            self.put_in_force(&changes);
        }
        self.revision += u64::from(!done.is_empty());
        result
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
            if !worker.exchange.borrow().end_unavailable() {
                warn!(target: "weir::conn", worker = worker.id, "mailbox full: connections of deleted destinations stay");
            }
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
            let answers = messages.iter().zip(within).map(answer).collect();
            (server.into_store(), answers)
        })
    }

    fn write_knob(&mut self, knob: &str, value: &str, peer: Peer) {
        self.take_knob_value(knob, value, peer);
    }

    fn answer(&mut self, request: Request, peer: Peer) -> Result<Outcome, Refusal> {
        debug!(target: "weir::api", uid = peer.uid, pid = peer.pid, ?request, "request");
        let now = Instant::now();
        let rows: Vec<Vec<u8>> = match request {
            Request::Hello => vec![to_json(&hello(peer))],
            Request::Status => report::status(self).iter().map(to_json).collect(),
            Request::Workers => report::workers(self).iter().map(to_json).collect(),
            Request::Drops { all } => {
                report::drops(&self.drops, &self.figures(), now, all).iter().map(to_json).collect()
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
        };
        Ok(Outcome::Rows(Box::new(rows.into_iter())))
    }
}

/// Applies every change, or none: what was applied before one is refused is taken back.
pub fn apply_whole(registry: &mut Registry, changes: &[Change]) -> Result<(), RefusedChange> {
    for (applied, change) in changes.iter().enumerate() {
        if let Err(error) = registry.apply(change) {
            for back in changes[..applied].iter().rev().filter_map(inverse) {
                registry.apply(&back).expect("what was just applied can be taken back");
            }
            return Err(RefusedChange { change: Box::new(change.clone()), error });
        }
    }
    Ok(())
}

/// The change that undoes `change`. Removals come last in a plan and are never refused, so none is undone.
fn inverse(change: &Change) -> Option<Change> {
    Some(match change.clone() {
        Change::SetNetwork { from, to } => Change::SetNetwork { from: to, to: from },
        Change::SetPolicy { from, to } => Change::SetPolicy { from: to, to: from },
        Change::SetTimeouts { from, to } => Change::SetTimeouts { from: to, to: from },
        Change::SetKnobs { from, to } => Change::SetKnobs { from: to, to: from },
        Change::SetEstimators { from, to } => Change::SetEstimators { from: to, to: from },
        Change::AddService { key, .. } => Change::DeleteService { key },
        Change::EditService { key, from, to } => Change::EditService { key, from: to, to: from },
        Change::AddDest { service, dest } => Change::DeleteDest { service, dest: dest.key },
        Change::EditDest { service, from, to } => Change::EditDest { service, from: to, to: from },
        _ => return None,
    })
}

fn log_changes(changes: &[Change], while_running: bool) {
    if !while_running || changes.len() > CHANGES_LOGGED {
        changes.iter().for_each(|change| debug!(target: "weir::plan", "{change}"));
        return;
    }
    for change in changes {
        match change {
            Change::AddService { key, .. } => {
                info!(target: "weir::plan", service = %key, %change, "service added")
            }
            Change::EditService { key, .. } => {
                info!(target: "weir::plan", service = %key, %change, "service changed")
            }
            Change::DeleteService { key } => {
                info!(target: "weir::plan", service = %key, %change, "service deleted")
            }
            Change::AddDest { service, dest } => {
                info!(target: "weir::plan", %service, dest = %dest.key, %change, "destination added");
            }
            Change::EditDest { service, to, .. } => {
                info!(target: "weir::plan", %service, dest = %to.key, %change, "destination changed");
            }
            Change::DeleteDest { service, dest } => {
                info!(target: "weir::plan", %service, %dest, %change, "destination deleted");
            }
            _ => info!(target: "weir::plan", %change, "settings changed"),
        }
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

#[cfg(test)]
mod tests;

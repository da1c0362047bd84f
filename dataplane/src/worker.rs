//! The worker: one lcore's loop body. [`Worker::poll`] is deterministic in packets, time and messages.
//!
//! One turn: load the snapshot; for each port receive a burst, parse it all, probe it all, decide each packet, transmit;
//! then what other workers handed over, decided in the same way (a burst of it leaves its ring before the first is
//! decided, so that its cache lines are on their way from the other core meanwhile); then the mailbox, a bounded number of
//! timers, and every 10 ms housekeeping (ARP requests, refreshes, announcements). The thread around it (affinity, clock,
//! sleeping) is the caller's.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Relaxed, Release};

use arrayvec::ArrayVec;
use crossbeam::channel::{Receiver, Sender};
use dpdk_sys::{Prefault, SlabError};
use thiserror::Error;

use crate::conn::{Conns, Direction, Slot, TableError, flag, tick_of};
use crate::counters::{CounterSlab, WorkerStats, bump};
use crate::dest::DestSlab;
use crate::hash::FlowHasher;
use crate::housekeeping::{self, Housekeeping};
use crate::io::{Burst, Io, PacketBuf, PortIndex};
use crate::limits::{BURST, TICKS_PER_TIMER, TIMERS_PER_FULL_POLL, TIMERS_PER_NEW_CONN, TIMERS_PER_POLL};
use crate::mailbox::{FromWorker, Mailbox, ToWorker};
use crate::neigh::NeighTable;
use crate::neigh::resolve::Resolver;
use crate::pipeline::parse::{Kind, Meta, parse};
use crate::pipeline::probe::Probes;
use crate::pipeline::{Core, Cx, Handoff, Queues, answer, memory_low, same_port};
use crate::publish::{QUIESCENT, Subscriber};
use crate::sched::{Place, SchedState};
use crate::snapshot::Snapshot;
use crate::steer::Steer;
use crate::verdict::{DropReason, Verdict};
use crate::wire::ethernet::Mac;

/// What workers and control share, made once at start.
#[derive(Clone)]
pub struct Shared {
    /// States of destinations.
    pub dests: Arc<DestSlab>,
    /// Neighbours.
    pub neigh: Arc<NeighTable>,
}

/// Sizes and place of one worker.
#[derive(Clone, Debug)]
pub struct WorkerConfig {
    /// Number of the worker; 0 also probes neighbours and announces addresses.
    pub id: usize,
    /// Owners of flows, among how many workers; the same on all.
    pub steer: Steer,
    /// Ports it polls: all of them.
    pub ports: usize,
    /// Connections its table holds.
    pub conns: usize,
    /// Scheduler states it keeps ([`crate::registry::Registry::service_indices`]).
    pub services: usize,
    /// Key of the flow hash; random outside tests.
    pub hash_key: (u64, u64),
    /// Whether to touch the connection table's pages at once.
    pub prefault: Prefault,
    /// Time of the first poll, nanoseconds.
    pub now_ns: u64,
}

/// A worker cannot be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum WorkerError {
    /// The connection table.
    #[error("connection table: {0}")]
    Table(#[from] TableError),
    /// Another array.
    #[error(transparent)]
    Memory(#[from] SlabError),
}

/// One worker. Belongs to its thread; everything in it is made before the first packet.
pub struct Worker<B> {
    subscriber: Subscriber,
    core: Core<B>,
    housekeeping: Housekeeping,
    mailbox: Mailbox,
    burst: Burst<B>,
    ports: usize,
    /// Time of the last poll, if that was busy.
    busy_since: Option<u64>,
}

impl<B: PacketBuf> Worker<B> {
    /// A worker with an empty connection table. Control, at start.
    pub fn new(
        config: WorkerConfig,
        shared: &Shared,
        counters: Arc<CounterSlab>,
        stats: Arc<WorkerStats>,
        subscriber: Subscriber,
        inbox: Receiver<ToWorker>,
        outbox: Sender<FromWorker>,
    ) -> Result<Self, WorkerError> {
        let hasher = FlowHasher::new(config.hash_key.0, config.hash_key.1);
        let core = Core {
            conns: Conns::new(config.conns, hasher, config.prefault, tick_of(config.now_ns))?,
            sched: vec![SchedState::EMPTY; config.services].into_boxed_slice(),
            dests: Arc::clone(&shared.dests),
            counters,
            stats,
            neigh: Arc::clone(&shared.neigh),
            resolver: Resolver::new(&shared.neigh),
            queues: Queues::new(config.ports),
            place: Place { worker: config.id, workers: config.steer.workers() },
            handoff: Handoff::new(config.steer, config.id),
            answers: answer::Answers::default(),
            admitted: 0,
        };
        Ok(Self {
            subscriber,
            core,
            housekeeping: Housekeeping::new(config.id == 0),
            mailbox: Mailbox::new(inbox, outbox),
            burst: Burst::new(),
            ports: config.ports,
            busy_since: None,
        })
    }

    /// One turn of the loop at time `now_ns` (monotonic, any origin). Returns the packets received, taken over or relayed.
    #[inline]
    pub fn poll<I: Io<Buf = B>>(&mut self, now_ns: u64, io: &mut I) -> usize {
        let core = &mut self.core;
        let snap: &Snapshot = self.subscriber.load(&core.stats);
        let secure = match snap.knobs.secure_tcp {
            0 => false,
            3 => true,
            _ => memory_low(&core.conns),
        };
        let mut cx = Cx { snap, now_ns, tick: tick_of(now_ns), secure, port: 0 };
        let (mut received, conns) = (0, core.conns.table().len());
        core.handoff.expect(io);
        for port in 0..self.ports as PortIndex {
            io.rx(port, &mut self.burst);
            if port == 0 && core.handoff.has_peers() {
                core.handoff.begin(io, self.ports);
            }
            if !self.burst.is_empty() {
                received += self.burst.len();
                cx.port = port;
                core.process(&cx, &mut self.burst, Origin::Port);
                core.handoff.flush(io, &core.stats);
            }
            core.flush(io);
            core.release_known(&cx, io);
        }
        bump(&core.stats.polls, 1);
        if received > 0 {
            bump(&core.stats.rx, received as u64);
        }
        let mut relayed = 0;
        if core.handoff.has_peers() {
            received += core.take_over(&cx, &mut self.burst, io);
            relayed = io.relay();
        }
        if let Some(since) = self.busy_since {
            bump(&core.stats.busy_ns, now_ns.saturating_sub(since));
        }
        self.busy_since = (received > 0).then_some(now_ns);
        if received > 0 {
            bump(&core.stats.busy_polls, 1);
        }
        let behind = core.conns.behind(cx.tick);
        if behind > 0 {
            let opened = core.conns.table().len().saturating_sub(conns);
            core.expire(&cx, timer_budget(received, opened, behind));
        }
        self.mailbox.serve(core, cx.tick, received);
        if self.housekeeping.is_due(now_ns) {
            self.housekeeping.run(core, &cx, io);
            core.flush(io);
        }
        core.stats.conns.store(core.conns.table().len() as u64, Relaxed);
        core.stats.queued.store(core.queues.waiting() as u64, Relaxed);
        core.stats.parked.store(core.resolver.waiting() as u64, Relaxed);
        received + relayed
    }

    /// Reports that this worker holds no snapshot's data: before it sleeps and when it ends. The next
    /// [`Worker::poll`] takes the current snapshot in first.
    pub fn rest(&self) {
        self.core.stats.generation.store(QUIESCENT, Release);
    }

    /// Hands every packet it holds back to its pool; queued and parked ones count as dropped. At the end, after the
    /// last poll. What is in a ring is freed with it.
    pub fn release_packets(&mut self) {
        let parked = self.core.resolver.drain().count();
        let queued = self.core.queues.clear();
        for (reason, n) in [(DropReason::NeighQueue, parked), (DropReason::TxFull, queued)] {
            (0..n).for_each(|_| self.core.stats.count_drop(reason));
        }
        self.core.stats.queued.store(0, Relaxed);
        self.core.stats.parked.store(0, Relaxed);
        self.burst.clear();
        self.rest();
    }

    /// Its figures.
    pub fn stats(&self) -> &Arc<WorkerStats> {
        &self.core.stats
    }

    /// Its connections, for tests and listings on its own thread.
    pub fn conns(&self) -> &Conns {
        &self.core.conns
    }
}

/// Timers that a poll looks at: many while nobody waits, as few as will do while packets do.
#[inline(always)]
fn timer_budget(received: usize, opened: usize, behind: u32) -> usize {
    match received {
        0..BURST => TIMERS_PER_POLL + received,
        _ => TIMERS_PER_FULL_POLL + TIMERS_PER_NEW_CONN * opened + behind as usize / TICKS_PER_TIMER,
    }
}

/// Where a burst came from.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Origin {
    /// Received: may be another worker's.
    Port,
    /// Handed over: ours.
    Peer,
}

impl<B: PacketBuf> Core<B> {
    /// Takes a burst through every stage and leaves it empty. Hot.
    #[inline(never)]
    fn process(&mut self, cx: &Cx<'_>, burst: &mut Burst<B>, origin: Origin) {
        let ours = Mac(cx.snap.net.ports[usize::from(cx.port)].facts.mac);
        let mut metas = [Meta::NONE; BURST];
        for (meta, buf) in metas.iter_mut().zip(burst.iter()) {
            *meta = parse(buf, ours);
        }
        if self.handoff.has_peers() && origin == Origin::Port {
            self.steer(cx, burst, &mut metas);
        }
        let probes = Probes::of(&self.conns, &metas[..burst.len()]);
        let (mut asked, incoming) = (self.handoff.asked, self.handoff.incoming.len());
        for (i, buf) in burst.drain(..).enumerate() {
            let mut buf = buf;
            if asked < incoming {
                self.handoff.incoming[asked].prefetch();
                asked += 1;
            }
            let verdict = self.decide(cx, &mut buf, &metas[i], &probes, i);
            self.dispose(cx, buf, verdict);
        }
        self.handoff.asked = asked;
        self.conns.settle();
    }

    /// Sends what waited for neighbours that became known, here or at another worker. Hot: a look for each
    /// port.
    #[inline(always)]
    fn release_known<I: Io<Buf = B>>(&mut self, cx: &Cx<'_>, io: &mut I) {
        if self.handoff.is_news(self.neigh.news()) && self.resolver.waiting() > 0 {
            housekeeping::resolve(self, cx, io);
        }
    }

    /// Decides what other workers handed over; how many packets. Sends what waited for a neighbour that another worker
    /// heard of.
    #[inline(never)]
    fn take_over<I: Io<Buf = B>>(&mut self, cx: &Cx<'_>, burst: &mut Burst<B>, io: &mut I) -> usize {
        let ports = cx.snap.net.ports.len();
        let mut taken = 0;
        loop {
            self.handoff.next(burst, io, ports);
            if burst.is_empty() {
                break;
            }
            taken += burst.len();
            while let Some(port) = burst.first().map(PacketBuf::port) {
                let mut run = same_port(burst, port);
                self.process(&Cx { port, ..*cx }, &mut run, Origin::Peer);
                self.flush(io);
            }
        }
        bump(&self.stats.handed_in, taken as u64);
        self.release_known(cx, io);
        taken
    }

    /// What becomes of one packet.
    #[inline(always)]
    fn decide(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, probes: &Probes, i: usize) -> Verdict {
        if meta.kind != Kind::Flow {
            return self.rare(cx, buf, meta);
        }
        match probes.look_up(&self.conns, i, meta) {
            Some((slot, Direction::Request)) => self.request(cx, buf, meta, slot),
            Some((slot, Direction::Reply)) => self.reply(cx, buf, meta, slot),
            None => self.miss(cx, buf, meta),
        }
    }

    /// Everything but TCP and UDP.
    #[inline(never)]
    fn rare(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta) -> Verdict {
        match meta.kind {
            Kind::Flow => self.miss(cx, buf, meta),
            Kind::Bad(reason) => self.drop(reason),
            Kind::Arp => self.arp(cx, buf),
            Kind::Icmp => self.icmp(cx, buf, meta),
            Kind::Other => self.other(cx, meta),
        }
    }

    /// Ends connections whose time is up: looks at no more than `budget` timers.
    #[inline(always)]
    fn expire(&mut self, cx: &Cx<'_>, mut budget: usize) {
        let mut due = ArrayVec::<(Slot, [u64; 2]), BURST>::new();
        loop {
            while !due.is_full()
                && let Some(slot) = self.conns.expire_next(cx.tick, &mut budget)
            {
                due.push((slot, self.conns.table().prefetch_flows(slot)));
            }
            if due.is_empty() {
                return;
            }
            for (slot, hashes) in due.drain(..) {
                self.expire_one(slot, hashes);
            }
        }
    }

    /// Ends one connection whose time is up.
    fn expire_one(&mut self, slot: Slot, hashes: [u64; 2]) {
        let conn = self.conns.get(slot);
        if conn.method() == flag::NAT && !conn.has(flag::REPLIED) {
            bump(&self.stats.no_reply, 1);
        }
        self.dests[conn.dest].unbind(!conn.has(flag::INACTIVE));
        self.conns.remove_expired(slot, hashes);
        bump(&self.stats.expired, 1);
    }
}

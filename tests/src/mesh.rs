//! Several workers between in-memory ports, each with a queue of every port, and rings between them: one thread, under
//! a clock that the test moves. The test says at which worker a packet arrives and in which order they run.

use std::net::Ipv4Addr;
use std::time::Duration;

use crossbeam::channel;
use dataplane::counters::WorkerFigures;
use dataplane::io::mem::{MemBuf, MemIo};
use dataplane::limits::ring_size;
use dataplane::publish::Publisher;
use dataplane::registry::{DestRow, Registry};
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::Prefault;

use crate::case::Out;
use crate::mutate::Rng;
use crate::topo::{Rules, apply, parse};

/// Buffers in the pool.
const BUFFERS: usize = 4096;

/// Connections in each worker's table.
const CONNS: usize = 2048;

/// Announcements of our addresses are over after this time.
const ANNOUNCED: Duration = Duration::from_secs(6);

/// Longest step of the clock.
const STEP_NS: u64 = 50_000_000;

/// Workers with their control side, ports and clock.
pub struct Mesh {
    /// Each worker's queues, and the one pool.
    pub ios: Vec<MemIo>,
    workers: Vec<Worker<MemBuf>>,
    registry: Registry,
    publisher: Publisher,
    valid: config::Valid,
    now_ns: u64,
}

impl Mesh {
    /// Starts as many workers as `steer` knows under these rules; announcements are over when it returns.
    pub fn new(rules: &Rules, steer: &Steer) -> Self {
        let valid = parse(rules);
        let count = steer.workers();
        let facts = rules.ports.iter().map(|port| PortFacts { mac: port.mac, mtu: port.mtu }).collect();
        let mut registry = Registry::new(&valid, facts, count).expect("memory for the slabs");
        apply(&mut registry, &config::Valid::empty(), &valid);
        let stats: Vec<_> = (0..count).map(|_| Registry::worker_stats()).collect();
        let publisher = Publisher::new(registry.snapshot(), stats.clone());
        let now_ns = 1_000_000_000;
        let start = |(id, stats)| {
            let config = WorkerConfig {
                id,
                steer: steer.clone(),
                ports: rules.ports.len(),
                conns: CONNS,
                services: registry.service_indices(),
                hash_key: (1, id as u64),
                prefault: Prefault::Lazy,
                now_ns,
            };
            let ((_, inbox), (outbox, _)) = (channel::bounded(1), channel::bounded(1));
            let (counters, subscriber) = (registry.counters(id), publisher.subscribe());
            Worker::new(config, registry.shared(), counters, stats, subscriber, inbox, outbox)
                .expect("memory for the connection table")
        };
        let workers = stats.into_iter().enumerate().map(start).collect();
        let ios = MemIo::mesh(count, rules.ports.len(), BUFFERS, ring_size(count));
        let mut mesh = Self { ios, workers, registry, publisher, valid, now_ns };
        mesh.advance(ANNOUNCED);
        mesh.sent();
        mesh
    }

    /// Changes over to other rules: each worker has them from its next turn on.
    pub fn reload(&mut self, rules: &Rules) {
        let valid = parse(rules);
        self.registry.set_time(self.now_ns);
        apply(&mut self.registry, &self.valid, &valid);
        self.publisher.publish(self.registry.snapshot());
        self.valid = valid;
    }

    /// Puts a frame before `worker`'s queue of a port.
    #[track_caller]
    pub fn inject(&mut self, worker: usize, port: usize, frame: &[u8]) {
        assert!(self.ios[worker].inject(port as u8, frame), "a buffer for the frame");
    }

    /// One turn of one worker.
    pub fn poll(&mut self, worker: usize) {
        self.workers[worker].poll(self.now_ns, &mut self.ios[worker]);
    }

    /// Lets workers run in random order until nothing waits in a queue or ring.
    #[track_caller]
    pub fn run(&mut self, rng: &mut Rng) {
        while self.ios.iter().any(|io| io.waiting() > 0) || self.ios[0].in_rings() > 0 {
            let worker = rng.below(self.workers.len());
            self.poll(worker);
        }
        self.check();
    }

    /// Lets time pass; timers fire.
    pub fn advance(&mut self, by: Duration) {
        let end_ns = self.now_ns + by.as_nanos() as u64;
        while self.now_ns < end_ns {
            self.now_ns = end_ns.min(self.now_ns + STEP_NS);
            let mut expired = None;
            while expired != Some(self.figures().expired) {
                expired = Some(self.figures().expired);
                (0..self.workers.len()).for_each(|worker| self.poll(worker));
            }
        }
    }

    /// What all workers sent since this was last asked.
    pub fn sent(&mut self) -> Vec<Out> {
        let sent = self.ios.iter_mut().flat_map(MemIo::drain);
        sent.map(|(port, frame)| Out { port: port.into(), frame }).collect()
    }

    /// Figures of each worker.
    pub fn each(&self) -> Vec<WorkerFigures> {
        self.workers.iter().map(|worker| worker.stats().read()).collect()
    }

    /// Figures of all workers together.
    pub fn figures(&self) -> WorkerFigures {
        let mut sum = WorkerFigures::default();
        self.each().into_iter().for_each(|figures| sum += figures);
        sum
    }

    /// Connections that each worker's table holds.
    pub fn conns(&self) -> Vec<usize> {
        self.workers.iter().map(|worker| worker.conns().table().len()).collect()
    }

    /// Every destination, by service.
    pub fn dests(&self) -> Vec<DestRow> {
        self.registry.rows().flat_map(|row| row.dests).collect()
    }

    /// The destination at that address.
    pub fn dest(&self, address: Ipv4Addr) -> DestRow {
        let found = self.dests().into_iter().find(|row| row.dest.addr == address);
        found.unwrap_or_else(|| panic!("no destination {address}"))
    }

    /// Every packet is accounted for, on each worker and in the rings.
    #[track_caller]
    pub fn check(&self) {
        for (worker, figures) in self.each().iter().enumerate() {
            assert_eq!(
                figures.unaccounted(),
                0,
                "worker {worker} loses packets or counts them twice: {figures:?}"
            );
        }
        assert_eq!(self.figures().in_rings(), self.ios[0].in_rings() as i64);
    }
}

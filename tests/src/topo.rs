//! One worker between in-memory ports, under a clock that the test moves: what most tests run packets through.
//!
//! [`Rules`] is the configuration as a value. [`Topo`] is control and worker in one thread: rules go through the same
//! text, parser, plan and registry as the daemon's, packets through the same worker as in production. After every
//! packet each buffer must be accounted for.

mod rules;

use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::time::Duration;

use config::{DestKey, ServiceKey};
use crossbeam::channel;
use dataplane::conn::{TICK_NS, state, tick_of};
use dataplane::counters::{Totals, WorkerFigures};
use dataplane::hash::FlowKey;
use dataplane::io::mem::{MemBuf, MemIo};
use dataplane::io::pcap;
use dataplane::publish::Publisher;
use dataplane::registry::{DestRow, Registry, ServiceRow};
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::verdict::DropReason;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::Prefault;

pub use rules::{Method, Port, Proto, Rules, Server, Service};

use crate::case::{Out, Subject};
use crate::kernel::packets::Figures;

/// Buffers in the pool.
const BUFFERS: usize = 512;

/// Connections in the table.
const CONNS: usize = 4096;

const SECOND_NS: u64 = 1_000_000_000;

/// Longest step of the clock: finer than any timeout, coarse enough for minutes of test time.
const STEP_NS: u64 = 50_000_000;

/// Announcements of a new address are over after this time.
const ANNOUNCED_NS: u64 = 6_000_000_000;

/// A worker with its control side, ports and clock.
pub struct Topo {
    /// Ports and pool, for faults: full queues, an empty pool.
    pub io: MemIo,
    rules: Rules,
    valid: config::Valid,
    registry: Registry,
    publisher: Publisher,
    worker: Worker<MemBuf>,
    /// Time at which the test's own time is 0.
    origin_ns: u64,
    now_ns: u64,
}

/// A connection as it stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Conn {
    /// Name of its state, as listed.
    pub state: String,
    /// Time until it ends, seconds, rounded to the nearest: a worker's ticks are finer than that.
    pub remaining_secs: u64,
}

impl Topo {
    /// Starts a worker under these rules; the announcements of its addresses are over when it returns.
    pub fn new(rules: &Rules) -> Self {
        let valid = parse(rules);
        let facts = rules.ports.iter().map(|port| PortFacts { mac: port.mac, mtu: port.mtu }).collect();
        let mut registry = Registry::new(&valid, facts, 1).expect("memory for the slabs");
        apply(&mut registry, &config::Valid::empty(), &valid);

        let stats = Registry::worker_stats();
        let publisher = Publisher::new(registry.snapshot(), vec![stats.clone()]);
        let now_ns = 1_000_000_000;
        let config = WorkerConfig {
            id: 0,
            steer: Steer::ONE,
            ports: rules.ports.len(),
            conns: CONNS,
            services: registry.service_indices(),
            hash_key: (1, 2),
            prefault: Prefault::Lazy,
            now_ns,
        };
        // No mail in these tests: listings read the table itself.
        let ((_, inbox), (outbox, _)) = (channel::bounded(1), channel::bounded(1));
        let counters = registry.counters(0);
        let subscriber = publisher.subscribe();
        let worker = Worker::new(config, registry.shared(), counters, stats, subscriber, inbox, outbox)
            .expect("memory for the connection table");

        let io = MemIo::new(rules.ports.len(), BUFFERS);
        let mut topo =
            Self { io, rules: rules.clone(), valid, registry, publisher, worker, origin_ns: now_ns, now_ns };
        topo.run_until(now_ns + ANNOUNCED_NS);
        topo.io.drain();
        topo.origin_ns = topo.now_ns;
        topo
    }

    /// The rules in force.
    pub fn rules(&self) -> &Rules {
        &self.rules
    }

    /// Changes over to other rules, as the daemon does on SIGHUP.
    pub fn reload(&mut self, rules: &Rules) {
        let valid = parse(rules);
        self.registry.set_time(self.now_ns);
        apply(&mut self.registry, &self.valid, &valid);
        let snapshot = self.registry.snapshot();
        let generation = snapshot.generation;
        self.publisher.publish(snapshot);
        self.worker.poll(self.now_ns, &mut self.io);
        assert!(self.publisher.is_settled(generation), "the worker has taken the rules in");
        self.registry.reclaim(generation);
        self.rules = rules.clone();
        self.valid = valid;
    }

    /// Puts a frame on a port, lets the worker run, and returns what it sent.
    #[track_caller]
    pub fn deliver(&mut self, port: usize, frame: &[u8]) -> Vec<Out> {
        assert!(self.io.inject(port as u8, frame), "a buffer for the frame");
        while self.io.waiting() > 0 {
            self.worker.poll(self.now_ns, &mut self.io);
        }
        assert_eq!(self.figures().unaccounted(), 0, "packets are lost or counted twice\n{}", self.dump());
        self.sent()
    }

    /// Runs a capture through the worker as `weir replay` does: by the file's clock, each frame on the port that would
    /// have received it. Returns everything sent, in order.
    pub fn replay(&mut self, capture: &[u8]) -> Vec<Out> {
        let mut frames = pcap::read(capture).expect("a capture file");
        let shift = self.now_ns.wrapping_sub(frames.first().map_or(0, |frame| frame.time_ns));
        for frame in &mut frames {
            frame.time_ns = frame.time_ns.wrapping_add(shift);
        }
        let mut sent = Vec::new();
        let net = self.registry.net();
        self.now_ns =
            pcap::replay(&mut self.worker, &mut self.io, net, &frames, 0, |_, step| sent.extend(step.sent));
        assert_eq!(self.figures().unaccounted(), 0, "packets are lost or counted twice\n{}", self.dump());
        sent.into_iter().map(|(port, frame)| Out { port: port.into(), frame }).collect()
    }

    /// What the worker sent since it was last asked.
    pub fn sent(&mut self) -> Vec<Out> {
        self.io.drain().into_iter().map(|(port, frame)| Out { port: port.into(), frame }).collect()
    }

    /// Lets time pass; timers fire. Frames sent meanwhile wait for [`Topo::sent`].
    pub fn advance(&mut self, by: Duration) {
        self.run_until(self.now_ns + by.as_nanos() as u64);
    }

    /// [`Topo::advance`] by seconds.
    pub fn advance_secs(&mut self, secs: u64) {
        self.advance(Duration::from_secs(secs));
    }

    /// Lets time pass until the test's own clock, which starts at 0, shows this.
    pub fn set_time(&mut self, at: Duration) {
        self.run_until(self.origin_ns + at.as_nanos() as u64);
    }

    /// The connection of a client with the first service of that protocol.
    pub fn conn(&self, proto: Proto, client: (Ipv4Addr, u16)) -> Option<Conn> {
        let service = self.rules.services.iter().find(|service| service.proto == proto)?;
        let key = FlowKey {
            src: client.0.to_bits(),
            dst: service.address.to_bits(),
            sport: client.1,
            dport: service.port,
            proto: service_key(service).proto.number(),
        };
        let table = self.worker.conns().table();
        let (slot, _) = table.lookup(table.hash(&key), &key)?;
        let record = table.get(slot);
        let state = match proto {
            Proto::Tcp => state::tcp_name(record.state),
            Proto::Udp => state::udp_name(record.state),
        };
        let remaining = u64::from(record.remaining(tick_of(self.now_ns))) * TICK_NS;
        Some(Conn { state: state.to_owned(), remaining_secs: (remaining + SECOND_NS / 2) / SECOND_NS })
    }

    /// Active and inactive connections of the destination at that address.
    pub fn counts(&self, address: Ipv4Addr) -> (u32, u32) {
        let row = self.dest(address);
        (row.active, row.inactive)
    }

    /// Gives a destination that many connections besides those it has, as if they had been bound.
    pub fn set_counts(&mut self, address: Ipv4Addr, active: u32, inactive: u32) {
        let state = &self.registry.shared().dests[self.dest(address).dest.slot];
        (0..active + inactive).for_each(|_| state.bind());
        (0..active).for_each(|_| state.shift(true));
    }

    /// Overloads a destination that has connections, or ends its overload. An edit of the destination ends it too.
    pub fn set_overload(&mut self, address: Ipv4Addr, overloaded: bool) {
        let dest = self.dest(address).dest;
        let state = &self.registry.shared().dests[dest.slot];
        state.configure(dest.weight, u32::from(overloaded), 0);
        if overloaded {
            state.bind();
            state.unbind(false);
        }
        assert_eq!(state.is_overloaded(), overloaded, "{address} has connections");
    }

    /// What a service counted.
    pub fn service_figures(&self, service: &Service) -> Figures {
        figures(self.row(service).totals)
    }

    /// What a destination of a service counted.
    pub fn server_figures(&self, service: &Service, server: &Server) -> Figures {
        let key = DestKey::new(server.address.into(), server.port);
        let row = self.row(service);
        let found =
            row.dests.iter().find(|row| (row.dest.addr, row.dest.port) == (server.address, server.port));
        figures(found.unwrap_or_else(|| panic!("no destination {key}")).totals)
    }

    /// The worker.
    pub fn worker(&self) -> &Worker<MemBuf> {
        &self.worker
    }

    /// Control's model.
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// The worker's own figures.
    pub fn figures(&self) -> WorkerFigures {
        self.worker.stats().read()
    }

    fn row(&self, service: &Service) -> ServiceRow {
        let key = service_key(service);
        self.registry.find(key).unwrap_or_else(|| panic!("no service {key}"))
    }

    fn dest(&self, address: Ipv4Addr) -> DestRow {
        let mut rows = self.registry.rows().flat_map(|row| row.dests);
        rows.find(|row| row.dest.addr == address).unwrap_or_else(|| panic!("no destination {address}"))
    }

    fn run_until(&mut self, end_ns: u64) {
        while self.now_ns < end_ns {
            self.now_ns = end_ns.min(self.now_ns + STEP_NS);
            // A poll ends a few connections only.
            let mut expired = None;
            while expired != Some(self.figures().expired) {
                expired = Some(self.figures().expired);
                self.worker.poll(self.now_ns, &mut self.io);
            }
        }
    }
}

impl Subject for Topo {
    fn feed(&mut self, port: usize, frame: &[u8]) -> Vec<Out> {
        self.deliver(port, frame)
    }

    fn counter(&self, name: &str) -> Option<u64> {
        let figures = self.figures();
        let drop = DropReason::ALL.iter().find(|reason| reason.name() == name);
        match (name, drop) {
            (_, Some(reason)) => Some(figures.drops_for(*reason)),
            ("rx", _) => Some(figures.rx),
            ("tx", _) => Some(figures.tx),
            ("generated", _) => Some(figures.generated),
            ("consumed", _) => Some(figures.consumed),
            ("created", _) => Some(figures.created),
            ("expired", _) => Some(figures.expired),
            _ => None,
        }
    }

    fn dump(&self) -> String {
        let mut out = String::new();
        let figures = self.figures();
        let _ = writeln!(
            out,
            "rx {} tx {} generated {} consumed {} queued {} parked {} connections {}",
            figures.rx,
            figures.tx,
            figures.generated,
            figures.consumed,
            figures.queued,
            figures.parked,
            figures.conns
        );
        for reason in DropReason::ALL.iter().filter(|reason| figures.drops_for(**reason) > 0) {
            let _ = writeln!(out, "drop {} {}", reason.name(), figures.drops_for(*reason));
        }
        for row in self.registry.rows() {
            let _ = writeln!(out, "service {} {:?}", row.service.key, row.totals);
            for dest in row.dests {
                let _ = writeln!(out, "  {dest:?}");
            }
        }
        let table = self.worker.conns().table();
        for slot in table.used(0..table.high_water()) {
            let _ = writeln!(out, "connection {:?}", table.get(slot));
        }
        out
    }
}

pub(crate) fn parse(rules: &Rules) -> config::Valid {
    let text = rules.to_toml();
    config::parse(&text, "test.toml").unwrap_or_else(|errors| panic!("{errors}\n{text}"))
}

pub(crate) fn apply(registry: &mut Registry, old: &config::Valid, new: &config::Valid) {
    for change in config::plan(old, new).changes {
        registry.apply(&change).unwrap_or_else(|error| panic!("{change}: {error}"));
    }
}

fn service_key(service: &Service) -> ServiceKey {
    let proto = match service.proto {
        Proto::Tcp => config::Proto::Tcp,
        Proto::Udp => config::Proto::Udp,
    };
    ServiceKey::new(proto, service.address.into(), service.port)
}

fn figures(totals: Totals) -> Figures {
    let Totals { conns, inpkts, outpkts, inbytes, outbytes } = totals;
    Figures { conns, inpkts, outpkts, inbytes, outbytes }
}

//! The packet path takes no memory: nothing is allocated in [`Worker::poll`], whatever the packets do.
//!
//! Control, ports and worker run on this thread; only the worker's turns are counted. Buffers and the queues of the
//! memory ports exist before, from a round that is not counted: on a real machine the driver has them.

use std::sync::Arc;
use std::time::Duration;

use allocation_counter::measure;
use crossbeam::channel::{self, Receiver, Sender};
use dataplane::io::mem::{MemBuf, MemIo};
use dataplane::mailbox::{Dump, FromWorker, ToWorker};
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::verdict::DropReason;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::Prefault;
use tests::mutate::scenario;
use tests::mutate::traffic::{SILENT, port};
use tests::packets::{
    self, CLIENT, DIP, GATEWAY, GATEWAY_MAC, P0_MAC, P1_MAC, SERVER, SERVER_MAC, VIP, flags,
};
use tests::topo::Rules;

const BUFFERS: usize = 512;

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
    assert_eq!(measure(|| ()).count_total, 0);
}

#[test]
fn a_poll_allocates_nothing() {
    let mut bench = Bench::new();
    // Twice the same, the first time for the queues of the memory ports only.
    for counted in [false, true] {
        (bench.allocated, bench.snapshots, bench.dumped) = (0, 0, 0);
        let before = bench.worker.stats().read();
        bench.round();
        let after = bench.worker.stats().read();
        if !counted {
            continue;
        }
        for (what, least, count) in [
            ("packets", 1500, after.rx - before.rx),
            ("connections created", 250, after.created - before.created),
            ("connections expired", 250, after.expired - before.expired),
            ("answered", 2, after.consumed - before.consumed),
            ("errors and resets", 3, after.generated - before.generated),
            ("without neighbour", 1, drops(&after, &before, DropReason::NeighFail)),
            ("table full", 1, drops(&after, &before, DropReason::ConnNomem)),
            ("transmit full", 1, drops(&after, &before, DropReason::TxFull)),
        ] {
            println!("{what:<22} {count:>6}");
            assert!(count >= least, "{what}: {count}, at least {least} expected");
        }
        assert!(bench.snapshots >= 20 && bench.dumped >= 250, "{} {}", bench.snapshots, bench.dumped);
        println!("allocations            {:>6}", bench.allocated);
        assert_eq!(bench.allocated, 0);
    }
}

fn drops(
    after: &dataplane::counters::WorkerFigures,
    before: &dataplane::counters::WorkerFigures,
    reason: DropReason,
) -> u64 {
    after.drops_for(reason) - before.drops_for(reason)
}

struct Bench {
    rules: Rules,
    valid: config::Valid,
    registry: Registry,
    publisher: Publisher,
    worker: Worker<MemBuf>,
    io: MemIo,
    to_worker: Sender<ToWorker>,
    from_worker: Receiver<FromWorker>,
    now_ns: u64,
    allocated: u64,
    snapshots: u64,
    dumped: usize,
}

impl Bench {
    fn new() -> Self {
        let mut rules = scenario::rules();
        // Servers are asked for by ARP, all but the first.
        rules.neighbours.retain(|(port, address, _)| *port == 0 || *address == SERVER);
        rules.extra = "[timeouts]\nudp = 3\nsynrecv = 3\ntcp = 3\nclose = 3\ntcpfin = 3\nclosewait = 3\nlastack = 3\ntimewait = 3\n".to_owned();
        let valid = parse(&rules);
        let facts = rules.ports.iter().map(|port| PortFacts { mac: port.mac, mtu: port.mtu }).collect();
        let mut registry = Registry::new(&valid, facts, 1).unwrap();
        apply(&mut registry, &config::Valid::empty(), &valid);
        let stats = Registry::worker_stats();
        let publisher = Publisher::new(registry.snapshot(), vec![Arc::clone(&stats)]);
        let now_ns = 1_000_000_000;
        let config = WorkerConfig {
            id: 0,
            steer: Steer::ONE,
            ports: 2,
            conns: 300,
            services: valid.limits().services as usize,
            hash_key: (1, 2),
            prefault: Prefault::Now,
            now_ns,
        };
        let ((to_worker, inbox), (outbox, from_worker)) = (channel::bounded(4), channel::bounded(4));
        let counters = registry.counters(0);
        let worker =
            Worker::new(config, registry.shared(), counters, stats, publisher.subscribe(), inbox, outbox)
                .unwrap();
        let mut io = MemIo::new(2, BUFFERS);
        // Every buffer of the pool exists from now on.
        while io.inject(0, &[0; 60]) {}
        let mut bench = Self {
            rules,
            valid,
            registry,
            publisher,
            worker,
            io,
            to_worker,
            from_worker,
            now_ns,
            allocated: 0,
            snapshots: 0,
            dumped: 0,
        };
        bench.poll();
        bench
    }

    /// All that a worker meets, in one go.
    fn round(&mut self) {
        self.connections();
        self.answers();
        self.neighbours();
        self.full_queues();
        for step in 0..20 {
            self.publish(step);
            self.connections();
            self.dump();
            self.advance(Duration::from_secs(4));
        }
        // The table is larger than what one round opens only if connections end.
        self.advance(Duration::from_secs(10));
        for client in 0..400 {
            self.receive(0, &packets::udp((CLIENT, 20_000 + client), (VIP, port::DNS), b"flood").bytes());
        }
        self.advance(Duration::from_secs(400));
    }

    /// TCP and UDP, opened, answered, closed.
    fn connections(&mut self) {
        for client in 1000..1010 {
            let (client, web) = ((CLIENT, client), (VIP, port::WEB));
            for kind in [flags::SYN, flags::ACK, flags::FIN | flags::ACK] {
                self.receive(0, &packets::tcp(client, web, kind).bytes());
                let reply = packets::tcp((SERVER, 8080), client, kind | flags::ACK).from_server();
                self.receive(1, &reply.bytes());
            }
            self.receive(0, &packets::udp(client, (VIP, port::DNS), b"question").bytes());
            self.receive(0, &packets::tcp(client, (VIP, port::DIRECT), flags::SYN).bytes());
            self.receive(0, &packets::tcp(client, web, flags::RST).bytes());
        }
    }

    /// ARP, echo, errors of every kind, resets.
    fn answers(&mut self) {
        self.receive(0, &packets::arp_request((GATEWAY_MAC, GATEWAY), VIP));
        self.receive(1, &packets::arp_request((SERVER_MAC, SERVER), DIP));
        self.receive(0, &packets::icmp(CLIENT, VIP, 8, 0, 1, b"echo").bytes());
        let client = (CLIENT, 900);
        self.receive(0, &packets::tcp(client, (VIP, port::WEB), flags::SYN).ttl(1).bytes());
        self.receive(0, &packets::tcp(client, (VIP, port::EMPTY), flags::SYN).bytes());
        self.receive(0, &packets::tcp(client, (VIP, 7), flags::SYN).bytes());
        self.receive(0, &packets::udp(client, (VIP, 7), b"closed").bytes());
        self.receive(0, &packets::udp(client, (VIP, port::DNS), &[0; 1600]).bytes());
        self.receive(0, &packets::tcp(client, (VIP, port::WEB), flags::ACK).bytes()[..40]);
    }

    /// One that answers late and one that never does.
    fn neighbours(&mut self) {
        for client in 700..780 {
            self.receive(0, &packets::tcp((CLIENT, client), (VIP, port::SILENT), flags::SYN).bytes());
        }
        let late = packets::arp_reply((SILENT.1, SILENT.0), (P1_MAC, DIP));
        self.receive(1, &late);
        self.advance(Duration::from_secs(120));
        self.receive(0, &packets::tcp((CLIENT, 790), (VIP, port::SILENT), flags::SYN).bytes());
        self.advance(Duration::from_secs(5));
        self.receive(0, &packets::arp(P0_MAC, 2, (GATEWAY_MAC, GATEWAY), (P0_MAC, packets::P0)));
    }

    /// A port that takes nothing for a while.
    fn full_queues(&mut self) {
        self.io.tx_room[1] = 0;
        for _ in 0..200 {
            self.receive(0, &packets::udp((CLIENT, 901), (VIP, port::DNS), b"again").bytes());
        }
        self.io.tx_room[1] = usize::MAX;
        self.poll();
    }

    /// Another snapshot: weights change, a server goes, it comes back.
    fn publish(&mut self, step: u32) {
        let mut rules = self.rules.clone();
        rules.services[0].servers[0].weight = step % 4;
        if step.is_multiple_of(3) {
            rules.services[0].servers.remove(1);
        }
        let valid = parse(&rules);
        self.registry.set_time(self.now_ns);
        apply(&mut self.registry, &self.valid, &valid);
        self.valid = valid;
        let snapshot = self.registry.snapshot();
        self.registry.reclaim(snapshot.generation - 1);
        self.publisher.publish(snapshot);
        self.snapshots += 1;
        self.poll();
        self.publisher.reclaim();
    }

    /// A listing of all connections, in pieces.
    fn dump(&mut self) {
        let mut dump = Dump::new(50);
        loop {
            assert!(self.to_worker.try_send(ToWorker::Dump(dump)).is_ok());
            dump = loop {
                self.poll();
                if let Ok(FromWorker::Dump(dump)) = self.from_worker.try_recv() {
                    break dump;
                }
            };
            self.dumped += dump.rows.len();
            dump.rows.clear();
            if dump.done {
                return;
            }
        }
    }

    fn receive(&mut self, port: u8, frame: &[u8]) {
        assert!(self.io.inject(port, frame), "a buffer for the frame");
        self.poll();
    }

    fn advance(&mut self, by: Duration) {
        let end = self.now_ns + by.as_nanos() as u64;
        while self.now_ns < end {
            self.now_ns += 50_000_000;
            (0..20).for_each(|_| self.poll());
        }
    }

    fn poll(&mut self) {
        let Self { worker, io, now_ns, .. } = self;
        let mut left = 1;
        while left > 0 {
            self.allocated += measure(|| {
                worker.poll(*now_ns, io);
            })
            .count_total;
            left = io.waiting();
        }
        self.io.discard_sent();
    }
}

fn parse(rules: &Rules) -> config::Valid {
    config::parse(&rules.to_toml(), "test.toml").unwrap_or_else(|errors| panic!("{errors}"))
}

fn apply(registry: &mut Registry, old: &config::Valid, new: &config::Valid) {
    for change in config::plan(old, new).changes {
        registry.apply(&change).unwrap_or_else(|error| panic!("{change}: {error}"));
    }
}

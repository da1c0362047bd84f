//! Control, a worker and an estimator thread in orders of their steps that a model checker draws: slots that are handed out,
//! suspended, zeroed, given back and handed out again while they are counted in and passed.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::ops::ControlFlow;
use std::sync::atomic::{
    AtomicBool, AtomicU64,
    Ordering::{Relaxed, Release},
};
use std::sync::{Arc, Mutex};

use config::{Change, Proto, ServiceKey, Valid};
use shuttle::rand::Rng;
use shuttle::thread;

use crate::counters::{CounterSlab, WorkerStats};
use crate::est::{Engine, Estimators, Host, Next, ROWS, Snapshot, TICK_NS};
use crate::publish::{Publisher, QUIESCENT, Subscriber};
use crate::registry::Registry;
use crate::route::PortFacts;
use crate::sync::model;

const ADDR: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// Services that come and go, told apart by their port.
const PORTS: u16 = 3;
const BYTES: u64 = 50;
/// Longest pause of control, in turns of the others: about a revolution.
const PAUSE: usize = 60;

/// A clock that the estimator thread alone moves on.
#[derive(Clone, Default)]
struct Time(Arc<AtomicU64>);

impl Host for Time {
    fn now_ns(&mut self) -> u64 {
        // Long enough for a run of a calibration to mean something.
        self.0.fetch_add(2_000, Relaxed)
    }

    fn cpu_ns(&mut self) -> u64 {
        self.0.load(Relaxed)
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        thread::yield_now();
        ControlFlow::Continue(())
    }
}

/// Packets counted for each service that ever was, by the number it was born with.
type Tally = Arc<Mutex<HashMap<u32, u64>>>;

/// What one order of steps works on.
struct World {
    registry: Registry,
    publisher: Publisher,
    stats: Arc<WorkerStats>,
    est: Arc<Estimators>,
    add: Vec<Change>,
    time: Time,
    /// Services whose statistics started over.
    zeroed: Vec<u32>,
    tally: Tally,
}

impl World {
    fn new() -> Self {
        let text = (0..PORTS).map(|i| format!("[[service]]\naddress = \"udp://{ADDR}:{}\"\n", port(i)));
        // Three blocks: services come to lie in others than that of the totals, which is summed whatever its stamps say.
        let limits = "[limits]\nservices = 1500\ndestinations = 1\n";
        let ports = "[[port]]\nname = \"lan\"\ndevice = \"memory\"\naddresses = [\"10.0.0.254/24\"]\n";
        let valid = config::parse(&format!("{ports}{limits}{}", text.collect::<String>()), "t.toml").unwrap();
        let facts = vec![PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }];
        let mut registry = Registry::new(&valid, facts, 1).unwrap();
        let changes = config::plan(&Valid::empty(), &valid).changes;
        let (add, other): (Vec<_>, Vec<_>) =
            changes.into_iter().partition(|change| matches!(change, Change::AddService { .. }));
        other.iter().for_each(|change| registry.apply(change).unwrap());
        let stats = Registry::worker_stats();
        let publisher = Publisher::new(registry.snapshot(), vec![Arc::clone(&stats)]);
        let est = Arc::clone(registry.estimators());
        Self {
            registry,
            publisher,
            stats,
            est,
            add,
            time: Time::default(),
            zeroed: Vec::new(),
            tally: Tally::default(),
        }
    }

    /// Service `i`, if it is there: the number it was born with, and its slot.
    fn find(&self, i: u16) -> Option<(u32, u32)> {
        self.registry.find(key(i)).map(|row| (row.service.born, row.service.slot))
    }

    /// Packets counted so far for the service born with that number.
    fn counted(&self, born: u32) -> u64 {
        self.tally.lock().unwrap().get(&born).copied().unwrap_or(0)
    }

    /// Some things that control does after a pause, drawn; what they changed is published together, and what all have
    /// forgotten is given back.
    fn step(&mut self) {
        (0..shuttle::rand::thread_rng().gen_range(0..PAUSE)).for_each(|_| thread::yield_now());
        (0..shuttle::rand::thread_rng().gen_range(1..4)).for_each(|_| self.change());
        let snapshot = self.registry.snapshot();
        let generation = snapshot.generation;
        self.publisher.publish(snapshot);
        if self.publisher.is_settled(generation) {
            self.registry.reclaim(generation);
        }
    }

    fn change(&mut self) {
        let mut rng = shuttle::rand::thread_rng();
        let i = rng.gen_range(0..PORTS);
        match (self.find(i), rng.gen_range(0..4)) {
            (None, _) => {
                self.registry.set_est_time(self.time.now_ns());
                // Refused while the worker has not let go of the slots there are.
                let _ = self.registry.apply(&self.add[usize::from(i)]);
            }
            (Some(_), 0 | 1) => self.registry.apply(&Change::DeleteService { key: key(i) }).unwrap(),
            (Some((born, _)), 2) => {
                self.registry.zero(Some(key(i)));
                self.zeroed.push(born);
            }
            (Some((born, slot)), _) => {
                let Snapshot { totals, .. } = self.est.read(slot).expect("a slot in use");
                // The worker counts, and then says so.
                assert!(totals.inpkts <= self.counted(born) + 2, "{totals:?} of {}", self.counted(born));
            }
        }
    }
}

fn port(i: u16) -> u16 {
    8000 + i
}

fn key(i: u16) -> ServiceKey {
    ServiceKey::new(Proto::Udp, IpAddr::V4(ADDR), port(i))
}

/// A worker: takes the current snapshot, counts in every service of it, sleeps between bursts.
fn worker(
    mut subscriber: Subscriber,
    stats: &WorkerStats,
    slab: &CounterSlab,
    tally: &Tally,
    stop: &AtomicBool,
) {
    while !stop.load(Relaxed) {
        let snapshot = Arc::clone(subscriber.load(stats));
        for service in snapshot.services.iter() {
            crate::sync::point();
            slab.count_in(service.slot, service.slot, BYTES);
            // Destination and service are one slot here: two packets.
            *tally.lock().unwrap().entry(service.born).or_default() += 2;
        }
        drop(snapshot);
        stats.generation.store(QUIESCENT, Release);
        thread::yield_now();
    }
}

/// An estimator thread: turns at the times it asks for, until told to stop.
fn estimate(engine: &mut Engine, time: &mut Time, turns: usize, stop: Option<&AtomicBool>) {
    for _ in 0..turns {
        if stop.is_some_and(|stop| stop.load(Relaxed)) {
            return;
        }
        match engine.turn(time) {
            Next::At(at) => {
                time.0.fetch_max(at, Relaxed);
            }
            Next::Stopped | Next::Unused => unreachable!("thread 0 of running estimation"),
        }
        crate::sync::point();
    }
}

/// Whatever the order, a service shows its own packets: all of them in the end, none of the service whose slot it has, and
/// none of a worker that had not heard of the change.
#[test]
fn a_slot_shows_only_its_own_packets() {
    /// Steps of control in an order; the services fill a few slots, so that slots and blocks come back.
    const STEPS: usize = 12;
    model::check(3_000, || {
        let mut world = World::new();
        let stop = Arc::new(AtomicBool::new(false));
        let slab = world.registry.counters(0);
        let subscriber = world.publisher.subscribe();
        let working = {
            let (stats, tally, stop) =
                (Arc::clone(&world.stats), Arc::clone(&world.tally), Arc::clone(&stop));
            thread::spawn(move || worker(subscriber, &stats, &slab, &tally, &stop))
        };
        let estimating = {
            let (mut engine, mut time) = (Engine::new(Arc::clone(&world.est), 0), world.time.clone());
            let stop = Arc::clone(&stop);
            thread::spawn(move || {
                estimate(&mut engine, &mut time, usize::MAX, Some(&stop));
                engine
            })
        };
        (0..STEPS).for_each(|_| world.step());
        stop.store(true, Relaxed);
        working.join().unwrap();
        let mut engine = estimating.join().unwrap();
        estimate(&mut engine, &mut world.time, 2 * ROWS + 8, None);

        for i in 0..PORTS {
            let Some((born, slot)) = world.find(i) else { continue };
            let Snapshot { totals, passed_ns, .. } = world.est.read(slot).unwrap();
            let counted = world.counted(born);
            assert!(passed_ns.is_some(), "never passed");
            if world.zeroed.contains(&born) {
                // Perhaps from between a packet and its bytes on.
                assert!(totals.inpkts <= counted, "{} of {counted}", totals.inpkts);
            } else {
                assert_eq!(totals.inbytes, totals.inpkts * BYTES);
                assert_eq!(totals.inpkts, counted, "service {i}, born {born}");
            }
        }
        assert!(world.time.now_ns() > TICK_NS);
    });
}

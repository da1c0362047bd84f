//! A worker that works with no port at all, and one with a fault: it counts on a port that it has no queues of.

use std::time::Instant;

use config::Valid;
use crossbeam::channel::bounded;
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dpdk_sys::{CALIBRATION, Eal, EalArgs, PoolConfig, Prefault};

use super::*;

/// Runs one worker that polls `ports` ports and has queues of none; whether it outlives
/// the patience, and what it reported at its start.
fn life_of(eal: &Eal, pool: &Mempool<'_>, ports: usize, patience: Duration) -> (bool, Result<Born, String>) {
    let facts = vec![PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }; ports];
    let mut registry = Registry::new(&Valid::empty(), facts, 1).unwrap();
    let stats = Registry::worker_stats();
    let publisher = Publisher::new(registry.snapshot(), vec![stats.clone()]);
    let ((_to, inbox), (outbox, _from)) = (bounded(1), bounded(1));
    let clock = TscClock::calibrate(CALIBRATION);
    let config = WorkerConfig {
        id: 0,
        steer: Steer::ONE,
        ports,
        conns: 16,
        services: 1,
        hash_key: (1, 2),
        prefault: Prefault::Lazy,
        now_ns: clock.now_ns(),
    };
    let start = Start {
        config,
        cpu: dpdk_sys::allowed_cpus().unwrap().iter().next().unwrap(),
        mode: Mode::Shared,
        nice: 0,
        shared: registry.shared().clone(),
        counters: registry.counters(0),
        stats,
        subscriber: publisher.subscribe(),
        inbox,
        outbox,
        wires: Wires { ports: Vec::new(), peers: Vec::new() },
        pool: pool.clone(),
        eal: eal.handle(),
        clock,
    };
    let life = Arc::new(Life::default());
    std::thread::scope(|scope| {
        let (report, born) = bounded(1);
        spawn(scope, start, Arc::clone(&life), report).unwrap();
        let born = born.recv_timeout(Duration::from_secs(10)).expect("a report");
        let begun = Instant::now();
        while life.is_alive() && begun.elapsed() < patience {
            std::thread::sleep(Duration::from_millis(1));
        }
        let lives = life.is_alive();
        life.stop();
        (lives, born)
    })
}

#[test]
fn eal_a_worker_lives_until_told_to_end_and_a_fault_marks_it_dead() {
    let prefix = format!("weir-test-{}", std::process::id());
    let eal = Eal::start(&EalArgs::new().no_huge().memory_mb(64).no_pci().file_prefix(prefix)).unwrap();
    let pool = Mempool::create(&eal, &PoolConfig::new("test", 1023)).unwrap();
    let (lives, born) = life_of(&eal, &pool, 0, Duration::from_millis(200));
    assert!(lives);
    assert_eq!(born.unwrap().capacity, 16);
    let (lives, born) = life_of(&eal, &pool, 1, Duration::from_secs(30)); // a backtrace takes its time
    assert!(!lives, "a port without queues is a fault");
    assert!(born.is_ok(), "it was well until its first poll");
    assert_eq!(pool.available(), pool.capacity());
}

//! lb: Weir's own worker, as in the daemon, over a core's queue pair of every forwarding port.
//!
//! Control prepares the whole (registry, snapshot, one [`Start`] a core) before a run and keeps it until the end; each
//! core makes its worker itself and polls it without sleeping. Connections begin at none with every start.

use std::fmt::Write as _;
use std::fs::File;
use std::io::Read as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use config::Valid;
use crossbeam::channel::{Receiver, Sender, bounded};
use dataplane::counters::{CounterSlab, WorkerStats};
use dataplane::io::PacketBuf;
use dataplane::limits::BURST;
use dataplane::mailbox::{FromWorker, ToWorker};
use dataplane::publish::{Publisher, Subscriber};
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::verdict::DropReason;
use dataplane::worker::{Shared, Worker, WorkerConfig, WorkerError};
use dpdk_sys::{Mbuf, Prefault, TscClock};

use super::{Plan, PortEnds, Queues, lab};
use crate::ports::PortSlot;
use crate::settings::Settings;

/// What control keeps while cores balance.
pub struct Setup {
    _registry: Registry,
    _publisher: Publisher,
    /// Figures of each core's worker.
    pub figures: Vec<Arc<WorkerStats>>,
    /// One for each core, in order.
    pub starts: Vec<Start>,
}

/// What a core's worker starts with.
pub struct Start {
    config: WorkerConfig,
    shared: Shared,
    counters: Arc<CounterSlab>,
    stats: Arc<WorkerStats>,
    subscriber: Subscriber,
    inbox: Receiver<ToWorker>,
    outbox: Sender<FromWorker>,
}

/// A core's share: its ports and its worker-to-be.
pub struct Core<'p> {
    /// Its ports.
    pub ends: PortEnds<'p>,
    /// Its worker.
    pub start: Start,
}

impl Setup {
    /// Reads the configuration and prepares `cores` workers over the forwarding ports.
    pub fn new(
        settings: &Settings,
        slots: &[PortSlot<'_>],
        cores: usize,
        clock: &TscClock,
    ) -> Result<Setup, String> {
        if usize::from(settings.burst) != BURST {
            return Err(format!("lb: a burst has {BURST} packets, not {}", settings.burst));
        }
        let ports: Vec<_> = settings.forwarding().iter().map(|id| &slots[usize::from(*id)]).collect();
        let devices: Vec<_> = ports.iter().map(|slot| slot.name.as_str()).collect();
        let valid = configuration(settings, &devices)?;
        let mut facts = Vec::new();
        for (slot, wanted) in ports.iter().zip(valid.ports()) {
            let mtu = slot.mtu().map_err(|error| error.to_string())?.min(wanted.mtu);
            facts.push(PortFacts { mac: slot.mac(), mtu });
        }
        Setup::over(&valid, facts, cores, clock.now_ns())
    }

    /// Prepares `cores` workers over ports that turned out to be `facts`.
    pub fn over(valid: &Valid, facts: Vec<PortFacts>, cores: usize, now_ns: u64) -> Result<Setup, String> {
        let ports = facts.len();
        let mut registry =
            Registry::new(valid, facts, cores).map_err(|error| format!("lb: too little memory: {error}"))?;
        registry.set_time(now_ns);
        for change in config::plan(&Valid::empty(), valid).changes {
            registry.apply(&change).map_err(|error| format!("lb: {change}: {error}"))?;
        }
        let figures: Vec<_> = (0..cores).map(|_| Registry::worker_stats()).collect();
        let publisher = Publisher::new(registry.snapshot(), figures.clone());
        let key = random_key().map_err(|error| format!("/dev/urandom: {error}"))?;
        let steer = Steer::keyed(cores, valid.workers().steer, key);
        let mut starts = Vec::new();
        for (id, stats) in figures.iter().enumerate() {
            // Nobody asks these workers anything: the other ends of their channels are gone at once.
            let ((_, inbox), (outbox, _)) = (bounded(1), bounded(1));
            starts.push(Start {
                config: WorkerConfig {
                    id,
                    steer: steer.clone(),
                    ports,
                    conns: connections(valid.connections().max as usize, cores),
                    services: registry.service_indices(),
                    hash_key: random_key().map_err(|error| format!("/dev/urandom: {error}"))?,
                    prefault: Prefault::Now,
                    now_ns,
                },
                shared: registry.shared().clone(),
                counters: registry.counters(id),
                stats: Arc::clone(stats),
                subscriber: publisher.subscribe(),
                inbox,
                outbox,
            });
        }
        Ok(Setup { _registry: registry, _publisher: publisher, figures, starts })
    }
}

impl Start {
    /// Makes the worker, on its core.
    pub fn worker<B: PacketBuf>(self) -> Result<Worker<B>, WorkerError> {
        let Start { config, shared, counters, stats, subscriber, inbox, outbox } = self;
        Worker::new(config, &shared, counters, stats, subscriber, inbox, outbox)
    }
}

impl<'p> Core<'p> {
    /// Balances until told to stop. An error is about memory.
    pub fn run(self, plan: &Plan<'p>, stop: &AtomicBool) -> Result<Queues<'p>, (String, Queues<'p>)> {
        let Core { ends, start } = self;
        let mut io = ends.open();
        let stats = Arc::clone(&start.stats);
        let mut worker = match start.worker::<Mbuf<'p>>() {
            Ok(worker) => worker,
            Err(error) => return Err((format!("lb: {error}"), io.into_queues())),
        };
        let mut counted = 0;
        while !stop.load(Relaxed) {
            worker.poll(plan.clock.now_ns(), &mut io);
            let full = stats.drops_for(DropReason::TxFull);
            io.count_dropped(io.last_full(), full - counted);
            counted = full;
        }
        worker.release_packets();
        Ok(io.into_queues())
    }
}

/// The block that stands behind the forward statistics of lb.
pub fn block(cores: &[u32], figures: &[Arc<WorkerStats>]) -> String {
    let mut text = String::new();
    for (core, stats) in cores.iter().zip(figures) {
        let figures = stats.read();
        let _ = write!(
            text,
            "\n  ---------------------- Balancer on lcore {core:<4} -------------------------------\n  \
             Connections: {:<14} Created: {:<14} Expired: {}\n  \
             Made: {:<14} Consumed: {:<14} Dropped: {}\n",
            figures.conns,
            figures.created,
            figures.expired,
            figures.generated,
            figures.consumed,
            figures.dropped()
        );
        for reason in DropReason::ALL.iter().filter(|reason| figures.drops_for(**reason) > 0) {
            let _ = writeln!(
                text,
                "    {:<20} {:<14} {}",
                reason.name(),
                figures.drops_for(*reason),
                reason.sentence()
            );
        }
        let _ = writeln!(text, "  {}", "-".repeat(76));
    }
    text
}

/// The file's configuration, whose ports must be the forwarding ones in order; or the made-up one.
fn configuration(settings: &Settings, devices: &[&str]) -> Result<Valid, String> {
    let Some(path) = &settings.lb.config else {
        let text = lab::configuration(devices, &settings.lb)?;
        return config::parse(&text, "made up by lb").map_err(|errors| errors.to_string());
    };
    let name = path.display().to_string();
    let text = std::fs::read_to_string(path).map_err(|error| format!("{name}: {error}"))?;
    let valid = config::parse(&text, &name).map_err(|errors| errors.to_string())?;
    let named: Vec<_> =
        valid.ports().iter().map(|port| port.device.split(',').next().unwrap_or_default()).collect();
    if named != devices {
        return Err(format!(
            "{name}: its ports are {}, the forwarding ports are {}; expected the same devices in the same order",
            named.join(", "),
            devices.join(", ")
        ));
    }
    Ok(valid)
}

/// Connections of one worker's table: hashing spreads unevenly, so several get a quarter more.
fn connections(max: usize, cores: usize) -> usize {
    if cores == 1 { max } else { (max / cores) * 5 / 4 }
}

fn random_key() -> std::io::Result<(u64, u64)> {
    let mut bytes = [0; 16];
    File::open("/dev/urandom")?.read_exact(&mut bytes)?;
    let number = u128::from_ne_bytes(bytes);
    Ok((number as u64, (number >> 64) as u64))
}

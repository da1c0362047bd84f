//! The subject: a real worker, made from a configuration text as the daemon makes it, over the feed's ports.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Valid;
use crossbeam::channel;
use dataplane::counters::{CounterSlab, WorkerStats};
use dataplane::io::{Io, PacketBuf};
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::{Prefault, TscClock};

use crate::feed::{L4, MACS, PORTS, SERVERS, VIP};

/// A worker and what keeps it alive.
pub struct Subject<B> {
    /// The worker.
    pub worker: Worker<B>,
    stats: Arc<WorkerStats>,
    counters: Arc<CounterSlab>,
    _control: Option<Box<Control>>,
}

/// What a subject is to be.
#[derive(Clone, Copy, Debug)]
pub struct Rules {
    /// Forwarding method in the configuration's words.
    pub method: &'static str,
    /// Protocol.
    pub l4: L4,
    /// Connections the table holds.
    pub conns: usize,
    /// Timeout of SYN_RECV, seconds.
    pub synrecv: u32,
    /// Servers of the service, of [`SERVERS`].
    pub servers: usize,
    /// Timeout of TIME_WAIT, seconds.
    pub timewait: u32,
}

impl Rules {
    /// One service with four destinations, a small table, the usual timeouts.
    pub fn of(method: &'static str, l4: L4) -> Self {
        Self { method, l4, conns: 4096, synrecv: 60, servers: 4, timewait: 120 }
    }
}

/// The control side of one worker or of several.
pub struct Control {
    rules: Rules,
    steer: Steer,
    registry: Registry,
    publisher: Publisher,
    stats: Vec<Arc<WorkerStats>>,
    now_ns: u64,
}

impl Control {
    /// For as many workers as `steer` knows, under `rules`, from time `now_ns` on.
    pub fn new(rules: Rules, steer: &Steer, now_ns: u64) -> Result<Self, String> {
        let valid = config::parse(&text(rules), "bench.toml").map_err(|e| e.to_string())?;
        let facts = MACS.iter().map(|mac| PortFacts { mac: *mac, mtu: 1500 }).collect();
        let mut registry = Registry::new(&valid, facts, steer.workers()).map_err(|e| e.to_string())?;
        for change in config::plan(&Valid::empty(), &valid).changes {
            registry.apply(&change).map_err(|e| e.to_string())?;
        }
        let stats: Vec<_> = (0..steer.workers()).map(|_| Registry::worker_stats()).collect();
        let publisher = Publisher::new(registry.snapshot(), stats.clone());
        Ok(Self { rules, steer: steer.clone(), registry, publisher, stats, now_ns })
    }

    /// Worker `id`, to be made on its own thread.
    pub fn worker<B: PacketBuf>(&self, id: usize) -> Result<Subject<B>, String> {
        let config = WorkerConfig {
            id,
            steer: self.steer.clone(),
            ports: MACS.len(),
            conns: self.rules.conns,
            services: self.registry.service_indices(),
            hash_key: (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908),
            prefault: Prefault::Now,
            now_ns: self.now_ns,
        };
        let ((_, inbox), (outbox, _)) = (channel::bounded(1), channel::bounded(1));
        let (counters, subscriber) = (self.registry.counters(id), self.publisher.subscribe());
        let stats = Arc::clone(&self.stats[id]);
        let shared = self.registry.shared();
        let worker =
            Worker::new(config, shared, Arc::clone(&counters), Arc::clone(&stats), subscriber, inbox, outbox)
                .map_err(|e| e.to_string())?;
        Ok(Subject { worker, stats, counters, _control: None })
    }
}

impl<B: PacketBuf> Subject<B> {
    /// A worker under `rules` at time `now_ns`.
    pub fn new(rules: Rules, now_ns: u64) -> Result<Self, String> {
        let control = Control::new(rules, &Steer::ONE, now_ns)?;
        let subject = control.worker(0)?;
        Ok(Self { _control: Some(Box::new(control)), ..subject })
    }

    /// Polls until `packets` were received.
    pub fn run_packets<I: Io<Buf = B>>(&mut self, io: &mut I, packets: u64, mut now: impl FnMut() -> u64) {
        let mut done = 0;
        while done < packets {
            done += self.worker.poll(now(), io) as u64;
        }
    }

    /// Polls for `span`; nanoseconds a received packet.
    pub fn sample<I: Io<Buf = B>>(&mut self, io: &mut I, clock: &TscClock, span: Duration) -> f64 {
        self.sample_with(io, clock, span, || {})
    }

    /// The same with `work` after each poll.
    pub fn sample_with<I: Io<Buf = B>>(
        &mut self,
        io: &mut I,
        clock: &TscClock,
        span: Duration,
        mut work: impl FnMut(),
    ) -> f64 {
        let (from, mut packets) = (Instant::now(), 0u64);
        while from.elapsed() < span {
            for _ in 0..256 {
                packets += self.worker.poll(clock.now_ns(), io) as u64;
                work();
            }
        }
        from.elapsed().as_nanos() as f64 / packets.max(1) as f64
    }

    /// The worker's counters.
    pub fn counters(&self) -> Arc<CounterSlab> {
        Arc::clone(&self.counters)
    }

    /// Packets dropped so far, with their reasons, for the check that a row measured forwarding.
    pub fn drops(&self) -> String {
        let figures = self.stats.read();
        let mut text = String::new();
        for reason in dataplane::verdict::DropReason::ALL.iter().filter(|r| figures.drops_for(**r) > 0) {
            let _ = write!(text, "{} {} ", reason.name(), figures.drops_for(*reason));
        }
        text
    }

    /// Connections now in the table.
    pub fn conns(&self) -> usize {
        self.worker.conns().table().len()
    }
}

fn text(rules: Rules) -> String {
    let l4 = if rules.l4 == L4::Tcp { "tcp" } else { "udp" };
    let address = |a: [u8; 4]| std::net::Ipv4Addr::from(a);
    let mut text = format!(
        r#"
[timeouts]
synrecv = {synrecv}
timewait = {timewait}
[connections]
max = {conns}
[[port]]
name = "wan"
device = "net_null0"
addresses = ["192.0.2.1/24"]
gateway = ["192.0.2.254"]
[[port]]
name = "lan"
device = "net_null1"
addresses = ["10.0.0.254/24"]
[[neighbour]]
address = "192.0.2.254"
mac = "02:00:00:00:00:fe"
port = "wan"
[[service]]
address = "{l4}://{vip}:{port}"
scheduler = "rr"
announce = false
"#,
        synrecv = rules.synrecv,
        timewait = rules.timewait,
        conns = rules.conns.max(1024),
        vip = address(VIP),
        port = PORTS.0,
    );
    let dport = if rules.method == "nat" { PORTS.1 } else { PORTS.0 };
    for server in SERVERS.iter().take(rules.servers) {
        let _ = write!(
            text,
            "[[service.destination]]\naddress = \"{}:{dport}\"\nmethod = \"{}\"\n",
            address(*server),
            rules.method
        );
    }
    for (i, server) in SERVERS.into_iter().enumerate() {
        let addr = address(server);
        let _ = write!(
            text,
            "[[neighbour]]\naddress = \"{addr}\"\nmac = \"02:00:00:00:01:0{i}\"\nport = \"lan\"\n"
        );
    }
    text
}

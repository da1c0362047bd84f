//! The subject: a real worker, made from a configuration text as the daemon makes it, over the feed's ports.

use std::fmt::Write as _;
use std::sync::Arc;
use std::time::{Duration, Instant};

use config::Valid;
use crossbeam::channel;
use dataplane::counters::WorkerStats;
use dataplane::io::{Io, PacketBuf};
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::{Prefault, TscClock};

use crate::feed::{L4, MACS, PORTS, SERVERS, VIP};

/// A worker and what keeps it alive.
pub struct Subject<B> {
    /// The worker.
    pub worker: Worker<B>,
    stats: Arc<WorkerStats>,
    _registry: Registry,
    _publisher: Publisher,
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
}

impl<B: PacketBuf> Subject<B> {
    /// A worker under `rules` at time `now_ns`.
    pub fn new(rules: Rules, now_ns: u64) -> Result<Self, String> {
        let valid = config::parse(&text(rules), "bench.toml").map_err(|e| e.to_string())?;
        let facts = MACS.iter().map(|mac| PortFacts { mac: *mac, mtu: 1500 }).collect();
        let mut registry = Registry::new(&valid, facts, 1).map_err(|e| e.to_string())?;
        for change in config::plan(&Valid::empty(), &valid).changes {
            registry.apply(&change).map_err(|e| e.to_string())?;
        }
        let stats = Registry::worker_stats();
        let publisher = Publisher::new(registry.snapshot(), vec![Arc::clone(&stats)]);
        let config = WorkerConfig {
            id: 0,
            ports: MACS.len(),
            conns: rules.conns,
            services: registry.service_indices(),
            hash_key: (0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908),
            prefault: Prefault::Now,
            now_ns,
        };
        let ((_, inbox), (outbox, _)) = (channel::bounded(1), channel::bounded(1));
        let (counters, subscriber) = (registry.counters(0), publisher.subscribe());
        let worker =
            Worker::new(config, registry.shared(), counters, Arc::clone(&stats), subscriber, inbox, outbox)
                .map_err(|e| e.to_string())?;
        Ok(Self { worker, stats, _registry: registry, _publisher: publisher })
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
        let (from, mut packets) = (Instant::now(), 0u64);
        while from.elapsed() < span {
            for _ in 0..256 {
                packets += self.worker.poll(clock.now_ns(), io) as u64;
            }
        }
        from.elapsed().as_nanos() as f64 / packets.max(1) as f64
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
        conns = rules.conns.max(1024),
        vip = address(VIP),
        port = PORTS.0,
    );
    let dport = if rules.method == "nat" { PORTS.1 } else { PORTS.0 };
    for server in SERVERS {
        let _ = write!(
            text,
            "[[service.destination]]\naddress = \"{}:{dport}\"\nmethod = \"{}\"\n",
            address(server),
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

//! `weir replay`: the packets of a capture through the same worker as the daemon's, with the capture's clock.
//!
//! Model: control and worker in one thread, ports in memory, no DPDK. The rules are a configuration file whose
//! devices are not opened. The balancer is taken to be up for a while when the first packet comes: addresses
//! are announced, gateways were asked for. Same rules and capture, same output, byte for byte.

use std::fs::File;
use std::io::{self, BufReader, BufWriter, Write};
use std::path::Path;
use std::sync::Arc;

use config::Valid;
use crossbeam::channel::bounded;
use dataplane::counters::{WorkerFigures, WorkerStats};
use dataplane::io::PortIndex;
use dataplane::io::mem::{MemBuf, MemIo};
use dataplane::io::pcap::{self, Frame, Step};
use dataplane::limits::HOUSEKEEPING_NS;
use dataplane::publish::Publisher;
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dataplane::verdict::DropReason;
use dataplane::worker::{Worker, WorkerConfig};
use dpdk_sys::Prefault;

use crate::args::ReplayArgs;
use crate::check;
use crate::failure::{Exit, Failure, tell};
use crate::show::packet;

/// Buffers of the ports in memory: more than a worker ever holds.
const BUFFERS: usize = 4096;
/// Longest frame that the ports in memory take, bytes.
const FRAME_BYTES_MAX: usize = 2048;
/// Time before the first packet: announcements of addresses take five seconds.
const BEFORE_NS: u64 = 6_000_000_000;
/// Time after the last packet: what waits for a turn of the worker leaves.
const AFTER_NS: u64 = 10 * HOUSEKEEPING_NS;
/// Key of the flow hash: fixed, for equal output.
const HASH_KEY: (u64, u64) = (0x7765_6972, 0x7265_706c_6179);

/// `weir replay`.
pub fn replay(args: &ReplayArgs) -> Exit {
    let valid = match check::load(&args.rules) {
        Ok(valid) => valid,
        Err(error) => return check::report(&error),
    };
    match run(args, &valid) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            tell(&failure);
            failure.exit
        }
    }
}

fn run(args: &ReplayArgs, valid: &Valid) -> Result<(), Failure> {
    if args
        .output
        .canonicalize()
        .is_ok_and(|output| args.input.canonicalize().is_ok_and(|input| input == output))
    {
        let why = "it is the capture that is read, and would be overwritten; name another file";
        return Err(Failure::usage(args.output.display().to_string(), why));
    }
    let frames = read(&args.input)?;
    let names: Vec<&str> = valid.ports().iter().map(|port| port.name.as_str()).collect();
    let mut balancer = Balancer::new(valid, frames.first().map_or(0, |frame| frame.time_ns))?;
    let mut out = Vec::new();
    let mut trace = args.trace.then(|| Trace::new(&names, frames.first().map_or(0, |frame| frame.time_ns)));
    balancer.pass(&frames, |step, before, after| {
        if let Some(trace) = &mut trace {
            trace.print(step, before, after);
        }
        out.extend(
            step.sent.iter().map(|(_, bytes)| Frame { time_ns: step.frame.time_ns, bytes: bytes.clone() }),
        );
    });
    let last_ns = frames.last().map_or(0, |frame| frame.time_ns) + AFTER_NS;
    out.extend(balancer.io.drain().into_iter().map(|(_, bytes)| Frame { time_ns: last_ns, bytes }));
    write(&args.output, &out)?;
    let figures = balancer.stats.read();
    tell(summary(frames.len(), out.len(), &figures).trim_end());
    if figures.drops_for(DropReason::L2NotOurs) > 0 {
        tell(address_hint(valid, &frames).trim_end());
    }
    Ok(())
}

/// Control and worker of a replay.
struct Balancer {
    registry: Registry,
    /// Keeps the snapshot that the worker reads.
    _publisher: Publisher,
    worker: Worker<MemBuf>,
    stats: Arc<WorkerStats>,
    io: MemIo,
}

impl Balancer {
    /// The balancer of this configuration, ready when the first packet comes at `first_ns`.
    fn new(valid: &Valid, first_ns: u64) -> Result<Balancer, Failure> {
        let memory = |error: &dyn std::fmt::Display| Failure::environment("too little memory", error);
        let mut now_ns = first_ns.saturating_sub(BEFORE_NS);
        let facts = valid
            .ports()
            .iter()
            .enumerate()
            .map(|(index, port)| PortFacts { mac: mac(index, port), mtu: port.mtu });
        let mut registry = Registry::new(valid, facts.collect(), 1).map_err(|error| memory(&error))?;
        registry.set_time(now_ns);
        for change in config::plan(&Valid::empty(), valid).changes {
            registry.apply(&change).map_err(|error| Failure::usage(format!("rules: {change}"), error))?;
        }
        let stats = Registry::worker_stats();
        let publisher = Publisher::new(registry.snapshot(), vec![Arc::clone(&stats)]);
        let config = WorkerConfig {
            id: 0,
            steer: Steer::ONE,
            ports: valid.ports().len(),
            conns: valid.connections().max as usize,
            services: registry.service_indices(),
            hash_key: HASH_KEY,
            prefault: Prefault::Lazy,
            now_ns,
        };
        // Nobody sends messages to this worker.
        let ((_, inbox), (outbox, _)) = (bounded(1), bounded(1));
        let (counters, subscriber) = (registry.counters(0), publisher.subscribe());
        let mut worker =
            Worker::new(config, registry.shared(), counters, Arc::clone(&stats), subscriber, inbox, outbox)
                .map_err(|error| memory(&error))?;
        let mut io = MemIo::new(valid.ports().len(), BUFFERS);
        while now_ns < first_ns {
            worker.poll(now_ns, &mut io);
            io.drain();
            now_ns += HOUSEKEEPING_NS;
        }
        Ok(Balancer { registry, _publisher: publisher, worker, stats, io })
    }

    /// Passes the packets; `each` gets the figures before and after a packet.
    fn pass(&mut self, frames: &[Frame], mut each: impl FnMut(&Step<'_>, &WorkerFigures, &WorkerFigures)) {
        let mut before = self.stats.read();
        pcap::replay(
            &mut self.worker,
            &mut self.io,
            self.registry.net(),
            frames,
            AFTER_NS,
            |worker, step| {
                let after = worker.stats().read();
                each(&step, &before, &after);
                before = after;
            },
        );
    }
}

/// What became of each packet, a line each.
struct Trace<'a> {
    ports: &'a [&'a str],
    first_ns: u64,
    out: io::StdoutLock<'static>,
}

impl<'a> Trace<'a> {
    fn new(ports: &'a [&'a str], first_ns: u64) -> Trace<'a> {
        Trace { ports, first_ns, out: io::stdout().lock() }
    }

    fn print(&mut self, step: &Step<'_>, before: &WorkerFigures, after: &WorkerFigures) {
        let name = |port: PortIndex| self.ports.get(usize::from(port)).copied().unwrap_or("?");
        let time = step.frame.time_ns.saturating_sub(self.first_ns) as f64 / 1e9;
        let sent: String = step
            .sent
            .iter()
            .map(|(port, bytes)| format!("; {} out {}", name(*port), packet::line(bytes)))
            .collect();
        // A reader that has gone (`| head`) is no failure: the capture is still written.
        let _ = writeln!(
            self.out,
            "{} {time:.6} {} in {} => {}{sent}",
            step.number,
            name(step.port),
            packet::line(&step.frame.bytes),
            decision(before, after)
        );
    }
}

/// What the worker's figures say that it did.
fn decision(before: &WorkerFigures, after: &WorkerFigures) -> String {
    let mut words: Vec<String> = DropReason::ALL
        .iter()
        .filter(|reason| after.drops_for(**reason) > before.drops_for(**reason))
        .map(|reason| format!("dropped {}", reason.name()))
        .collect();
    let facts = [
        (after.created > before.created, "new connection"),
        (after.expired > before.expired, "a connection expired before"),
        (after.consumed > before.consumed, "consumed"),
        (after.parked > before.parked, "waits for the next hop's MAC address"),
    ];
    words.extend(facts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, word)| word.to_owned()));
    let forwarded = (after.tx - before.tx).saturating_sub(after.generated - before.generated) > 0;
    if forwarded {
        words.push("forwarded".to_owned());
    }
    if words.is_empty() { "nothing".to_owned() } else { words.join(", ") }
}

fn read(path: &Path) -> Result<Vec<Frame>, Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::usage(path.display().to_string(), why);
    let file = File::open(path).map_err(|error| failed(&error))?;
    let frames = pcap::read(BufReader::new(file)).map_err(|error| failed(&error))?;
    match frames.iter().position(|frame| frame.bytes.len() > FRAME_BYTES_MAX) {
        Some(at) => Err(failed(&format!(
            "packet {} has {} bytes, at most {FRAME_BYTES_MAX} are taken",
            at + 1,
            frames[at].bytes.len()
        ))),
        None => Ok(frames),
    }
}

fn write(path: &Path, frames: &[Frame]) -> Result<(), Failure> {
    let failed = |why: &dyn std::fmt::Display| Failure::run(path.display().to_string(), why);
    let mut file = BufWriter::new(File::create(path).map_err(|error| failed(&error))?);
    pcap::write(&mut file, frames).map_err(|error| failed(&error))?;
    file.flush().map_err(|error| failed(&error))
}

/// The port's MAC address: the configured one, else one made of its number.
fn mac(index: usize, port: &config::Port) -> [u8; 6] {
    port.mac.map_or([2, 0, 0, 0, 0, index as u8 + 1], |mac| mac.0)
}

fn summary(received: usize, sent: usize, figures: &WorkerFigures) -> String {
    let mut text = format!("{received} packets in, {sent} out, {} dropped\n", figures.dropped());
    for reason in DropReason::ALL {
        match figures.drops_for(*reason) {
            0 => {}
            count => text += &format!("  {count} {}: {}\n", reason.name(), reason.sentence()),
        }
    }
    text
}

/// Frames that are for none of the ports: which addresses they are for, and what to write into the rules.
fn address_hint(valid: &Valid, frames: &[Frame]) -> String {
    let ours: Vec<[u8; 6]> = valid.ports().iter().enumerate().map(|(index, port)| mac(index, port)).collect();
    let mut strangers: Vec<[u8; 6]> = frames
        .iter()
        .filter_map(|frame| <[u8; 6]>::try_from(frame.bytes.get(..6)?).ok())
        .filter(|to| to[0] & 1 == 0 && !ours.contains(to))
        .collect();
    strangers.sort_unstable();
    strangers.dedup();
    let list = |macs: &[[u8; 6]]| {
        macs.iter().take(4).map(|m| config::Mac(*m).to_string()).collect::<Vec<_>>().join(", ")
    };
    format!(
        "hint: frames are for {}, the ports have {}: set `mac` in [[port]] to the address that the balancer had\n",
        list(&strangers),
        list(&ours)
    )
}

#[cfg(test)]
mod tests;

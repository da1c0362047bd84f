//! `make bench`: nanoseconds a packet of the worker's loop, beside DPDK's testpmd in the same run.
//!
//! The subject is the `poll` of `weir run` with counters, states, timers and the keyed hash on, over an in-process
//! feed ([`feed`]). Each round takes a sample of the reference, of the feed alone (`path.gen`) and of the subject, on
//! the same CPU in turns; a row's value is the median of (subject - feed), its ratio that value over the median of the
//! reference, testpmd's 5tswap on net_null with its receive and transmit. Frames that the subject sends are checked by
//! an independent decoder, one in 4096. `ROWS=pattern` chooses rows, `QUICK=1` takes short samples.

#![forbid(unsafe_code)]

mod compare;
mod conns;
mod est;
mod feed;
mod instructions;
mod memif;
mod memory;
mod plain;
mod reference;
mod report;
mod scale;
mod stages;
mod subject;
mod timers;
mod veth;

use std::path::Path;
use std::time::{Duration, Instant};

use dataplane::io::{Burst, Io};
use dpdk_sys::{CALIBRATION, CpuSet, Eal, EalArgs, Mbuf, Mempool, PoolConfig, Tid, TscClock, allowed_cpus};

use feed::{Feed, Frames, L4, Pattern};
use reference::Testpmd;
use report::{Machine, Row};
use subject::{Rules, Subject};

/// Name of the reference in the table.
const REFERENCE: &str = "dpdk-testpmd 5tswap, net_null";
/// mbufs of the feeds: a burst in each place, rings between two workers, and the pool's caches.
const MBUFS: u32 = 16_383;

/// Everything a row needs.
struct Bench<'eal> {
    pool: Mempool<'eal>,
    clock: TscClock,
    testpmd: Result<Testpmd, String>,
    /// The CPU that everything is measured on.
    cpu: usize,
    /// A CPU besides.
    other_cpu: Option<usize>,
    rounds: usize,
    span: Duration,
    rows: Vec<Row>,
    only: String,
}

/// A group of `path` rows, one for each of [`SIZES`].
#[derive(Clone, Copy)]
struct Path4 {
    id: &'static str,
    method: &'static str,
    l4: L4,
}

const PATHS: [Path4; 3] = [
    Path4 { id: "path.nat4", method: "nat", l4: L4::Tcp },
    Path4 { id: "path.dr4", method: "dr", l4: L4::Tcp },
    Path4 { id: "path.nat4udp", method: "nat", l4: L4::Udp },
];

/// Flows of the `path` rows, with what others take for a packet at about as many, nanoseconds, on a machine of this kind:
/// kernel IPVS 6.12 (NAT, the whole way from a veth pair to another), katran's XDP program alone.
const SIZES: [(&str, u32, &str); 4] = [
    ("1k", 1_000, "kernel IPVS 960, katran 127"),
    ("100k", 100_000, "kernel IPVS 1118, katran 258-273"),
    ("1m", 1_000_000, "kernel IPVS 1312, katran 258-273"),
    ("10m", 10_000_000, ""),
];

fn main() {
    let mut args = std::env::args().skip(1);
    let result = match args.next().as_deref() {
        Some("--count") => instructions::run_counted(args),
        Some("--memory") => memory::run_filled(args),
        Some("--worst") => timers::run_worst(),
        Some("--diff") => compare::run(args),
        _ => run(),
    };
    if let Err(error) = result {
        eprintln!("bench: {error}");
        std::process::exit(1);
    }
}

fn run() -> Result<(), String> {
    let quick = std::env::var("QUICK").is_ok_and(|v| !v.is_empty() && v != "0");
    let cpus = allowed_cpus().map_err(|e| format!("allowed CPUs: {e}"))?;
    let (main_cpu, cpu) = match (cpus.iter().next(), cpus.iter().next_back()) {
        (Some(first), Some(last)) => (first, last),
        _ => return Err("no CPU to run on".into()),
    };
    let args = EalArgs::new().memory_mb(128).no_pci().main_cpu(main_cpu);
    let eal = Eal::start(&args).map_err(|e| e.to_string())?;
    let pool = Mempool::create(&eal, &PoolConfig::new("bench", MBUFS)).map_err(|e| e.to_string())?;
    pin(&[cpu])?;
    let mut bench = Bench {
        pool,
        clock: TscClock::calibrate(CALIBRATION),
        testpmd: Testpmd::start(main_cpu, cpu),
        cpu,
        other_cpu: Some(main_cpu).filter(|&other| other != cpu),
        rounds: if quick { 3 } else { 9 },
        span: Duration::from_millis(if quick { 100 } else { 250 }),
        rows: Vec::new(),
        only: std::env::var("ROWS").unwrap_or_default(),
    };
    if let Err(why) = &bench.testpmd {
        eprintln!("bench: no reference, ratios are left out: {why}");
    }
    let machine = machine(&eal, &bench);
    println!("{} x {}, {}, packet memory: {}", machine.cpus, machine.cpu, machine.kernel, machine.pages);
    println!("CPU {cpu}; {} rounds of {} ms; medians\n", bench.rounds, bench.span.as_millis());
    report::head();
    bench.gen_row()?;
    for path in PATHS {
        for (size, flows, others) in SIZES {
            bench.path_row(path, size, flows, others)?;
        }
    }
    stages::rows(&mut bench)?;
    conns::rows(&mut bench)?;
    scale::rows(&mut bench, &eal)?;
    timers::rows(&mut bench)?;
    memory::rows(&mut bench)?;
    memif::rows(&mut bench, &eal)?;
    veth::rows(&mut bench)?;
    instructions::rows(&mut bench)?;
    est::rows(&mut bench)?;
    let path = Path::new("target/bench/summary.json");
    report::write(path, &bench.rows, &machine).map_err(|e| format!("{}: {e}", path.display()))?;
    println!("\n{}", path.display());
    Ok(())
}

impl<'eal> Bench<'eal> {
    fn wants(&self, id: &str) -> bool {
        id.contains(&self.only) || glob(&self.only, id)
    }

    fn feed(&self, l4: L4, flows: u32) -> Feed<'eal> {
        Feed::new(self.pool.clone(), Frames::new(l4, flows))
    }

    fn push(&mut self, row: Row) {
        report::line(&row);
        self.rows.push(row);
    }

    fn reference(&mut self) -> Result<Option<f64>, String> {
        let span = self.span;
        match &mut self.testpmd {
            Ok(testpmd) => testpmd.sample(span).map(Some),
            Err(_) => Ok(None),
        }
    }

    /// The feed alone, and our own 5tswap over it for information.
    fn gen_row(&mut self) -> Result<(), String> {
        if !self.wants("path.gen") && !self.wants("path.5tswap") {
            return Ok(());
        }
        let mut feed = self.feed(L4::Tcp, 1_000);
        feed.frames.start(Pattern::BothWays);
        let (mut alone, mut swapped, mut reference) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..self.rounds {
            reference.extend(self.reference()?);
            alone.push(pass(&mut feed, self.span, |_| {}));
            swapped.push(pass(&mut feed, self.span, swap));
        }
        let net = swapped.iter().zip(&alone).map(|(s, a)| s - a).collect();
        self.row("path.gen", alone, reference.clone());
        self.row("path.5tswap", net, reference);
        Ok(())
    }

    fn path_row(&mut self, row: Path4, size: &str, flows: u32, others: &str) -> Result<(), String> {
        let id = format!("{}.{size}", row.id);
        if !self.wants(&id) {
            return Ok(());
        }
        let (mut subject, mut feed) = self.established(row.method, row.l4, flows)?;
        let mut alone = self.feed(row.l4, flows);
        let pattern = if row.method == "nat" { Pattern::BothWays } else { Pattern::Requests };
        feed.frames.start(pattern);
        alone.frames.start(pattern);
        let (mut net, mut reference) = (Vec::new(), Vec::new());
        subject.sample(&mut feed, &self.clock, self.span);
        for _ in 0..self.rounds {
            reference.extend(self.reference()?);
            let idle = pass(&mut alone, self.span, |_| {});
            net.push(subject.sample(&mut feed, &self.clock, self.span) - idle);
        }
        check(&id, &subject, &feed)?;
        let mut row = measured(&id, net, reference);
        if !others.is_empty() {
            row.reference = format!("{REFERENCE}; others: {others}");
        }
        self.push(row);
        Ok(())
    }

    /// A subject whose `flows` connections are established.
    fn established(
        &self,
        method: &'static str,
        l4: L4,
        flows: u32,
    ) -> Result<(Subject<Mbuf<'eal>>, Feed<'eal>), String> {
        let rules = Rules { conns: (flows as usize * 5 / 4).max(4096), ..Rules::of(method, l4) };
        let mut subject = Subject::new(rules, self.clock.now_ns())?;
        let mut feed = self.feed(l4, flows);
        let whole = u64::from(flows).next_multiple_of(32);
        // For UDP these are just a datagram each way.
        let steps: &[Pattern] =
            if method == "nat" { &[Pattern::Syn, Pattern::SynAck] } else { &[Pattern::Syn] };
        for pattern in steps {
            feed.frames.start(*pattern);
            subject.run_packets(&mut feed, whole, || self.clock.now_ns());
        }
        feed.frames.start(Pattern::Requests);
        subject.run_packets(&mut feed, 2 * whole, || self.clock.now_ns());
        if subject.conns() < flows as usize {
            return Err(format!("{} of {flows} connections made; {}", subject.conns(), subject.drops()));
        }
        Ok((subject, feed))
    }

    fn row(&mut self, id: &str, samples: Vec<f64>, reference: Vec<f64>) {
        self.push(measured(id, samples, reference));
    }
}

/// Lets this thread, and what it starts, run on these CPUs only.
fn pin(cpus: &[usize]) -> Result<(), String> {
    let set = cpus.iter().copied().collect::<CpuSet>();
    Tid::current().set_affinity(&set).map_err(|e| format!("CPUs {cpus:?}: {e}"))
}

/// The row of some samples beside those of testpmd.
fn measured(id: &str, mut samples: Vec<f64>, mut reference: Vec<f64>) -> Row {
    let (value, spread) = report::median(&mut samples);
    let reference_value = (!reference.is_empty()).then(|| report::median(&mut reference).0);
    Row {
        value,
        unit: "ns/packet",
        reference: REFERENCE.into(),
        reference_value,
        ratio: reference_value.map(|r| value / r),
        spread,
        ..Row::new(id)
    }
}

/// A row that dropped packets or sent wrong ones measured something else.
fn check(id: &str, subject: &Subject<Mbuf<'_>>, feed: &Feed<'_>) -> Result<(), String> {
    let drops = subject.drops();
    if !drops.is_empty() {
        return Err(format!("{id}: the subject dropped packets: {drops}"));
    }
    if feed.kept.is_empty() {
        return Err(format!("{id}: no frame was sent"));
    }
    for frame in &feed.kept {
        match tests::check::decode(frame) {
            Ok(decoded) if decoded.is_valid() => {}
            other => return Err(format!("{id}: a sent frame is wrong: {other:?}")),
        }
    }
    Ok(())
}

/// Bursts straight from the feed back to it, with `work` on each frame; nanoseconds a packet.
fn pass(feed: &mut Feed<'_>, span: Duration, mut work: impl FnMut(&mut [u8])) -> f64 {
    let mut queue = Burst::new();
    let (from, mut packets) = (Instant::now(), 0u64);
    while from.elapsed() < span {
        for _ in 0..256 {
            for port in 0..2 {
                feed.rx(port, &mut queue);
                packets += queue.len() as u64;
                for mbuf in queue.iter_mut() {
                    work(mbuf.data_mut());
                }
                feed.tx(port, &mut queue);
            }
        }
    }
    from.elapsed().as_nanos() as f64 / packets as f64
}

/// testpmd's 5tswap: MAC addresses, IPv4 addresses and ports change places.
fn swap(frame: &mut [u8]) {
    let Some(frame) = frame.first_chunk_mut::<38>() else { return };
    for (a, b, n) in [(0, 6, 6), (26, 30, 4), (34, 36, 2)] {
        for i in 0..n {
            frame.swap(a + i, b + i);
        }
    }
}

/// Whether `text` matches a pattern with `*` in it.
fn glob(pattern: &str, text: &str) -> bool {
    match pattern.split_once('*') {
        None => pattern == text,
        Some((head, rest)) => text
            .strip_prefix(head)
            .is_some_and(|text| (0..=text.len()).any(|i| text.is_char_boundary(i) && glob(rest, &text[i..]))),
    }
}

fn machine(eal: &Eal, bench: &Bench<'_>) -> Machine {
    let read = |path: &str| std::fs::read_to_string(path).unwrap_or_default();
    let cpuinfo = read("/proc/cpuinfo");
    let model = cpuinfo.lines().find_map(|l| l.strip_prefix("model name")?.split_once(": "));
    Machine {
        cpu: model.map_or("unknown CPU".into(), |(_, name)| name.into()),
        cpus: cpuinfo.lines().filter(|l| l.starts_with("processor")).count(),
        kernel: read("/proc/sys/kernel/osrelease").trim().into(),
        pages: eal.pages().to_string(),
        tsc_hz: bench.clock.hz(),
        samples: bench.rounds,
    }
}

//! Two workers: what a hand-off costs, and how much more than one worker two forward, each on a CPU of its own.
//!
//! The feeds make packets of flows with one client list each: a worker's own clients (`local`), or everybody's, half of
//! which are the other worker's. Rates are gross, the feed included on both sides of a ratio. Rings are the daemon's.

use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::Instant;

use arrayvec::ArrayVec;
use dataplane::counters::WorkerFigures;
use dataplane::io::{Burst, Io, PortIndex};
use dataplane::limits::ring_size;
use dataplane::steer::{By, Steer};
use dataplane::verdict::DropReason;
use dpdk_sys::{CpuSet, Eal, HandoffRx, HandoffTx, LcoreToken, Mbuf, Tid, handoff};

use crate::feed::{Feed, Frames, L4, Pattern};
use crate::report::{Row, median};
use crate::subject::{Control, Rules, Subject};
use crate::{Bench, pass, swap};

/// Clients of a list, 16 flows each.
const CLIENTS: u32 = 512;
/// First client's address.
const FIRST: u32 = 0x6440_0000;
/// Share of packets that may be lost to full rings before a round is void: the machine took a CPU away.
const LOSS_MAX: f64 = 0.02;

/// A feed and the rings to the other worker.
struct Ports<'eal> {
    feed: Feed<'eal>,
    ring: Option<(HandoffTx<'eal>, HandoffRx<'eal>)>,
    /// Feeds nothing.
    silent: bool,
}

impl<'eal> Io for Ports<'eal> {
    type Buf = Mbuf<'eal>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'eal>>) {
        if !self.silent {
            self.feed.rx(port, burst);
        }
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        self.feed.tx(port, queue);
    }

    fn alloc(&mut self) -> Option<Mbuf<'eal>> {
        self.feed.alloc()
    }

    #[inline]
    fn expect(&self, _: usize) {
        if let Some((to, from)) = &self.ring {
            from.prefetch();
            to.prefetch();
        }
    }

    #[inline]
    fn hand_over<const N: usize>(&mut self, _: usize, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        if let Some((to, _)) = &mut self.ring {
            to.send(queue);
        }
    }

    #[inline]
    fn take_over(&mut self, _: usize, burst: &mut Burst<Mbuf<'eal>>) {
        if let Some((_, from)) = &mut self.ring {
            from.receive(burst);
        }
    }
}

/// Which clients a worker's feed has.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Clients {
    Own,
    Others,
    All,
}

const ROWS: [(&str, &str, Clients); 3] = [
    ("scale.2.dr", "dr", Clients::All),
    ("scale.2.nat", "nat", Clients::All),
    ("scale.2.local", "nat", Clients::Own),
];

/// Rows `handoff` and `scale.2.*`.
pub fn rows<'eal>(bench: &mut Bench<'eal>, eal: &'eal Eal) -> Result<(), String> {
    handoff_row(bench, eal)?;
    let cpus: Vec<usize> = std::iter::once(bench.cpu).chain(bench.other_cpu).collect();
    let wanted = ROWS.iter().any(|(id, ..)| bench.wants(id));
    let cores = wanted.then(|| two_cores(bench, eal, &cpus)).transpose()?.flatten();
    let reference = match cores {
        Some(times) => {
            format!("one worker, Mpps with its feed; two cores with a 5tswap each: {times:.2} times one")
        }
        None => "one worker, Mpps with its feed".into(),
    };
    for (id, method, clients) in ROWS {
        if !bench.wants(id) {
            continue;
        }
        if cpus.len() < 2 {
            eprintln!("bench: {id} left out: it needs two CPUs");
            continue;
        }
        let (mut ratios, mut alone) = (Vec::new(), Vec::new());
        for round in 0..bench.rounds {
            let one = rate(bench, eal, method, Clients::Own, &cpus[..1], &format!("{id}{round}a"))?;
            let two = rate(bench, eal, method, clients, &cpus, &format!("{id}{round}b"))?;
            if let (Some(one), Some(two)) = (one, two) {
                ratios.push(two / one);
                alone.push(one);
            }
        }
        if ratios.len() * 2 <= bench.rounds {
            eprintln!("bench: {id} is void: rings ran over in most rounds, something else has a CPU");
            continue;
        }
        let (value, spread) = median(&mut ratios);
        bench.push(Row {
            id: id.into(),
            value,
            unit: "times",
            reference: reference.clone(),
            reference_value: Some(median(&mut alone).0 / 1e6),
            ratio: None,
            spread,
        });
    }
    Ok(())
}

/// How many times one core's packets two cores of this machine do that share nothing: feeds and our 5tswap.
fn two_cores<'eal>(bench: &Bench<'eal>, eal: &'eal Eal, cpus: &[usize]) -> Result<Option<f64>, String> {
    if cpus.len() < 2 {
        return Ok(None);
    }
    let rate = |cpus: &[usize]| -> Result<f64, String> {
        let (barrier, span, handle) = (Barrier::new(cpus.len()), bench.span, eal.handle());
        let work = |cpu: usize, pool: dpdk_sys::Mempool<'eal>| -> Result<f64, String> {
            Tid::current().set_affinity(&CpuSet::from_iter([cpu])).map_err(|e| e.to_string())?;
            let lcore = LcoreToken::register(handle).map_err(|e| e.to_string());
            let mut feed = Feed::new(pool, Frames::new(L4::Tcp, 16 * CLIENTS));
            feed.frames.start(Pattern::BothWays);
            barrier.wait();
            lcore.map(|_lcore| 1e9 / pass(&mut feed, span, swap))
        };
        std::thread::scope(|scope| {
            let spawn = |&cpu| {
                let (pool, work) = (bench.pool.clone(), &work);
                scope.spawn(move || work(cpu, pool))
            };
            let threads: Vec<_> = cpus.iter().map(spawn).collect();
            let rates = threads.into_iter().map(|t| t.join().map_err(|_| "a feed panicked".to_owned())?);
            rates.sum()
        })
    };
    let mut times = Vec::new();
    for _ in 0..bench.rounds {
        let one = rate(&cpus[..1])?;
        times.push(rate(cpus)? / one);
    }
    Ok(Some(median(&mut times).0))
}

/// What a packet costs more when it arrives at the other worker, both on one CPU: steering, two ring operations a burst,
/// a second parse. The transfer of cache lines between CPUs is in the `scale` rows.
fn handoff_row<'eal>(bench: &mut Bench<'eal>, eal: &'eal Eal) -> Result<(), String> {
    const ID: &str = "handoff";
    if !bench.wants(ID) {
        return Ok(());
    }
    let steer = Steer::keyed(2, By::Client, (3, 0x9E37_79B9_7F4A_7C15));
    let mut rings = rings(eal, ID)?;
    let control = Control::new(rules("nat"), &steer, bench.clock.now_ns())?;
    let mut ports = Vec::new();
    for (id, ring) in rings.iter_mut().enumerate() {
        let frames = Frames::of_clients(L4::Tcp, clients(&steer, id, Clients::Own));
        ports.push(Ports { feed: Feed::new(bench.pool.clone(), frames), ring: ring.take(), silent: false });
    }
    let mut workers: Vec<Subject<Mbuf<'eal>>> =
        (0..2).map(|id| control.worker(id)).collect::<Result<_, _>>()?;
    let clock = bench.clock;
    for (worker, ports) in workers.iter_mut().zip(&mut ports) {
        open(worker, ports, || clock.now_ns());
    }
    ports[1].silent = true;
    let (mut own, mut foreign) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        for (which, samples) in [(Clients::Own, &mut own), (Clients::Others, &mut foreign)] {
            ports[0].feed.frames = Frames::of_clients(L4::Tcp, clients(&steer, 0, which));
            ports[0].feed.frames.start(Pattern::BothWays);
            let (from, before) = (Instant::now(), ports[0].feed.sent + ports[1].feed.sent);
            while from.elapsed() < bench.span {
                for _ in 0..128 {
                    for (worker, ports) in workers.iter_mut().zip(&mut ports) {
                        worker.worker.poll(clock.now_ns(), ports);
                    }
                }
            }
            let packets = ports[0].feed.sent + ports[1].feed.sent - before;
            samples.push(from.elapsed().as_nanos() as f64 / packets.max(1) as f64);
        }
    }
    for worker in &workers {
        let drops = worker.drops();
        if !drops.is_empty() {
            return Err(format!("{ID}: packets were dropped: {drops}"));
        }
    }
    let reference = bench.reference()?.into_iter().collect();
    let net = foreign.iter().zip(&own).map(|(foreign, own)| foreign - own).collect();
    bench.row(ID, net, reference);
    Ok(())
}

fn rules(method: &'static str) -> Rules {
    Rules { conns: 4 * 16 * CLIENTS as usize, servers: 1, ..Rules::of(method, L4::Tcp) }
}

/// Clients of a feed at worker `id`.
fn clients(steer: &Steer, id: usize, which: Clients) -> Vec<u32> {
    let fits = |client: &u32| match which {
        Clients::Own => steer.owner((*client, 0)) == id,
        Clients::Others => steer.owner((*client, 0)) != id,
        Clients::All => true,
    };
    (FIRST..).filter(fits).take(CLIENTS as usize).collect()
}

/// The connections of everything that the feed may bring and the worker owns.
fn open<'eal>(worker: &mut Subject<Mbuf<'eal>>, ports: &mut Ports<'eal>, now: impl Fn() -> u64) {
    let whole = u64::from(16 * CLIENTS);
    for pattern in [Pattern::Syn, Pattern::Requests, Pattern::Requests] {
        ports.feed.frames.start(pattern);
        worker.run_packets(ports, whole, &now);
    }
}

type RingEnds<'eal> = Option<(HandoffTx<'eal>, HandoffRx<'eal>)>;

/// Both workers' ends of the two rings between them.
fn rings<'eal>(eal: &'eal Eal, label: &str) -> Result<[RingEnds<'eal>; 2], String> {
    let ring = |name: &str| {
        handoff(eal, &format!("{label}{name}"), ring_size(2) as u32, None).map_err(|e| e.to_string())
    };
    let ((to_1, from_0), (to_0, from_1)) = (ring("x")?, ring("y")?);
    Ok([Some((to_1, from_1)), Some((to_0, from_0))])
}

/// Packets a second that as many workers as `cpus` send, each fed on its own CPU; `None` when too many were lost to full
/// rings.
fn rate<'eal>(
    bench: &Bench<'eal>,
    eal: &'eal Eal,
    method: &'static str,
    which: Clients,
    cpus: &[usize],
    label: &str,
) -> Result<Option<f64>, String> {
    let count = cpus.len();
    let steer = if count == 1 { Steer::ONE } else { Steer::keyed(2, By::Client, (3, 0x9E37_79B9_7F4A_7C15)) };
    let control = Control::new(rules(method), &steer, bench.clock.now_ns())?;
    let mut rings = if count == 1 { [None, None] } else { rings(eal, label)? };
    let (barrier, sent, measured) = (Barrier::new(count), AtomicU64::new(0), AtomicUsize::new(0));
    let pattern = if method == "nat" { Pattern::BothWays } else { Pattern::Requests };
    let (span, clock, handle) = (bench.span, bench.clock, eal.handle());
    let work =
        |id: usize, pool: dpdk_sys::Mempool<'eal>, ring: RingEnds<'eal>| -> Result<WorkerFigures, String> {
            Tid::current().set_affinity(&CpuSet::from_iter([cpus[id]])).map_err(|e| e.to_string())?;
            let lcore = LcoreToken::register(handle).map_err(|e| e.to_string());
            let made = lcore.and_then(|lcore| Ok((lcore, control.worker::<Mbuf<'_>>(id)?)));
            let frames = |which| Frames::of_clients(L4::Tcp, clients(&steer, id, which));
            let mut ports = Ports { feed: Feed::new(pool, frames(Clients::Own)), ring, silent: false };
            // Whoever fails still meets the other one here.
            let mut made = made.map(|(lcore, mut worker)| {
                open(&mut worker, &mut ports, || clock.now_ns());
                (lcore, worker)
            });
            barrier.wait();
            measured.fetch_add(usize::from(made.is_err()), Relaxed);
            let (_, worker) = made.as_mut().map_err(|why| why.clone())?;
            // A list of all holds only clients whose connections some worker opened.
            ports.feed.frames = frames(which);
            ports.feed.frames.start(pattern);
            let mut run = |on: &dyn Fn() -> bool| {
                while on() {
                    for _ in 0..64 {
                        worker.worker.poll(clock.now_ns(), &mut ports);
                    }
                }
                ports.feed.sent
            };
            let begun = Instant::now();
            let before = run(&|| begun.elapsed() < span / 8);
            let from = Instant::now();
            let after = run(&|| from.elapsed() < span);
            sent.fetch_add(((after - before) as f64 / from.elapsed().as_secs_f64()) as u64, Relaxed);
            // Until all have measured: whoever went before would leave its ring to run over.
            measured.fetch_add(1, Relaxed);
            run(&|| measured.load(Relaxed) < count);
            let figures = worker.worker.stats().read();
            worker.worker.release_packets();
            Ok(figures)
        };
    let figures: Result<Vec<WorkerFigures>, String> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..count)
            .map(|id| {
                let (pool, ring, work) = (bench.pool.clone(), rings[id].take(), &work);
                scope.spawn(move || work(id, pool, ring))
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().map_err(|_| "a worker panicked".to_owned())?).collect()
    });
    let mut all = WorkerFigures::default();
    figures?.into_iter().for_each(|figures| all += figures);
    let lost = all.drops_for(DropReason::RingFull);
    if all.dropped() > lost {
        return Err(format!("{label}: packets were dropped: {} of {}", all.dropped() - lost, all.rx));
    }
    if lost as f64 > LOSS_MAX * all.rx as f64 {
        eprintln!("bench: {label}: {lost} of {} packets were lost to full rings", all.rx);
        return Ok(None);
    }
    Ok(Some(sent.load(Relaxed) as f64))
}

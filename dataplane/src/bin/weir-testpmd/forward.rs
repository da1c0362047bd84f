//! From `start` to `stop`: queues to cores, threads, and back.
//!
//! A run borrows the started ports. Its threads are scoped, so they have ended and their queues are given back before
//! anything can happen to a port.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, ScopedJoinHandle, scope};
use std::time::{Duration, Instant};

use dataplane::io::dpdk::{Peer, rings};
use dpdk_sys::{DpdkError, Eal, EalHandle, LcoreToken, Mempool, RxQueue, Tid, TscClock, TxQueue, free_bulk};

use crate::engine::{Lane, Packets, Plan, PortEnds, Queues, Work, lb, lbgen};
use crate::lcores::Lcore;
use crate::output::complain;
use crate::ports::PortSlot;
use crate::settings::{Layout, Mode, Settings, Stream};
use crate::stats::{FwdStats, StreamStats};

/// Waiting packets are thrown away for at most so long on one queue; some devices never run dry.
const FLUSH: Duration = Duration::from_millis(10);

/// What all runs need.
pub struct Cores<'eal> {
    /// Forwarding lcores in order.
    pub lcores: Vec<Lcore>,
    /// DPDK.
    pub eal: &'eal Eal,
    /// Where packets are made.
    pub pool: Mempool<'eal>,
    /// The clock.
    pub clock: TscClock,
}

/// Figures of a run that only its mode has.
#[derive(Default)]
pub enum Extra {
    /// The mode has none.
    #[default]
    None,
    /// lb: the setup, and the cores' numbers.
    Lb(Vec<u32>, Vec<Arc<dataplane::counters::WorkerStats>>),
    /// lbgen, likewise.
    LbGen(Vec<u32>, Vec<Arc<lbgen::GenStats>>),
}

impl Extra {
    /// The block behind the forward statistics.
    pub fn block(&self) -> String {
        match self {
            Extra::None => String::new(),
            Extra::Lb(cores, figures) => lb::block(cores, figures),
            Extra::LbGen(cores, stats) => lbgen::block(cores, stats),
        }
    }
}

/// A run that is ready to begin.
pub struct Run<'p> {
    work: Vec<Work<'p>>,
    /// Mode's own figures.
    pub extra: Extra,
    _lb: Option<lb::Setup>,
}

/// Why a mode cannot run over a layout, if it cannot.
pub fn obstacle(settings: &Settings, layout: &Layout, first: u32) -> Option<String> {
    let mode = settings.mode.name();
    if !settings.mode.needs_all_ports() || layout.cores.is_empty() {
        return None;
    }
    if first > 0 {
        return Some(format!("{mode}: tx_first is not honoured"));
    }
    let own = |streams: &Vec<Stream>| {
        streams.len() == settings.nb_ports && streams.iter().all(|s| s.rx_queue == streams[0].rx_queue)
    };
    if !layout.cores.iter().all(own) {
        return Some(format!(
            "{mode}: each core needs its own queue of every port: with {n} cores --rxq={n} --txq={n}",
            n = layout.cores.len()
        ));
    }
    None
}

impl<'p> Run<'p> {
    /// Takes the queues, empties them, and gives each core its work. `fwd` learns the streams.
    pub fn prepare(
        settings: &Settings,
        layout: &Layout,
        slots: &'p [PortSlot<'_>],
        cores: &Cores<'p>,
        fwd: &mut FwdStats,
    ) -> Result<Run<'p>, String> {
        let mut setup = match settings.mode {
            Mode::Lb => Some(lb::Setup::new(settings, slots, layout.cores.len(), &cores.clock)?),
            _ => None,
        };
        let numbers: Vec<u32> = cores.lcores.iter().take(layout.cores.len()).map(|lcore| lcore.id).collect();
        fwd.ports = settings.forwarding().to_vec();
        fwd.streams = layout.streams().map(|stream| (*stream, Arc::default())).collect();
        let mut crossings = match settings.mode {
            Mode::Lb => rings(cores.eal, layout.cores.len()).map_err(|error| error.to_string())?,
            _ => Vec::new(),
        }
        .into_iter();
        let opened = lbgen::Opened::new(settings.lbgen.flows);
        let mut gen_stats = Vec::new();
        let mut starts =
            setup.as_mut().map(|setup| std::mem::take(&mut setup.starts)).unwrap_or_default().into_iter();
        let (mut work, mut streams) = (Vec::new(), fwd.streams.iter());
        for (core, share) in layout.cores.iter().enumerate() {
            let lanes = streams
                .by_ref()
                .take(share.len())
                .map(|(stream, stats)| lane(settings, slots, *stream, stats))
                .collect::<Result<Vec<_>, _>>()
                .map_err(|error| error.to_string())?;
            let mut lanes = lanes;
            if settings.flush_rx {
                lanes.iter_mut().for_each(flush);
            }
            work.push(match settings.mode {
                Mode::Lb => match starts.next() {
                    Some(start) => Work::Lb(Box::new(lb::Core {
                        ends: port_ends(settings, lanes, crossings.next().unwrap_or_default(), cores),
                        start,
                    })),
                    None => return Err("lb: a core without a worker".into()),
                },
                Mode::LbGen => {
                    let macs: Vec<_> =
                        settings.forwarding().iter().map(|id| slots[usize::from(*id)].mac()).collect();
                    let stats: Arc<lbgen::GenStats> = Arc::default();
                    gen_stats.push(Arc::clone(&stats));
                    let place = (core, layout.cores.len());
                    let peers = lbgen::Peers::new(settings, &macs, place, Arc::clone(&opened), stats);
                    Work::LbGen(Box::new(lbgen::Core {
                        ends: port_ends(settings, lanes, Vec::new(), cores),
                        peers,
                    }))
                }
                mode => Work::Lanes(mode, lanes),
            });
        }
        let extra = match &setup {
            Some(setup) => Extra::Lb(numbers, setup.figures.clone()),
            None if gen_stats.is_empty() => Extra::None,
            None => Extra::LbGen(numbers, gen_stats),
        };
        Ok(Run { work, extra, _lb: setup })
    }

    /// Runs the cores while `during` lasts, then gives all queues back. `stopping` is called once it has returned.
    pub fn go<R>(
        self,
        settings: &Settings,
        slots: &'p [PortSlot<'_>],
        cores: &Cores<'p>,
        first: u32,
        during: impl FnOnce() -> R,
        stopping: impl FnOnce(),
    ) -> R {
        let stop = AtomicBool::new(false);
        let (answer, queues) = scope(|threads| {
            let guard = StopOnDrop(&stop);
            let mut handles: Vec<(u32, ScopedJoinHandle<'_, _>)> = Vec::new();
            for (core, work) in self.work.into_iter().enumerate() {
                let lcore = &cores.lcores[core];
                let plan = Plan {
                    core,
                    settings: settings.clone(),
                    pool: cores.pool.clone(),
                    clock: cores.clock,
                    first,
                };
                let (eal, stop) = (cores.eal.handle(), &stop);
                let thread = move || {
                    let _token = settle(lcore, eal);
                    work.run(&plan, stop)
                };
                match Builder::new().name(format!("weir-t:{}", lcore.id)).spawn_scoped(threads, thread) {
                    Ok(handle) => handles.push((lcore.id, handle)),
                    Err(error) => complain(&format!("lcore {}: {error}\n", lcore.id)),
                }
            }
            let answer = during();
            stopping();
            drop(guard);
            let mut queues = Queues::new();
            for (id, handle) in handles {
                match handle.join() {
                    Ok(Ok(back)) => queues.extend(back),
                    Ok(Err((why, back))) => {
                        complain(&format!("lcore {id}: {why}\n"));
                        queues.extend(back);
                    }
                    Err(_) => complain(&format!("lcore {id}: ended by a fault of ours\n")),
                }
            }
            (answer, queues)
        });
        for (rx, tx) in queues {
            give_back(slots, rx, tx);
        }
        answer
    }
}

/// Tells the cores to end, whatever way control leaves.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Takes the thread to its CPUs and registers it. Without either it forwards all the same, only slower.
fn settle<'eal>(lcore: &Lcore, eal: EalHandle<'eal>) -> Option<LcoreToken<'eal>> {
    if let Err(error) = Tid::current().set_affinity(&lcore.cpus.iter().copied().collect()) {
        complain(&format!("lcore {}: cannot be bound to its CPUs: {error}\n", lcore.id));
    }
    match LcoreToken::register(eal) {
        Ok(token) => Some(token),
        Err(error) => {
            complain(&format!("lcore {}: {error}\n", lcore.id));
            None
        }
    }
}

fn lane<'p>(
    settings: &Settings,
    slots: &'p [PortSlot<'_>],
    stream: Stream,
    stats: &Arc<StreamStats>,
) -> Result<Lane<'p>, DpdkError> {
    let (from, to) = (&slots[usize::from(stream.rx_port)], &slots[usize::from(stream.tx_port)]);
    Ok(Lane {
        stream,
        rx: from.take_rx(stream.rx_queue)?,
        tx: to.take_tx(stream.tx_queue)?,
        stats: Arc::clone(stats),
        own: to.mac(),
        peer: settings.peer(stream.tx_port),
    })
}

/// A core's lanes as ports: each port's receive queue with its transmit queue.
fn port_ends<'p>(
    settings: &Settings,
    lanes: Vec<Lane<'p>>,
    peers: Vec<Option<Peer<'p>>>,
    cores: &Cores<'p>,
) -> PortEnds<'p> {
    let mut receiving: Vec<Option<(RxQueue<'p>, Arc<StreamStats>)>> = Vec::new();
    let mut sending: Vec<Option<(TxQueue<'p>, Arc<StreamStats>)>> = Vec::new();
    receiving.resize_with(settings.nb_ports, || None);
    sending.resize_with(settings.nb_ports, || None);
    let index = |port: u16| settings.forwarding().iter().position(|id| *id == port).unwrap_or(0);
    for lane in lanes {
        receiving[index(lane.stream.rx_port)] = Some((lane.rx, Arc::clone(&lane.stats)));
        sending[index(lane.stream.tx_port)] = Some((lane.tx, lane.stats));
    }
    let (mut queues, mut received, mut sent) = (Queues::new(), Vec::new(), Vec::new());
    for ((rx, rx_stats), (tx, tx_stats)) in receiving.into_iter().flatten().zip(sending.into_iter().flatten())
    {
        queues.push((rx, tx));
        received.push(rx_stats);
        sent.push(tx_stats);
    }
    PortEnds { queues, received, sent, peers, pool: cores.pool.clone() }
}

/// Throws away what waits in the lane's receive queue.
fn flush(lane: &mut Lane<'_>) {
    let (mut burst, end) = (Packets::new(), Instant::now() + FLUSH);
    while lane.rx.receive(&mut burst) > 0 {
        free_bulk(&mut burst);
        if Instant::now() > end {
            return;
        }
    }
}

fn give_back(slots: &[PortSlot<'_>], rx: RxQueue<'_>, tx: TxQueue<'_>) {
    let (rx_port, tx_port) = (usize::from(rx.port()), usize::from(tx.port()));
    slots[rx_port].return_rx(rx);
    slots[tx_port].return_tx(tx);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_over_all_ports_want_a_queue_pair_a_core() {
        let with = |mode, ports, cores, queues| {
            let settings = Settings { mode, rxq: queues, txq: queues, ..Settings::new(ports, cores) };
            let layout = settings.layout();
            (obstacle(&settings, &layout, 0), obstacle(&settings, &layout, 1).is_some())
        };
        assert_eq!(with(Mode::Lb, 2, 1, 1), (None, true));
        assert_eq!(with(Mode::Lb, 2, 2, 2), (None, true));
        assert_eq!(with(Mode::Io, 2, 2, 1), (None, false));
        let (why, _) = with(Mode::LbGen, 2, 2, 1);
        assert!(why.is_some_and(|why| why.contains("--rxq=2 --txq=2")));
        let (why, _) = with(Mode::Lb, 2, 1, 2);
        assert!(why.is_some(), "one core with two queues");
    }
}

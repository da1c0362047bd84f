//! Forward engines: what a core does with its streams until it is told to stop.
//!
//! | part | engines |
//! |---|---|
//! | [`swap`] | io, mac, macswap, 5tswap, rxonly: one burst in, the same mbufs out |
//! | [`generate`] | txonly, flowgen: frames from a template |
//! | [`lb`] | lb: Weir's worker over the core's queue pair of every port |
//! | [`lbgen`] | lbgen: clients and servers of a balancer, likewise over every port |
//! | [`lab`] | the addresses that lb and lbgen agree on when they are told nothing |
//!
//! A core owns its queues for the length of a run and gives them back. Nothing here prints or allocates per packet.

pub mod generate;
pub mod lab;
pub mod lb;
pub mod lbgen;
mod ports;
pub mod swap;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use arrayvec::ArrayVec;
use dataplane::counters::bump;
use dpdk_sys::{Mbuf, Mempool, RxQueue, TscClock, TxQueue, free_bulk};

pub use ports::PortEnds;

use crate::settings::{BURST_LIMIT, Mode, Settings, Stream};
use crate::stats::StreamStats;

/// Packets on their way through an engine.
pub type Packets<'p> = ArrayVec<Mbuf<'p>, BURST_LIMIT>;

/// A stream with its queues.
pub struct Lane<'p> {
    /// Which stream.
    pub stream: Stream,
    /// Where packets come from.
    pub rx: RxQueue<'p>,
    /// Where they go.
    pub tx: TxQueue<'p>,
    /// Its counters.
    pub stats: Arc<StreamStats>,
    /// Address of the port it sends on.
    pub own: [u8; 6],
    /// Address of the machine behind that port.
    pub peer: [u8; 6],
}

impl<'p> Lane<'p> {
    /// Receives at most `limit` packets into an empty burst.
    #[inline(always)]
    pub fn receive(&mut self, burst: &mut Packets<'p>, limit: u16) -> usize {
        let received = self.rx.receive_at_most(burst, limit);
        if received > 0 {
            bump(&self.stats.rx, received as u64);
        }
        received
    }

    /// Sends the burst; what the driver does not take is dropped and counted. Returns how many those were.
    #[inline(always)]
    pub fn send(&mut self, burst: &mut Packets<'p>) -> usize {
        let sent = self.tx.transmit(burst);
        bump(&self.stats.tx, sent as u64);
        let dropped = burst.len();
        if dropped > 0 {
            bump(&self.stats.dropped, dropped as u64);
            free_bulk(burst);
        }
        dropped
    }
}

/// What a core is to do.
pub enum Work<'p> {
    /// Stream by stream.
    Lanes(Mode, Vec<Lane<'p>>),
    /// Weir's worker.
    Lb(Box<lb::Core<'p>>),
    /// A balancer's peers.
    LbGen(Box<lbgen::Core<'p>>),
}

/// Everything else that a core needs.
pub struct Plan<'p> {
    /// Number of the core among the forwarding ones.
    pub core: usize,
    /// Settings at the start.
    pub settings: Settings,
    /// Where packets are made.
    pub pool: Mempool<'p>,
    /// The clock.
    pub clock: TscClock,
    /// Bursts that txonly sends before the engine starts.
    pub first: u32,
}

/// Queues that a core gives back.
pub type Queues<'p> = Vec<(RxQueue<'p>, TxQueue<'p>)>;

impl<'p> Work<'p> {
    /// Forwards until `stop` is set; the queues come back. Pairs may hold queues of two ports.
    pub fn run(self, plan: &Plan<'p>, stop: &AtomicBool) -> Result<Queues<'p>, (String, Queues<'p>)> {
        match self {
            Work::Lanes(mode, mut lanes) => {
                if plan.first > 0 {
                    generate::tx_first(&mut lanes, plan);
                }
                match mode {
                    Mode::TxOnly => generate::tx_only(&mut lanes, plan, stop),
                    Mode::FlowGen => generate::flow_gen(&mut lanes, plan, stop),
                    _ => swap::run(mode, &mut lanes, plan.settings.burst, stop),
                }
                Ok(lanes.into_iter().map(|lane| (lane.rx, lane.tx)).collect())
            }
            Work::Lb(core) => core.run(plan, stop),
            Work::LbGen(core) => Ok(core.run(plan, stop)),
        }
    }
}

/// Goes round the lanes until told to stop.
#[inline(always)]
fn spin<'p>(
    lanes: &mut [Lane<'p>],
    stop: &AtomicBool,
    mut step: impl FnMut(&mut Lane<'p>, &mut Packets<'p>),
) {
    let mut burst = Packets::new();
    while !stop.load(Relaxed) {
        for lane in &mut *lanes {
            step(lane, &mut burst);
        }
    }
}

//! One core's queue pair of every forwarding port, with its streams' counters: what lb and lbgen poll.

use std::sync::Arc;

use arrayvec::ArrayVec;
use dataplane::counters::bump;
use dataplane::io::dpdk::{DpdkIo, DpdkPort, Peer};
use dataplane::io::{Burst, Io, PortIndex};
use dpdk_sys::{Mbuf, Mempool};

use super::Queues;
use crate::stats::StreamStats;

/// Ports by their index among the forwarding ones.
pub struct PortIo<'p> {
    io: DpdkIo<'p>,
    received: Vec<Arc<StreamStats>>,
    sent: Vec<Arc<StreamStats>>,
    full: PortIndex,
}

/// What a core's ports are made of, on its way to the core's thread.
pub struct PortEnds<'p> {
    /// A queue pair a port.
    pub queues: Queues<'p>,
    /// Counters of the streams that receive there.
    pub received: Vec<Arc<StreamStats>>,
    /// Counters of the streams that send there.
    pub sent: Vec<Arc<StreamStats>>,
    /// Rings to the other cores, if the mode has any.
    pub peers: Vec<Option<Peer<'p>>>,
    /// Where packets are made.
    pub pool: Mempool<'p>,
}

impl<'p> PortEnds<'p> {
    /// Makes the ports. On the core's own thread.
    pub fn open(self) -> PortIo<'p> {
        let PortEnds { queues, received, sent, peers, pool } = self;
        let ports = queues.into_iter().map(|(rx, tx)| DpdkPort::pair(rx, tx)).collect();
        PortIo { io: DpdkIo::new(ports, peers, pool), received, sent, full: 0 }
    }
}

impl<'p> PortIo<'p> {
    /// Counts packets that were dropped because `port` did not take them.
    pub fn count_dropped(&self, port: PortIndex, packets: u64) {
        if packets > 0 {
            bump(&self.sent[usize::from(port)].dropped, packets);
        }
    }

    /// The port that last did not take everything.
    pub fn last_full(&self) -> PortIndex {
        self.full
    }

    /// Gives the queues back.
    pub fn into_queues(self) -> Queues<'p> {
        self.io.into_queues()
    }
}

impl<'p> Io for PortIo<'p> {
    type Buf = Mbuf<'p>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'p>>) {
        let before = burst.len();
        self.io.rx(port, burst);
        let received = burst.len() - before;
        if received > 0 {
            bump(&self.received[usize::from(port)].rx, received as u64);
        }
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<Mbuf<'p>, N>) {
        let before = queue.len();
        self.io.tx(port, queue);
        bump(&self.sent[usize::from(port)].tx, (before - queue.len()) as u64);
        if !queue.is_empty() {
            self.full = port;
        }
    }

    fn alloc(&mut self) -> Option<Mbuf<'p>> {
        self.io.alloc()
    }

    #[inline]
    fn expect(&self, peer: usize) {
        self.io.expect(peer);
    }

    #[inline]
    fn hand_over<const N: usize>(&mut self, to: usize, queue: &mut ArrayVec<Mbuf<'p>, N>) {
        self.io.hand_over(to, queue);
    }

    #[inline]
    fn take_over(&mut self, from: usize, burst: &mut Burst<Mbuf<'p>>) {
        self.io.take_over(from, burst);
    }
}

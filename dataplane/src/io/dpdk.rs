//! DPDK ports: the only file of the data plane that knows them. One queue pair per port and worker; where a port has
//! fewer queues, the first workers have them, and the others send over a ring to one of those, who relays.

use arrayvec::ArrayVec;
use dpdk_sys::{DpdkError, Eal, HandoffRx, HandoffTx, Mbuf, Mempool, RxChecksum, RxQueue, TxQueue, handoff};

use super::{Burst, CsumStatus, Io, PacketBuf, PortIndex};
use crate::limits::ring_size;

impl PacketBuf for Mbuf<'_> {
    #[inline(always)]
    fn data(&self) -> &[u8] {
        Mbuf::data(self)
    }

    #[inline(always)]
    fn data_mut(&mut self) -> &mut [u8] {
        Mbuf::data_mut(self)
    }

    #[inline(always)]
    fn set_len(&mut self, len: usize) -> bool {
        Mbuf::set_len(self, len).is_ok()
    }

    #[inline(always)]
    fn ip_csum(&self) -> CsumStatus {
        match self.ip_checksum() {
            RxChecksum::Good => CsumStatus::Good,
            RxChecksum::Bad => CsumStatus::Bad,
            RxChecksum::Unknown | RxChecksum::Intact => CsumStatus::Unknown,
        }
    }

    #[inline(always)]
    fn prefetch(&self) {
        Mbuf::prefetch(self);
    }

    #[inline(always)]
    fn is_contiguous(&self) -> bool {
        Mbuf::is_contiguous(self)
    }

    #[inline(always)]
    fn port(&self) -> PortIndex {
        Mbuf::port(self) as PortIndex
    }

    #[inline(always)]
    fn set_port(&mut self, port: PortIndex) {
        Mbuf::set_port(self, port.into());
    }
}

/// A worker's way to send on one port.
pub enum TxWay<'eal> {
    /// A transmit queue of its own.
    Queue(TxQueue<'eal>),
    /// A ring to a worker that has one.
    Ring(HandoffTx<'eal>),
}

/// A worker's ends of one port.
pub struct DpdkPort<'eal> {
    /// Its receive queue, if the port has one for it.
    pub rx: Option<RxQueue<'eal>>,
    /// Its way to send.
    pub tx: TxWay<'eal>,
    /// Rings from workers that send through this one's queue.
    pub relayed: Vec<HandoffRx<'eal>>,
}

impl<'eal> DpdkPort<'eal> {
    /// A queue pair of its own, and nobody else's packets.
    pub fn pair(rx: RxQueue<'eal>, tx: TxQueue<'eal>) -> Self {
        Self { rx: Some(rx), tx: TxWay::Queue(tx), relayed: Vec::new() }
    }
}

/// The rings between a worker and one other.
pub struct Peer<'eal> {
    /// To that worker.
    pub to: HandoffTx<'eal>,
    /// From that worker.
    pub from: HandoffRx<'eal>,
}

/// Makes the rings between `workers` workers: each one's ends, by number of the other worker, `None` at its own.
/// Control, at start.
///
/// # Errors
/// No memory, or the rings of an earlier start still exist.
pub fn rings(eal: &Eal, workers: usize) -> Result<Vec<Vec<Option<Peer<'_>>>>, DpdkError> {
    let mut to: Vec<Vec<Option<HandoffTx<'_>>>> = nones(workers);
    let mut from: Vec<Vec<Option<HandoffRx<'_>>>> = nones(workers);
    for sender in 0..workers {
        for receiver in (0..workers).filter(|receiver| *receiver != sender) {
            let name = format!("weir_h_{sender}_{receiver}");
            let (tx, rx) = handoff(eal, &name, ring_size(workers) as u32, None)?;
            to[sender][receiver] = Some(tx);
            from[receiver][sender] = Some(rx);
        }
    }
    let ends = |(to, from): (Vec<Option<_>>, Vec<Option<_>>)| {
        to.into_iter().zip(from).map(|(to, from)| Some(Peer { to: to?, from: from? })).collect()
    };
    Ok(to.into_iter().zip(from).map(ends).collect())
}

fn nones<T>(workers: usize) -> Vec<Vec<Option<T>>> {
    (0..workers).map(|_| (0..workers).map(|_| None).collect()).collect()
}

/// What another worker sends on a port of which it has no queue.
struct Relay<'eal> {
    port: PortIndex,
    ring: HandoffRx<'eal>,
    /// Taken from the ring, not yet by the queue.
    held: Burst<Mbuf<'eal>>,
}

/// A worker's queues, by port index, its rings, and the pool it makes its own packets from.
pub struct DpdkIo<'eal> {
    ports: Vec<(Option<RxQueue<'eal>>, TxWay<'eal>)>,
    relays: Vec<Relay<'eal>>,
    /// By number of the other worker; `None` for this one.
    peers: Vec<Option<Peer<'eal>>>,
    pool: Mempool<'eal>,
}

impl<'eal> DpdkIo<'eal> {
    /// Of its ends of the ports, in port order, and its rings, by number of the other worker.
    pub fn new(ports: Vec<DpdkPort<'eal>>, peers: Vec<Option<Peer<'eal>>>, pool: Mempool<'eal>) -> Self {
        let mut io = Self { ports: Vec::new(), relays: Vec::new(), peers, pool };
        for (index, port) in ports.into_iter().enumerate() {
            let relay = |ring| Relay { port: index as PortIndex, ring, held: Burst::new() };
            io.relays.extend(port.relayed.into_iter().map(relay));
            io.ports.push((port.rx, port.tx));
        }
        io
    }

    /// Gives the queue pairs back, in port order; its rings end.
    pub fn into_queues(self) -> Vec<(RxQueue<'eal>, TxQueue<'eal>)> {
        let pair = |(rx, tx)| match (rx, tx) {
            (Some(rx), TxWay::Queue(tx)) => Some((rx, tx)),
            _ => None,
        };
        self.ports.into_iter().filter_map(pair).collect()
    }
}

impl<'eal> Io for DpdkIo<'eal> {
    type Buf = Mbuf<'eal>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'eal>>) {
        if let Some(queue) = &mut self.ports[usize::from(port)].0 {
            queue.receive(burst);
        }
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        match &mut self.ports[usize::from(port)].1 {
            TxWay::Queue(own) => own.transmit(queue),
            TxWay::Ring(ring) => ring.send(queue),
        };
    }

    fn alloc(&mut self) -> Option<Mbuf<'eal>> {
        self.pool.alloc().ok()
    }

    #[inline]
    fn expect(&self, peer: usize) {
        if let Some(Some(peer)) = self.peers.get(peer) {
            peer.from.prefetch();
            peer.to.prefetch();
        }
    }

    #[inline]
    fn hand_over<const N: usize>(&mut self, to: usize, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        if let Some(Some(peer)) = self.peers.get_mut(to) {
            peer.to.send(queue);
        }
    }

    #[inline]
    fn take_over(&mut self, from: usize, burst: &mut Burst<Mbuf<'eal>>) {
        if let Some(Some(peer)) = self.peers.get_mut(from) {
            peer.from.receive(burst);
        }
    }

    #[inline]
    fn relay(&mut self) -> usize {
        let mut sent = 0;
        for relay in &mut self.relays {
            relay.ring.receive(&mut relay.held);
            if let TxWay::Queue(queue) = &mut self.ports[usize::from(relay.port)].1
                && !relay.held.is_empty()
            {
                sent += queue.transmit(&mut relay.held);
            }
        }
        sent
    }
}

//! Ports in memory: tests put frames in and take frames out; faults (empty pool, blocked transmit, full rings) are
//! settable. [`MemIo::mesh`] makes the ports of several workers with the rings between them, all in one thread.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use arrayvec::ArrayVec;

use super::{Burst, CsumStatus, Io, PacketBuf, PortIndex};

/// Room of one buffer, bytes: what a DPDK mbuf of default size holds after its headroom.
const ROOM: usize = 2048;

/// A frame in memory. Counts itself out of its pool and back in on drop.
#[derive(Debug)]
pub struct MemBuf {
    bytes: Option<Box<[u8; ROOM]>>,
    len: usize,
    arrival: Arrival,
    port: PortIndex,
    pool: Rc<Pool>,
}

/// What a port says of a frame that it received.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Receive offload's word on the IPv4 header checksum.
    pub ip_csum: CsumStatus,
    /// False as if the frame lay in several buffers; all of it is in this one still.
    pub contiguous: bool,
}

impl Default for Arrival {
    /// Nothing of the checksum, one buffer.
    fn default() -> Self {
        Self { ip_csum: CsumStatus::Unknown, contiguous: true }
    }
}

#[derive(Debug, Default)]
struct Pool {
    #[expect(clippy::vec_box, reason = "buffers move in and out; 2 KiB are not copied for it")]
    spare: RefCell<Vec<Box<[u8; ROOM]>>>,
    live: Cell<usize>,
}

impl Drop for MemBuf {
    fn drop(&mut self) {
        self.pool.live.set(self.pool.live.get() - 1);
        self.pool.spare.borrow_mut().extend(self.bytes.take());
    }
}

impl PacketBuf for MemBuf {
    fn data(&self) -> &[u8] {
        self.bytes.as_deref().map_or(&[], |b| &b[..self.len])
    }

    fn data_mut(&mut self) -> &mut [u8] {
        self.bytes.as_deref_mut().map_or(&mut [], |b| &mut b[..self.len])
    }

    fn set_len(&mut self, len: usize) -> bool {
        let fits = len <= ROOM;
        if fits {
            self.len = len;
        }
        fits
    }

    fn ip_csum(&self) -> CsumStatus {
        self.arrival.ip_csum
    }

    fn is_contiguous(&self) -> bool {
        self.arrival.contiguous
    }

    fn port(&self) -> PortIndex {
        self.port
    }

    fn set_port(&mut self, port: PortIndex) {
        self.port = port;
    }
}

/// Rings from worker `from` to worker `to`, at `from * workers + to`.
#[derive(Debug)]
struct Rings {
    workers: usize,
    queues: RefCell<Vec<VecDeque<MemBuf>>>,
    room: Cell<usize>,
}

/// In-memory ports for one worker.
#[derive(Debug)]
pub struct MemIo {
    rx: Vec<VecDeque<MemBuf>>,
    tx: Vec<VecDeque<MemBuf>>,
    /// Frames each port accepts before its transmit queue is full; `usize::MAX` at first.
    pub tx_room: Vec<usize>,
    pool: Rc<Pool>,
    size: Rc<Cell<usize>>,
    me: usize,
    rings: Rc<Rings>,
}

impl MemIo {
    /// `ports` ports of one worker over a pool of `pool` buffers.
    pub fn new(ports: usize, pool: usize) -> Self {
        Self::mesh(1, ports, pool, 0).swap_remove(0)
    }

    /// `ports` ports, each with a queue pair for each of `workers` workers, over one pool of `pool` buffers, and rings
    /// of `ring` packets between the workers.
    pub fn mesh(workers: usize, ports: usize, pool: usize, ring: usize) -> Vec<Self> {
        let queues = RefCell::new((0..workers * workers).map(|_| VecDeque::new()).collect());
        let rings = Rc::new(Rings { workers, queues, room: Cell::new(ring) });
        let (buffers, size) = (Rc::<Pool>::default(), Rc::new(Cell::new(pool)));
        let of_worker = |me| Self {
            rx: (0..ports).map(|_| VecDeque::new()).collect(),
            tx: (0..ports).map(|_| VecDeque::new()).collect(),
            tx_room: vec![usize::MAX; ports],
            pool: Rc::clone(&buffers),
            size: Rc::clone(&size),
            me,
            rings: Rc::clone(&rings),
        };
        (0..workers).map(of_worker).collect()
    }

    /// Sets how many packets each ring holds.
    pub fn set_ring(&mut self, room: usize) {
        self.rings.room.set(room);
    }

    /// Packets in all rings.
    pub fn in_rings(&self) -> usize {
        self.rings.queues.borrow().iter().map(VecDeque::len).sum()
    }

    /// Puts a frame before `port`'s receiver. `false` when it is too long or the pool is empty.
    pub fn inject(&mut self, port: PortIndex, frame: &[u8]) -> bool {
        self.inject_with(port, frame, Arrival::default())
    }

    /// As [`MemIo::inject`], with what a port says of the frame.
    pub fn inject_with(&mut self, port: PortIndex, frame: &[u8], arrival: Arrival) -> bool {
        let Some(mut buf) = self.take() else { return false };
        if !buf.set_len(frame.len()) {
            return false;
        }
        buf.data_mut().copy_from_slice(frame);
        buf.arrival = arrival;
        self.rx[usize::from(port)].push_back(buf);
        true
    }

    /// Takes the next frame that the worker sent on `port`.
    pub fn sent(&mut self, port: PortIndex) -> Option<Vec<u8>> {
        self.tx[usize::from(port)].pop_front().map(|b| b.data().to_vec())
    }

    /// Takes every frame sent, with its port, port by port.
    pub fn drain(&mut self) -> Vec<(PortIndex, Vec<u8>)> {
        let ports = 0..self.tx.len();
        ports
            .flat_map(|p| {
                self.tx[p].drain(..).map(move |b| (p as PortIndex, b.data().to_vec())).collect::<Vec<_>>()
            })
            .collect()
    }

    /// Frames not yet received.
    pub fn waiting(&self) -> usize {
        self.rx.iter().map(VecDeque::len).sum()
    }

    /// Buffers out of the pool: waiting, held by the worker, or sent and not yet taken.
    pub fn live(&self) -> usize {
        self.pool.live.get()
    }

    /// Drops every frame sent; how many there were.
    pub fn discard_sent(&mut self) -> usize {
        self.tx.iter_mut().map(|queue| queue.drain(..).count()).sum()
    }

    /// Sets how many buffers the pool has; fewer than are out means an empty pool.
    pub fn set_pool(&mut self, pool: usize) {
        self.size.set(pool);
    }

    fn take(&mut self) -> Option<MemBuf> {
        if self.pool.live.get() >= self.size.get() {
            return None;
        }
        self.pool.live.set(self.pool.live.get() + 1);
        let spare = self.pool.spare.borrow_mut().pop();
        Some(MemBuf {
            bytes: Some(spare.unwrap_or_else(|| Box::new([0; ROOM]))),
            len: 0,
            arrival: Arrival::default(),
            port: 0,
            pool: Rc::clone(&self.pool),
        })
    }
}

impl Io for MemIo {
    type Buf = MemBuf;

    fn rx(&mut self, port: PortIndex, burst: &mut Burst<MemBuf>) {
        let queue = &mut self.rx[usize::from(port)];
        let n = burst.remaining_capacity().min(queue.len());
        burst.extend(queue.drain(..n));
    }

    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<MemBuf, N>) {
        let port = usize::from(port);
        let n = queue.len().min(self.tx_room[port]);
        if self.tx_room[port] != usize::MAX {
            self.tx_room[port] -= n;
        }
        self.tx[port].extend(queue.drain(..n));
    }

    fn alloc(&mut self) -> Option<MemBuf> {
        self.take()
    }

    fn hand_over<const N: usize>(&mut self, to: usize, queue: &mut ArrayVec<MemBuf, N>) {
        let ring = &mut self.rings.queues.borrow_mut()[self.me * self.rings.workers + to];
        let room = self.rings.room.get().saturating_sub(ring.len());
        ring.extend(queue.drain(..room.min(queue.len())));
    }

    fn take_over(&mut self, from: usize, burst: &mut Burst<MemBuf>) {
        let ring = &mut self.rings.queues.borrow_mut()[from * self.rings.workers + self.me];
        let n = burst.remaining_capacity().min(ring.len());
        burst.extend(ring.drain(..n));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_ends_and_gets_its_buffers_back() {
        let mut io = MemIo::new(2, 2);
        assert!(io.inject(0, b"one") && io.inject(1, b"two"));
        assert!(!io.inject(0, b"three") && io.alloc().is_none());
        let mut burst = Burst::new();
        io.rx(1, &mut burst);
        assert_eq!((burst[0].data(), io.waiting(), io.live()), (&b"two"[..], 1, 2));
        burst.clear();
        assert_eq!(io.live(), 1);
        assert!(!io.inject(0, &[0; ROOM + 1]), "longer than a buffer");
        assert_eq!(io.live(), 1);
    }

    #[test]
    fn a_full_port_takes_from_the_front_and_leaves_the_rest() {
        let mut io = MemIo::new(1, 8);
        io.tx_room[0] = 2;
        let mut queue = ArrayVec::<MemBuf, 8>::new();
        for byte in 1..=3 {
            let mut buf = io.alloc().unwrap();
            assert!(buf.set_len(1) && !buf.set_len(ROOM + 1));
            buf.data_mut()[0] = byte;
            queue.push(buf);
        }
        io.tx(0, &mut queue);
        assert_eq!((queue.len(), queue[0].data()), (1, &[3][..]));
        assert_eq!((io.sent(0), io.sent(0), io.sent(0)), (Some(vec![1]), Some(vec![2]), None));
        io.tx(0, &mut queue);
        assert_eq!(queue.len(), 1, "no room is left");
        io.tx_room[0] = usize::MAX;
        io.tx(0, &mut queue);
        assert_eq!((queue.len(), io.discard_sent(), io.live()), (0, 1, 0));
    }
}

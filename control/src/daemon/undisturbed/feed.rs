//! What the worker is fed with: frames of many clients to one service, by the clock.
//!
//! Model: the virtual ring is arithmetic. Packets arrive at the offered rate by the worker's clock; the ring holds
//! what arrives in [`RING_NS`]; what arrives beyond that is lost and counted, as a device would lose it. A poll
//! takes a burst at most. Frames are made when they are taken. A second ring goes by the clock less the time that was
//! taken from the thread in late polls ([`Watch`]): what it loses is lost by the worker's own slowness. Worker's
//! thread only.

use arrayvec::ArrayVec;
use dataplane::io::{Burst, Io, PortIndex};
use dataplane::limits::BURST;
use dpdk_sys::{Mbuf, Mempool, TscClock, free_bulk};

use super::late::{Gap, Gaps, Watch};

/// Room of the virtual ring: what is offered in so many nanoseconds.
pub const RING_NS: u64 = 1_000_000;
/// Virtual address and port of the service that is fed.
pub const SERVICE: ([u8; 4], u16) = ([203, 0, 113, 10], 80);
/// MAC address of the port towards clients.
pub const MAC: [u8; 6] = [2, 0, 0, 0, 0, 1];

/// 64 bytes of Ethernet's minimum without the check sequence.
const FRAME: usize = 60;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;
/// Flows of one client address.
const PORTS: u32 = 16;
/// First client address, 100.64.0.0.
const CLIENTS: u32 = 0x6440_0000;
/// Step from one flow to the next: odd and coprime to the numbers of flows here, so all are visited, far apart.
const STRIDE: u32 = 611_953;

/// What is offered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Offer {
    /// Nothing.
    Nothing,
    /// A SYN of each flow in order, as fast as they are taken.
    Syns,
    /// Packets of established flows, as fast as they are taken.
    All,
    /// The same through the virtual ring, packets per second.
    Rate(f64),
}

/// Room for what arrives in [`RING_NS`].
#[derive(Clone, Copy, Debug, Default)]
pub struct Ring {
    /// Packets that wait.
    waiting: f64,
    /// Packets that found it full.
    pub dropped: f64,
}

impl Ring {
    /// Takes in what arrives in so many nanoseconds at a rate of packets per second.
    #[inline(always)]
    pub fn arrive(&mut self, ns: u64, rate: f64) {
        self.waiting += ns as f64 * rate / 1e9;
        let room = rate * RING_NS as f64 / 1e9;
        if self.waiting > room {
            self.dropped += self.waiting - room;
            self.waiting = room;
        }
    }

    /// The same when of these nanoseconds, or of those before, some were taken from the thread.
    #[inline(always)]
    pub fn arrive_alone(&mut self, ns: u64, taken_ns: u64, rate: f64) {
        self.arrive(ns.saturating_sub(taken_ns), rate);
        self.waiting = (self.waiting - taken_ns.saturating_sub(ns) as f64 * rate / 1e9).max(0.0);
    }

    /// Gives a poll its packets, a burst at most.
    #[inline(always)]
    fn give(&mut self) -> usize {
        let given = (self.waiting as usize).min(BURST);
        self.waiting -= given as f64;
        given
    }

    /// Gives all to a loop that takes whatever there is.
    #[inline(always)]
    pub fn give_all(&mut self) {
        self.waiting = 0.0;
    }
}

/// What the ring has seen.
#[derive(Clone, Copy, Debug, Default)]
pub struct Seen {
    /// Packets offered.
    pub offered: f64,
    /// Packets taken.
    pub taken: u64,
    /// The ring.
    pub ring: Ring,
    /// The ring that does not fill while the thread does not run.
    pub own: Ring,
    /// Gaps between polls.
    pub gaps: Gaps,
}

/// Both ports of the worker.
pub struct Feed<'port> {
    pool: Mempool<'port>,
    watch: Watch,
    offer: Offer,
    flows: u32,
    next: u32,
    seen: Seen,
    template: [u8; FRAME],
}

impl<'port> Feed<'port> {
    /// Offers nothing yet of `flows` flows.
    pub fn new(pool: Mempool<'port>, clock: TscClock, flows: u32) -> Self {
        let (watch, seen, template) = (Watch::new(clock), Seen::default(), template());
        Self { pool, watch, offer: Offer::Nothing, flows, next: 0, seen, template }
    }

    /// Offers this from now on, the ring empty.
    pub fn offer(&mut self, offer: Offer) {
        if offer == Offer::Syns {
            self.next = 0;
        }
        (self.offer, self.seen) = (offer, Seen::default());
        self.watch.begin();
    }

    /// Figures since the offer was made.
    pub fn seen(&self) -> Seen {
        Seen { gaps: self.watch.gaps, ..self.seen }
    }

    /// Packets that this poll takes.
    #[inline(always)]
    fn arrived(&mut self) -> usize {
        let Gap { ns, taken_ns } = self.watch.poll();
        let Offer::Rate(rate) = self.offer else {
            return if self.offer == Offer::Nothing { 0 } else { BURST };
        };
        self.seen.offered += ns as f64 * rate / 1e9;
        self.seen.own.arrive_alone(ns, taken_ns, rate);
        self.seen.own.give();
        self.seen.ring.arrive(ns, rate);
        self.seen.ring.give()
    }

    #[inline(always)]
    fn write(&mut self, frame: &mut [u8; FRAME]) {
        let (flow, flags) = (self.next, if self.offer == Offer::Syns { SYN } else { ACK });
        self.next += if flags == SYN { 1 } else { STRIDE };
        self.next %= self.flows;
        let client = CLIENTS + flow / PORTS;
        let port = 10_000 + (flow % PORTS) as u16;
        *frame = self.template;
        frame[26..30].copy_from_slice(&client.to_be_bytes());
        frame[34..36].copy_from_slice(&port.to_be_bytes());
        frame[47] = flags;
        let addresses = (client >> 16) + (client & 0xffff);
        let ip = !fold(addresses + word(&self.template, 24));
        let tcp = !fold(addresses + u32::from(port) + u32::from(flags) + word(&self.template, 50));
        frame[24..26].copy_from_slice(&ip.to_be_bytes());
        frame[50..52].copy_from_slice(&tcp.to_be_bytes());
    }
}

impl<'port> Io for Feed<'port> {
    type Buf = Mbuf<'port>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'port>>) {
        if port != 0 {
            return;
        }
        let count = self.arrived();
        if count == 0 {
            return;
        }
        self.pool.alloc_bulk(burst, count).expect("what the worker sends comes back at once");
        for mbuf in burst.iter_mut() {
            mbuf.set_len(FRAME).expect("an mbuf has room");
            self.write(mbuf.data_mut().first_chunk_mut().expect("the length is set"));
        }
        self.seen.taken += count as u64;
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, _: PortIndex, queue: &mut ArrayVec<Mbuf<'port>, N>) {
        free_bulk(queue);
    }

    fn alloc(&mut self) -> Option<Mbuf<'port>> {
        self.pool.alloc().ok()
    }
}

/// A frame without client and flags; its checks hold the sums of what is there.
fn template() -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&MAC);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
    let total = (FRAME - 14) as u8;
    frame[12..24].copy_from_slice(&[8, 0, 0x45, 0, 0, total, 0x12, 0x34, 0x40, 0, 64, 6]);
    frame[30..34].copy_from_slice(&SERVICE.0);
    let ip = fold((14..34).step_by(2).map(|at| word(&frame, at)).sum());
    frame[36..38].copy_from_slice(&SERVICE.1.to_be_bytes());
    frame[38..50].copy_from_slice(&[0x11, 0x11, 0x11, 0x12, 0x22, 0x22, 0x22, 0x23, 0x50, 0, 0xff, 0xff]);
    let pseudo = 6 + u32::from(total - 20);
    let tcp = fold((30..FRAME).step_by(2).map(|at| word(&frame, at)).sum::<u32>() + pseudo);
    frame[24..26].copy_from_slice(&ip.to_be_bytes());
    frame[50..52].copy_from_slice(&tcp.to_be_bytes());
    frame
}

#[inline(always)]
fn word(frame: &[u8; FRAME], at: usize) -> u32 {
    u32::from(u16::from_be_bytes([frame[at], frame[at + 1]]))
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

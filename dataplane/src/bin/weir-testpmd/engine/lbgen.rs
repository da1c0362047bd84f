//! lbgen: the clients and the servers of a balancer, on one core's queue pair of every port.
//!
//! The first of two ports is the clients' side, the second the servers'; a single port is both. Clients know nothing
//! but which flows are open: what comes in is turned round in its own buffer and answered by its flags alone, as a
//! client or a server would. A flow whose SYN or answer was lost is tried again when its turn comes.
//!
//! ```text
//! lasting  SYN →          ← SYN+ACK   ACK →  then for ever  PSH →  ← PSH
//! short    SYN →          ← SYN+ACK   PSH →  ← PSH  FIN →  ← FIN  ACK →
//! udp      datagram →     ← datagram
//! ```
//! It answers ARP for every address that is not the balancer's, asks for the balancer's own unless `--eth-peer` names it,
//! and sends nothing to where it does not know the way.

mod frame;
mod pace;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};

use arrayvec::ArrayVec;
use dataplane::counters::bump;
use dataplane::io::{Burst, Io, PacketBuf, PortIndex};
use dataplane::limits::BURST;
use dataplane::wire::arp::{Operation, Repr};
use dataplane::wire::ethernet::{self, Mac};
use dataplane::wire::ipv4;

use self::frame::{
    ACK, DPORT, DST, FIN, FLAGS, FRAME, IP, LEAST, PROTOCOL, PSH, RST, SPORT, SRC, SYN, Template, ask, be16,
    be32, readdress_back, set_flags, swap_ends,
};
use self::pace::{Order, Pacer};
use super::lab::{BALANCER, BALANCER_INSIDE, CLIENTS, FLOWS_PER_CLIENT};
use super::{Plan, PortEnds, Queues};
use crate::settings::{LbGenSettings, Settings, Traffic};

/// First client port of lasting flows and of short ones.
const LASTING: u16 = 10_000;
const SHORT: u16 = 40_000;
/// Flows that all client addresses have: 100.64.0.0/10.
const FLOWS_MAX: u32 = (1 << 22) * FLOWS_PER_CLIENT;
/// Packets that may wait for a port: answers to a burst and a burst of the clients', twice.
const WAITING: usize = 4 * BURST;
/// Time between two ARP requests for the balancer, nanoseconds.
const ARP_NS: u64 = 100_000_000;
/// Packets between two short connections when no rate is given for mixed traffic.
const MIXED_EVERY: u32 = 16;
/// What the generators of all cores share.
pub struct Opened {
    bits: Vec<AtomicU64>,
}

impl Opened {
    /// Of `flows` flows, none open.
    pub fn new(flows: u32) -> Arc<Opened> {
        Arc::new(Opened { bits: (0..flows.div_ceil(64)).map(|_| AtomicU64::new(0)).collect() })
    }

    fn has(&self, flow: u32) -> bool {
        let word = self.bits.get(flow as usize / 64).map_or(0, |word| word.load(Relaxed));
        word >> (flow % 64) & 1 == 1
    }

    fn set(&self, flow: u32, open: bool) {
        if let Some(word) = self.bits.get(flow as usize / 64) {
            let bit = 1 << (flow % 64);
            if open {
                word.fetch_or(bit, Relaxed)
            } else {
                word.fetch_and(!bit, Relaxed)
            };
        }
    }
}

/// What one core's generator counts.
#[derive(Debug, Default)]
pub struct GenStats {
    /// SYNs and first datagrams sent.
    pub asked: AtomicU64,
    /// Connections whose SYN was answered.
    pub opened: AtomicU64,
    /// Connections that came to their end.
    pub closed: AtomicU64,
    /// Connections that were reset.
    pub resets: AtomicU64,
    /// Packets that reached clients.
    pub replies: AtomicU64,
    /// Packets that reached servers.
    pub requests: AtomicU64,
    /// Time of all turns, nanoseconds.
    pub turns_ns: AtomicU64,
    /// Time of those turns in which nothing came in and no port took anything, nanoseconds.
    pub waited_ns: AtomicU64,
}

/// The block that stands behind the forward statistics of lbgen.
pub fn block(cores: &[u32], stats: &[Arc<GenStats>]) -> String {
    let mut text = String::new();
    for (core, stats) in cores.iter().zip(stats) {
        let of = |cell: &AtomicU64| cell.load(Relaxed);
        text.push_str(&format!(
            "\n  ---------------------- Clients and servers on lcore {core:<4} --------------------\n  \
             Asked: {:<14} Opened: {:<14} Closed: {:<14} Reset: {}\n  \
             At servers: {:<14} At clients: {:<10} Waited: {} %\n  {}\n",
            of(&stats.asked),
            of(&stats.opened),
            of(&stats.closed),
            of(&stats.resets),
            of(&stats.requests),
            of(&stats.replies),
            of(&stats.waited_ns) * 100 / of(&stats.turns_ns).max(1),
            "-".repeat(76)
        ));
    }
    text
}

/// A core's share.
pub struct Core<'p> {
    /// Its ports.
    pub ends: PortEnds<'p>,
    /// Its clients and servers.
    pub peers: Peers,
}

impl<'p> Core<'p> {
    /// Generates until told to stop.
    pub fn run(self, plan: &Plan<'p>, stop: &AtomicBool) -> Queues<'p> {
        let Core { ends, mut peers } = self;
        let mut io = ends.open();
        let mut waiting = peers.waiting();
        let mut now_ns = plan.clock.now_ns();
        while !stop.load(Relaxed) {
            let moved = peers.poll(now_ns, &mut io, &mut waiting);
            let turn_ns = plan.clock.now_ns().saturating_sub(now_ns);
            now_ns += turn_ns;
            bump(&peers.stats.turns_ns, turn_ns);
            if moved == 0 {
                bump(&peers.stats.waited_ns, turn_ns);
            }
        }
        for (port, waiting) in waiting.iter().enumerate() {
            io.count_dropped(port as PortIndex, waiting.len() as u64);
        }
        io.into_queues()
    }
}

/// One side of the balancer.
struct Side {
    own: Mac,
    clients: bool,
    balancer: Option<Mac>,
    next_arp_ns: u64,
}

/// Clients and servers of one core.
pub struct Peers {
    settings: LbGenSettings,
    core: u32,
    cores: u32,
    ports: Vec<Side>,
    opened: Arc<Opened>,
    stats: Arc<GenStats>,
    order: Order,
    pacer: Pacer,
    short: u32,
    turn: u32,
    template: Template,
}

/// Packets that wait for each port. Clients speak only while there is room, so that answers are not lost.
pub type Waiting<B> = Vec<ArrayVec<B, WAITING>>;

/// What becomes of a received frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    /// It was turned into an answer.
    Answer,
    /// It has come to its end.
    End,
}

impl Peers {
    /// The share of core number `core` of `cores` over ports with these addresses.
    pub fn new(
        settings: &Settings,
        macs: &[[u8; 6]],
        (core, cores): (usize, usize),
        opened: Arc<Opened>,
        stats: Arc<GenStats>,
    ) -> Peers {
        let gen_settings = settings.lbgen;
        let side = |(index, own): (usize, &[u8; 6])| {
            let id = settings.forwarding()[index];
            let given = settings.peers_given.get(usize::from(id)) == Some(&true);
            Side {
                own: Mac(*own),
                clients: index % 2 == 0,
                balancer: given.then(|| Mac(settings.peer(id))),
                next_arp_ns: 0,
            }
        };
        let flows = gen_settings.flows;
        let share = flows / cores as u32 + u32::from((core as u32) < flows % cores as u32);
        Peers {
            settings: gen_settings,
            core: core as u32,
            cores: cores as u32,
            ports: macs.iter().enumerate().map(side).collect(),
            opened,
            stats,
            order: Order::new(share.max(1)),
            pacer: Pacer::new(gen_settings.rate, cores as u64),
            short: core as u32,
            turn: 0,
            template: Template::new(&gen_settings),
        }
    }

    /// Nothing waiting, for as many ports as there are.
    pub fn waiting<B: PacketBuf>(&self) -> Waiting<B> {
        self.ports.iter().map(|_| ArrayVec::new()).collect()
    }

    /// One turn: answers first, then what clients have to say. Packets that a port does not take wait for it. How many
    /// came in and went out.
    pub fn poll<I: Io>(&mut self, now_ns: u64, io: &mut I, waiting: &mut Waiting<I::Buf>) -> usize {
        let (mut burst, mut spare) = (Burst::new(), Burst::new());
        let mut moved = 0;
        for (port, out) in waiting.iter_mut().enumerate() {
            if out.remaining_capacity() >= BURST {
                io.rx(port as PortIndex, &mut burst);
            }
            moved += burst.len();
            // Over memif another core wrote them.
            burst.iter().for_each(PacketBuf::prefetch);
            for mut buf in burst.drain(..) {
                match self.take(port, buf.data_mut()) {
                    Fate::Answer => out.push(buf),
                    Fate::End if !spare.is_full() => spare.push(buf),
                    Fate::End => {}
                }
            }
            if self.ports[port].clients && out.remaining_capacity() >= BURST {
                self.speak(now_ns, port, io, &mut spare, out);
            }
            if !out.is_empty() {
                let before = out.len();
                io.tx(port as PortIndex, out);
                moved += before - out.len();
            }
        }
        moved
    }

    /// Adds a burst of the clients' packets, or a request for the balancer's address. Packets that came to their end are
    /// made new ones before any other buffer is.
    fn speak<I: Io>(
        &mut self,
        now_ns: u64,
        port: usize,
        io: &mut I,
        spare: &mut Burst<I::Buf>,
        out: &mut ArrayVec<I::Buf, WAITING>,
    ) {
        let Some(balancer) = self.ports[port].balancer else {
            let side = &mut self.ports[port];
            if now_ns >= side.next_arp_ns {
                side.next_arp_ns = now_ns + ARP_NS;
                out.extend(io.alloc().and_then(|buf| new_frame(buf, |frame| ask(frame, side.own))));
            }
            return;
        };
        for _ in 0..BURST {
            let Some((flow, port_of_flow, flags)) = self.next(now_ns) else { return };
            let (template, own) = (&self.template, self.ports[port].own);
            let made = spare.pop().or_else(|| io.alloc()).and_then(|buf| {
                new_frame(buf, |frame| {
                    template.write(frame, flow, port_of_flow, flags);
                    frame[..6].copy_from_slice(&balancer.0);
                    frame[6..12].copy_from_slice(&own.0);
                })
            });
            match made {
                Some(buf) => out.push(buf),
                None => return,
            }
        }
    }

    /// The next packet of the clients: its flow, the client's first port, its flags. `None`: nothing to send now.
    #[inline(always)]
    fn next(&mut self, now_ns: u64) -> Option<(u32, u16, u8)> {
        match self.settings.traffic {
            Traffic::Udp => Some((self.flow(), LASTING, 0)),
            Traffic::Syn => {
                let new = self.pacer.may(now_ns)?;
                bump(&self.stats.asked, new);
                Some((self.flow(), LASTING, SYN))
            }
            Traffic::Established => self.lasting(now_ns),
            Traffic::Mixed => {
                self.turn = (self.turn + 1) % MIXED_EVERY;
                let due =
                    if self.settings.rate > 0 { self.pacer.may(now_ns).is_some() } else { self.turn == 0 };
                if !due {
                    return self.lasting_any_time();
                }
                bump(&self.stats.asked, 1);
                self.short = (self.short + self.cores) % FLOWS_MAX;
                Some((self.short, SHORT, SYN))
            }
        }
    }

    fn lasting(&mut self, now_ns: u64) -> Option<(u32, u16, u8)> {
        let flow = self.flow();
        if self.opened.has(flow) {
            return Some((flow, LASTING, PSH | ACK));
        }
        bump(&self.stats.asked, self.pacer.may(now_ns)?);
        Some((flow, LASTING, SYN))
    }

    /// As [`Peers::lasting`]; the pace is that of short connections.
    fn lasting_any_time(&mut self) -> Option<(u32, u16, u8)> {
        let flow = self.flow();
        let flags = if self.opened.has(flow) { PSH | ACK } else { SYN };
        Some((flow, LASTING, flags))
    }

    fn flow(&mut self) -> u32 {
        self.order.next() * self.cores + self.core
    }

    /// Takes a frame in, as whoever it reached.
    fn take(&mut self, port: usize, frame: &mut [u8]) -> Fate {
        match ethernet::Header::at(frame).map(|header| header.ethertype()) {
            Some(ethernet::ARP) => self.take_arp(port, frame),
            Some(ethernet::IPV4) if frame.len() >= LEAST && frame[IP] == 0x45 => match frame[PROTOCOL] {
                ipv4::TCP => self.take_tcp(frame),
                ipv4::UDP => self.take_udp(frame),
                _ => Fate::End,
            },
            _ => Fate::End,
        }
    }

    fn take_tcp(&mut self, frame: &mut [u8]) -> Fate {
        let flags = frame[FLAGS + 1];
        if let Some(flow) = self.client_of(frame, DST, DPORT) {
            bump(&self.stats.replies, 1);
            return turn(frame, self.at_client(flow, flags));
        }
        bump(&self.stats.requests, 1);
        let Some(answer) = at_server(flags) else { return Fate::End };
        if !self.is_service(frame) {
            return turn(frame, Some(answer));
        }
        // Sent to the service's own address: a server of direct routing, whose answer takes no way back through here.
        let Some(flow) = self.client_of(frame, SRC, SPORT) else { return Fate::End };
        bump(&self.stats.replies, 1);
        let Some(next) = self.at_client(flow, answer) else { return Fate::End };
        set_flags(frame, next);
        readdress_back(frame);
        Fate::Answer
    }

    fn take_udp(&mut self, frame: &mut [u8]) -> Fate {
        if self.client_of(frame, DST, DPORT).is_some() {
            bump(&self.stats.replies, 1);
            return Fate::End;
        }
        bump(&self.stats.requests, 1);
        if self.is_service(frame) {
            bump(&self.stats.replies, 1);
            return Fate::End;
        }
        swap_ends(frame);
        Fate::Answer
    }

    fn is_service(&self, frame: &[u8]) -> bool {
        frame[DST..DST + 4] == self.settings.service.ip().octets()
    }

    /// A client got `flags`: what it answers.
    fn at_client(&self, (flow, short): (u32, bool), flags: u8) -> Option<u8> {
        if flags & RST != 0 {
            bump(&self.stats.resets, 1);
            if !short {
                self.opened.set(flow, false);
            }
            return None;
        }
        match flags & (SYN | PSH | FIN) {
            SYN if short => {
                bump(&self.stats.opened, 1);
                Some(PSH | ACK)
            }
            SYN if self.settings.traffic == Traffic::Syn => {
                bump(&self.stats.opened, 1);
                None
            }
            SYN => {
                bump(&self.stats.opened, u64::from(!self.opened.has(flow)));
                self.opened.set(flow, true);
                Some(ACK)
            }
            PSH if short => Some(FIN | ACK),
            FIN => {
                bump(&self.stats.closed, 1);
                Some(ACK)
            }
            _ => None,
        }
    }

    /// The client's flow at this end of a frame, and whether it is a short one. `None`: no client is there.
    fn client_of(&self, frame: &[u8], address: usize, port: usize) -> Option<(u32, bool)> {
        let client =
            be32(frame, address).checked_sub(CLIENTS).filter(|n| *n < FLOWS_MAX / FLOWS_PER_CLIENT)?;
        let port = be16(frame, port);
        let (first, short) = if port >= SHORT { (SHORT, true) } else { (LASTING, false) };
        let number = u32::from(port.checked_sub(first)?);
        (number < FLOWS_PER_CLIENT).then_some((client * FLOWS_PER_CLIENT + number, short))
    }

    fn take_arp(&mut self, port: usize, frame: &mut [u8]) -> Fate {
        let side = &mut self.ports[port];
        let Some(heard) = frame.get(ethernet::LEN..).and_then(Repr::parse) else { return Fate::End };
        let is_balancer = |ip: u32| ip == BALANCER.to_bits() || ip == BALANCER_INSIDE.to_bits();
        match heard.operation {
            Operation::Reply if is_balancer(heard.sender_ip) => {
                side.balancer = Some(heard.sender_mac);
                Fate::End
            }
            Operation::Request if heard.sender_ip != heard.target_ip && !is_balancer(heard.target_ip) => {
                let answer = Repr::reply_to(&heard, side.own);
                match frame.first_chunk_mut() {
                    Some(whole) => answer.emit_frame(heard.sender_mac, whole),
                    None => return Fate::End,
                }
                Fate::Answer
            }
            _ => Fate::End,
        }
    }
}

/// A server got `flags`: what it answers.
fn at_server(flags: u8) -> Option<u8> {
    match flags & (SYN | PSH | FIN | RST) {
        SYN => Some(SYN | ACK),
        PSH => Some(PSH | ACK),
        FIN => Some(FIN | ACK),
        _ => None,
    }
}

/// Sends a TCP frame back with these flags, if there is an answer.
fn turn(frame: &mut [u8], flags: Option<u8>) -> Fate {
    let Some(flags) = flags else { return Fate::End };
    set_flags(frame, flags);
    swap_ends(frame);
    Fate::Answer
}

fn new_frame<B: PacketBuf>(mut buf: B, write: impl FnOnce(&mut [u8; FRAME])) -> Option<B> {
    if !buf.set_len(FRAME) {
        return None;
    }
    write(buf.data_mut().first_chunk_mut()?);
    Some(buf)
}

#[cfg(test)]
mod tests;

//! The in-process feed: frames written from a permuted flow index straight into mbufs, no table of packets, so that
//! the subject's cache is its own. What comes back is freed in bulk; one frame in 4096 is kept for the checker.

use arrayvec::ArrayVec;
use dataplane::io::{Burst, Io, PortIndex};
use dataplane::limits::BURST;
use dpdk_sys::{Mbuf, Mempool, free_bulk};

/// Server endpoints that the balancer's four destinations have, in the order they were added.
pub const SERVERS: [[u8; 4]; 4] = [[10, 0, 0, 11], [10, 0, 0, 12], [10, 0, 0, 13], [10, 0, 0, 14]];
/// Virtual address of the service.
pub const VIP: [u8; 4] = [203, 0, 113, 10];
/// Port of the service and of its servers under NAT.
pub const PORTS: (u16, u16) = (80, 8080);
/// MAC addresses of the two ports: towards clients, towards servers.
pub const MACS: [[u8; 6]; 2] = [[2, 0, 0, 0, 0, 1], [2, 0, 0, 0, 1, 1]];

/// Bytes of a frame: the 64 of Ethernet's minimum without the check sequence.
pub const FRAME: usize = 60;
/// One sent frame in so many is kept for the checker.
const KEEP_EVERY: u64 = 4096;
/// Frames kept at most.
const KEPT: usize = 64;

const IP_CHECK: usize = 24;
const IP_SRC: usize = 26;
const IP_DST: usize = 30;
const SPORT: usize = 34;
const DPORT: usize = 36;
const FLAGS: usize = 47;
const TCP_CHECK: usize = 50;
const UDP_CHECK: usize = 40;

const FIN: u8 = 0x01;
const SYN: u8 = 0x02;
const ACK: u8 = 0x10;

/// What the feed produces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// SYNs of the flows in order: sets the table up, or creates connections for ever.
    Syn,
    /// The servers' SYN+ACKs in the same order.
    SynAck,
    /// Packets of established flows in permuted order, requests and replies in turn.
    BothWays,
    /// Requests of established flows in permuted order.
    Requests,
    /// Whole lives, 32 flows at a time: SYN, SYN+ACK, ACK of new ones; FIN, FIN, ACK of those that are `established`
    /// flows older.
    Lives {
        /// Flows established at any time.
        established: u32,
    },
}

/// What a feed feeds, whatever its buffers.
pub trait Feeds {
    /// Its frames.
    fn frames(&mut self) -> &mut Frames;
}

/// A burst of [`Pattern::Lives`]: the port it comes to, its TCP flags, whether it is of the older flows.
struct Step {
    port: PortIndex,
    flags: u8,
    older: bool,
}

const LIFE: [Step; 6] = [
    Step { port: 0, flags: SYN, older: false },
    Step { port: 1, flags: SYN | ACK, older: false },
    Step { port: 0, flags: ACK, older: false },
    Step { port: 0, flags: FIN | ACK, older: true },
    Step { port: 1, flags: FIN | ACK, older: true },
    Step { port: 0, flags: ACK, older: true },
];

/// Templates and sums of one protocol.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum L4 {
    /// TCP.
    Tcp,
    /// UDP.
    Udp,
}

/// The frames of a pattern, one after the other.
pub struct Frames {
    l4: L4,
    pattern: Pattern,
    flows: Permutation,
    /// Frames produced.
    count: u64,
    /// Port whose turn it is to receive a burst.
    turn: PortIndex,
    /// Clients in place of consecutive ones; then there is one server.
    clients: Option<Box<[u32]>>,
    templates: [[u8; FRAME]; 2],
}

impl Frames {
    /// `flows` flows of protocol `l4`.
    pub fn new(l4: L4, flows: u32) -> Self {
        let templates = [template(l4, MACS[0]), template(l4, MACS[1])];
        let flows = Permutation::new(flows);
        Self { l4, pattern: Pattern::Syn, flows, count: 0, turn: 0, clients: None, templates }
    }

    /// Flows of these clients, 16 each, with the first server.
    pub fn of_clients(l4: L4, clients: Vec<u32>) -> Self {
        let flows = 16 * clients.len() as u32;
        Self { clients: Some(clients.into()), ..Self::new(l4, flows) }
    }

    /// Starts a pattern from its beginning.
    pub fn start(&mut self, pattern: Pattern) {
        self.start_at(pattern, 0);
    }

    /// Starts a pattern `count` frames after its beginning.
    pub fn start_at(&mut self, pattern: Pattern, count: u64) {
        (self.pattern, self.count) = (pattern, count);
        self.turn = PortIndex::from(pattern == Pattern::SynAck);
    }

    /// Whether `port` receives the next burst; moves the turn on if so.
    #[inline(always)]
    pub fn is_turn(&mut self, port: PortIndex) -> bool {
        if let Pattern::Lives { established } = self.pattern {
            return port == self.life(established).0;
        }
        let is = port == self.turn;
        if is && self.pattern == Pattern::BothWays {
            self.turn ^= 1;
        }
        is
    }

    /// Writes the next frame for `port`.
    #[inline(always)]
    pub fn write(&mut self, frame: &mut [u8; FRAME], port: PortIndex) {
        let (flow, flags) = match self.pattern {
            Pattern::Syn => (self.count as u32, SYN),
            Pattern::SynAck => (self.count as u32, SYN | ACK),
            Pattern::BothWays | Pattern::Requests => (self.flows.at(self.count), ACK),
            Pattern::Lives { established } => {
                let (_, flow, flags) = self.life(established);
                (flow, flags)
            }
        };
        self.count += 1;
        let (client, server) = match &self.clients {
            // Round robin walks the list from its head, the destination added last.
            None => (0x6440_0000 + (flow >> 4), SERVERS[3 - (flow & 3) as usize]),
            Some(clients) => (clients[(flow >> 4) as usize % clients.len()], SERVERS[0]),
        };
        let client_port = 10_000 + (flow & 15) as u16;
        let server = u32::from_be_bytes(server);
        let vip = u32::from_be_bytes(VIP);
        let (src, dst, sport, dport) = match port {
            0 => (client, vip, client_port, PORTS.0),
            _ => (server, client, PORTS.1, client_port),
        };
        let template = &self.templates[usize::from(port)];
        *frame = *template;
        frame[IP_SRC..IP_SRC + 4].copy_from_slice(&src.to_be_bytes());
        frame[IP_DST..IP_DST + 4].copy_from_slice(&dst.to_be_bytes());
        frame[SPORT..SPORT + 2].copy_from_slice(&sport.to_be_bytes());
        frame[DPORT..DPORT + 2].copy_from_slice(&dport.to_be_bytes());
        // Template checks hold the uncomplemented sums of everything else.
        let addresses = (src >> 16) + (src & 0xffff) + (dst >> 16) + (dst & 0xffff);
        let ip = fold(addresses + word(template, IP_CHECK));
        frame[IP_CHECK..IP_CHECK + 2].copy_from_slice(&(!ip).to_be_bytes());
        let ports = u32::from(sport) + u32::from(dport);
        if self.l4 == L4::Tcp {
            frame[FLAGS] = flags;
            let tcp = fold(addresses + ports + u32::from(flags) + word(template, TCP_CHECK));
            frame[TCP_CHECK..TCP_CHECK + 2].copy_from_slice(&(!tcp).to_be_bytes());
        } else {
            let udp = fold(addresses + ports + word(template, UDP_CHECK));
            let check = if udp == 0xffff { 0xffff } else { !udp };
            frame[UDP_CHECK..UDP_CHECK + 2].copy_from_slice(&check.to_be_bytes());
        }
    }
}

impl Frames {
    /// Port, flow and flags of the next frame of [`Pattern::Lives`]. Flow numbers go round at the size of the feed.
    #[inline(always)]
    fn life(&self, established: u32) -> (PortIndex, u32, u8) {
        let (burst, lane) = (self.count / BURST as u64, (self.count % BURST as u64) as u32);
        let group = (burst / LIFE.len() as u64) as u32;
        let step = &LIFE[(burst % LIFE.len() as u64) as usize];
        let newest = group * BURST as u32 + lane;
        let (flow, flags) = match step.older {
            true if newest >= established => (newest - established, step.flags),
            // There are no older flows yet: more packets of the new ones.
            true => (newest, ACK),
            false => (newest, step.flags),
        };
        (step.port, flow % self.flows.len, flags)
    }
}

/// Both ports of the subject, over mbufs.
pub struct Feed<'eal> {
    pool: Mempool<'eal>,
    /// What is fed.
    pub frames: Frames,
    /// Packets taken back.
    pub sent: u64,
    /// Sample of sent frames.
    pub kept: Vec<Vec<u8>>,
    next_keep: u64,
}

impl<'eal> Feed<'eal> {
    /// Feeds `frames` in mbufs of `pool`.
    pub fn new(pool: Mempool<'eal>, frames: Frames) -> Self {
        Self { pool, frames, sent: 0, kept: Vec::with_capacity(KEPT), next_keep: KEEP_EVERY / 2 }
    }
}

impl Feeds for Feed<'_> {
    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

impl<'eal> Io for Feed<'eal> {
    type Buf = Mbuf<'eal>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'eal>>) {
        if !self.frames.is_turn(port) || self.pool.alloc_bulk(burst, BURST).is_err() {
            return;
        }
        for mbuf in burst.iter_mut() {
            if mbuf.set_len(FRAME).is_ok()
                && let Some(frame) = mbuf.data_mut().first_chunk_mut()
            {
                self.frames.write(frame, port);
            }
        }
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, _: PortIndex, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        self.sent += queue.len() as u64;
        if self.sent >= self.next_keep && self.kept.len() < KEPT {
            self.next_keep = self.sent + KEEP_EVERY;
            self.kept.extend(queue.first().map(|m| m.data().to_vec()));
        }
        free_bulk(queue);
    }

    fn alloc(&mut self) -> Option<Mbuf<'eal>> {
        self.pool.alloc().ok()
    }
}

/// A bijection of `0..len`: an odd multiplication and two shifts on the next power of two, walked until inside.
struct Permutation {
    len: u32,
    mask: u32,
    half: u32,
}

impl Permutation {
    fn new(len: u32) -> Self {
        let bits = u32::BITS - (len.max(2) - 1).leading_zeros();
        Self { len, mask: ((1u64 << bits) - 1) as u32, half: bits.div_ceil(2) }
    }

    /// Element `index` of the permutation of its round.
    #[inline(always)]
    fn at(&self, index: u64) -> u32 {
        let (round, mut x) = ((index / u64::from(self.len)) as u32, (index % u64::from(self.len)) as u32);
        loop {
            x = x.wrapping_add(round.wrapping_mul(0x9E37_79B1)) & self.mask;
            x ^= x >> self.half;
            x = x.wrapping_mul(0x2C1B_3C6D) & self.mask;
            x ^= x >> self.half;
            x = x.wrapping_mul(0x297A_2D39) & self.mask;
            if x < self.len {
                return x;
            }
        }
    }
}

/// A frame without addresses, ports and flags; its checks hold the sums of what is there.
fn template(l4: L4, mac: [u8; 6]) -> [u8; FRAME] {
    let mut frame = [0; FRAME];
    frame[..6].copy_from_slice(&mac);
    frame[6..12].copy_from_slice(&[2, 0, 0, 0, 9, 9]);
    frame[12..14].copy_from_slice(&[8, 0]);
    let proto = if l4 == L4::Tcp { 6 } else { 17 };
    let total = (FRAME - 14) as u16;
    frame[14..24].copy_from_slice(&[0x45, 0, 0, total as u8, 0x12, 0x34, 0x40, 0, 64, proto]);
    let ip = fold((14..24).step_by(2).map(|at| word(&frame, at)).sum());
    frame[IP_CHECK..IP_CHECK + 2].copy_from_slice(&ip.to_be_bytes());
    let l4_len = total - 20;
    if l4 == L4::Tcp {
        frame[38..46].copy_from_slice(&[0x11, 0x11, 0x11, 0x12, 0x22, 0x22, 0x22, 0x23]);
        frame[46..50].copy_from_slice(&[0x50, 0, 0xff, 0xff]);
    } else {
        frame[38..40].copy_from_slice(&l4_len.to_be_bytes());
    }
    let sum =
        (34..FRAME).step_by(2).map(|at| word(&frame, at)).sum::<u32>() + u32::from(proto) + u32::from(l4_len);
    let at = if l4 == L4::Tcp { TCP_CHECK } else { UDP_CHECK };
    frame[at..at + 2].copy_from_slice(&fold(sum).to_be_bytes());
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

//! What a worker does every 10 ms besides packets: ARP requests that are due, neighbours to confirm, addresses to
//! announce. Bounded work each time; worker 0 does the box-wide part.

use arrayvec::ArrayVec;

use crate::counters::bump;
use crate::io::{Io, PacketBuf, PortIndex};
use crate::limits::{ANNOUNCE_COUNT, ANNOUNCE_NS, HOUSEKEEPING_NS, RESOLVING_MAX};
use crate::neigh::NeighTable;
use crate::neigh::resolve::Ask;
use crate::pipeline::{Core, Cx};

/// Neighbour cells looked at each time: the default table of 131 072 cells is gone round in about 20 s.
const UPKEEP_CELLS: usize = 64;

/// Announcements sent each time, addresses times ports: keeps a restart with thousands of addresses from filling
/// transmit queues.
const ANNOUNCEMENTS: usize = 16;

pub(crate) struct Housekeeping {
    next_ns: u64,
    /// Does the box-wide part.
    first: bool,
    /// Generation of the network whose gateways were asked for.
    gateways: Option<u16>,
    announcer: Announcer,
}

/// Progress of announcements: rounds over the serial numbers `[from, to)`.
#[derive(Default)]
struct Announcer {
    from: u64,
    to: u64,
    rounds: u8,
    next: u64,
    next_round_ns: u64,
}

impl Housekeeping {
    pub(crate) fn new(first: bool) -> Self {
        Self { next_ns: 0, first, gateways: None, announcer: Announcer::default() }
    }

    #[inline(always)]
    pub(crate) fn is_due(&self, now_ns: u64) -> bool {
        now_ns >= self.next_ns
    }

    #[cold]
    pub(crate) fn run<B: PacketBuf, I: Io<Buf = B>>(&mut self, core: &mut Core<B>, cx: &Cx<'_>, io: &mut I) {
        self.next_ns = cx.now_ns + HOUSEKEEPING_NS;
        if self.first {
            self.kick_gateways(core, cx);
            let neigh = std::sync::Arc::clone(&core.neigh);
            core.resolver.upkeep(&neigh, UPKEEP_CELLS, cx.now_ns);
            self.announcer.run(core, cx, io);
        }
        resolve(core, cx, io);
    }

    fn kick_gateways<B: PacketBuf>(&mut self, core: &mut Core<B>, cx: &Cx<'_>) {
        if self.gateways == Some(cx.snap.net.generation) {
            return;
        }
        self.gateways = Some(cx.snap.net.generation);
        for hop in &cx.snap.net.gateways {
            if let Some(hop) = core.neigh.find(hop.port, hop.addr, cx.now_ns)
                && is_unknown(&core.neigh, hop)
            {
                core.resolver.kick(&core.neigh, hop, cx.now_ns);
            }
        }
    }
}

fn is_unknown(table: &NeighTable, hop: crate::neigh::Hop) -> bool {
    matches!(table.reach(hop), crate::neigh::Reach::Waiting { .. })
}

/// Sends requests that are due and settles what has been decided.
pub(crate) fn resolve<B: PacketBuf, I: Io<Buf = B>>(core: &mut Core<B>, cx: &Cx<'_>, io: &mut I) {
    let mut asks = ArrayVec::<Ask, RESOLVING_MAX>::new();
    let mut settled = ArrayVec::new();
    core.resolver.due(&core.neigh, cx.now_ns, &mut asks, &mut settled);
    for ask in asks {
        let (port, addr, mac) = core.neigh.identity(ask.hop);
        match io.alloc() {
            Some(mut buf) => {
                let verdict = core.ask(cx, &mut buf, port, addr, ask.probe.then_some(mac));
                core.dispose(cx, buf, verdict);
            }
            None => bump(&core.stats.mbuf_nomem, 1),
        }
        core.flush(io);
    }
    for hop in settled {
        core.release(cx, hop);
        core.flush(io);
    }
}

impl Announcer {
    fn run<B: PacketBuf, I: Io<Buf = B>>(&mut self, core: &mut Core<B>, cx: &Cx<'_>, io: &mut I) {
        let list = &cx.snap.announce;
        let end = list.first + list.addrs.len() as u64;
        if end > self.to {
            // New addresses: all that are not through their rounds go on with them.
            let done = self.rounds == 0;
            *self = Announcer {
                from: if done { self.to } else { self.from }.max(list.first),
                to: end,
                rounds: ANNOUNCE_COUNT,
                next: 0,
                next_round_ns: cx.now_ns,
            };
            self.next = self.from;
        }
        if self.rounds == 0 || cx.now_ns < self.next_round_ns {
            return;
        }
        for _ in 0..ANNOUNCEMENTS {
            if self.next >= self.to {
                self.rounds -= 1;
                self.next = self.from;
                self.next_round_ns = cx.now_ns + ANNOUNCE_NS;
                return;
            }
            let at = self.next.saturating_sub(list.first) as usize;
            self.next += 1;
            let Some(addr) = list.addrs.get(at).copied() else { continue };
            let near = cx.snap.net.route_on_link(addr).map(|hop| hop.port);
            for port in 0..cx.snap.net.ports.len() as PortIndex {
                // On the port whose network it is in; an address of no on-link network is announced on all.
                if near.is_some_and(|p| p != port) {
                    continue;
                }
                match io.alloc() {
                    Some(mut buf) => {
                        let verdict = core.announce(cx, &mut buf, port, addr);
                        core.dispose(cx, buf, verdict);
                    }
                    None => bump(&core.stats.mbuf_nomem, 1),
                }
            }
            core.flush(io);
        }
    }
}

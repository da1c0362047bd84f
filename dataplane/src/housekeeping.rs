//! What a worker does every 10 ms besides packets: ARP requests that are due, neighbours to confirm, addresses to
//! announce. Bounded work each time; worker 0 does the box-wide part.

use std::net::Ipv4Addr;

use arrayvec::ArrayVec;

use crate::counters::bump;
use crate::io::{Io, PacketBuf, PortIndex};
use crate::limits::{ANNOUNCE_COUNT, ANNOUNCE_NS, HOUSEKEEPING_NS, RESOLVING_MAX};
use crate::neigh::NeighTable;
use crate::neigh::resolve::Ask;
use crate::pipeline::{Core, Cx};

/// Neighbour cells looked at each time: the default table of 131 072 cells is gone round in about 20 s.
const UPKEEP_CELLS: usize = 64;

/// Announcements looked at each time, each for one port or all: keeps a restart with thousands of addresses from filling
/// transmit queues.
const ANNOUNCEMENTS: usize = 16;

/// Last round of announcements.
const LAST: usize = ANNOUNCE_COUNT - 1;

/// Marks of where announcements were. The oldest is never younger than [`ANNOUNCE_NS`], and at most a tenth older.
const MARKS: usize = 11;
const MARK_NS: u64 = ANNOUNCE_NS / (MARKS as u64 - 1);

pub(crate) struct Housekeeping {
    next_ns: u64,
    /// Does the box-wide part.
    first: bool,
    /// Generation of the network whose gateways were asked for.
    gateways: Option<u16>,
    announcer: Announcer,
}

/// Progress of announcements: the serial number up to which each of their rounds has come. All rounds go on at the same
/// time, the first one first; a round stays behind where the one before it was [`ANNOUNCE_NS`] ago.
#[derive(Default)]
struct Announcer {
    at: [u64; ANNOUNCE_COUNT],
    /// `at` as it was, every [`MARK_NS`]; the oldest at `mark`.
    marks: [[u64; ANNOUNCE_COUNT]; MARKS],
    mark: usize,
    next_mark_ns: u64,
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
        if self.at[LAST] == cx.snap.announce.end() {
            return;
        }
        self.go_on(core, cx, io);
        if cx.now_ns >= self.next_mark_ns {
            self.marks[self.mark] = self.at;
            self.mark = (self.mark + 1) % MARKS;
            self.next_mark_ns = cx.now_ns + MARK_NS;
        }
    }

    fn go_on<B: PacketBuf, I: Io<Buf = B>>(&mut self, core: &mut Core<B>, cx: &Cx<'_>, io: &mut I) {
        let list = &cx.snap.announce;
        let mut budget = ANNOUNCEMENTS;
        for round in 0..=LAST {
            let end = match round {
                0 => list.end(),
                _ => self.marks[self.mark][round - 1],
            };
            self.at[round] = self.at[round].max(list.first());
            while self.at[round] < end {
                if budget == 0 {
                    return;
                }
                budget -= 1;
                // What went again since is nobody's to announce, or another's by now.
                if let Some(addr) = list.get(self.at[round]).filter(|addr| cx.snap.announces(*addr)) {
                    announce(core, cx, io, addr);
                }
                self.at[round] += 1;
            }
        }
    }
}

/// Announces `addr` on the port whose network it is in; an address of no on-link network, on all.
fn announce<B: PacketBuf, I: Io<Buf = B>>(core: &mut Core<B>, cx: &Cx<'_>, io: &mut I, addr: Ipv4Addr) {
    let near = cx.snap.net.route_on_link(addr).map(|hop| hop.port);
    for port in 0..cx.snap.net.ports.len() as PortIndex {
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

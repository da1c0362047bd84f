//! Hand-off: with several workers a packet may arrive at one that does not own its flow ([`crate::steer`]). It goes, a
//! burst at a time, into the ring to its owner, which parses it anew and treats it as its own; nothing is handed on
//! twice. A full ring drops the packet: waiting would let one slow worker stop the others.

use arrayvec::ArrayVec;

use crate::counters::{WorkerStats, bump};
use crate::io::{Burst, Io, PacketBuf, PortIndex};
use crate::limits::BURST;
use crate::pipeline::parse::Meta;
use crate::pipeline::{Core, Cx};
use crate::steer::Steer;
use crate::verdict::DropReason;

/// A worker's view of the others.
pub struct Handoff<B> {
    steer: Steer,
    me: usize,
    /// Packets of the current burst by owner.
    out: Box<[ArrayVec<B, BURST>]>,
    /// Owners with packets in `out`, one bit each.
    filled: u64,
    /// Taken from a ring ahead of its turn, so that its cache lines are on their way from the other core meanwhile; empty
    /// between polls.
    pub(crate) incoming: Burst<B>,
    /// How many of `incoming` have been asked for: one with each packet that is worked on, for all at once would keep a
    /// core's few line buffers from everything else.
    pub(crate) asked: usize,
    /// Where this poll's round of the rings has come to: workers from the next one on, and bursts had from that one.
    round: (usize, usize),
    /// [`crate::neigh::NeighTable::news`] as last seen.
    news: u64,
}

impl<B> Handoff<B> {
    /// Of worker `me`.
    pub fn new(steer: Steer, me: usize) -> Self {
        let out = (0..steer.workers()).map(|_| ArrayVec::new()).collect();
        Self { steer, me, out, filled: 0, incoming: Burst::new(), asked: 0, round: (0, 0), news: 0 }
    }

    /// Whether there are other workers.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.out.len() > 1
    }

    /// Whether this worker owns the flows of `client`. Slow path.
    pub(crate) fn owns(&self, client: (u32, u16)) -> bool {
        !self.has_peers() || self.steer.owner(client) == self.me
    }

    /// Asks for the cache lines of the first rings that this poll uses. At its start.
    #[inline]
    pub(crate) fn expect<I: Io<Buf = B>>(&self, io: &I) {
        if self.has_peers() {
            io.expect((self.me + 1) % self.out.len());
        }
    }

    /// Begins a round of the rings: takes its first burst out. A peer hands over up to a burst for each port and poll, so
    /// a round has as many of each. Early in a poll.
    #[inline]
    pub(crate) fn begin<I: Io<Buf = B>>(&mut self, io: &mut I, ports: usize)
    where
        B: PacketBuf,
    {
        self.round = (1, 0);
        self.fetch(io, ports);
    }

    /// The burst that was taken out, if any, for the empty `burst`; takes the next one out.
    #[inline]
    pub(crate) fn next<I: Io<Buf = B>>(&mut self, burst: &mut Burst<B>, io: &mut I, ports: usize)
    where
        B: PacketBuf,
    {
        self.incoming[self.asked..].iter().for_each(PacketBuf::prefetch);
        std::mem::swap(burst, &mut self.incoming);
        self.fetch(io, ports);
    }

    #[inline]
    fn fetch<I: Io<Buf = B>>(&mut self, io: &mut I, ports: usize)
    where
        B: PacketBuf,
    {
        let workers = self.out.len();
        while self.incoming.is_empty() && self.round.0 < workers {
            let (step, bursts) = self.round;
            io.take_over((self.me + step) % workers, &mut self.incoming);
            let more = self.incoming.is_full() && bursts + 1 < ports;
            self.round = if more { (step, bursts + 1) } else { (step + 1, 0) };
        }
        self.asked = 0;
    }

    /// Whether the table of neighbours has news since this was last asked.
    #[inline(always)]
    pub(crate) fn is_news(&mut self, news: u64) -> bool {
        let is = self.news != news;
        if is {
            self.news = news;
        }
        is
    }

    /// Hands the packets of this burst over.
    #[inline]
    pub(crate) fn flush<I: Io<Buf = B>>(&mut self, io: &mut I, stats: &WorkerStats) {
        while self.filled != 0 {
            let to = self.filled.trailing_zeros() as usize;
            self.filled &= self.filled - 1;
            let queue = &mut self.out[to];
            let wanted = queue.len();
            io.hand_over(to, queue);
            bump(&stats.handed_out, (wanted - queue.len()) as u64);
            queue.drain(..).for_each(|_| stats.count_drop(DropReason::RingFull));
        }
    }
}

impl<B: PacketBuf> Core<B> {
    /// Takes what other workers own out of a received burst; the rest stays in order, its metas beside it. Hot.
    #[inline(never)]
    pub(crate) fn steer(&mut self, cx: &Cx<'_>, burst: &mut Burst<B>, metas: &mut [Meta; BURST]) {
        let handoff = &mut self.handoff;
        let mut owners = [0u8; BURST];
        if !handoff.steer.owners(&cx.snap.services, burst, metas, handoff.me, &mut owners) {
            return;
        }
        let mut kept = Burst::new();
        for (i, mut buf) in burst.drain(..).enumerate() {
            let owner = usize::from(owners[i]);
            if owner == handoff.me {
                metas[kept.len()] = metas[i];
                kept.push(buf);
            } else {
                buf.set_port(cx.port);
                handoff.out[owner].push(buf);
                handoff.filled |= 1 << owner;
            }
        }
        *burst = kept;
    }
}

/// Takes the packets from the front of `burst` that came in on `port`.
pub(crate) fn same_port<B: PacketBuf>(burst: &mut Burst<B>, port: PortIndex) -> Burst<B> {
    let run = burst.iter().take_while(|buf| buf.port() == port).count();
    burst.drain(..run).collect()
}

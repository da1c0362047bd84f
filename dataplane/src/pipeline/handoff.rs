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
    /// [`crate::neigh::NeighTable::news`] as last seen.
    news: u64,
}

impl<B> Handoff<B> {
    /// Of worker `me`.
    pub fn new(steer: Steer, me: usize) -> Self {
        let out = (0..steer.workers()).map(|_| ArrayVec::new()).collect();
        Self { steer, me, out, filled: 0, news: 0 }
    }

    /// Whether there are other workers.
    #[inline(always)]
    pub(crate) fn has_peers(&self) -> bool {
        self.out.len() > 1
    }

    /// The other workers, in turn from the next one on.
    pub(crate) fn peers(&self) -> impl Iterator<Item = usize> + use<B> {
        let (me, workers) = (self.me, self.out.len());
        (1..workers).map(move |step| (me + step) % workers)
    }

    /// Whether the table of neighbours has news since this was last asked.
    pub(crate) fn is_news(&mut self, news: u64) -> bool {
        std::mem::replace(&mut self.news, news) != news
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
        let mut foreign = 0;
        for ((owner, meta), buf) in owners.iter_mut().zip(metas.iter()).zip(burst.iter()) {
            *owner = handoff.steer.owner_of(&cx.snap.services, buf, meta, handoff.me) as u8;
            foreign += usize::from(usize::from(*owner) != handoff.me);
        }
        if foreign == 0 {
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

//! Send: the last stage. Writes the Ethernet header and queues the packet, or parks it until ARP answers.

use std::net::Ipv4Addr;

use arrayvec::ArrayVec;

use crate::conn::Slot;
use crate::counters::bump;
use crate::io::{Io, PacketBuf, PortIndex};
use crate::limits::TX_BACKLOG;
use crate::neigh::resolve::Origin;
use crate::neigh::{Hop, Reach};
use crate::pipeline::answer::{Refusal, undo};
use crate::pipeline::{Core, Cx};
use crate::verdict::{DropReason, Verdict};
use crate::wire::ethernet::{self, Mac};
use crate::wire::icmp::Problem;

/// Packets on their way out, per port.
pub struct Queues<B>(Vec<ArrayVec<B, TX_BACKLOG>>);

impl<B> Queues<B> {
    /// For that many ports.
    pub fn new(ports: usize) -> Self {
        Self((0..ports).map(|_| ArrayVec::new()).collect())
    }

    /// Packets in all queues.
    pub fn waiting(&self) -> usize {
        self.0.iter().map(ArrayVec::len).sum()
    }

    /// Empties all queues; how many packets there were.
    pub fn clear(&mut self) -> usize {
        self.0.iter_mut().map(|q| q.drain(..).count()).sum()
    }

    /// Queues a finished frame; `false` and freed when the queue is full.
    #[inline(always)]
    pub(super) fn push(&mut self, port: PortIndex, buf: B) -> bool {
        self.0.get_mut(usize::from(port)).is_some_and(|queue| queue.try_push(buf).is_ok())
    }
}

impl<B: PacketBuf> Core<B> {
    /// Addresses an IPv4 packet to the neighbour `to`. `from` is the connection whose request it is: its client is
    /// told when the neighbour does not answer.
    #[inline(always)]
    pub(super) fn emit(&mut self, cx: &Cx<'_>, buf: &mut B, to: (Hop, Reach), from: Option<Slot>) -> Verdict {
        if let Reach::Ready { mac, port } = to.1
            && let Some(out) = cx.snap.net.ports.get(usize::from(port))
            && let Some(mut ether) = ethernet::Header::at_mut(buf.data_mut())
        {
            ether.set_dst(mac);
            ether.set_src(Mac(out.facts.mac));
            return Verdict::Send(port);
        }
        self.not_ready(cx, buf, to, from)
    }

    /// Addresses a packet of our own making by the route to `to`.
    pub(super) fn emit_own(&mut self, cx: &Cx<'_>, buf: &mut B, to: Ipv4Addr) -> Verdict {
        bump(&self.stats.generated, 1);
        let Some(next) = cx.snap.net.route(to) else { return self.drop(DropReason::NoRoute) };
        let mtu = cx.snap.net.ports.get(usize::from(next.port)).map_or(0, |p| usize::from(p.facts.mtu));
        if buf.data().len() > ethernet::LEN + mtu {
            return self.drop(DropReason::Mtu);
        }
        match self.neigh.find(next.port, next.addr, cx.now_ns) {
            Some(hop) => self.emit(cx, buf, (hop, self.neigh.reach(hop)), None),
            None => self.drop(DropReason::NeighFull),
        }
    }

    /// A finished frame of our own making for `port`.
    pub(super) fn send_own(&mut self, port: PortIndex) -> Verdict {
        bump(&self.stats.generated, 1);
        Verdict::Send(port)
    }

    /// The next hop's MAC address is not known: wait for it, or refuse if it just failed to answer.
    #[cold]
    fn not_ready(&mut self, cx: &Cx<'_>, buf: &mut B, to: (Hop, Reach), from: Option<Slot>) -> Verdict {
        let origin = from.map(|slot| {
            let tuple = self.conns.get(slot).tuple();
            (tuple.vaddr, tuple.vport)
        });
        match to.1 {
            Reach::Waiting { .. } => Verdict::Park(to.0, origin),
            Reach::Failed { .. } if self.neigh.may_retry(to.0, cx.now_ns) => Verdict::Park(to.0, origin),
            Reach::Failed { .. } => self.unreachable(cx, buf, origin, from),
            Reach::Ready { .. } | Reach::Gone => self.drop(DropReason::NoRoute),
        }
    }

    /// Drops a packet whose next hop does not answer; the client of a request gets host unreachable.
    fn unreachable(&mut self, cx: &Cx<'_>, buf: &mut B, origin: Origin, from: Option<Slot>) -> Verdict {
        let Some((vaddr, vport)) = origin else { return self.drop(DropReason::NeighFail) };
        undo(buf, vaddr, vport);
        self.reject(cx, buf, Refusal::answered(DropReason::NeighFail, Problem::HostUnreachable), from)
    }

    /// Lets a packet wait for ARP.
    #[cold]
    pub(super) fn park(&mut self, cx: &Cx<'_>, buf: B, hop: Hop, origin: Origin) {
        // What comes back is the packet itself, or an older one in its stead: one drop either way.
        if self.resolver.park(&self.neigh, hop, buf, origin, cx.now_ns).is_some() {
            self.stats.count_drop(DropReason::NeighQueue);
        }
    }

    /// Sends what waited for `hop`, now that it is settled.
    pub(crate) fn release(&mut self, cx: &Cx<'_>, hop: Hop) {
        while let Some((mut buf, origin)) = self.resolver.release(hop) {
            let reach = self.neigh.reach(hop);
            let verdict = match reach {
                Reach::Ready { .. } => self.emit(cx, &mut buf, (hop, reach), None),
                _ => self.unreachable(cx, &mut buf, origin, None),
            };
            self.dispose(cx, buf, verdict);
        }
    }

    /// Hands the queues to the ports.
    #[inline(always)]
    pub(crate) fn flush<I: Io<Buf = B>>(&mut self, io: &mut I) {
        for (port, queue) in self.queues.0.iter_mut().enumerate() {
            if !queue.is_empty() {
                let before = queue.len();
                io.tx(port as PortIndex, queue);
                bump(&self.stats.tx, (before - queue.len()) as u64);
            }
        }
    }
}

//! Send: the last stage. Writes the Ethernet header and queues the packet, or parks it until ARP answers.

use arrayvec::ArrayVec;

use crate::conn::Slot;
use crate::counters::bump;
use crate::io::{Io, PacketBuf, PortIndex};
use crate::limits::TX_BACKLOG;
use crate::neigh::{Hop, Reach};
use crate::pipeline::answer::Refusal;
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
    pub fn len(&self) -> usize {
        self.0.iter().map(ArrayVec::len).sum()
    }

    /// Empties all queues; how many packets there were.
    pub fn clear(&mut self) -> usize {
        self.0.iter_mut().map(|q| q.drain(..).count()).sum()
    }

    #[inline(always)]
    fn push(&mut self, port: PortIndex, buf: B) -> Verdict {
        match self.0.get_mut(usize::from(port)).map(|q| q.try_push(buf)) {
            Some(Ok(())) => Verdict::Forward,
            _ => Verdict::Drop(DropReason::TxFull),
        }
    }
}

impl<B: PacketBuf> Core<B> {
    /// Sends an IPv4 packet to the neighbour `to`. `from` is the connection whose request it is: its client is told
    /// when the neighbour does not answer.
    #[inline(always)]
    pub(super) fn emit(&mut self, cx: Cx<'_>, mut buf: B, to: (Hop, Reach), from: Option<Slot>) -> Verdict {
        match to.1 {
            Reach::Ready { mac, port } => {
                let Some(out) = cx.snap.net.ports.get(usize::from(port)) else {
                    return Verdict::Drop(DropReason::NoRoute);
                };
                if let Some(mut ether) = ethernet::Header::at_mut(buf.data_mut()) {
                    ether.set_dst(mac);
                    ether.set_src(Mac(out.facts.mac));
                }
                self.queues.push(port, buf)
            }
            Reach::Waiting { .. } => self.wait(cx, buf, to.0, from),
            Reach::Failed { .. } => self.unreachable(cx, buf, to.0, from),
            Reach::Gone => Verdict::Drop(DropReason::NoRoute),
        }
    }

    /// Sends a packet of our own making to the address in its header. Returns whether it went or waits; if not, it is
    /// counted as dropped.
    pub(super) fn send_own(&mut self, cx: Cx<'_>, buf: B, to: std::net::Ipv4Addr) {
        bump(&self.stats.generated, 1);
        let next = cx.snap.net.route(to);
        let verdict = match next.and_then(|n| self.neigh.find(n.port, n.addr, cx.now_ns)) {
            Some(hop) => {
                let reach = self.neigh.reach(hop);
                self.emit(cx, buf, (hop, reach), None)
            }
            None if next.is_some() => Verdict::Drop(DropReason::NeighFull),
            None => Verdict::Drop(DropReason::NoRoute),
        };
        self.account(verdict);
    }

    /// Puts a finished frame of our own making into a port's queue.
    pub(super) fn send_frame(&mut self, port: PortIndex, buf: B) {
        bump(&self.stats.generated, 1);
        let verdict = self.queues.push(port, buf);
        self.account(verdict);
    }

    /// Lets a packet wait for ARP.
    #[cold]
    fn wait(&mut self, cx: Cx<'_>, buf: B, hop: Hop, from: Option<Slot>) -> Verdict {
        let origin = from.map(|slot| {
            let tuple = self.conns.get(slot).tuple();
            (tuple.vaddr, tuple.vport)
        });
        match self.resolver.park(&self.neigh, hop, buf, origin, cx.now_ns) {
            None => Verdict::Forward,
            // The packet itself, or an older one in its stead: one drop either way.
            Some(_) => Verdict::Drop(DropReason::NeighQueue),
        }
    }

    /// A neighbour that failed: after a while it is asked again, until then packets to it are refused.
    #[cold]
    fn unreachable(&mut self, cx: Cx<'_>, mut buf: B, hop: Hop, from: Option<Slot>) -> Verdict {
        if self.neigh.may_retry(hop, cx.now_ns) {
            return self.wait(cx, buf, hop, from);
        }
        let Some(slot) = from else { return Verdict::Drop(DropReason::NeighFail) };
        let tuple = self.conns.get(slot).tuple();
        self.undo(&mut buf, tuple.vaddr, tuple.vport);
        self.reject(cx, buf, Refusal::answered(DropReason::NeighFail, Problem::HostUnreachable), from)
    }

    /// Sends what waited for `hop`, now that it is settled.
    pub(crate) fn release(&mut self, cx: Cx<'_>, hop: Hop) {
        while let Some((mut buf, origin)) = self.resolver.release(hop) {
            let reach = self.neigh.reach(hop);
            let verdict = match (reach, origin) {
                (Reach::Ready { .. }, _) => self.emit(cx, buf, (hop, reach), None),
                (_, Some((vaddr, vport))) => {
                    self.undo(&mut buf, vaddr, vport);
                    let refusal = Refusal::answered(DropReason::NeighFail, Problem::HostUnreachable);
                    self.reject(cx, buf, refusal, None)
                }
                (_, None) => Verdict::Drop(DropReason::NeighFail),
            };
            self.account(verdict);
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

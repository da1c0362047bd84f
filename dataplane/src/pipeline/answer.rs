//! Answers to refused packets: ICMP errors and TCP resets, made in the offender's own buffer and rate limited per
//! worker, ICMP errors besides per receiver (all but "fragmentation needed", which path MTU discovery lives on).

use std::net::Ipv4Addr;

use crate::conn::{Slot, flag};
use crate::io::PacketBuf;
use crate::limits::{ICMP_PEER_BURST, ICMP_PEER_CELLS};
use crate::pipeline::forward::restore;
use crate::pipeline::parse::{Kind, parse};
use crate::pipeline::{Core, Cx};
use crate::verdict::{DropReason, Verdict};
use crate::wire::ethernet;
use crate::wire::icmp::{self, Problem};
use crate::wire::{ipv4, tcp};

/// Why a packet is not forwarded, and what its sender is told.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Refusal {
    reason: DropReason,
    problem: Option<Problem>,
}

impl Refusal {
    /// Dropped, with an ICMP error to the sender.
    pub(crate) const fn answered(reason: DropReason, problem: Problem) -> Self {
        Self { reason, problem: Some(problem) }
    }

    /// Dropped without a word.
    pub(crate) const fn silent(reason: DropReason) -> Self {
        Self { reason, problem: None }
    }
}

/// Token bucket in nanoseconds of credit.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    credit_ns: u64,
    last_ns: u64,
}

impl Bucket {
    /// Starts full.
    const FULL: Bucket = Bucket { credit_ns: u64::MAX, last_ns: 0 };

    /// Takes one token of `rate` a second, at most `burst` at once.
    fn take(&mut self, now_ns: u64, rate: u32, burst: u32) -> bool {
        if rate == 0 {
            return false;
        }
        let cost = 1_000_000_000 / u64::from(rate);
        let since = now_ns.saturating_sub(self.last_ns);
        self.credit_ns = self.credit_ns.saturating_add(since).min(cost * u64::from(burst));
        self.last_ns = now_ns;
        let paid = self.credit_ns >= cost;
        if paid {
            self.credit_ns -= cost;
        }
        paid
    }
}

/// A worker's limits and scratch for answers.
pub struct Answers {
    errors: Bucket,
    resets: Bucket,
    echoes: Bucket,
    /// By hash of the receiver.
    peers: Box<[Bucket]>,
    scratch: Box<[u8; icmp::ERROR_MAX]>,
    /// Identification of the next packet that we make.
    id: u16,
}

impl Default for Answers {
    fn default() -> Self {
        Self {
            errors: Bucket::FULL,
            resets: Bucket::FULL,
            echoes: Bucket::FULL,
            peers: vec![Bucket::FULL; ICMP_PEER_CELLS].into_boxed_slice(),
            scratch: Box::new([0; icmp::ERROR_MAX]),
            id: 0,
        }
    }
}

impl Answers {
    fn next_id(&mut self) -> u16 {
        self.id = self.id.wrapping_add(1);
        self.id
    }

    fn may_report(&mut self, cx: &Cx<'_>, to: u32, problem: Problem) -> bool {
        let limited = !matches!(problem, Problem::FragmentationNeeded { .. });
        if limited && !self.may_tell(to, cx.now_ns) {
            return false;
        }
        let knobs = &cx.snap.knobs;
        self.errors.take(cx.now_ns, knobs.icmp_rate, knobs.icmp_burst)
    }

    /// Takes one error out of the receiver's credit.
    fn may_tell(&mut self, to: u32, now_ns: u64) -> bool {
        self.peers[peer_cell(to)].take(now_ns, 1, ICMP_PEER_BURST)
    }

    pub(super) fn may_reset(&mut self, cx: &Cx<'_>) -> bool {
        let knobs = &cx.snap.knobs;
        self.resets.take(cx.now_ns, knobs.icmp_rate, knobs.icmp_burst)
    }

    pub(super) fn may_echo(&mut self, cx: &Cx<'_>) -> bool {
        let knobs = &cx.snap.knobs;
        self.echoes.take(cx.now_ns, knobs.icmp_rate, knobs.icmp_burst)
    }
}

impl<B: PacketBuf> Core<B> {
    /// Drops a packet and tells its sender why. `about` is the connection whose request it is: an error about a
    /// connection that is not NAT counts as one of its replies, as with the kernel.
    #[cold]
    #[inline(never)]
    pub(super) fn reject(
        &mut self,
        cx: &Cx<'_>,
        buf: &mut B,
        refusal: Refusal,
        about: Option<Slot>,
    ) -> Verdict {
        let dropped = self.drop(refusal.reason);
        match refusal.problem.and_then(|problem| self.report(cx, buf, problem, about)) {
            Some(sender) => self.emit_own(cx, buf, sender),
            None => dropped,
        }
    }

    /// Turns the packet into the ICMP error about it; whom to send it to, if one is due.
    fn report(
        &mut self,
        cx: &Cx<'_>,
        buf: &mut B,
        problem: Problem,
        about: Option<Slot>,
    ) -> Option<Ipv4Addr> {
        let (packet, ip) = whole_packet(buf)?;
        let (sender, dst) = (Ipv4Addr::from_bits(ip.src()), Ipv4Addr::from_bits(ip.dst()));
        if !icmp::may_report(packet) || !self.answers.may_report(cx, ip.src(), problem) {
            return None;
        }
        let source = own_source(cx, dst, sender)?.to_bits();
        let id = self.answers.next_id();
        let len = icmp::error(&mut self.answers.scratch[..], packet, problem, source, id)?;
        replace(buf, &self.answers.scratch[..len])?;
        if let Some(slot) = about {
            let conn = self.conns.get(slot);
            let dest = &self.dests[conn.dest];
            if conn.method() != flag::NAT && dest.is_available() {
                self.counters.count_out(conn.dest, dest.service(), len as u64);
            }
        }
        Some(sender)
    }

    /// Drops a TCP segment for a closed port and answers it with a reset; a reset itself gets none.
    pub(super) fn reset(&mut self, cx: &Cx<'_>, buf: &mut B) -> Verdict {
        let mut out = [0; tcp::RESET_LEN];
        let answer = whole_packet(buf).and_then(|(packet, ip)| {
            tcp::reset(&mut out, packet)?;
            Some(Ipv4Addr::from_bits(ip.src()))
        });
        let Some(sender) = answer else { return self.drop(DropReason::UnmatchedDrop) };
        let dropped = self.drop(DropReason::UnmatchedReset);
        if self.answers.may_reset(cx) && replace(buf, &out).is_some() {
            return self.emit_own(cx, buf, sender);
        }
        dropped
    }

    /// Turns an echo request for one of our addresses into its reply.
    pub(super) fn echo(&mut self, cx: &Cx<'_>, buf: &mut B) -> Verdict {
        let request = whole_packet(buf).filter(|(packet, _)| cx.snap.knobs.echo && is_echo_request(packet));
        let Some((packet, ip)) = request else { return self.drop(DropReason::IcmpIgnored) };
        let (sender, end) = (Ipv4Addr::from_bits(ip.src()), ethernet::LEN + packet.len());
        if !self.answers.may_echo(cx) {
            return self.drop(DropReason::IcmpLimited);
        }
        let id = self.answers.next_id();
        if !icmp::echo_reply(buf.data_mut().get_mut(ethernet::LEN..end).unwrap_or_default(), id) {
            return self.drop(DropReason::IcmpIgnored);
        }
        buf.set_len(end);
        self.consume();
        self.emit_own(cx, buf, sender)
    }
}

fn peer_cell(addr: u32) -> usize {
    (addr.wrapping_mul(0x9E37_79B1) >> 16) as usize % ICMP_PEER_CELLS
}

/// Undoes NAT on a request that was rewritten already.
pub(super) fn undo<B: PacketBuf>(buf: &mut B, vaddr: u32, vport: u16) {
    // Parsed anew: the frame has no Ethernet addresses of ours yet, so any MAC that it carries is taken.
    let Some(dst) = ethernet::Header::at(buf.data()).map(|e| e.dst()) else { return };
    let meta = parse(buf, dst);
    if meta.kind == Kind::Flow {
        restore(buf, &meta, vaddr, vport);
    }
}

/// The frame's IPv4 packet, cut to its total length, and its header.
fn whole_packet<B: PacketBuf>(buf: &B) -> Option<(&[u8], ipv4::Header<&[u8; ipv4::LEN]>)> {
    let packet = buf.data().get(ethernet::LEN..)?;
    let ip = ipv4::Header::at(packet)?;
    Some((packet.get(..usize::from(ip.total_len()))?, ip))
}

/// The address to speak from about a packet to `dst`: that itself if it is ours, else ours on the way to `sender`.
fn own_source(cx: &Cx<'_>, dst: Ipv4Addr, sender: Ipv4Addr) -> Option<Ipv4Addr> {
    let snap = cx.snap;
    if snap.net.local(dst).is_some() || snap.services.vip(dst).is_some() {
        return Some(dst);
    }
    let out = snap.net.route(sender).map_or(cx.port, |hop| hop.port);
    snap.net.source(out, sender)
}

/// Puts `packet` behind the frame's Ethernet header.
fn replace<B: PacketBuf>(buf: &mut B, packet: &[u8]) -> Option<()> {
    if !buf.set_len(ethernet::LEN + packet.len()) {
        return None;
    }
    buf.data_mut().get_mut(ethernet::LEN..)?.copy_from_slice(packet);
    Some(())
}

fn is_echo_request(packet: &[u8]) -> bool {
    let Some(ip) = ipv4::Header::at(packet) else { return false };
    let message = packet.get(ip.header_len()..).unwrap_or_default();
    icmp::Header::at(message).is_some_and(|m| m.kind() == icmp::ECHO_REQUEST && m.code() == 0)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Receivers that share a cell get together what one may get alone, in whatever order they come.
        #[test]
        fn a_collision_only_limits_more(
            first: u32, steps in proptest::collection::vec((0usize..3, 0u64..2_000), 1..200),
        ) {
            let cell = peer_cell(first);
            let sharing: Vec<u32> =
                (0..).map(|n| first.wrapping_add(n)).filter(|a| peer_cell(*a) == cell).take(3).collect();
            let (mut shared, mut alone, mut now_ns) = (Answers::default(), Answers::default(), 1_000_000_000);
            for (who, pause_ms) in steps {
                now_ns += pause_ms * 1_000_000;
                prop_assert_eq!(shared.may_tell(sharing[who], now_ns), alone.may_tell(first, now_ns));
            }
        }
    }

    #[test]
    fn an_error_a_second_after_the_first_six() {
        let (mut answers, second) = (Answers::default(), 1_000_000_000);
        for (now_ns, granted) in [(second, 6), (second, 0), (2 * second, 1), (60 * second, 6)] {
            assert_eq!((0..10).filter(|_| answers.may_tell(7, now_ns)).count(), granted, "at {now_ns}");
        }
    }
}

//! Slow: packets that no connection knows. Admission, service, scheduler, new connection; what is left over goes to
//! `host`.

use config::Method;

use crate::conn::state::NEW_SECS;
use crate::conn::{Record, Slot, Tuple, flag, ticks_of_secs};
use crate::counters::bump;
use crate::io::PacketBuf;
use crate::neigh::Hop;
use crate::pipeline::answer::Refusal;
use crate::pipeline::parse::Meta;
use crate::pipeline::{Core, Cx, memory_low};
use crate::sched;
use crate::service::{Dest, Service};
use crate::verdict::{DropReason, Verdict};
use crate::wire::checksum;
use crate::wire::icmp::Problem;
use crate::wire::{ethernet, ipv4, tcp};

/// Source port of active FTP data connections: they belong to an FTP connection or to nobody.
const FTP_DATA: u16 = 20;

impl<B: PacketBuf> Core<B> {
    /// A TCP or UDP packet of no connection.
    #[inline(never)]
    pub(crate) fn miss(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta) -> Verdict {
        let (src, dst) = (meta.src(), meta.dst());
        let services = &cx.snap.services;
        if services.vip(dst).is_none() && cx.snap.net.local(dst).is_none() {
            return self.transit(cx, buf, meta);
        }
        if cx.snap.net.local(src).is_some() || services.vip(src).is_some() {
            return self.drop(DropReason::LocalBoundary);
        }
        let service = services.find(dst, meta.key.dport, meta.key.proto);
        if service.is_some() && !self.handoff.owns((meta.key.src, meta.key.sport)) {
            // It was handed over before the service was there, as the reply that it seemed to be.
            return self.drop(DropReason::WrongOwner);
        }
        let unmatched = service.map_or(cx.snap.knobs.unmatched, |s| s.unmatched);
        match service {
            Some(service) if admits(cx, meta) => self.schedule(cx, buf, meta, service),
            _ => self.unmatched(cx, buf, meta, unmatched),
        }
    }

    /// A packet that may open a connection of `service`.
    fn schedule(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, service: &Service) -> Verdict {
        if self.defends(cx) {
            return self.drop(DropReason::DefenceDrop);
        }
        if meta.key.sport == FTP_DATA {
            return self.unmatched(cx, buf, meta, service.unmatched);
        }
        let Some(state) = self.sched.get_mut(service.index as usize) else {
            return self.drop(DropReason::NoDest);
        };
        let Some(dest) = sched::pick(service, state, &self.dests, self.place) else {
            let refusal = Refusal::answered(DropReason::NoDest, Problem::PortUnreachable);
            return self.reject(cx, buf, refusal, None);
        };
        if is_checksum_partial(buf, meta) {
            bump(&self.stats.partial_csum, 1);
        }
        match self.open(cx, meta, service, dest) {
            Some(slot) => self.first(cx, buf, meta, slot),
            None => self.drop(DropReason::ConnNomem),
        }
    }

    /// Creates the connection and binds it; `None` when the table is full.
    fn open(&mut self, cx: &Cx<'_>, meta: &Meta, service: &Service, dest: &Dest) -> Option<Slot> {
        let key = &meta.key;
        let dport = if dest.port == 0 { key.dport } else { dest.port };
        let daddr = dest.addr.to_bits();
        let method = match dest.method {
            Method::Dr => flag::DR | flag::NO_OUTPUT,
            _ => flag::NAT,
        };
        let tuple = Tuple {
            proto: key.proto,
            caddr: key.src,
            cport: key.sport,
            vaddr: key.dst,
            vport: key.dport,
            daddr,
            dport,
        };
        let mut record = Record::new(tuple, method | flag::INACTIVE);
        record.dest = dest.slot;
        record.l3_delta = checksum::delta_u32(key.dst, daddr);
        record.l4_delta = checksum::combine(record.l3_delta, checksum::delta_u16(key.dport, dport));
        (record.fwd_hop, record.rev_hop) = (Hop::NONE.bits(), Hop::NONE.bits());
        record.route_gen = cx.snap.net.generation;
        let slot = self.conns.insert(record, cx.tick, ticks_of_secs(NEW_SECS)).ok()?;
        self.dests[dest.slot].bind();
        self.counters.count_conn(dest.slot, service.slot);
        bump(&self.stats.created, 1);
        Some(slot)
    }

    /// The packet that opened `slot`.
    fn first(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, slot: Slot) -> Verdict {
        let dest = self.conns.get(slot).dest;
        if self.dests[dest].is_available() {
            self.deliver(cx, buf, meta, slot)
        } else {
            // Deleted since this snapshot was made.
            self.end_connection(slot);
            self.drop(DropReason::DestGone)
        }
    }

    /// The `drop_packet` defence: refuses every so many-th new connection while it is active.
    fn defends(&mut self, cx: &Cx<'_>) -> bool {
        let knobs = &cx.snap.knobs;
        let rate = match knobs.drop_packet {
            0 => return false,
            3 if knobs.am_droprate == 0 => return false,
            3 => knobs.am_droprate,
            // The kernel's automatic rate: the less is left below the threshold, the more is refused.
            _ if memory_low(&self.conns) => {
                let table = self.conns.table();
                let threshold = (table.capacity() / 10) as u32;
                let free = (table.capacity() - table.len()) as u32;
                threshold / (threshold - free)
            }
            _ => return false,
        };
        self.admitted += 1;
        let refuse = self.admitted >= rate.max(1);
        if refuse {
            self.admitted = 0;
        }
        refuse
    }

    /// Neither from a connection nor for one of our addresses.
    fn transit(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta) -> Verdict {
        let dst = meta.dst();
        if dst.is_loopback() {
            return self.drop(DropReason::LocalBoundary);
        }
        let stray = cx.snap.knobs.nat_icmp_send
            && meta.tcp_flags & tcp::RST == 0
            && cx.snap.services.has_nat_dest(meta.src(), meta.key.sport, meta.key.proto);
        if stray {
            let refusal = Refusal::answered(DropReason::NatIcmp, Problem::PortUnreachable);
            return self.reject(cx, buf, refusal, None);
        }
        self.drop(DropReason::Transit)
    }
}

/// May this packet open a connection? UDP always; TCP with a SYN, or in mid-stream with `sloppy_tcp`; a RST never.
fn admits(cx: &Cx<'_>, meta: &Meta) -> bool {
    if meta.key.proto != ipv4::TCP {
        return true;
    }
    meta.tcp_flags & tcp::RST == 0 && (meta.tcp_flags & tcp::SYN != 0 || cx.snap.knobs.sloppy_tcp)
}

/// Whether the L4 checksum is just the pseudo header's sum: a sender on the same host left the rest to an offload
/// that never happened. Such packets reach no server's application.
fn is_checksum_partial<B: PacketBuf>(buf: &B, meta: &Meta) -> bool {
    let at = usize::from(meta.l4) + if meta.key.proto == ipv4::TCP { 16 } else { 6 };
    let Some([a, b]) = buf.data().get(at..at + 2) else { return false };
    let len = meta.ip_len + ethernet::LEN as u16 - u16::from(meta.l4);
    u16::from_be_bytes([*a, *b]) == checksum::pseudo(meta.key.src, meta.key.dst, meta.key.proto, len)
}

//! Fast: packets of connections that exist. Requests count and move the state before they are transmitted, replies
//! after rewriting and routing, as in kernel IPVS.

use crate::conn::state::{Row, tcp_next};
use crate::conn::{Direction, Record, Slot, flag, state};
use crate::dest::DestSlab;
use crate::io::PacketBuf;
use crate::pipeline::forward::{ready_reply, ready_request};
use crate::pipeline::parse::Meta;
use crate::pipeline::{Core, Cx};
use crate::verdict::{DropReason, Verdict};
use crate::wire::{ipv4, tcp};

impl<B: PacketBuf> Core<B> {
    /// A packet from the client on connection `slot`. Hot.
    #[inline(always)]
    pub(crate) fn request(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, slot: Slot) -> Verdict {
        if meta.tcp_flags & tcp::SYN != 0 && self.wants_reschedule(cx, slot) {
            self.end_connection(slot);
            return self.miss(cx, buf, meta);
        }
        if !self.dests[self.conns.get(slot).dest].is_available() {
            return self.dest_gone(cx, buf, meta, slot);
        }
        self.deliver(cx, buf, meta, slot)
    }

    /// Counts a request, moves its connection's state and sends it on its way. Hot.
    #[inline(always)]
    pub(super) fn deliver(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, slot: Slot) -> Verdict {
        let conn = self.conns.get_mut(slot);
        self.counters.count_in(conn.dest, self.dests[conn.dest].service(), u64::from(meta.ip_len));
        conn.in_pkts = conn.in_pkts.wrapping_add(1);
        let timeout = step(conn, &self.dests, cx, meta, Direction::Request);
        let sooner = conn.touch(cx.tick, timeout);
        let ready = ready_request(conn, &self.dests[conn.dest], &self.neigh, cx, buf, meta);
        if sooner {
            self.conns.rearm(slot);
        }
        match ready {
            Ok(to) => self.emit(cx, buf, to, Some(slot)),
            Err(refusal) => self.reject(cx, buf, refusal, Some(slot)),
        }
    }

    /// A packet from the server on connection `slot`. Hot.
    #[inline(always)]
    pub(crate) fn reply(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, slot: Slot) -> Verdict {
        let conn = self.conns.get_mut(slot);
        let to = match ready_reply(conn, &self.neigh, cx, buf, meta) {
            Ok(to) => to,
            Err(refusal) => return self.reject(cx, buf, refusal, None),
        };
        let dest = &self.dests[conn.dest];
        if dest.is_available() {
            self.counters.count_out(conn.dest, dest.service(), u64::from(meta.ip_len));
        }
        let timeout = step(conn, &self.dests, cx, meta, Direction::Reply);
        if conn.touch(cx.tick, timeout) {
            self.conns.rearm(slot);
        }
        self.emit(cx, buf, to, None)
    }

    /// A SYN on a connection that exists: does it start a new one? Rules of `expire_nodest_conn` (its destination is
    /// quiesced) and `conn_reuse_mode` (it is over).
    #[cold]
    fn wants_reschedule(&self, cx: &Cx<'_>, slot: Slot) -> bool {
        let conn = self.conns.get(slot);
        let knobs = &cx.snap.knobs;
        if knobs.expire_nodest_conn && self.dests[conn.dest].weight() == 0 {
            return true;
        }
        let one_way_end =
            knobs.conn_reuse_mode & 2 != 0 && conn.state == state::tcp::FIN_WAIT && conn.has(flag::NO_OUTPUT);
        let over = matches!(conn.state, state::tcp::TIME_WAIT | state::tcp::CLOSE) || one_way_end;
        knobs.conn_reuse_mode != 0 && over
    }

    /// A request whose destination was deleted: dropped in silence, or with `expire_nodest_conn` the connection ends
    /// and the packet is one that no connection knows.
    #[cold]
    fn dest_gone(&mut self, cx: &Cx<'_>, buf: &mut B, meta: &Meta, slot: Slot) -> Verdict {
        if !cx.snap.knobs.expire_nodest_conn {
            return self.drop(DropReason::DestGone);
        }
        self.end_connection(slot);
        self.miss(cx, buf, meta)
    }

    /// Ends a connection: its destination's counts, its timer, its index entries.
    pub(crate) fn end_connection(&mut self, slot: Slot) {
        let conn = self.conns.get(slot);
        self.dests[conn.dest].unbind(!conn.has(flag::INACTIVE));
        self.conns.remove(slot);
    }
}

/// Moves the connection's state for a packet; the timeout of the state it is in then, ticks.
#[inline(always)]
fn step(conn: &mut Record, dests: &DestSlab, cx: &Cx<'_>, meta: &Meta, direction: Direction) -> u32 {
    if direction == Direction::Reply {
        conn.clear(flag::NO_OUTPUT);
        conn.set(flag::REPLIED);
    }
    let timeouts = &cx.snap.knobs.timeouts;
    if meta.key.proto != ipv4::TCP {
        return timeouts.udp();
    }
    let row = Row::of(direction, conn.has(flag::NO_OUTPUT));
    let next = tcp_next(cx.secure, row, conn.state, meta.tcp_flags);
    if next != conn.state {
        enter(conn, dests, next);
    }
    timeouts.tcp(next)
}

/// Enters another TCP state: moves the connection between its destination's counts if need be.
#[inline(never)]
fn enter(conn: &mut Record, dests: &DestSlab, next: u8) {
    conn.state = next;
    let active = state::tcp_is_active(next);
    if active == conn.has(flag::INACTIVE) {
        if active {
            conn.clear(flag::INACTIVE);
        } else {
            conn.set(flag::INACTIVE);
        }
        dests[conn.dest].shift(active);
    }
}

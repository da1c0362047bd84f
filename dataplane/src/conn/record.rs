//! One tracked IPv4 connection in one cache line.
//!
//! The record is written by the worker that owns its table and by nobody else. What identifies it
//! (the three endpoints, the protocol, the forwarding method) is set once by [`Record::new`] and
//! has no setter: the table finds its index entries again by hashing it. Everything a packet may
//! change is a public field or a flag.
//!
//! A record is known by two flows. The request is always client to virtual address. The reply is
//! what the real server sends: from its own address under NAT, from the virtual address under
//! every other method (seen here only if it happens to pass).

use zerocopy::FromZeros;

use super::table::NIL;
use super::wheel::is_before;
use crate::hash::FlowKey;

/// "No destination" in [`Record::dest`].
pub const NO_DEST: u32 = u32::MAX;

/// Flag bits with the values kernel IPVS gives them (they show in its sync messages).
pub mod flag {
    /// The bits that hold the forwarding method.
    pub const METHOD: u16 = 0x0007;
    /// Method: network address translation.
    pub const NAT: u16 = 0;
    /// Method: deliver to this host.
    pub const LOCAL: u16 = 1;
    /// Method: encapsulate.
    pub const TUNNEL: u16 = 2;
    /// Method: direct routing.
    pub const DR: u16 = 3;
    /// Method: send to the original destination.
    pub const BYPASS: u16 = 4;
    /// The record is in the index; owned by the table.
    pub const HASHED: u16 = 0x0040;
    /// No reply was seen yet: TCP follows the input-only state table.
    pub const NO_OUTPUT: u16 = 0x0080;
    /// Counted as an inactive connection of its destination.
    pub const INACTIVE: u16 = 0x0100;
    /// A reply was seen. Ours alone: kernel IPVS has no such bit and none is sent.
    pub const REPLIED: u16 = 0x4000;
    /// Controls other connections: persistence.
    pub const TEMPLATE: u16 = 0x1000;
    /// One-packet scheduling.
    pub const ONE_PACKET: u16 = 0x2000;
}

/// Bits that only `Record::new` or the table may write.
const OWNED: u16 = flag::METHOD | flag::HASHED;

/// Which of its two flows a packet of a connection belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// Client to service.
    Request,
    /// Real server to client.
    Reply,
}

/// What identifies a connection: client, virtual and destination endpoint, and protocol.
/// Addresses and ports as in [`FlowKey`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Tuple {
    /// IP protocol number.
    pub proto: u8,
    /// Client address.
    pub caddr: u32,
    /// Client port.
    pub cport: u16,
    /// Virtual address.
    pub vaddr: u32,
    /// Virtual port.
    pub vport: u16,
    /// Address of the real server.
    pub daddr: u32,
    /// Port of the real server.
    pub dport: u16,
}

/// A connection: 64 bytes, one cache line, all zero bits when never used.
#[derive(Clone, Copy, Debug, FromZeros)]
#[repr(C, align(64))]
pub struct Record {
    caddr: u32,
    vaddr: u32,
    daddr: u32,
    cport: u16,
    vport: u16,
    dport: u16,
    flags: u16,
    proto: u8,
    /// Protocol state: one of [`super::state`]'s numbers.
    pub state: u8,
    /// Checksum delta of the request's address rewrite (RFC 1624); the reply uses its complement.
    /// Opaque here.
    pub l3_delta: u16,
    /// Checksum delta of the request's address and port rewrite, as [`Record::l3_delta`].
    pub l4_delta: u16,
    /// Generation of the routes under which the two hops were found, truncated. Opaque here.
    pub route_gen: u16,
    /// Index of the destination's shared state, [`NO_DEST`] if none.
    pub dest: u32,
    /// Index of the service, for its counters.
    pub service: u32,
    /// Tick at which the connection ends if no packet comes; moved by [`Record::touch`].
    pub(super) expires: u32,
    /// Timeout of the current state in ticks.
    pub(super) timeout: u32,
    /// Timer list: the record after this one. While free: the next free record.
    pub(super) next: u32,
    /// Timer list: the record before this one, or its list.
    pub(super) prev: u32,
    /// Packets from the client; wraps.
    pub in_pkts: u32,
    /// Neighbour towards the real server. Opaque here.
    pub fwd_hop: u32,
    /// Neighbour towards the client. Opaque here.
    pub rev_hop: u32,
}

const _: () = assert!(size_of::<Record>() == 64 && align_of::<Record>() == 64);

impl Record {
    /// A connection in state 0 without destination, service, neighbours or timer.
    ///
    /// `flags` holds the method and whatever [`flag`] bits it starts with; `HASHED` is ignored.
    pub fn new(tuple: Tuple, flags: u16) -> Self {
        Record {
            caddr: tuple.caddr,
            vaddr: tuple.vaddr,
            daddr: tuple.daddr,
            cport: tuple.cport,
            vport: tuple.vport,
            dport: tuple.dport,
            flags: flags & !flag::HASHED,
            proto: tuple.proto,
            dest: NO_DEST,
            next: NIL,
            prev: NIL,
            ..Record::new_zeroed()
        }
    }

    /// The endpoints and the protocol.
    #[inline(always)]
    pub fn tuple(&self) -> Tuple {
        Tuple {
            proto: self.proto,
            caddr: self.caddr,
            cport: self.cport,
            vaddr: self.vaddr,
            vport: self.vport,
            daddr: self.daddr,
            dport: self.dport,
        }
    }

    /// The flow that packets of `direction` show.
    #[inline(always)]
    pub fn key(&self, direction: Direction) -> FlowKey {
        match direction {
            Direction::Request => FlowKey {
                src: self.caddr,
                dst: self.vaddr,
                sport: self.cport,
                dport: self.vport,
                proto: self.proto,
            },
            Direction::Reply => {
                let nat = self.method() == flag::NAT;
                FlowKey {
                    src: if nat { self.daddr } else { self.vaddr },
                    dst: self.caddr,
                    sport: if nat { self.dport } else { self.vport },
                    dport: self.cport,
                    proto: self.proto,
                }
            }
        }
    }

    /// Is `key` the flow that packets of `direction` show? As comparing [`Record::key`], but without a
    /// branch: directions come in no order that a processor could predict.
    #[inline(always)]
    pub(super) fn shows(&self, direction: Direction, key: &FlowKey) -> bool {
        let all_if = |condition: bool| 0u32.wrapping_sub(u32::from(condition));
        let pick = |mask: u32, yes: u32, no: u32| no ^ ((yes ^ no) & mask);
        let pair = |high: u16, low: u16| u32::from(high) << 16 | u32::from(low);

        let reply = all_if(direction == Direction::Reply);
        let nat = reply & all_if(self.method() == flag::NAT);
        let client = pick(reply, key.dst, key.src) ^ self.caddr;
        let server = pick(reply, key.src, key.dst) ^ pick(nat, self.daddr, self.vaddr);
        let ports = pick(reply, pair(key.dport, key.sport), pair(key.sport, key.dport))
            ^ pair(self.cport, pick(nat, u32::from(self.dport), u32::from(self.vport)) as u16);
        client | server | ports | u32::from(key.proto ^ self.proto) == 0
    }

    /// IP protocol number.
    #[inline(always)]
    pub fn proto(&self) -> u8 {
        self.proto
    }

    /// The forwarding method: one of [`flag::NAT`] to [`flag::BYPASS`].
    #[inline(always)]
    pub fn method(&self) -> u16 {
        self.flags & flag::METHOD
    }

    /// All flag bits, method included.
    #[inline(always)]
    pub fn flags(&self) -> u16 {
        self.flags
    }

    /// Is any bit of `mask` set?
    #[inline(always)]
    pub fn has(&self, mask: u16) -> bool {
        self.flags & mask != 0
    }

    /// Sets the bits of `mask`; the method and `HASHED` stay as they are.
    #[inline(always)]
    pub fn set(&mut self, mask: u16) {
        self.flags |= mask & !OWNED;
    }

    /// Clears the bits of `mask`; the method and `HASHED` stay as they are.
    #[inline(always)]
    pub fn clear(&mut self, mask: u16) {
        self.flags &= !(mask & !OWNED);
    }

    /// Marks the record as found through the index, or as free.
    pub(super) fn set_hashed(&mut self, hashed: bool) {
        self.flags = (self.flags & !flag::HASHED) | if hashed { flag::HASHED } else { 0 };
    }

    /// Restarts the timeout: ends `timeout` ticks after `now_tick` unless touched again. Hot.
    ///
    /// Returns true if the timer must be armed now: it does not run, or the end comes sooner than
    /// before and it may sit in too late a slot ([`super::Conns::touch`] does both).
    #[inline(always)]
    #[must_use]
    pub fn touch(&mut self, now_tick: u32, timeout: u32) -> bool {
        let before = self.expires;
        self.timeout = timeout;
        // `now_tick` was rounded down; one more tick keeps the connection from ending early.
        self.expires = now_tick.wrapping_add(timeout).wrapping_add(1);
        is_before(self.expires, before) || self.prev == NIL
    }

    /// Timeout of the current state in ticks.
    pub fn timeout(&self) -> u32 {
        self.timeout
    }

    /// Ticks until the connection ends if no packet comes; 0 when overdue.
    pub fn remaining(&self, now_tick: u32) -> u32 {
        if is_before(now_tick, self.expires) { self.expires.wrapping_sub(now_tick) - 1 } else { 0 }
    }
}

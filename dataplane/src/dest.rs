//! What a destination shares between workers: its connection counts and its AVAILABLE and OVERLOAD flags.
//!
//! Lives outside the snapshot in a slab indexed by the destination's object slot, so that weight changes, deletion
//! and revival need no walk over connections: a connection stores the 4-byte slot. Workers touch a state a few times
//! in a connection's life (bind, state change, unbind); control writes weight, thresholds and AVAILABLE.
//! Everything is a relaxed atomic: counts commute and no other data hangs on them.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};

use dpdk_sys::{Prefault, Slab, SlabError};
use zerocopy::FromZeros;

use crate::conn::flag;
use crate::neigh::Hop;

/// Linked in a service. Connections of a destination without it are neither forwarded nor counted.
pub const AVAILABLE: u32 = 1;
/// Reached its upper threshold: takes no new connections.
pub const OVERLOAD: u32 = 2;

/// Shared state of one destination; one cache line, so that two destinations never share one.
#[derive(FromZeros)]
#[repr(C, align(64))]
pub struct DestState {
    active: AtomicU32,
    inactive: AtomicU32,
    flags: AtomicU32,
    weight: AtomicU32,
    upper: AtomicU32,
    lower: AtomicU32,
    service: AtomicU32,
    /// Next hop that some worker found in the lower half, [`under`] what in the upper; 0 is none.
    hop: AtomicU64,
}

impl DestState {
    /// Connections in an active state (TCP ESTABLISHED, SYN_SENT, SYN_RECV, SYNACK).
    pub fn active(&self) -> u32 {
        self.active.load(Relaxed)
    }

    /// Connections in any other state.
    pub fn inactive(&self) -> u32 {
        self.inactive.load(Relaxed)
    }

    /// The kernel's load figure: one active connection weighs as much as 256 inactive ones; 32-bit as there.
    pub fn overhead(&self) -> u32 {
        self.active().wrapping_shl(8).wrapping_add(self.inactive())
    }

    /// All connections bound here.
    pub fn total(&self) -> u32 {
        self.active().wrapping_add(self.inactive())
    }

    /// [`AVAILABLE`] and [`OVERLOAD`] bits.
    pub fn flags(&self) -> u32 {
        self.flags.load(Relaxed)
    }

    /// Linked in a service.
    pub fn is_available(&self) -> bool {
        self.flags() & AVAILABLE != 0
    }

    /// At its upper threshold.
    pub fn is_overloaded(&self) -> bool {
        self.flags() & OVERLOAD != 0
    }

    /// Weight as last set by control; the schedulers read the snapshot's, which is the same value.
    pub fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Binds a new connection: inactive + 1, then the threshold test with it included. Worker.
    pub fn bind(&self) {
        self.inactive.fetch_add(1, Relaxed);
        let upper = self.upper.load(Relaxed);
        if upper != 0 && self.total() >= upper {
            self.flags.fetch_or(OVERLOAD, Relaxed);
        }
    }

    /// Unbinds a connection that was counted `active` or not, then releases OVERLOAD by the kernel's rule: with a
    /// lower threshold below it, without one below three quarters of the upper. Worker.
    pub fn unbind(&self, active: bool) {
        if active { &self.active } else { &self.inactive }.fetch_sub(1, Relaxed);
        if !self.is_overloaded() {
            return;
        }
        let (upper, lower) = (self.upper.load(Relaxed), self.lower.load(Relaxed));
        let total = u64::from(self.total());
        let clear = match (lower, upper) {
            (0, 0) => true,
            (0, upper) => total * 4 < u64::from(upper) * 3,
            (lower, _) => total < u64::from(lower),
        };
        if clear {
            self.flags.fetch_and(!OVERLOAD, Relaxed);
        }
    }

    /// Moves one connection between the counts. Worker.
    pub fn shift(&self, to_active: bool) {
        let (from, to) =
            if to_active { (&self.inactive, &self.active) } else { (&self.active, &self.inactive) };
        from.fetch_sub(1, Relaxed);
        to.fetch_add(1, Relaxed);
    }

    /// Object slot of the service that the destination is linked in: where its packets count besides itself.
    pub fn service(&self) -> u32 {
        self.service.load(Relaxed)
    }

    /// The next hop that a worker noted under routes of `generation` for forwarding method `method`. Worker.
    pub fn hop(&self, generation: u16, method: u16) -> Option<Hop> {
        let noted = self.hop.load(Relaxed);
        (noted >> 32 == under(generation, method)).then(|| Hop::from_bits(noted as u32))
    }

    /// Notes a next hop. Any worker: they all find the same.
    pub fn note_hop(&self, generation: u16, method: u16, hop: Hop) {
        self.hop.store(under(generation, method) << 32 | u64::from(hop.bits()), Relaxed);
    }

    /// Says which service the destination belongs to; before [`DestState::set_available`]. Control.
    pub fn set_service(&self, slot: u32) {
        self.service.store(slot, Relaxed);
    }

    /// Applies weight and thresholds; a raised or lifted upper threshold clears OVERLOAD, an edit never sets it.
    /// Control.
    pub fn configure(&self, weight: u32, upper: u32, lower: u32) {
        self.weight.store(weight, Relaxed);
        let old = self.upper.swap(upper, Relaxed);
        self.lower.store(lower, Relaxed);
        if upper == 0 || upper > old {
            self.flags.fetch_and(!OVERLOAD, Relaxed);
        }
    }

    /// Links or unlinks the destination. Control.
    pub fn set_available(&self, available: bool) {
        if available {
            self.flags.fetch_or(AVAILABLE, Relaxed);
        } else {
            self.flags.fetch_and(!AVAILABLE, Relaxed);
        }
    }

    /// Forgets everything before a slot is handed to a new destination. Control, when no connection holds it.
    pub fn reset(&self) {
        for cell in
            [&self.active, &self.inactive, &self.flags, &self.weight, &self.upper, &self.lower, &self.service]
        {
            cell.store(0, Relaxed);
        }
        self.hop.store(0, Relaxed);
    }
}

/// What a noted next hop holds for, in 32 bits: generation of the routes, method, and a mark that is never 0.
fn under(generation: u16, method: u16) -> u64 {
    1 << 31 | u64::from(method & flag::METHOD) << 16 | u64::from(generation)
}

/// States of all destinations, by object slot. Fixed size; pages are touched as slots are handed out.
pub struct DestSlab(Slab<DestState>);

impl DestSlab {
    /// Room for `slots` objects, 64 bytes each (reserved, not resident).
    pub fn new(slots: usize) -> Result<Self, SlabError> {
        Slab::zeroed(slots, Prefault::Lazy).map(Self)
    }

    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.0.len() * size_of::<DestState>()
    }
}

impl std::ops::Index<u32> for DestSlab {
    type Output = DestState;

    fn index(&self, slot: u32) -> &DestState {
        &self.0[slot as usize]
    }
}

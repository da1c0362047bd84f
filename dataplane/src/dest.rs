//! What a destination shares between workers: its connection counts and its AVAILABLE and OVERLOAD flags.
//!
//! Lives outside the snapshot in a slab indexed by the destination's object slot, so that weight changes, deletion
//! and revival need no walk over connections: a connection stores the 4-byte slot. Workers touch a state a few times
//! in a connection's life (bind, state change, unbind); control writes weight, thresholds and AVAILABLE.
//! Counts and flags are one word: each change sees both counts and the flag as they are at one moment, so OVERLOAD is
//! what the thresholds make of the counts, whoever binds and unbinds at once. Relaxed but for an edit of the
//! thresholds: no other data hangs on it.

use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Acquire, Ordering::Relaxed, Ordering::Release};

use dpdk_sys::{Prefault, Slab, SlabError};
use zerocopy::FromZeros;

use crate::conn::flag;
use crate::neigh::Hop;

/// Linked in a service. Connections of a destination without it are neither forwarded nor counted.
const AVAILABLE: u64 = 1 << 63;
/// Reached its upper threshold: takes no new connections.
const OVERLOAD: u64 = 1 << 31;
/// One active connection.
const ACTIVE: u64 = 1 << 32;
/// One other connection.
const INACTIVE: u64 = 1;
/// Bits of one count.
const COUNT: u64 = (1 << 31) - 1;

/// Shared state of one destination; one cache line, so that two destinations never share one.
#[derive(FromZeros)]
#[repr(C, align(64))]
pub struct DestState {
    /// From below: 31 bits of inactive connections, [`OVERLOAD`], 31 bits of active connections, [`AVAILABLE`].
    word: AtomicU64,
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
        active(self.word())
    }

    /// Connections in any other state.
    pub fn inactive(&self) -> u32 {
        inactive(self.word())
    }

    /// The kernel's load figure: one active connection weighs as much as 256 inactive ones; 32-bit as there.
    pub fn overhead(&self) -> u32 {
        let word = self.word();
        active(word).wrapping_shl(8).wrapping_add(inactive(word))
    }

    /// All connections bound here.
    pub fn total(&self) -> u32 {
        total(self.word())
    }

    /// Linked in a service.
    pub fn is_available(&self) -> bool {
        self.word() & AVAILABLE != 0
    }

    /// At its upper threshold.
    pub fn is_overloaded(&self) -> bool {
        self.word() & OVERLOAD != 0
    }

    /// Weight as last set by control; the schedulers read the snapshot's, which is the same value.
    pub fn weight(&self) -> u32 {
        self.weight.load(Relaxed)
    }

    /// Binds a new connection: inactive + 1, then the threshold test with it included. Worker.
    pub fn bind(&self) {
        let word = self.word.fetch_add(INACTIVE, Relaxed) + INACTIVE;
        if is_full(word, self.upper.load(Relaxed)) {
            self.overload(word);
        }
    }

    /// Unbinds a connection that was counted `active` or not, then releases OVERLOAD by the kernel's rule: with a
    /// lower threshold below it, without one below three quarters of the upper. Worker.
    pub fn unbind(&self, active: bool) {
        let one = if active { ACTIVE } else { INACTIVE };
        let word = self.word.fetch_sub(one, Relaxed) - one;
        if word & OVERLOAD != 0 {
            self.release(word);
        }
    }

    /// Moves one connection between the counts. Worker.
    pub fn shift(&self, to_active: bool) {
        let by = ACTIVE - INACTIVE;
        if to_active {
            self.word.fetch_add(by, Relaxed)
        } else {
            self.word.fetch_sub(by, Relaxed)
        };
    }

    /// Sets OVERLOAD while the counts say so; `word` is what they last were.
    #[cold]
    fn overload(&self, mut word: u64) {
        let mut upper = self.upper.load(Relaxed);
        while word & OVERLOAD == 0 && is_full(word, upper) {
            match self.word.compare_exchange(word, word | OVERLOAD, Acquire, Relaxed) {
                Ok(_) => {
                    // An edit that came between the test and the flag has not seen the flag.
                    let edited = self.upper.load(Relaxed);
                    if is_raised(edited, upper) {
                        self.word.fetch_and(!OVERLOAD, Relaxed);
                    }
                    return;
                }
                Err(now) => (word, upper) = (now, self.upper.load(Relaxed)),
            }
        }
    }

    /// Clears OVERLOAD while the counts say so; `word` is what they last were.
    #[cold]
    fn release(&self, mut word: u64) {
        let (upper, lower) = (self.upper.load(Relaxed), self.lower.load(Relaxed));
        let ends = |word| match (lower, upper) {
            (0, 0) => true,
            (0, upper) => u64::from(total(word)) * 4 < u64::from(upper) * 3,
            (lower, _) => total(word) < lower,
        };
        while word & OVERLOAD != 0 && ends(word) {
            match self.word.compare_exchange(word, word & !OVERLOAD, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => word = now,
            }
        }
    }

    fn word(&self) -> u64 {
        self.word.load(Relaxed)
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
        if is_raised(upper, old) {
            // A worker that sets the flag after this sees the new threshold.
            self.word.fetch_and(!OVERLOAD, Release);
        }
    }

    /// Links or unlinks the destination. Control.
    pub fn set_available(&self, available: bool) {
        if available {
            self.word.fetch_or(AVAILABLE, Relaxed);
        } else {
            self.word.fetch_and(!AVAILABLE, Relaxed);
        }
    }

    /// Forgets everything before a slot is handed to a new destination. Control, when no connection holds it.
    pub fn reset(&self) {
        for cell in [&self.weight, &self.upper, &self.lower, &self.service] {
            cell.store(0, Relaxed);
        }
        self.word.store(0, Relaxed);
        self.hop.store(0, Relaxed);
    }
}

fn active(word: u64) -> u32 {
    (word >> 32 & COUNT) as u32
}

fn inactive(word: u64) -> u32 {
    (word & COUNT) as u32
}

fn total(word: u64) -> u32 {
    active(word) + inactive(word)
}

/// Whether counts have reached an upper threshold; 0 is none.
fn is_full(word: u64, upper: u32) -> bool {
    upper != 0 && total(word) >= upper
}

/// Whether an edit of the upper threshold ends an overload.
fn is_raised(upper: u32, old: u32) -> bool {
    upper == 0 || upper > old
}

/// What a noted next hop for, in 32 bits: generation of the routes, method, and a mark that is never 0.
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

#[cfg(test)]
mod tests;

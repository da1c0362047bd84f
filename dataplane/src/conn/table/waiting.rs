//! Reply entries of the newest connections, on their way into the index.
//!
//! Where a reply's entry belongs is known only when its server is, and that bucket is a cache miss in a large table. So
//! [`super::ConnTable::insert`] only asks for the bucket and leaves the entry here; it goes in when a few more
//! connections have been made, or at the end of the burst ([`super::ConnTable::settle`]). Look-ups search here first:
//! nothing can tell that an entry waits.

use arrayvec::ArrayVec;

/// Entries that wait at most: at some 200 ns a new connection, 8 are longer than any miss takes, and the search is short.
const WAITING: usize = 8;

/// An entry of the index still to be made: connection `slot`'s reply.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    pub hash: u64,
    pub slot: u32,
}

/// Oldest first.
#[derive(Default)]
pub(super) struct Waiting(ArrayVec<Entry, WAITING>);

impl Waiting {
    #[inline(always)]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Takes `entry` in; the oldest one has to go in its stead when there is no room.
    #[inline(always)]
    pub fn push(&mut self, entry: Entry) -> Option<Entry> {
        let oldest = if self.0.is_full() { self.pop() } else { None };
        self.0.push(entry);
        oldest
    }

    /// The oldest.
    #[inline(always)]
    pub fn pop(&mut self) -> Option<Entry> {
        self.0.pop_at(0)
    }

    /// The slots waiting with `hash`, newest first.
    #[inline(always)]
    pub fn with(&self, hash: u64) -> impl Iterator<Item = u32> {
        self.0.iter().rev().filter(move |e| e.hash == hash).map(|e| e.slot)
    }

    /// Takes the entry of `slot` out; false if none waits.
    #[inline(always)]
    pub fn take(&mut self, slot: u32) -> bool {
        let found = self.0.iter().position(|e| e.slot == slot);
        found.is_some_and(|at| self.0.pop_at(at).is_some())
    }
}

//! The index's entries: how they get to their places and leave them. Cold beside the look-ups: twice a connection
//! each.

use super::{ConnTable, ENTRIES, Place, direction, tag};
use crate::conn::record::Direction;
use crate::hash::{FlowKey, HashFlow};

impl<H: HashFlow> ConnTable<H> {
    /// Puts an entry for `key`, whose hash is `hash`, into the index. There is room: the index has 1 / 0.7 times the
    /// entries that all records need.
    pub(super) fn enter(&mut self, hash: u64, key: &FlowKey, word: u32) {
        let tag = tag(hash);
        // `carried` is the entry still to be placed. Up to the first free place it changes places
        // with each equal one that must come after it, which moves them all back by one.
        let mut carried = word;
        let mut at = self.home(hash);
        let free = loop {
            let vacant = self.buckets[at].matches(0);
            let end = vacant.trailing_zeros();
            let mut mask = self.buckets[at].matches(tag) & below(end);
            while mask != 0 {
                let entry = mask.trailing_zeros() as usize & ENTRIES;
                let there = self.buckets[at].slots[entry];
                if self.shows(there, key) && goes_before(carried, there) {
                    self.buckets[at].slots[entry] = carried;
                    carried = there;
                }
                mask &= mask - 1;
            }
            if vacant != 0 {
                break Place { bucket: at, entry: end as usize & ENTRIES };
            }
            self.buckets[at].tags[ENTRIES] += 1;
            at = self.after(at);
        };
        self.buckets[free.bucket].tags[free.entry] = tag;
        self.buckets[free.bucket].slots[free.entry] = carried;
        if carried == word && direction(word) == Direction::Request {
            self.let_replies_pass(key, tag, free);
        }
    }

    /// Moves the request at `place` behind the replies of the same flow that come later in the scan:
    /// the free place it got may have been before them.
    fn let_replies_pass(&mut self, key: &FlowKey, tag: u32, mut place: Place) {
        let mut at = place.bucket;
        let mut mask = self.buckets[at].matches(tag) & !below(place.entry as u32 + 1);
        for _ in 0..self.buckets.len() {
            while mask != 0 {
                let entry = mask.trailing_zeros() as usize & ENTRIES;
                let there = self.buckets[at].slots[entry];
                if self.shows(there, key) {
                    if direction(there) == Direction::Request {
                        return;
                    }
                    self.buckets[at].slots[entry] = self.buckets[place.bucket].slots[place.entry];
                    self.buckets[place.bucket].slots[place.entry] = there;
                    place = Place { bucket: at, entry };
                }
                mask &= mask - 1;
            }
            if self.buckets[at].passed() == 0 {
                return;
            }
            at = self.after(at);
            mask = self.buckets[at].matches(tag);
        }
    }

    /// Takes the entry `word` of the flow with `hash` out of the index.
    pub(super) fn leave(&mut self, hash: u64, word: u32) {
        let home = self.home(hash);
        let Some(found) = self.place_of(home, tag(hash), word) else {
            return;
        };
        self.buckets[found.bucket].tags[found.entry] = 0;
        let mut at = home;
        while at != found.bucket {
            self.buckets[at].tags[ENTRIES] -= 1;
            at = self.after(at);
        }
    }

    fn place_of(&self, home: usize, tag: u32, word: u32) -> Option<Place> {
        let mut at = home;
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut mask = bucket.matches(tag);
            while mask != 0 {
                let entry = mask.trailing_zeros() as usize & ENTRIES;
                if bucket.slots[entry] == word {
                    return Some(Place { bucket: at, entry });
                }
                mask &= mask - 1;
            }
            if bucket.passed() == 0 {
                return None;
            }
            at = self.after(at);
        }
        None
    }
}

/// Of two entries of the same flow, does the newer one `new` belong before `old`?
fn goes_before(new: u32, old: u32) -> bool {
    direction(new) == Direction::Reply || direction(old) == Direction::Request
}

/// The bits below `bit`.
#[inline(always)]
fn below(bit: u32) -> u32 {
    1u32.checked_shl(bit).map_or(u32::MAX, |b| b - 1)
}

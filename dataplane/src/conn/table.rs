//! Connections and the index that finds them by flow.
//!
//! Two fixed arrays, allocated once. **Records** hold the connections; a slot is free, or in use
//! from [`ConnTable::insert`] to [`ConnTable::remove`]. The **index** is an array of buckets of one
//! cache line: seven entries of a 32-bit tag (upper half of the flow's hash, never 0) and a slot
//! with the direction in its top bit, two entries for each connection. The lower half of the hash
//! chooses the home bucket. An entry that finds its home full goes to the next bucket with room,
//! and every bucket it passed counts it; a search goes on to the next bucket only while that count
//! is not 0, and removal takes it back, so there are no tombstones and nothing is ever rebuilt.
//! At the configured maximum 70 % of the entries are in use and about one bucket in eight has
//! been passed by somebody.
//!
//! Of equal flows a search finds replies before requests and newer connections before older ones;
//! an older one is found again when the newer goes (kernel IPVS asks for replies first, and inserts
//! at the front of its chains).
//!
//! For a burst the steps are staged so that cache misses overlap: [`ConnTable::hash`] all,
//! [`ConnTable::prefetch_bucket`] all, [`ConnTable::probe`] all, [`ConnTable::lookup_probed`] each when
//! its packet is decided.
//!
//! New connections and ended ones are staged too: a reply's entry waits in `waiting` while its bucket is fetched, and
//! [`ConnTable::prefetch_flows`] fetches what [`ConnTable::remove_prefetched`] will touch.
//!
//! The table belongs to one worker. Nothing allocates after [`ConnTable::new`].

use std::ops::Range;

use dpdk_sys::{Prefault, Slab, SlabError, match_tags, prefetch_index};
use thiserror::Error;
use zerocopy::FromZeros;

use super::record::{Direction, Record, flag};
use crate::hash::{FlowHasher, FlowKey, HashFlow};

mod entries;
mod waiting;

use waiting::{Entry, Waiting};

/// Index entries of one bucket; the place of the eighth holds the overflow count.
const ENTRIES: usize = 7;

/// Share of the index entries in use when the table is full, in percent. Fuller means more second
/// buckets per search (Poisson: at 70 % a bucket's home entries exceed 7 in 12 % of all buckets),
/// emptier means more memory: 70 % makes 26 bytes of index a connection, 90 with its record.
const LOAD_PERCENT: usize = 70;

/// Most connections of one table: slots share a word with the direction bit and the timer lists'
/// heads with the slots.
pub const MAX_CONNS: usize = 1 << 30;

/// Direction bit of an entry: set for replies.
const REPLY: u32 = 1 << 31;

/// No slot: the end of the free list and of a timer list.
pub(super) const NIL: u32 = u32::MAX;

/// The place of a connection in its table. Valid until that connection is removed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Slot(pub(super) u32);

impl Slot {
    /// Position in the table, below its capacity.
    pub fn index(self) -> u32 {
        self.0
    }
}

/// Where a flow's record probably is: the second stage's word to the last one. 8 bytes.
#[derive(Clone, Copy, Debug)]
pub struct Probe {
    /// First entry of the home bucket with the flow's tag, or [`NIL`].
    word: u32,
    /// The table's count of changes then.
    changes: u32,
}

impl Probe {
    /// Says nothing.
    pub const NONE: Probe = Probe { word: NIL, changes: 0 };
}

/// The table holds as many connections as it was made for. Nothing changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("connection table is full")]
pub struct TableFull;

/// A table could not be made.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum TableError {
    /// More connections than a slot number can hold.
    #[error("{requested} connections are more than the {MAX_CONNS} of one table")]
    TooMany {
        /// Connections asked for.
        requested: usize,
    },
    /// The system has not got the memory.
    #[error("no memory for {requested} connections")]
    NoMemory {
        /// Connections asked for.
        requested: usize,
        /// What the system said.
        #[source]
        source: SlabError,
    },
}

/// Seven entries and the number of entries that passed this bucket on their way from home.
#[derive(Clone, Copy, FromZeros)]
#[repr(C, align(64))]
struct Bucket {
    tags: [u32; 8],
    slots: [u32; 8],
}

const _: () = assert!(size_of::<Bucket>() == 64 && ENTRIES == 7);

impl Bucket {
    /// Bit `i` is set where entry `i` has `tag`; tag 0 finds the free entries.
    #[inline(always)]
    fn matches(&self, tag: u32) -> u32 {
        u32::from(match_tags(&self.tags, tag)) & ((1 << ENTRIES) - 1)
    }

    #[inline(always)]
    fn passed(&self) -> u32 {
        self.tags[ENTRIES]
    }
}

/// An entry's place in the index.
#[derive(Clone, Copy)]
struct Place {
    bucket: usize,
    entry: usize,
}

/// A fixed number of connections, found by flow. See the module's page for the layout.
pub struct ConnTable<H = FlowHasher> {
    buckets: Slab<Bucket>,
    pub(super) records: Slab<Record>,
    hasher: H,
    /// First free record of those that were in use before, or [`NIL`].
    free: u32,
    /// Records from here on were never used.
    fresh: u32,
    len: u32,
    /// Counts insertions and removals, wrapping.
    changes: u32,
    /// What probes note as the count of changes: another number while entries wait, of which probes know nothing.
    stamp: u32,
    waiting: Waiting,
}

impl<H: HashFlow> ConnTable<H> {
    /// An empty table for `max` connections; control, at start.
    ///
    /// `prefault` as [`Slab::zeroed`] has it: [`Prefault::Now`], so that no packet pays for a page.
    /// Fails when `max` is above [`MAX_CONNS`] or the memory is not to be had; nothing is left
    /// allocated then.
    pub fn new(max: usize, hasher: H, prefault: Prefault) -> Result<Self, TableError> {
        if max > MAX_CONNS {
            return Err(TableError::TooMany { requested: max });
        }
        let buckets = (2 * max * 100).div_ceil(ENTRIES * LOAD_PERCENT).max(1);
        let no_memory = |source| TableError::NoMemory { requested: max, source };
        Ok(ConnTable {
            buckets: Slab::zeroed(buckets, prefault).map_err(no_memory)?,
            records: Slab::zeroed(max, prefault).map_err(no_memory)?,
            hasher,
            free: NIL,
            fresh: 0,
            len: 0,
            changes: 0,
            stamp: 0,
            waiting: Waiting::default(),
        })
    }

    /// The hash that the other calls want as `hash`. Hot.
    #[inline(always)]
    pub fn hash(&self, key: &FlowKey) -> u64 {
        self.hasher.hash(key)
    }

    /// The hashes of a burst's flows, as [`HashFlow::hash_burst`]. Hot.
    #[inline(always)]
    pub fn hash_burst(&self, words: &[[u64; 2]], hashes: &mut [u64]) {
        self.hasher.hash_burst(words, hashes);
    }

    /// Starts to load the home bucket of `hash`. Hot, first stage.
    #[inline(always)]
    pub fn prefetch_bucket(&self, hash: u64) {
        prefetch_index(&self.buckets, self.home(hash));
    }

    /// Looks `hash` up in its home bucket and starts to load the record it points to, if any: none for
    /// most unknown flows, the right one for nearly all known ones. Hot, second stage.
    #[inline(always)]
    pub fn probe(&self, hash: u64) -> Probe {
        let home = self.home(hash);
        let bucket = &self.buckets[home];
        let mask = bucket.matches(tag(hash));
        if mask == 0 {
            if bucket.passed() > 0 {
                prefetch_index(&self.buckets, self.after(home));
            }
            return Probe { word: NIL, changes: self.stamp };
        }
        let word = bucket.slots[mask.trailing_zeros() as usize & ENTRIES];
        prefetch_index(&self.records, (word & !REPLY) as usize);
        Probe { word, changes: self.stamp }
    }

    /// What [`ConnTable::lookup`] says, with less work if `probe` was right. Hot, last stage.
    ///
    /// `probe` is what [`ConnTable::probe`] said of the same `hash`. It may be older than connections
    /// made or ended since: then it is not relied on.
    #[inline(always)]
    pub fn lookup_probed(&self, probe: Probe, hash: u64, key: &FlowKey) -> Option<(Slot, Direction)> {
        if probe.changes == self.changes && probe.word != NIL && self.shows(probe.word, key) {
            return Some((Slot(probe.word & !REPLY), direction(probe.word)));
        }
        self.lookup(hash, key)
    }

    /// The connection `key` belongs to, and in which direction. Hot.
    ///
    /// `hash` is this table's hash of `key`.
    #[inline(always)]
    pub fn lookup(&self, hash: u64, key: &FlowKey) -> Option<(Slot, Direction)> {
        if !self.waiting.is_empty()
            && let Some(slot) = self.waiting.with(hash).find(|s| self.shows(s | REPLY, key))
        {
            return Some((Slot(slot), Direction::Reply));
        }
        let tag = tag(hash);
        let mut at = self.home(hash);
        for _ in 0..self.buckets.len() {
            let bucket = &self.buckets[at];
            let mut mask = bucket.matches(tag);
            while mask != 0 {
                let word = bucket.slots[mask.trailing_zeros() as usize & ENTRIES];
                if self.shows(word, key) {
                    return Some((Slot(word & !REPLY), direction(word)));
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

    /// Takes `record` in and makes both its flows known, before all older connections with the same. Worker, for each
    /// new connection; [`ConnTable::settle`] follows at the end of the burst.
    pub fn insert(&mut self, record: Record) -> Result<Slot, TableFull> {
        let slot = if self.free != NIL {
            let slot = self.free;
            self.free = self.records[slot as usize].next;
            slot
        } else if (self.fresh as usize) < self.records.len() {
            self.fresh += 1;
            self.fresh - 1
        } else {
            return Err(TableFull);
        };
        let place = &mut self.records[slot as usize];
        *place = record;
        place.set_hashed(true);
        place.next = NIL;
        place.prev = NIL;
        self.len += 1;
        let [request, reply] = self.prefetch_flows(Slot(slot));
        self.enter(request, &record.key(Direction::Request), word(Slot(slot), Direction::Request));
        if let Some(oldest) = self.waiting.push(Entry { hash: reply, slot }) {
            self.enter_reply(oldest);
        }
        self.changed();
        Ok(Slot(slot))
    }

    /// Puts all waiting entries into the index: the end of a burst. Hot.
    #[inline(always)]
    pub fn settle(&mut self) {
        while let Some(entry) = self.waiting.pop() {
            self.enter_reply(entry);
        }
        self.stamp = self.changes;
    }

    #[inline(always)]
    fn enter_reply(&mut self, entry: Entry) {
        let key = self.records[entry.slot as usize].key(Direction::Reply);
        self.enter(entry.hash, &key, word(Slot(entry.slot), Direction::Reply));
    }

    /// Old probes no longer hold; new ones do only if no entry waits.
    #[inline(always)]
    fn changed(&mut self) {
        self.changes = self.changes.wrapping_add(1);
        self.stamp = self.changes.wrapping_sub(u32::from(!self.waiting.is_empty()));
    }

    /// Starts to load the home buckets of the connection at `slot`; the hashes of its request and its reply. Worker,
    /// some time before [`ConnTable::remove_prefetched`].
    #[inline(always)]
    pub fn prefetch_flows(&self, slot: Slot) -> [u64; 2] {
        let record = &self.records[slot.0 as usize];
        let words = [Direction::Request, Direction::Reply].map(|direction| record.key(direction).words());
        let mut hashes = [0; 2];
        self.hash_burst(&words, &mut hashes);
        for hash in hashes {
            self.prefetch_bucket(hash);
        }
        hashes
    }

    /// Forgets the connection at `slot` and frees the slot; false if it holds none. Its timer must
    /// have been stopped ([`super::Conns::remove`] does both). Worker.
    pub fn remove(&mut self, slot: Slot) -> bool {
        if !self.records.get(slot.0 as usize).is_some_and(|r| r.has(flag::HASHED)) {
            return false;
        }
        let hashes = self.prefetch_flows(slot);
        self.remove_prefetched(slot, hashes);
        true
    }

    /// As [`ConnTable::remove`] of a connection that is there and whose [`ConnTable::prefetch_flows`] said `hashes`.
    pub fn remove_prefetched(&mut self, slot: Slot, hashes: [u64; 2]) {
        self.leave(hashes[0], word(slot, Direction::Request));
        if !self.waiting.take(slot.0) {
            self.leave(hashes[1], word(slot, Direction::Reply));
        }
        let place = &mut self.records[slot.0 as usize];
        place.set_hashed(false);
        place.next = self.free;
        self.free = slot.0;
        self.len -= 1;
        self.changed();
    }

    /// The record at `slot`. Hot.
    ///
    /// A slot kept past its connection's removal shows whatever lives there now.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> &Record {
        &self.records[slot.0 as usize]
    }

    /// The record at `slot`, to be changed. Hot.
    #[inline(always)]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Record {
        &mut self.records[slot.0 as usize]
    }

    /// Connections in use.
    pub fn len(&self) -> usize {
        self.len as usize
    }

    /// Is there no connection?
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Most connections this table holds.
    pub fn capacity(&self) -> usize {
        self.records.len()
    }

    /// Bytes of both arrays, in whole pages.
    pub fn memory_bytes(&self) -> usize {
        self.records.bytes() + self.buckets.bytes()
    }

    /// Slots from here on were never used: the end for a cursor over [`ConnTable::used`].
    pub fn high_water(&self) -> u32 {
        self.fresh
    }

    /// The slots in use within `window`, ascending. For dumps: a cursor moves window by window up to
    /// [`ConnTable::high_water`], so that one call's work is bounded. A connection that lives through
    /// the whole dump is seen exactly once.
    pub fn used(&self, window: Range<u32>) -> impl Iterator<Item = Slot> {
        let end = window.end.min(self.fresh);
        let used = |&slot: &u32| self.records[slot as usize].has(flag::HASHED);
        (window.start..end).filter(used).map(Slot)
    }

    /// The overflow counts of all buckets: how many buckets all entries together are away from home.
    #[cfg(test)]
    pub(super) fn total_passed(&self) -> u64 {
        self.buckets.iter().map(|bucket| u64::from(bucket.passed())).sum()
    }

    /// Home bucket: the lower half of the hash, scaled to the number of buckets.
    #[inline(always)]
    fn home(&self, hash: u64) -> usize {
        (((hash & 0xffff_ffff) * self.buckets.len() as u64) >> 32) as usize
    }

    #[inline(always)]
    fn after(&self, bucket: usize) -> usize {
        if bucket + 1 == self.buckets.len() { 0 } else { bucket + 1 }
    }

    /// Does the connection and direction of entry `word` show `key`?
    #[inline(always)]
    fn shows(&self, word: u32, key: &FlowKey) -> bool {
        self.records[(word & !REPLY) as usize].shows(direction(word), key)
    }
}

/// Tag of a hash: its upper half, but never 0, which marks a free entry.
#[inline(always)]
fn tag(hash: u64) -> u32 {
    ((hash >> 32) as u32).max(1)
}

#[inline(always)]
fn word(slot: Slot, direction: Direction) -> u32 {
    match direction {
        Direction::Request => slot.0,
        Direction::Reply => slot.0 | REPLY,
    }
}

#[inline(always)]
fn direction(word: u32) -> Direction {
    if word & REPLY == 0 { Direction::Request } else { Direction::Reply }
}

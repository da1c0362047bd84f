//! When connections end: a hierarchical timer wheel through the records.
//!
//! Time is counted in **ticks** of 2^26 ns, wrapping. The wheel has three levels of 256 slots: one
//! tick a slot, then 256, then 65 536, which reaches 13 days; longer waits are parked at the far end
//! and looked at again. A slot is a doubly linked list of records, so that arming and stopping a
//! timer touch a few records and nothing else. A bit per slot says which lists are not empty, so
//! that time may jump by hours without a visit to every tick.
//!
//! Re-arming is **lazy**: a packet only stores the new end in its record ([`Record::touch`]). When
//! the wheel comes by, a connection that is not due yet moves to the slot of its real end. Only an
//! end that comes sooner than before must be re-armed at once.
//!
//! Order of work at one tick: the slot of level 2 that begins here, the slot of level 1 that begins
//! here, the slot of level 0; each is emptied from the front, and no visited record ever returns to
//! the list it came from. The lists themselves are thus the place to go on from when a call's budget
//! is spent.
//!
//! A connection ends more than its timeout after its last packet, by at most two ticks (134 ms), if
//! the worker polls at least once a tick and its budget suffices.
//!
//! Belongs to one worker, like the records.

use super::record::Record;
use super::table::{NIL, Slot};

/// A tick is 2^26 ns = 67.1 ms: the shift costs nothing, and two ticks stay well within the 250 ms
/// that a kernel timer of this kind may be late.
pub const TICK_SHIFT: u32 = 26;

/// Nanoseconds of a tick.
pub const TICK_NS: u64 = 1 << TICK_SHIFT;

/// Longest timeout, 2.2 years: with time itself running ahead of the wheel by as much, the wrapping tick
/// counter still tells future from past. A clock that jumps farther at once ends connections early or
/// late, no worse.
pub const MAX_TICKS: u32 = 1 << 30;

/// The tick that `now_ns` falls into.
#[inline(always)]
pub const fn tick_of(now_ns: u64) -> u32 {
    (now_ns >> TICK_SHIFT) as u32
}

/// Whole ticks that cover `secs` seconds, at most [`MAX_TICKS`].
pub const fn ticks_of_secs(secs: u32) -> u32 {
    let ticks = (secs as u64 * 1_000_000_000).div_ceil(TICK_NS);
    if ticks < MAX_TICKS as u64 { ticks as u32 } else { MAX_TICKS }
}

/// Is tick `a` before tick `b`? Right while they are less than 2^31 ticks apart.
#[inline(always)]
pub(super) const fn is_before(a: u32, b: u32) -> bool {
    (a.wrapping_sub(b) as i32) < 0
}

const LEVELS: usize = 3;
const SLOTS_SHIFT: u32 = 8;
const SLOTS: usize = 1 << SLOTS_SHIFT;

/// Longest wait, in ticks, that the last level has a slot for: one tick short of its full turn.
const REACH: u32 = (1 << (LEVELS as u32 * SLOTS_SHIFT)) - 1;

/// In a record's `prev`: the record is the first of the list numbered by the other bits.
const HEAD: u32 = 1 << 31;

/// The lists, and how far time has been worked off. 3 KiB.
pub struct Wheel {
    /// Everything due before this tick has been handed out.
    next_tick: u32,
    /// Records in any list.
    armed: u32,
    /// First record of each list, level by level, or [`NIL`].
    heads: [u32; LEVELS * SLOTS],
    /// A bit for each list that is not empty.
    occupied: [[u64; SLOTS / 64]; LEVELS],
}

impl Wheel {
    /// An empty wheel at `now_tick`.
    pub fn new(now_tick: u32) -> Self {
        Wheel {
            next_tick: now_tick,
            armed: 0,
            heads: [NIL; LEVELS * SLOTS],
            occupied: [[0; SLOTS / 64]; LEVELS],
        }
    }

    /// Starts the timer of the record at `slot`, to go off at its end; moves it if it runs.
    /// Worker; touches at most four other records.
    pub fn arm(&mut self, records: &mut [Record], slot: Slot) {
        self.disarm(records, slot);
        let list = self.list_of(records[slot.0 as usize].expires);
        let first = self.heads[list];
        let record = &mut records[slot.0 as usize];
        record.next = first;
        record.prev = HEAD | list as u32;
        if first != NIL {
            records[first as usize].prev = slot.0;
        }
        self.heads[list] = slot.0;
        self.occupied[list / SLOTS][list % SLOTS / 64] |= 1 << (list % 64);
        self.armed += 1;
    }

    /// Stops the timer of the record at `slot` if it runs. Worker.
    pub fn disarm(&mut self, records: &mut [Record], slot: Slot) {
        let record = &mut records[slot.0 as usize];
        let (prev, next) = (record.prev, record.next);
        if prev == NIL {
            return;
        }
        record.prev = NIL;
        record.next = NIL;
        if next != NIL {
            records[next as usize].prev = prev;
        }
        if prev & HEAD == 0 {
            records[prev as usize].next = next;
        } else {
            let list = (prev & !HEAD) as usize;
            self.heads[list] = next;
            if next == NIL {
                self.occupied[list / SLOTS][list % SLOTS / 64] &= !(1 << (list % 64));
            }
        }
        self.armed -= 1;
    }

    /// The next record whose end has come by `now_tick`, its timer stopped; `None` when there is no
    /// more now or `budget` is spent. Worker, once a poll with that poll's budget.
    ///
    /// Every record looked at takes 1 from `budget`, due or not; empty slots cost nothing. What is
    /// left over comes with the next call, nothing is lost or handed out twice.
    #[inline]
    pub fn expire_next(&mut self, records: &mut [Record], now_tick: u32, budget: &mut usize) -> Option<Slot> {
        while !is_before(now_tick, self.next_tick) || self.armed == 0 {
            if self.armed == 0 {
                // Also sets a clock right that jumped by more than the tick counter can tell.
                self.next_tick = now_tick.wrapping_add(1);
                return None;
            }
            let Some(list) = self.list_due() else {
                self.skip(now_tick);
                continue;
            };
            if *budget == 0 {
                return None;
            }
            *budget -= 1;
            let slot = Slot(self.heads[list]);
            let expires = records[slot.0 as usize].expires;
            // The first: an end behind the wheel has come, whatever a clock that jumped too far says. It
            // must not return to the list it came from.
            if is_before(expires, self.next_tick) || !is_before(now_tick, expires) {
                self.disarm(records, slot);
                return Some(slot);
            }
            self.arm(records, slot);
        }
        None
    }

    /// Ticks up to `now_tick` that are not worked off; not 0 while no timer runs, when the clock may jump. Hot.
    #[inline(always)]
    pub fn behind(&self, now_tick: u32) -> u32 {
        let up_to_date = is_before(now_tick, self.next_tick) && self.armed > 0;
        if up_to_date { 0 } else { now_tick.wrapping_sub(self.next_tick).wrapping_add(1) }
    }

    /// Timers running.
    pub fn armed(&self) -> usize {
        self.armed as usize
    }

    /// The list to hang a record into that ends at tick `expires`: on the level whose slots are less
    /// than a turn away, and never one that is being emptied at `next_tick`, unless the end has come.
    fn list_of(&self, expires: u32) -> usize {
        let now = self.next_tick;
        let wait = if is_before(expires, now) { 0 } else { expires.wrapping_sub(now).min(REACH) };
        let level = (wait.max(1).ilog2() / SLOTS_SHIFT) as usize;
        level * SLOTS + Self::position(now.wrapping_add(wait), level)
    }

    /// The first list that has to be emptied at `next_tick`, coarse levels first.
    #[inline]
    fn list_due(&self) -> Option<usize> {
        for level in (0..LEVELS).rev() {
            let list = level * SLOTS + Self::position(self.next_tick, level);
            if Self::begins(self.next_tick, level) && self.heads[list] != NIL {
                return Some(list);
            }
        }
        None
    }

    /// Moves `next_tick`, where all is done, to the next tick with a list to empty, or past
    /// `now_tick` if that comes first.
    fn skip(&mut self, now_tick: u32) {
        let here = self.next_tick;
        let mut ahead = now_tick.wrapping_sub(here) + 1;
        for level in 0..LEVELS {
            // The first slot of this level that begins at `here` or later, and the way to it.
            let shift = SLOTS_SHIFT * level as u32;
            let lead = here.wrapping_neg() & ((1 << shift) - 1);
            let from = Self::position(here.wrapping_add(lead), level);
            if let Some(slots) = next_bit(&self.occupied[level], from) {
                ahead = ahead.min(lead + (slots << shift));
            }
        }
        self.next_tick = here.wrapping_add(ahead);
    }

    /// Position within its level of the slot that `tick` is in.
    #[inline(always)]
    fn position(tick: u32, level: usize) -> usize {
        (tick >> (SLOTS_SHIFT * level as u32)) as usize % SLOTS
    }

    /// Does a slot of `level` begin at `tick`?
    #[inline(always)]
    fn begins(tick: u32, level: usize) -> bool {
        tick & ((1 << (SLOTS_SHIFT * level as u32)) - 1) == 0
    }
}

/// Distance, going round, from bit `from` to the first set bit; 0 if that is `from` itself.
fn next_bit(bits: &[u64; SLOTS / 64], from: usize) -> Option<u32> {
    let words = bits.len();
    for i in 0..=words {
        let index = from / 64 + i;
        let mut word = bits[index % words];
        if i == 0 {
            word &= u64::MAX << (from % 64);
        }
        if word != 0 {
            let bit = index * 64 + word.trailing_zeros() as usize;
            return Some((bit - from) as u32);
        }
    }
    None
}

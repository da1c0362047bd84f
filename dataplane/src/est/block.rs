//! A block of 1024 slots: the chain that one estimator thread sums, filters and may hand on.
//!
//! Behind the block's lock: last sums, rates, zero points and age of its slots. The lock is held for a filter, an
//! addition, a reading or a zeroing, never while counters of many slots are summed. One pass is [`Block::begin`], then
//! the summing without a lock, then always [`Block::finish`]. What control adds in between is left for the next pass: the sums at
//! hand are older than the point it started from.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::counters::{BLOCK, CounterSlab, TOTALS, Totals};
use crate::est::filter::{self, bytes_shown, packets_shown, step};
use crate::est::{GUARD_NS, Rates, Snapshot};
use crate::sync::Mutex;

/// Where a block is passed: a thread's row.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Home {
    pub thread: usize,
    pub row: usize,
}

/// One bit a slot of a block.
#[derive(Clone, Copy, Default)]
pub(super) struct Bits([u64; BLOCK / 64]);

impl Bits {
    pub fn get(&self, i: usize) -> bool {
        self.0[i / 64] >> (i % 64) & 1 == 1
    }

    pub fn set(&mut self, i: usize, on: bool) {
        let bit = 1 << (i % 64);
        if on { self.0[i / 64] |= bit } else { self.0[i / 64] &= !bit }
    }

    /// The lowest clear bit below `len`.
    pub fn first_clear(&self, len: usize) -> Option<usize> {
        let word = self.0.iter().position(|&w| w != u64::MAX)?;
        Some(word * 64 + self.0[word].trailing_ones() as usize).filter(|&i| i < len)
    }

    fn any(&self) -> bool {
        self.0.iter().any(|&w| w != 0)
    }

    /// One more than the highest set bit.
    fn end(&self) -> usize {
        let word = self.0.iter().rposition(|&w| w != 0);
        word.map_or(0, |word| word * 64 + 64 - self.0[word].leading_zeros() as usize)
    }
}

/// Five quantities of the slots of a block, laid out as in a counter slab.
pub(super) struct Lanes {
    pub packets: Vec<[u64; 4]>,
    pub conns: Vec<u64>,
}

impl Lanes {
    pub fn new() -> Self {
        Self { packets: vec![[0; 4]; BLOCK], conns: vec![0; BLOCK] }
    }

    fn get(&self, i: usize) -> Totals {
        let [inpkts, outpkts, inbytes, outbytes] = self.packets[i];
        Totals { conns: self.conns[i], inpkts, outpkts, inbytes, outbytes }
    }

    fn set(&mut self, i: usize, to: Totals) {
        self.packets[i] = [to.inpkts, to.outpkts, to.inbytes, to.outbytes];
        self.conns[i] = to.conns;
    }

    fn copy(&mut self, from: &Lanes, i: usize) {
        (self.packets[i], self.conns[i]) = (from.packets[i], from.conns[i]);
    }
}

/// What a pass has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Work {
    /// The block is not this row's any more.
    Elsewhere,
    /// Nothing was counted since the last pass and every rate is 0: done.
    Idle,
    /// Nothing was counted since the last pass: the sums are the last ones.
    Decay,
    /// Sum that many slots, over the workers left in the list.
    Sum(usize),
}

#[derive(Default)]
pub(super) struct Block(Mutex<Option<State>>);

struct State {
    home: Home,
    /// Slots that are passed.
    live: Bits,
    /// Of these, those without a pass so far.
    fresh: Bits,
    /// Slots that came while a pass was under way.
    added: Bits,
    last: Lanes,
    rate: Lanes,
    zero: Lanes,
    /// Each worker's stamp of this block, read before the last summing.
    stamps: Vec<u64>,
    /// Every rate of a live slot is 0.
    quiet: bool,
    /// The stamps do not tell: sum at the next pass.
    unsure: bool,
    passed: Option<When>,
    first_fresh: When,
}

/// What a thread needs to know of the block at hand.
#[derive(Default)]
pub(super) struct Visit<'a> {
    /// Workers that ever counted in it.
    pub workers: Vec<&'a CounterSlab>,
    stamps: Vec<u64>,
}

/// A time, and how often estimation had been resumed by then.
#[derive(Clone, Copy)]
pub(super) struct When {
    pub ns: u64,
    pub resumes: u32,
}

impl When {
    /// Whether a sample from `self` to `now` says nothing about a period of two seconds.
    fn is_stale(self, now: When) -> bool {
        self.resumes != now.resumes || now.ns.saturating_sub(self.ns) > GUARD_NS
    }
}

impl Block {
    /// Takes the block into use. Control.
    pub fn open(&self, home: Home, workers: usize) {
        let ever = When { ns: 0, resumes: 0 };
        *self.lock() = Some(State {
            home,
            live: Bits::default(),
            fresh: Bits::default(),
            added: Bits::default(),
            last: Lanes::new(),
            rate: Lanes::new(),
            zero: Lanes::new(),
            stamps: vec![0; workers],
            quiet: true,
            unsure: true,
            passed: None,
            first_fresh: ever,
        });
    }

    /// Forgets everything. Control.
    pub fn close(&self) {
        *self.lock() = None;
    }

    /// Says who passes it from now on.
    pub fn set_home(&self, home: Home) {
        if let Some(state) = self.lock().as_mut() {
            state.home = home;
        }
    }

    /// First periods of slots without a pass are counted from `now`. Control.
    pub fn begin_fresh(&self, now: When) {
        if let Some(state) = self.lock().as_mut() {
            state.first_fresh = now;
        }
    }

    /// Starts slot `i` at the sums that `base` reads. Control.
    pub fn add(&self, i: usize, now: When, base: impl FnOnce() -> Totals) {
        if let Some(state) = self.lock().as_mut() {
            if !state.fresh.any() {
                state.first_fresh = now;
            }
            for bits in [&mut state.live, &mut state.fresh, &mut state.added] {
                bits.set(i, true);
            }
            let base = base();
            state.last.set(i, base);
            state.zero.set(i, base);
            state.rate.set(i, Totals::default());
        }
    }

    /// Passes slot `i` no more, or again; its numbers stay. Whether that is a change. Control.
    pub fn set_live(&self, i: usize, on: bool) -> bool {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return false };
        let changed = state.live.get(i) != on;
        if changed {
            state.live.set(i, on);
            state.added.set(i, on);
            state.unsure |= on;
        }
        changed
    }

    /// Totals start over, rates too. Control.
    pub fn zero(&self, i: usize) {
        if let Some(state) = self.lock().as_mut() {
            state.zero.copy(&state.last, i);
            state.rate.set(i, Totals::default());
        }
    }

    /// What the last pass left. Control.
    pub fn read(&self, i: usize) -> Option<Snapshot> {
        let guard = self.lock();
        let state = guard.as_ref()?;
        let raw = state.rate.get(i);
        Some(Snapshot {
            totals: state.last.get(i).since(state.zero.get(i)),
            rates: Rates {
                cps: packets_shown(raw.conns),
                inpps: packets_shown(raw.inpkts),
                outpps: packets_shown(raw.outpkts),
                inbps: bytes_shown(raw.inbytes),
                outbps: bytes_shown(raw.outbytes),
            },
            passed_ns: state.passed.filter(|_| !state.fresh.get(i)).map(|at| at.ns),
        })
    }

    /// The sums from which totals are shown.
    pub fn zero_point(&self, i: usize) -> Option<Totals> {
        self.lock().as_ref().map(|state| state.zero.get(i))
    }

    /// Starts the pass of the owner of row `home` over this block, number `block`. What `visit` then holds is for the summing
    /// and for [`Block::finish`].
    pub fn begin<'a>(
        &self,
        home: Home,
        now: When,
        block: usize,
        slabs: &'a [Arc<CounterSlab>],
        visit: &mut Visit<'a>,
    ) -> Work {
        // The totals move no stamp.
        let always = block == TOTALS as usize / BLOCK;
        visit.stamps.clear();
        visit.stamps.extend(slabs.iter().map(|slab| slab.stamp(block)));
        visit.workers.clear();
        let counted = slabs.iter().zip(&visit.stamps).filter(|(_, stamp)| always || **stamp != 0);
        visit.workers.extend(counted.map(|(slab, _)| &**slab));
        let mut guard = self.lock();
        let Some(state) = guard.as_mut().filter(|state| state.home == home) else { return Work::Elsewhere };
        state.added = Bits::default();
        if std::mem::take(&mut state.unsure) || always || visit.stamps != state.stamps {
            return Work::Sum(state.live.end());
        }
        if state.quiet && !state.fresh.any() {
            state.passed = Some(now);
            return Work::Idle;
        }
        Work::Decay
    }

    /// Ends the pass with the slots' new sums, `None` for the last ones. `spike`: a sample over much more than two seconds
    /// counts as it is, as in the kernel.
    pub fn finish(&self, now: When, spike: bool, visit: &Visit<'_>, sums: Option<&Lanes>) {
        let mut guard = self.lock();
        let Some(state) = guard.as_mut() else { return };
        let old_stale = !spike && state.passed.is_some_and(|at| at.is_stale(now));
        let fresh_stale = !spike && state.first_fresh.is_stale(now);
        let mut left = 0;
        for word in 0..BLOCK / 64 {
            let passed = state.live.0[word] & !state.added.0[word];
            let fresh = passed & state.fresh.0[word];
            let stale = if fresh_stale { fresh } else { 0 } | if old_stale { passed & !fresh } else { 0 };
            left |= state.filter(word, passed & !stale, sums);
            left |= state.follow(word, stale, sums);
            state.fresh.0[word] &= !passed;
        }
        state.quiet = left == 0;
        state.passed = Some(now);
        state.first_fresh = now;
        state.stamps.clear();
        state.stamps.extend_from_slice(&visit.stamps);
    }

    fn lock(&self) -> MutexGuard<'_, Option<State>> {
        // Numbers only: whatever a panicking holder left is as good as any.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    /// Filters the slots of `mask` among 64; all their rates or-ed together.
    fn filter(&mut self, word: usize, mask: u64, sums: Option<&Lanes>) -> u64 {
        let range = word * 64..word * 64 + 64;
        let (last, rate) = (&mut self.last.packets[range.clone()], &mut self.rate.packets[range.clone()]);
        let sum = sums.map(|s| &s.packets[range.clone()]);
        let packets = filter_slots(mask, filter::PACKETS, last, rate, sum);
        let (last, rate) = (&mut self.last.conns[range.clone()], &mut self.rate.conns[range.clone()]);
        let (last, rate) = (last.as_chunks_mut().0, rate.as_chunks_mut().0);
        let sum = sums.map(|s| s.conns[range].as_chunks().0);
        packets | filter_slots(mask, [filter::CONNS], last, rate, sum)
    }

    /// Takes over the sums of the slots of `mask` and leaves their rates; those or-ed together.
    fn follow(&mut self, word: usize, mask: u64, sums: Option<&Lanes>) -> u64 {
        let mut left = 0;
        for i in slots(mask).map(|i| word * 64 + i) {
            if let Some(sums) = sums {
                self.last.copy(sums, i);
            }
            left |= self.rate.packets[i].iter().fold(self.rate.conns[i], |all, rate| all | rate);
        }
        left
    }
}

/// Filters `N` quantities of the slots of `mask`; without sums they are as they were. Dense slots are the usual case: a loop
/// without branches, which becomes vector code.
fn filter_slots<const N: usize>(
    mask: u64,
    shifts: [u32; N],
    last: &mut [[u64; N]],
    rate: &mut [[u64; N]],
    sums: Option<&[[u64; N]]>,
) -> u64 {
    let mut left = 0;
    let mut pass = |last: &mut [u64; N], rate: &mut [u64; N], sum: [u64; N]| {
        for lane in 0..N {
            rate[lane] = step(rate[lane], last[lane], sum[lane], shifts[lane]);
            left |= rate[lane];
        }
        *last = sum;
    };
    match sums {
        Some(sums) if mask == u64::MAX => {
            for ((last, rate), sum) in last.iter_mut().zip(rate).zip(sums) {
                pass(last, rate, *sum);
            }
        }
        _ => slots(mask).for_each(|i| {
            let sum = sums.map_or(last[i], |sums| sums[i]);
            pass(&mut last[i], &mut rate[i], sum);
        }),
    }
    left
}

/// The set bits of a word.
fn slots(mask: u64) -> impl Iterator<Item = usize> {
    std::iter::successors(Some(mask), |m| Some(m & m.wrapping_sub(1)))
        .take_while(|&m| m != 0)
        .map(|m| m.trailing_zeros() as usize)
}

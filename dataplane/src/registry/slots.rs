//! Object slots (counters, destination state) and service indices: dense numbers, lowest first, reused only after
//! every worker has forgotten them.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use crate::counters::Totals;

pub(super) struct Slots {
    slots: Numbers,
    indices: Numbers,
    /// Service slots and indices to be freed once that generation is in force everywhere.
    retired: VecDeque<(u64, u32, u32)>,
    /// Sums at which the slot's present object started; grows as slots are handed out.
    bases: Vec<Totals>,
}

/// Numbers below a limit, the lowest free one first.
struct Numbers {
    limit: u32,
    fresh: u32,
    free: BinaryHeap<Reverse<u32>>,
}

impl Numbers {
    fn take(&mut self) -> Option<u32> {
        if let Some(Reverse(number)) = self.free.pop() {
            return Some(number);
        }
        let number = self.fresh;
        (number < self.limit).then(|| {
            self.fresh += 1;
            number
        })
    }
}

impl Slots {
    /// Slots below `slots` (0 is the totals') and service indices below `indices`.
    pub(super) fn new(slots: u32, indices: u32) -> Self {
        Self {
            slots: Numbers { limit: slots, fresh: 1, free: BinaryHeap::new() },
            indices: Numbers { limit: indices, fresh: 0, free: BinaryHeap::new() },
            retired: VecDeque::new(),
            bases: Vec::new(),
        }
    }

    pub(super) fn take(&mut self) -> Option<u32> {
        self.slots.take()
    }

    pub(super) fn take_index(&mut self) -> Option<u32> {
        self.indices.take()
    }

    /// Gives a destination's slot back; nobody refers to it any more.
    pub(super) fn release(&mut self, slot: u32) {
        self.slots.free.push(Reverse(slot));
    }

    /// Gives a service's slot and index back once `generation` is in force.
    pub(super) fn retire(&mut self, slot: u32, index: u32, generation: u64) {
        self.retired.push_back((generation, slot, index));
    }

    /// Frees what was retired up to `generation`.
    pub(super) fn reclaim(&mut self, generation: u64) {
        while let Some((_, slot, index)) = self.retired.front().copied().filter(|r| r.0 <= generation) {
            self.retired.pop_front();
            self.slots.free.push(Reverse(slot));
            self.indices.free.push(Reverse(index));
        }
    }

    pub(super) fn base(&self, slot: u32) -> Totals {
        self.bases.get(slot as usize).copied().unwrap_or_default()
    }

    pub(super) fn set_base(&mut self, slot: u32, base: Totals) {
        let slot = slot as usize;
        if self.bases.len() <= slot {
            self.bases.resize(slot + 1, Totals::default());
        }
        self.bases[slot] = base;
    }
}

//! Object slots (counters, estimator, destination state) and service indices: reused only after every worker has
//! forgotten them. Slots are the estimators' to hand out, in the order they are passed; indices are dense, lowest first.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};
use std::sync::Arc;

use crate::est::Estimators;

pub(super) struct Slots {
    estimators: Arc<Estimators>,
    indices: Numbers,
    /// Service slots and indices to be freed once that generation is in force everywhere.
    retired: VecDeque<(u64, u32, u32)>,
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
    /// Slots of `estimators`, and service indices below `indices`.
    pub(super) fn new(estimators: Arc<Estimators>, indices: u32) -> Self {
        let indices = Numbers { limit: indices, fresh: 0, free: BinaryHeap::new() };
        Self { estimators, indices, retired: VecDeque::new() }
    }

    pub(super) fn estimators(&self) -> &Arc<Estimators> {
        &self.estimators
    }

    /// A slot for a new object, whose statistics start at zero.
    pub(super) fn take(&mut self, now_ns: u64) -> Option<u32> {
        self.estimators.add(now_ns)
    }

    pub(super) fn take_index(&mut self) -> Option<u32> {
        self.indices.take()
    }

    /// Gives an index back that nobody was told of.
    pub(super) fn untake_index(&mut self, index: u32) {
        self.indices.free.push(Reverse(index));
    }

    /// Gives a destination's slot back; nobody refers to it any more.
    pub(super) fn release(&mut self, slot: u32) {
        self.estimators.release(slot);
    }

    /// Gives a service's slot and index back once `generation` is in force. It is estimated no more.
    pub(super) fn retire(&mut self, slot: u32, index: u32, generation: u64) {
        self.estimators.suspend(slot);
        self.retired.push_back((generation, slot, index));
    }

    /// Services that were retired and are not freed yet.
    pub(super) fn retired(&self) -> usize {
        self.retired.len()
    }

    /// Frees what was retired up to `generation`.
    pub(super) fn reclaim(&mut self, generation: u64) {
        while let Some((_, slot, index)) = self.retired.front().copied().filter(|r| r.0 <= generation) {
            self.retired.pop_front();
            self.estimators.release(slot);
            self.indices.free.push(Reverse(index));
        }
    }
}

//! Publication of snapshots: control swaps a pointer, each worker looks once a burst, nobody locks.
//!
//! A worker's `Subscriber` caches the snapshot it holds; after loading a newer one it stores that generation in
//! its [`WorkerStats`]. Control keeps every retired snapshot until it is its only holder, so the last reference is
//! always dropped on the control thread. A change is in force when every worker has reported its generation or
//! sleeps: a sleeping worker loads before it handles the next packet.

use std::sync::Arc;
use std::sync::atomic::Ordering::{Acquire, Release, SeqCst};
use std::sync::atomic::fence;

use arc_swap::{ArcSwap, Cache};

use crate::counters::WorkerStats;
use crate::snapshot::Snapshot;

/// What [`WorkerStats::generation`] holds while its worker sleeps, is not yet started or is gone.
pub const QUIESCENT: u64 = u64::MAX;

/// Control's end.
pub struct Publisher {
    current: Arc<ArcSwap<Snapshot>>,
    retired: Vec<Arc<Snapshot>>,
    workers: Vec<Arc<WorkerStats>>,
}

impl Publisher {
    /// Starts with `first`; `workers` are those whose generations count.
    pub fn new(first: Snapshot, workers: Vec<Arc<WorkerStats>>) -> Self {
        Self { current: Arc::new(ArcSwap::from_pointee(first)), retired: Vec::new(), workers }
    }

    /// A worker's end.
    pub fn subscribe(&self) -> Subscriber {
        Subscriber(Cache::new(Arc::clone(&self.current)))
    }

    /// Makes `snapshot` the current one. Never waits; see [`Publisher::is_settled`]. Control.
    pub fn publish(&mut self, snapshot: Snapshot) {
        self.retired.push(self.current.swap(Arc::new(snapshot)));
        self.reclaim();
    }

    /// The current snapshot.
    pub fn current(&self) -> Arc<Snapshot> {
        self.current.load_full()
    }

    /// Whether every worker has taken `generation` or a later one in. Control.
    pub fn is_settled(&self, generation: u64) -> bool {
        // Pairs with the fence of a worker that wakes: either it sees the new snapshot or we see that it is awake.
        fence(SeqCst);
        self.workers.iter().all(|w| w.generation.load(Acquire) >= generation)
    }

    /// Frees retired snapshots that nobody else holds; how many are still held. Control, now and then.
    pub fn reclaim(&mut self) -> usize {
        self.retired.retain(|s| Arc::strong_count(s) > 1);
        self.retired.len()
    }
}

/// A worker's end: one pointer load a burst, a new snapshot when there is one.
pub struct Subscriber(Cache<Arc<ArcSwap<Snapshot>>, Arc<Snapshot>>);

impl Subscriber {
    /// The current snapshot, and the report of its generation when it is a new one. Hot; its worker only.
    #[inline]
    pub fn load(&mut self, stats: &WorkerStats) -> &Arc<Snapshot> {
        if stats.generation.load(Acquire) == QUIESCENT {
            wake(stats);
        }
        let snapshot = self.0.load();
        if stats.generation.load(Acquire) != snapshot.generation {
            stats.generation.store(snapshot.generation, Release);
        }
        snapshot
    }
}

/// Says that a worker is awake before it looks at the current snapshot: from here on control waits for it.
#[cold]
fn wake(stats: &WorkerStats) {
    stats.generation.store(0, Release);
    fence(SeqCst);
}

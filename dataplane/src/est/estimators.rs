//! [`Estimators`]: what control and the estimator threads share.

use std::sync::{Arc, MutexGuard, PoisonError};

use crate::counters::{self, BLOCK, CounterSlab, TOTALS, Totals};
use crate::est::block::Block;
use crate::est::calibrate::Calibration;
use crate::est::plan::Plan;
use crate::est::{Event, Settings, Snapshot, Status};
use crate::sync::Mutex;

/// All estimators. Control hands slots out and back through it, reads and zeroes; each thread's [`crate::est::Engine`]
/// passes them. No call waits for a pass, only for a lock that is held for microseconds.
pub struct Estimators {
    pub(super) slabs: Vec<Arc<CounterSlab>>,
    pub(super) blocks: Box<[Block]>,
    plan: Mutex<Plan>,
}

impl Estimators {
    /// Estimators for the slots of `slabs`, one for each worker and all of the same size. The totals are added. Before the first
    /// slab exists there is nothing to estimate, so at least one is needed for a slot to be handed out.
    pub fn new(slabs: Vec<Arc<CounterSlab>>, settings: Settings) -> Arc<Self> {
        let slots = slabs.iter().map(|slab| slab.slots()).min().unwrap_or(0);
        let blocks = (0..slots.div_ceil(BLOCK)).map(|_| Block::default()).collect();
        let new = Self { slabs, blocks, plan: Mutex::new(Plan::new(slots, settings.clamped())) };
        // The first slot ever is the totals'.
        let totals = new.add(0);
        debug_assert!(totals.is_none_or(|slot| slot == TOTALS));
        Arc::new(new)
    }

    /// Hands out an object slot, whose totals and rates start at zero; `None` when all are taken. Control, with the
    /// monotonic time in nanoseconds.
    pub fn add(&self, now_ns: u64) -> Option<u32> {
        let mut plan = self.plan();
        let (block, i, opened) = plan.take(&self.blocks, self.slabs.len(), now_ns)?;
        let now = plan.now(now_ns);
        drop(plan);
        if opened {
            self.slabs.iter().for_each(|slab| slab.touch_block(block));
        }
        let slot = (block * BLOCK + i) as u32;
        self.blocks[block].add(i, now, || counters::sum(&self.slabs, slot));
        Some(slot)
    }

    /// Counts first periods from `now_ns`: until then nothing was passed and nothing counted. Control, right before
    /// the first thread starts.
    pub fn begin(&self, now_ns: u64) {
        let now = self.plan().now(now_ns);
        self.blocks.iter().for_each(|block| block.begin_fresh(now));
    }

    /// Passes a slot no more: its object is deleted, but may come back. Totals and rates stay. Control.
    pub fn suspend(&self, slot: u32) {
        self.set_live(slot, false);
    }

    /// Passes a suspended slot again: its object came back. Control.
    pub fn revive(&self, slot: u32) {
        self.set_live(slot, true);
    }

    /// Takes a slot back once every worker has forgotten it; it may be handed out again at once. Control.
    pub fn release(&self, slot: u32) {
        let (block, i) = place(slot);
        self.set_live(slot, false);
        self.plan().give(&self.blocks, block, i);
    }

    /// Totals and rates of the last pass; `None` for a slot of a block that is not in use. Control.
    pub fn read(&self, slot: u32) -> Option<Snapshot> {
        let (block, i) = place(slot);
        self.blocks.get(block)?.read(i)
    }

    /// Totals as of now, summed over the workers; the estimator is not touched. Control.
    pub fn live(&self, slot: u32) -> Option<Totals> {
        let (block, i) = place(slot);
        let zero = self.blocks.get(block)?.zero_point(i)?;
        Some(counters::sum(&self.slabs, slot).since(zero))
    }

    /// Starts an object's totals over at its last pass, and its rates at 0 (`ipvsadm -Z`). Control.
    pub fn zero(&self, slot: u32) {
        let (block, i) = place(slot);
        self.blocks[block].zero(i);
    }

    /// The settings in force.
    pub fn settings(&self) -> Settings {
        self.plan().settings
    }

    /// Puts settings in force; threads follow with their next turn. Control.
    pub fn set(&self, settings: Settings) {
        let mut plan = self.plan();
        plan.resumes += u32::from(settings.running && !plan.settings.running);
        plan.settings = settings.clamped();
    }

    /// Asks thread 0 to measure the cost as at start (kernel: after every write of `est_cpulist`). Control.
    pub fn recalibrate(&self) {
        self.plan().calibrate = true;
    }

    /// The last calibration.
    pub fn calibration(&self) -> Option<Calibration> {
        self.plan().calibrated
    }

    /// What happened since the last call, for the log and for starting threads. Control.
    pub fn take_events(&self) -> Vec<Event> {
        std::mem::take(&mut self.plan().events)
    }

    /// Whether [`Estimators::take_events`] has some. A thread that sees it wakes control.
    pub fn has_events(&self) -> bool {
        !self.plan().events.is_empty()
    }

    /// Threads that were asked for and have not said [`crate::est::Next::Unused`] since: those to start again after
    /// estimation was off. Control.
    pub fn wanted(&self) -> Vec<usize> {
        let plan = self.plan();
        (0..plan.threads.len()).filter(|&t| plan.threads[t].wanted).collect()
    }

    /// Every thread that has something to do. Control.
    pub fn status(&self) -> Vec<Status> {
        self.plan().status()
    }

    /// Additions whose first period was short because the rows due last had no room.
    pub fn spilled(&self) -> u64 {
        self.plan().spilled
    }

    /// Blocks taken into use though no budget had room; they are passed all the same.
    pub fn over_budget(&self) -> u64 {
        self.plan().over_budget
    }

    pub(super) fn plan(&self) -> MutexGuard<'_, Plan> {
        // Every change under this lock ends before anything that could panic: the plan is whole.
        self.plan.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn set_live(&self, slot: u32, on: bool) {
        let (block, i) = place(slot);
        let mut plan = self.plan();
        if self.blocks[block].set_live(i, on) {
            plan.count(block, on);
        }
    }
}

/// A slot's block and its place in it.
fn place(slot: u32) -> (usize, usize) {
    (slot as usize / BLOCK, slot as usize % BLOCK)
}

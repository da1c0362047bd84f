//! Which block is in which row of which thread, and which slot a new object gets.
//!
//! Behind one lock, held for microseconds: control takes it to hand slots out and back, a thread at the start and the end of
//! a row. How blocks wander is in `balance`.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use crate::counters::BLOCK;
use crate::est::block::{Bits, Block, Home, When};
use crate::est::calibrate::{Calibration, Cost};
use crate::est::{Event, LATE_TICKS, ROWS, Settings, TICK_NS};

/// Events kept for control; more are lost rather than grow without end.
const EVENTS_MAX: usize = 1024;

/// A thread that rested and whose next row is further off than this starts at once (kernel: 4 ticks).
const START_TICKS: u64 = 4;

pub(super) struct Plan {
    pub settings: Settings,
    /// How often estimation was resumed.
    pub resumes: u32,
    pub threads: Vec<Thread>,
    /// The last calibration.
    pub calibrated: Option<Calibration>,
    /// A calibration was asked for.
    pub calibrate: bool,
    pub events: Vec<Event>,
    /// Additions whose first period is more than a tick short of a whole one.
    pub spilled: u64,
    /// Blocks that were put where the budget has no room.
    pub over_budget: u64,
    pub placed: Vec<Placed>,
    pub unopened: BinaryHeap<Reverse<usize>>,
}

/// A block's place and slots.
pub(super) struct Placed {
    pub home: Option<Home>,
    /// Slots handed out, those in their grace period included.
    pub taken: Bits,
    pub free: usize,
    pub size: usize,
    /// Slots that are passed.
    pub ests: u64,
}

pub(super) struct Thread {
    pub rows: [Row; ROWS],
    /// The row to take next, and when.
    pub next_row: usize,
    pub due_ns: u64,
    pub cost: Cost,
    /// Control has been told to run it.
    pub wanted: bool,
    /// Was not running: lateness says nothing.
    pub resting: bool,
    /// Gets no new estimators and gives its blocks away.
    pub draining: bool,
    pub load: super::balance::Load,
}

#[derive(Default)]
pub(super) struct Row {
    pub blocks: Vec<usize>,
    /// Free slots in these.
    pub free: usize,
    /// CPU and wall time of its last turn, nanoseconds.
    pub cpu_ns: u64,
    pub wall_ns: u64,
    /// Revolutions in sequence in which it was over its budget.
    pub over: u32,
}

/// What a thread shall do now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Due {
    /// Estimation is off.
    Stopped,
    /// Nothing is left in the thread.
    Unused,
    /// Nothing before that time.
    Wait(u64),
    /// Take that row.
    Row(usize),
}

impl Thread {
    pub fn new(cost: Cost, due_ns: u64) -> Self {
        Self {
            rows: std::array::from_fn(|_| Row::default()),
            next_row: 0,
            due_ns,
            cost,
            wanted: false,
            resting: true,
            draining: false,
            load: Default::default(),
        }
    }

    pub fn blocks(&self) -> usize {
        self.rows.iter().map(|row| row.blocks.len()).sum()
    }

    /// The row that is `away` ticks behind the next one.
    pub fn row_away(&self, away: usize) -> usize {
        (self.next_row + away) % ROWS
    }
}

impl Plan {
    /// `slots` slots, none handed out.
    pub fn new(slots: usize, settings: Settings) -> Self {
        let sizes = (0..slots).step_by(BLOCK).map(|first| BLOCK.min(slots - first));
        let placed = sizes
            .map(|size| Placed { home: None, taken: Bits::default(), free: size, size, ests: 0 })
            .collect();
        let mut plan = Self {
            settings,
            resumes: 0,
            threads: Vec::new(),
            calibrated: None,
            calibrate: true,
            events: Vec::new(),
            spilled: 0,
            over_budget: 0,
            placed,
            unopened: (0..slots.div_ceil(BLOCK)).map(Reverse).collect(),
        };
        plan.threads.push(Thread::new(Cost::new(Calibration::new().cost_ps()), 0));
        plan.want(0);
        plan
    }

    pub fn now(&self, ns: u64) -> When {
        When { ns, resumes: self.resumes }
    }

    pub fn event(&mut self, event: Event) {
        if self.events.len() < EVENTS_MAX {
            self.events.push(event);
        }
    }

    /// Time that a row of a thread may take, nanoseconds.
    pub fn row_budget_ns(&self) -> u64 {
        TICK_NS * u64::from(self.settings.load) / 100
    }

    /// Blocks that a row of thread `t` may have; one before its cost is known, and one however little the budget allows.
    pub fn row_blocks(&self, t: usize) -> usize {
        if self.calibrated.is_none() {
            return 1;
        }
        let slots = self.row_budget_ns() * 1000 / self.threads[t].cost.total_ps();
        (slots as usize / BLOCK).max(1)
    }

    /// Hands out a slot: the lowest free one of the row that will have its turn last, among those with room. Its block,
    /// its place in it, and whether the block is newly in use; `None` when every slot is taken.
    pub fn take(&mut self, blocks: &[Block], workers: usize, now_ns: u64) -> Option<(usize, usize, bool)> {
        let (home, away) = self.choose(now_ns)?;
        let row = &self.threads[home.thread].rows[home.row];
        let (block, opened) = match row.blocks.iter().rev().find(|&&b| self.placed[b].free > 0) {
            Some(&block) => (block, false),
            None => {
                let Reverse(block) = self.unopened.pop()?;
                blocks[block].open(home, workers);
                self.place(block, home);
                (block, true)
            }
        };
        self.spilled += u64::from(away < ROWS - 1);
        let placed = &mut self.placed[block];
        let i = placed.taken.first_clear(placed.size)?;
        placed.taken.set(i, true);
        placed.free -= 1;
        placed.ests += 1;
        self.threads[home.thread].rows[home.row].free -= 1;
        Some((block, i, opened))
    }

    /// Takes a slot back; its block goes out of use with the last one.
    pub fn give(&mut self, blocks: &[Block], block: usize, i: usize) {
        let placed = &mut self.placed[block];
        let Some(home) = placed.home.filter(|_| placed.taken.get(i)) else { return };
        placed.taken.set(i, false);
        placed.free += 1;
        let emptied = placed.free == placed.size;
        self.threads[home.thread].rows[home.row].free += 1;
        if emptied {
            self.displace(block);
            blocks[block].close();
            self.unopened.push(Reverse(block));
        }
    }

    /// A slot of `block` is passed from now on, or not any more.
    pub fn count(&mut self, block: usize, on: bool) {
        let ests = &mut self.placed[block].ests;
        *ests = if on { *ests + 1 } else { *ests - 1 };
    }

    /// Estimators in a block.
    pub fn ests(&self, block: usize) -> u64 {
        self.placed[block].ests
    }

    /// What thread `t` shall do at `now_ns`.
    pub fn due(&mut self, t: usize, now_ns: u64) -> Due {
        let known = self.calibrated.is_some();
        let unused = t > 0 && self.threads[t].blocks() == 0;
        let thread = &mut self.threads[t];
        if unused {
            thread.wanted = false;
            self.event(Event::ThreadUnused(t));
            return Due::Unused;
        }
        if !self.settings.running {
            thread.resting = true;
            return Due::Stopped;
        }
        if !known && t > 0 {
            return Due::Wait(now_ns + TICK_NS);
        }
        if std::mem::take(&mut thread.resting) && thread.due_ns.abs_diff(now_ns) > START_TICKS * TICK_NS {
            thread.due_ns = now_ns;
        }
        thread.due_ns = thread.due_ns.min(now_ns + TICK_NS);
        if thread.due_ns > now_ns {
            return Due::Wait(thread.due_ns);
        }
        let (late_ns, row) = (now_ns - thread.due_ns, thread.next_row);
        thread.load.late_ticks += late_ns / TICK_NS;
        if late_ns > LATE_TICKS * TICK_NS {
            thread.due_ns = now_ns;
            self.event(Event::Late { thread: t, ns: late_ns });
        }
        Due::Row(row)
    }

    /// Adds a block to a row.
    pub fn place(&mut self, block: usize, home: Home) {
        let row = &mut self.threads[home.thread].rows[home.row];
        row.blocks.push(block);
        row.free += self.placed[block].free;
        self.placed[block].home = Some(home);
    }

    /// Takes a block out of its row.
    pub fn displace(&mut self, block: usize) {
        let Some(home) = self.placed[block].home.take() else { return };
        let row = &mut self.threads[home.thread].rows[home.row];
        row.blocks.retain(|&b| b != block);
        row.free -= self.placed[block].free;
    }

    /// Whether a thread has blocks, or is the first.
    pub fn is_active(&self, t: usize) -> bool {
        t == 0 || self.threads[t].blocks() > 0
    }

    /// A thread that has nothing to do, made ready for blocks; `None` when there may be no more.
    pub fn activate(&mut self, now_ns: u64) -> Option<usize> {
        let t = (0..self.settings.threads_max).find(|&t| t >= self.threads.len() || !self.is_active(t))?;
        let cost = self.threads[0].cost;
        let wanted = self.threads.get(t).is_some_and(|thread| thread.wanted);
        let fresh = Thread { wanted, ..Thread::new(cost, now_ns + TICK_NS) };
        match self.threads.get_mut(t) {
            Some(thread) => *thread = fresh,
            None => self.threads.push(fresh),
        }
        self.want(t);
        Some(t)
    }

    fn want(&mut self, t: usize) {
        if !std::mem::replace(&mut self.threads[t].wanted, true) {
            self.event(Event::ThreadWanted(t));
        }
    }

    /// The row for the next addition, and how many ticks its turn is behind the thread's next one.
    pub fn choose(&mut self, now_ns: u64) -> Option<(Home, usize)> {
        let open = |plan: &Self, t: usize| plan.is_active(t) && !plan.threads[t].draining;
        let threads: Vec<(usize, usize)> =
            (0..self.threads.len()).filter(|&t| open(self, t)).map(|t| (t, self.row_blocks(t))).collect();
        for away in (0..ROWS).rev() {
            for &(t, most) in &threads {
                let row = self.threads[t].row_away(away);
                let Row { blocks, free, .. } = &self.threads[t].rows[row];
                if *free > 0 || (!self.unopened.is_empty() && blocks.len() < most) {
                    return Some((Home { thread: t, row }, away));
                }
            }
        }
        if self.unopened.is_empty() {
            // Threads that give their blocks away hold the last free slots.
            return self.rows_away().find(|(home, _)| self.threads[home.thread].rows[home.row].free > 0);
        }
        if self.calibrated.is_some() {
            if let Some(thread) = self.activate(now_ns) {
                let away = ROWS - 1;
                return Some((Home { thread, row: self.threads[thread].row_away(away) }, away));
            }
            self.over_budget += 1;
            self.event(Event::OverBudget);
        }
        self.rows_away()
            .filter(|(home, _)| open(self, home.thread))
            .min_by_key(|(home, _)| self.threads[home.thread].rows[home.row].blocks.len())
    }

    /// Rows of active threads, the one whose turn comes last first.
    fn rows_away(&self) -> impl Iterator<Item = (Home, usize)> {
        let threads = move || (0..self.threads.len()).filter(|&t| self.is_active(t));
        let all = (0..ROWS).rev().flat_map(move |away| threads().map(move |t| (t, away)));
        all.map(|(thread, away)| (Home { thread, row: self.threads[thread].row_away(away) }, away))
    }
}

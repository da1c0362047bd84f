//! How blocks wander: from a thread or a row that takes more than its budget to others, and out of threads that are not needed
//! any more. A block is handed on right after its pass, to the row that has its turn two seconds later, less a tick at most, so
//! no estimator sees a period that is not one. At most 2 % of a thread's blocks move in a revolution, or one.

use crate::est::block::{Block, Home};
use crate::est::calibrate::{Calibration, Cost, Took};
use crate::est::plan::Plan;
use crate::est::{Event, ROWS, TICK_NS};

/// Over its budget by more than that for [`OVER_REVOLUTIONS`], a thread or row gives blocks away: 5/4.
const OVER: (u64, u64) = (5, 4);

/// 6 s: no burst lasts that long in the averages.
const OVER_REVOLUTIONS: u32 = 3;

/// Below half of its budget for that many revolutions (a minute), the last thread is given up if the others have room.
const UNDER_REVOLUTIONS: u32 = 30;

/// A row gives away if it takes that share of the longest row's time: the heaviest first.
const WORST: (u64, u64) = (15, 16);

/// Share of a thread's blocks that may move in a revolution, percent.
const MOVES_PERCENT: usize = 2;

/// Revolutions between two [`Event::Tick`] (kernel: 32).
const TICK_REVOLUTIONS: u64 = 32;

/// A chain limit that is off by more than a tenth is told.
const TOLD_TENTH: u64 = 10;

/// What a thread's last revolutions took.
#[derive(Default)]
pub(super) struct Load {
    /// CPU time of a revolution, nanoseconds.
    pub ns: u64,
    /// CPU time of its longest row, nanoseconds.
    worst_row_ns: u64,
    pub revolutions: u64,
    /// Ticks that rows came late by, all together.
    pub late_ticks: u64,
    over: u32,
    under: u32,
    shedding: bool,
    /// CPU time a revolution that shall go elsewhere, nanoseconds.
    excess_ns: u64,
    /// Blocks that may still move in this revolution, and whether any did.
    moves: usize,
    moved: bool,
    /// The chain limit last told.
    told: u64,
    /// When to tell of a row again, in revolutions.
    next_tick: u64,
}

/// What an estimator thread does and costs. Loads are those of its last whole revolution.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Status {
    /// Thread.
    pub thread: usize,
    /// Estimators.
    pub ests: u64,
    /// Blocks.
    pub blocks: usize,
    /// CPU time for each revolution of two seconds, nanoseconds.
    pub load_ns: u64,
    /// Longest row, wall time, nanoseconds.
    pub worst_row_ns: u64,
    /// Longest row, CPU time, nanoseconds.
    pub worst_row_cpu_ns: u64,
    /// Ticks that rows came late by since start.
    pub late_ticks: u64,
    /// Estimators that pass in 95 us, at the measured cost.
    pub chain_max: u64,
    /// Estimators that fit the budget, at the measured cost.
    pub est_max: u64,
    /// Cost of an estimator over all workers, picoseconds.
    pub cost_ps: u64,
    /// Revolutions since it was started.
    pub revolutions: u64,
    /// Gives its blocks away.
    pub draining: bool,
}

impl Plan {
    /// Thread `home.thread` has taken row `home.row`, at `now_ns`.
    pub fn row_done(&mut self, blocks: &[Block], home: Home, now_ns: u64, took: Took, cost: Cost) {
        let budget = self.row_budget_ns();
        let thread = &mut self.threads[home.thread];
        thread.cost = cost;
        let row = &mut thread.rows[home.row];
        (row.cpu_ns, row.wall_ns) = (took.cpu_ns, took.wall_ns);
        row.over = if is_over(took.cpu_ns, budget) { row.over + 1 } else { 0 };
        self.tell_tick(home);
        // One block a row, so that every row of a thread gets lighter alike; all when there is no coming back.
        while self.hand_on(blocks, home, now_ns) && self.threads[home.thread].draining {}
        let thread = &mut self.threads[home.thread];
        thread.next_row = (home.row + 1) % ROWS;
        thread.due_ns += TICK_NS;
        if thread.next_row == 0 {
            self.revolution_done(home.thread);
        }
    }

    /// Takes a calibration's result in.
    pub fn calibrated(&mut self, result: Calibration, now_ns: u64) {
        let first = self.calibrated.replace(result).is_none();
        for thread in &mut self.threads {
            thread.cost = Cost::new(result.cost_ps());
            thread.load.told = thread.cost.chain_max();
        }
        if first {
            self.threads[0].due_ns = now_ns;
        }
        self.event(Event::Calibrated(result));
    }

    /// Every thread that has something to do.
    pub fn status(&self) -> Vec<Status> {
        let active = (0..self.threads.len()).filter(|&t| self.is_active(t));
        active.map(|t| self.thread_status(t)).collect()
    }

    fn thread_status(&self, t: usize) -> Status {
        let thread = &self.threads[t];
        Status {
            thread: t,
            ests: thread.rows.iter().flat_map(|row| &row.blocks).map(|&b| self.ests(b)).sum(),
            blocks: thread.blocks(),
            load_ns: thread.load.ns,
            worst_row_ns: thread.rows.iter().map(|row| row.wall_ns).max().unwrap_or(0),
            worst_row_cpu_ns: thread.rows.iter().map(|row| row.cpu_ns).max().unwrap_or(0),
            late_ticks: thread.load.late_ticks,
            chain_max: thread.cost.chain_max(),
            est_max: ROWS as u64 * (self.row_budget_ns() * 1000 / thread.cost.total_ps()),
            cost_ps: thread.cost.total_ps(),
            revolutions: thread.load.revolutions,
            draining: thread.draining,
        }
    }

    fn budget_ns(&self) -> u64 {
        self.row_budget_ns() * ROWS as u64
    }

    /// Hands one block of the row just taken on, if it shall go and has where to go.
    fn hand_on(&mut self, blocks: &[Block], from: Home, now_ns: u64) -> bool {
        let thread = &self.threads[from.thread];
        let row = &thread.rows[from.row];
        let budget = self.row_budget_ns();
        if thread.load.moves == 0 {
            return false;
        }
        let row_over = row.over >= OVER_REVOLUTIONS && row.cpu_ns > budget && row.blocks.len() > 1;
        let among_worst = row.cpu_ns * WORST.1 >= thread.load.worst_row_ns * WORST.0;
        if !thread.draining && !(among_worst && (row_over || thread.load.excess_ns > 0)) {
            return false;
        }
        // The block of the totals stays where it is.
        let Some(&block) = row.blocks.iter().rev().find(|&&b| b != 0) else { return false };
        let cost_ns = row.cpu_ns / row.blocks.len() as u64;
        let neighbour = if row_over && !thread.draining { self.row_before(from) } else { None };
        let Some(to) = neighbour.or_else(|| self.other_thread(from.thread, cost_ns, now_ns)) else {
            return false;
        };

        self.displace(block);
        self.place(block, to);
        blocks[block].set_home(to);
        let Load { ns, excess_ns, moves, moved, .. } = &mut self.threads[from.thread].load;
        *moves -= 1;
        *moved = true;
        if to.thread != from.thread {
            *ns = ns.saturating_sub(cost_ns);
            *excess_ns = excess_ns.saturating_sub(cost_ns);
            self.threads[to.thread].load.ns += cost_ns;
        }
        let row = &mut self.threads[from.thread].rows[from.row];
        row.cpu_ns = row.cpu_ns.saturating_sub(cost_ns);
        self.event(Event::Moved { ests: self.ests(block), from: from.thread, to: to.thread });
        true
    }

    /// The row that the same thread took a tick ago, if it has room.
    fn row_before(&self, home: Home) -> Option<Home> {
        let row = (home.row + ROWS - 1) % ROWS;
        let room = self.threads[home.thread].rows[row].blocks.len() < self.row_blocks(home.thread);
        room.then_some(Home { row, ..home })
    }

    /// The row of another thread that has its turn in two seconds, if that thread has room; else of a new one. A thread that
    /// empties itself goes to lower ones only, and one that may not be any more goes there whatever the room.
    fn other_thread(&mut self, from: usize, cost_ns: u64, now_ns: u64) -> Option<Home> {
        let draining = self.threads[from].draining;
        let forced = from >= self.settings.threads_max;
        let last_row =
            |plan: &Self, thread: usize| Home { thread, row: plan.threads[thread].row_away(ROWS - 1) };
        let others = if draining { 0..from } else { 0..self.threads.len() };
        let others = others.filter(|&t| t != from && self.is_active(t) && !self.threads[t].draining);
        let mut homes = others.map(|t| last_row(self, t));
        let room = homes.clone().find(|home| {
            let thread = &self.threads[home.thread];
            thread.load.ns + cost_ns <= self.budget_ns()
                && thread.rows[home.row].blocks.len() < self.row_blocks(home.thread)
        });
        if room.is_some() {
            return room;
        }
        if draining {
            return if forced { homes.next() } else { None };
        }
        let worth = self.threads[from].load.excess_ns > 0 && self.threads[from].blocks() > 1;
        let thread = if worth { self.activate(now_ns)? } else { return None };
        Some(last_row(self, thread))
    }

    fn revolution_done(&mut self, t: usize) {
        let budget = self.budget_ns();
        let others: u64 = (0..t).map(|u| budget.saturating_sub(self.threads[u].load.ns)).sum();
        let last = (t + 1..self.threads.len()).all(|u| !self.is_active(u));
        let forced = t > 0 && t >= self.settings.threads_max;
        let thread = &mut self.threads[t];
        let blocks = thread.blocks();
        let load = &mut thread.load;
        load.revolutions += 1;
        load.ns = thread.rows.iter().map(|row| row.cpu_ns).sum();
        load.worst_row_ns = thread.rows.iter().map(|row| row.cpu_ns).max().unwrap_or(0);
        load.over = if is_over(load.ns, budget) { load.over + 1 } else { 0 };
        load.under = if load.ns < budget / 2 { load.under + 1 } else { 0 };
        let give_up = load.under >= UNDER_REVOLUTIONS && t > 0 && last && load.ns <= others;
        // One that found no room for a whole revolution stays.
        let stuck = thread.draining && !load.moved;
        if stuck {
            load.under = 0;
        }
        thread.draining = forced || (thread.draining && !stuck) || (give_up && !stuck);
        // Once it began to give away it goes on down to the budget.
        load.shedding = load.over >= OVER_REVOLUTIONS || (load.shedding && load.ns > budget);
        load.excess_ns = if load.shedding { load.ns - budget } else { 0 };
        load.moves = (blocks * MOVES_PERCENT / 100).max(1);
        load.moved = false;
        self.tell_cost(t);
    }

    fn tell_cost(&mut self, t: usize) {
        let Load { told, .. } = self.threads[t].load;
        let (to, cost_ps) = (self.threads[t].cost.chain_max(), self.threads[t].cost.total_ps());
        if told.abs_diff(to) * TOLD_TENTH > told {
            self.threads[t].load.told = to;
            if told > 0 {
                self.event(Event::Recalibrated { thread: t, from: told, to, cost_ps });
            }
        }
    }

    fn tell_tick(&mut self, home: Home) {
        let thread = &self.threads[home.thread];
        let row = &thread.rows[home.row];
        if row.blocks.is_empty() || thread.load.revolutions < thread.load.next_tick {
            return;
        }
        let next_tick = thread.load.revolutions + TICK_REVOLUTIONS;
        let (ns, chains, chain_max) = (row.wall_ns, row.blocks.len(), thread.cost.chain_max());
        let ests = row.blocks.iter().map(|&b| self.ests(b)).sum();
        self.threads[home.thread].load.next_tick = next_tick;
        self.event(Event::Tick { thread: home.thread, ns, ests, chains, chain_max });
    }
}

fn is_over(ns: u64, budget: u64) -> bool {
    ns * OVER.1 > budget * OVER.0
}

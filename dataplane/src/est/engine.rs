//! [`Engine`]: one estimator thread's work, a row a turn.

use std::hint::black_box;
use std::sync::Arc;

use crate::counters::{BLOCK, CounterSlab, sum_range};
use crate::est::block::{Home, Lanes, Visit, When, Work};
use crate::est::calibrate::{Calibration, Cost, PASS_SLOTS, TESTS, Took, WAIT_NS};
use crate::est::plan::Due;
use crate::est::{Estimators, Host, PIECE_NS, TICK_NS, filter};

/// After that much CPU time a thread yields: with the longest piece behind it half as much again, below 0.2 ms.
const STRETCH_NS: u64 = PIECE_NS / 2;

/// When to call [`Engine::turn`] again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// At that time of the host's clock, nanoseconds; at once if it is past.
    At(u64),
    /// Not before estimation is switched on again.
    Stopped,
    /// Never: the thread has nothing left and ends.
    Unused,
}

/// An estimator thread. Its owner calls [`Engine::turn`] at the times that it asks for.
pub struct Engine {
    shared: Arc<Estimators>,
    thread: usize,
    sums: Lanes,
    ids: Vec<usize>,
    calibration: Option<(Calibration, u64)>,
    stretch: Stretch,
}

/// CPU time since the last yield, and when the row's turn was due.
#[derive(Default)]
struct Stretch {
    cpu_ns: u64,
    due_ns: u64,
    /// The host wants the rest of the row left.
    stopped: bool,
}

impl Stretch {
    /// After a piece of work: yields before the next one could make it much more than a piece. A thread that is a tick late does
    /// not: where others want the CPU, a yield costs it its turn, and its fair share would not be enough for ever.
    fn after(&mut self, took: Took, host: &mut impl Host) {
        self.cpu_ns += took.cpu_ns;
        if self.cpu_ns >= STRETCH_NS && host.now_ns() <= self.due_ns + TICK_NS {
            self.cpu_ns = 0;
            self.stopped |= host.between_pieces().is_break();
        }
    }
}

impl Engine {
    /// The engine of thread `thread`, as [`crate::est::Event::ThreadWanted`] said; one at a time for each.
    pub fn new(shared: Arc<Estimators>, thread: usize) -> Self {
        Self {
            shared,
            thread,
            sums: Lanes::new(),
            ids: Vec::new(),
            calibration: None,
            stretch: Stretch::default(),
        }
    }

    /// Does what is due: part of a calibration, or one row. Late rows are caught up one a turn.
    pub fn turn(&mut self, host: &mut impl Host) -> Next {
        let now_ns = host.now_ns();
        if let Some(wait) = self.calibrate(now_ns, host) {
            return Next::At(wait);
        }
        let mut plan = self.shared.plan();
        match plan.due(self.thread, now_ns) {
            Due::Stopped => Next::Stopped,
            Due::Unused => Next::Unused,
            Due::Wait(until) => Next::At(until),
            Due::Row(row) => {
                let thread = &plan.threads[self.thread];
                self.ids.clone_from(&thread.rows[row].blocks);
                let (cost, now) = (thread.cost, plan.now(now_ns));
                let spike = plan.settings.resume_spike;
                self.stretch = Stretch { due_ns: thread.due_ns, ..Stretch::default() };
                drop(plan);
                self.row(Home { thread: self.thread, row }, now, spike, cost, host);
                Next::At(self.shared.plan().threads[self.thread].due_ns)
            }
        }
    }

    /// Takes a row: sums and filters its blocks.
    fn row(&mut self, home: Home, now: When, spike: bool, mut cost: Cost, host: &mut impl Host) {
        let shared = Arc::clone(&self.shared);
        let ids = std::mem::take(&mut self.ids);
        let mut visit = Visit::default();
        let (wall, cpu) = (host.now_ns(), host.cpu_ns());
        for &id in &ids {
            let block = &shared.blocks[id];
            match block.begin(home, now, id, &shared.slabs, &mut visit) {
                Work::Elsewhere | Work::Idle => {}
                Work::Decay => {
                    let took = Took::measure(host, || block.finish(now, spike, &visit, None));
                    self.stretch.after(took, host);
                }
                Work::Sum(slots) => {
                    self.sum(id, slots, &visit, &mut cost, host);
                    let took = Took::measure(host, || block.finish(now, spike, &visit, Some(&self.sums)));
                    cost.filtered(slots, took);
                    self.stretch.after(took, host);
                }
            }
            // A block is never left half done.
            if self.stretch.stopped {
                break;
            }
        }
        let cpu_ns = host.cpu_ns() - cpu;
        let took = Took { cpu_ns, wall_ns: host.now_ns() - wall };
        shared.plan().row_done(&shared.blocks, home, now.ns, took, cost);
        self.ids = ids;
    }

    /// Sums the first `slots` slots of a block over the workers of `visit`, in pieces.
    fn sum(&mut self, block: usize, slots: usize, visit: &Visit<'_>, cost: &mut Cost, host: &mut impl Host) {
        let Lanes { packets, conns } = &mut self.sums;
        packets[..slots].fill([0; 4]);
        conns[..slots].fill(0);
        let mut from = 0;
        while from < slots {
            let to = slots.min(from + cost.piece());
            let took = Took::measure(host, || {
                sum_range(&visit.workers, block * BLOCK + from, &mut packets[from..to], &mut conns[from..to]);
            });
            cost.summed(to - from, took);
            from = to;
            self.stretch.after(took, host);
        }
    }

    /// Thread 0: starts a calibration that was asked for, goes on with one; when to come back if nothing else may be done yet.
    fn calibrate(&mut self, now_ns: u64, host: &mut impl Host) -> Option<u64> {
        if self.thread > 0 {
            return None;
        }
        let mut plan = self.shared.plan();
        let first = plan.calibrated.is_none();
        if !plan.settings.running {
            plan.calibrate |= self.calibration.take().is_some();
            return None;
        }
        if std::mem::take(&mut plan.calibrate) {
            self.calibration = Some((Calibration::new(), now_ns + WAIT_NS));
        }
        drop(plan);
        let (calibration, until) = self.calibration.as_mut()?;
        if now_ns >= *until {
            let slabs: Vec<&CounterSlab> = self.shared.slabs.iter().map(|slab| &**slab).collect();
            let room = slabs[0].slots().min(PASS_SLOTS);
            let (packets, conns) = (&mut self.sums.packets[..PASS_SLOTS], &mut self.sums.conns[..PASS_SLOTS]);
            let (mut last, mut rate) = ([[0; 4]; PASS_SLOTS], [[0; 4]; PASS_SLOTS]);
            calibration.advance(host, || {
                packets.fill([0; 4]);
                conns.fill(0);
                // A small table has fewer: they take turns.
                for (packets, conns) in packets.chunks_mut(room).zip(conns.chunks_mut(room)) {
                    sum_range(&slabs, 0, packets, conns);
                }
                for ((rate, last), sums) in rate.iter_mut().zip(&mut last).zip(&*packets) {
                    for lane in 0..4 {
                        rate[lane] = filter::step(rate[lane], last[lane], sums[lane], filter::PACKETS[lane]);
                    }
                    *last = *sums;
                }
                black_box((&mut last, &mut rate));
            });
            *until = host.now_ns() + WAIT_NS;
            if calibration.tests >= TESTS {
                let (result, now_ns) = (*calibration, host.now_ns());
                self.calibration = None;
                self.shared.plan().calibrated(result, now_ns);
                return None;
            }
        }
        let until = *until;
        first.then_some(until)
    }
}

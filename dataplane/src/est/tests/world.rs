//! A simulated world: workers' slabs, every wanted engine, a clock that stands still but for what pieces of work cost.

use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;

use crate::counters::{CounterSlab, TOTALS};
use crate::est::calibrate::Calibration;
use crate::est::{Engine, Estimators, Event, Host, Next, Settings};

/// A clock of which each timed piece of work takes `piece_ns` on the CPU and `stolen_ns` off it.
#[derive(Default)]
pub struct Sim {
    pub now: u64,
    pub piece_ns: u64,
    pub stolen_ns: u64,
    cpu: u64,
    calls: u64,
    /// Pieces that were timed.
    pub pieces: u64,
    pub stop: bool,
    pub yields: u64,
}

impl Host for Sim {
    fn now_ns(&mut self) -> u64 {
        self.now
    }

    /// A row reads the clock first and last; between, each piece of work before and after.
    fn cpu_ns(&mut self) -> u64 {
        self.calls += 1;
        let cpu = self.cpu;
        if self.calls.is_multiple_of(2) {
            self.pieces += 1;
            self.cpu += self.piece_ns;
            self.now += self.piece_ns + self.stolen_ns;
        }
        cpu
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        self.yields += 1;
        if self.stop { ControlFlow::Break(()) } else { ControlFlow::Continue(()) }
    }
}

pub struct World {
    pub est: Arc<Estimators>,
    pub slabs: Vec<Arc<CounterSlab>>,
    pub host: Sim,
    pub events: Vec<Event>,
    engines: BTreeMap<usize, (Engine, u64)>,
}

pub const SECOND: u64 = 1_000_000_000;

impl World {
    /// `blocks` blocks of slots, calibrated to `cost_ns` an estimator.
    pub fn new(workers: usize, blocks: usize, settings: Settings, cost_ns: u64) -> Self {
        let slabs: Vec<_> =
            (0..workers).map(|_| Arc::new(CounterSlab::new(blocks * 1024).unwrap())).collect();
        let est = Estimators::new(slabs.clone(), settings);
        let mut plan = est.plan();
        plan.calibrated(Calibration { single_ns: cost_ns, ..Calibration::new() }, SECOND);
        plan.calibrate = false;
        drop(plan);
        let host = Sim { now: SECOND, ..Sim::default() };
        Self { est, slabs, host, events: Vec::new(), engines: BTreeMap::new() }
    }

    pub fn add(&self) -> u32 {
        self.est.add(self.host.now).expect("a free slot")
    }

    /// Counts packets of 100 bytes for a slot, on worker `slot % workers`.
    pub fn count(&self, slot: u32, packets: u64) {
        let slab = &self.slabs[slot as usize % self.slabs.len()];
        for _ in 0..packets {
            slab.count_in(slot, TOTALS, 100);
        }
    }

    /// Lets every engine do what is due before `until`, then sets the clock there.
    pub fn run_to(&mut self, until: u64, mut after_turn: impl FnMut(&World)) {
        loop {
            self.start_wanted();
            let Some((&id, &(_, due))) = self.engines.iter().min_by_key(|(_, (_, due))| *due) else { break };
            if due > until {
                break;
            }
            self.host.now = self.host.now.max(due);
            let (engine, due) = self.engines.get_mut(&id).unwrap();
            match engine.turn(&mut self.host) {
                Next::At(at) => *due = at,
                Next::Stopped => *due = u64::MAX,
                Next::Unused => {
                    self.engines.remove(&id);
                }
            }
            after_turn(self);
        }
        self.host.now = self.host.now.max(until);
    }

    pub fn run(&mut self, ns: u64) {
        self.run_to(self.host.now + ns, |_| {});
    }

    /// Engines that stopped take another look.
    pub fn wake(&mut self) {
        for (_, due) in self.engines.values_mut() {
            *due = self.host.now;
        }
    }

    pub fn threads(&self) -> usize {
        self.engines.len()
    }

    pub fn inpps(&self, slot: u32) -> u64 {
        self.est.read(slot).unwrap().rates.inpps
    }

    /// Every block is in one row, every count is right, and no thread that was not told of has blocks.
    pub fn check(&self) {
        super::model::check(&self.est.plan());
    }

    fn start_wanted(&mut self) {
        for event in self.est.take_events() {
            self.events.push(event);
            if let Event::ThreadWanted(id) = event {
                let engine = Engine::new(Arc::clone(&self.est), id);
                let before = self.engines.insert(id, (engine, self.host.now));
                assert!(before.is_none(), "thread {id} runs already");
            }
        }
    }
}

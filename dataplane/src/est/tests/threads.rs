//! A worker, an estimator thread and control at once, on real threads.

use std::ops::ControlFlow;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use crate::counters::{CounterSlab, TOTALS, Totals};
use crate::est::{Engine, Estimators, Event, Host, Next, Settings};

/// A clock that runs a thousand times as fast as the real one: forty microseconds a tick.
#[derive(Clone, Copy)]
struct Fast(Instant);

impl Host for Fast {
    fn now_ns(&mut self) -> u64 {
        self.0.elapsed().as_nanos() as u64 * 1000
    }

    fn cpu_ns(&mut self) -> u64 {
        self.now_ns()
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        std::thread::yield_now();
        ControlFlow::Continue(())
    }
}

struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Relaxed);
    }
}

/// Slots come and go under a worker that counts and threads that pass: no total goes back, none starts with its forerunner's, a
/// rate never exceeds what all packets there ever were would give, and in the end every packet is in its snapshot.
#[test]
fn nothing_is_lost_or_torn() {
    let slabs: Vec<_> = (0..2).map(|_| Arc::new(CounterSlab::new(8 * 1024).unwrap())).collect();
    let settings = Settings { resume_spike: true, ..Settings::default() };
    let est = Estimators::new(slabs.clone(), settings);
    let (stop, target) = (AtomicBool::new(false), AtomicU64::new(0));
    let host = Fast(Instant::now());
    std::thread::scope(|scope| {
        // Also when an assertion fails: the others must end for it to be seen.
        let _stop = StopAtEnd(&stop);
        let (stop, target) = (&stop, &target);
        for slab in &slabs {
            scope.spawn(move || {
                while !stop.load(Relaxed) {
                    let slot = target.load(Relaxed) as u32;
                    (0..50).for_each(|_| slab.count_in(slot, TOTALS, 100));
                    std::thread::yield_now();
                }
            });
        }
        let mut host = host;
        let mut live: Vec<(u32, Totals)> = Vec::new();
        let mut rng = 1u32;
        for step in 0..1_000_000u32 {
            for event in est.take_events() {
                if let Event::ThreadWanted(id) = event {
                    let (mut engine, mut host) = (Engine::new(Arc::clone(&est), id), host);
                    scope.spawn(move || {
                        while !stop.load(Relaxed) && engine.turn(&mut host) != Next::Unused {
                            std::thread::yield_now();
                        }
                    });
                }
            }
            rng = rng.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            let pick = (rng >> 8) as usize % live.len().max(1);
            match rng >> 29 {
                0..=2 => live.extend(est.add(host.now_ns()).map(|slot| (slot, Totals::default()))),
                3 if !live.is_empty() => est.release(live.swap_remove(pick).0),
                4 if !live.is_empty() => {
                    est.zero(live[pick].0);
                    live[pick].1 = Totals::default();
                }
                _ if !live.is_empty() => {
                    let (slot, before) = live[pick];
                    target.store(slot.into(), Relaxed);
                    let now = est.read(slot).unwrap();
                    assert!(now.totals.inpkts >= before.inpkts, "step {step}: slot {slot} went back");
                    let counted = est.read(TOTALS).unwrap().totals.inpkts.max(1_000_000_000);
                    assert!(
                        now.totals.inpkts <= counted && now.rates.inpps <= counted,
                        "step {step}: {now:?}"
                    );
                    live[pick].1 = now.totals;
                }
                _ => {}
            }
        }
    });
    // One more revolution, alone.
    let mut engine = Engine::new(Arc::clone(&est), 0);
    struct Still(u64);
    impl Host for Still {
        fn now_ns(&mut self) -> u64 {
            self.0
        }
        fn cpu_ns(&mut self) -> u64 {
            0
        }
        fn between_pieces(&mut self) -> ControlFlow<()> {
            ControlFlow::Continue(())
        }
    }
    let mut still = Still(Fast(host.0).now_ns());
    for _ in 0..200 {
        if let Next::At(at) = engine.turn(&mut still) {
            still.0 = still.0.max(at);
        }
    }
    let totals = est.read(TOTALS).unwrap().totals;
    assert_eq!(totals, est.live(TOTALS).unwrap());
    assert!(totals.inpkts > 0 && totals.inbytes == totals.inpkts * 100);
}

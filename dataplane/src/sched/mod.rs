//! Schedulers: which destination takes a new connection. Kernel IPVS's algorithms, pick for pick.
//!
//! A scheduler sees the service's destinations in list order with their weights (snapshot) and their counts and
//! OVERLOAD flag ([`DestSlab`]), and keeps its position in a worker-private [`SchedState`], or in a [`Turn`] that all
//! workers share. It never sees a packet and does not change counts: binding does. One algorithm a file; the smallest, [`lc`], is the template for the
//! next. A destination is *eligible* when its weight is positive and it is not overloaded.

pub mod lc;
pub mod rr;
pub mod wlc;
pub mod wrr;

use std::sync::{Mutex, PoisonError};

use config::Scheduler;

use crate::dest::DestSlab;
use crate::service::{Dest, Service};
pub use rr::RrPlan;
pub use wrr::WrrPlan;

/// Cursor before the first destination.
const HEAD: u64 = u64::MAX;

/// A worker's position in one service's scheduler. Plain memory of its worker, found by [`Service::index`].
#[derive(Clone, Copy, Debug)]
pub struct SchedState {
    /// Scheduler instance this state belongs to.
    sched_gen: u32,
    /// [`Service::version`] that `rr` or `wrr` has taken in.
    version: u32,
    /// [`Dest::order`] of the last picked destination, or [`HEAD`].
    cursor: u64,
    /// wrr's current weight.
    cw: u32,
}

impl SchedState {
    /// State that fits no scheduler instance yet.
    pub const EMPTY: SchedState = SchedState { sched_gen: 0, version: 0, cursor: HEAD, cw: 0 };
}

/// Which of how many workers picks. Workers start their rounds spread over the list, or each would send its first
/// connections to the same head.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Number of the worker.
    pub worker: usize,
    /// Number of workers.
    pub workers: usize,
}

impl Place {
    /// One worker, or all with one position.
    pub const ALONE: Place = Place { worker: 0, workers: 1 };

    /// The cursor from which this worker's round begins: that of its share of the list; the first worker's is the head.
    fn start(self, dests: &[Dest]) -> u64 {
        let index = self.worker * dests.len() / self.workers;
        index.checked_sub(1).and_then(|before| dests.get(before)).map_or(HEAD, |dest| dest.order)
    }
}

/// One position of a scheduler instance for all workers (`sched_scope = "global"`): connections get destinations in the
/// order in which they come, as if one worker ran. The one lock in reach of a packet: it is held for one pick of rr or
/// wrr, and only by whoever asked for it.
#[derive(Debug)]
pub struct Turn(Mutex<SchedState>);

impl Default for Turn {
    fn default() -> Self {
        Turn(Mutex::new(SchedState::EMPTY))
    }
}

/// Picks a destination for a new connection of `service`; `None` when none is eligible or the scheduler sends
/// nothing. Slow path of a worker; no allocation.
pub fn pick<'s>(
    service: &'s Service,
    state: &mut SchedState,
    states: &DestSlab,
    place: Place,
) -> Option<&'s Dest> {
    match service.scheduler {
        Scheduler::Rr | Scheduler::Wrr => {}
        Scheduler::Lc => return lc::pick(service, states),
        Scheduler::Wlc => return wlc::pick(service, states),
        _ => return None,
    }
    match &service.turn {
        None => take_turn(service, state, states, place),
        // A pick that panicked ends the daemon; until then its position is as good as any.
        Some(turn) => {
            let mut state = turn.0.lock().unwrap_or_else(PoisonError::into_inner);
            take_turn(service, &mut state, states, Place::ALONE)
        }
    }
}

/// The pick of a scheduler that has a position.
fn take_turn<'s>(
    service: &'s Service,
    state: &mut SchedState,
    states: &DestSlab,
    place: Place,
) -> Option<&'s Dest> {
    if state.sched_gen != service.sched_gen {
        let cursor = place.start(&service.dests);
        *state = SchedState { sched_gen: service.sched_gen, cursor, ..SchedState::EMPTY };
        wrr::start(service, state);
        if service.scheduler == Scheduler::Rr {
            // The list as it is now is all that a round's start depends on.
            state.version = service.version;
        }
    }
    match service.scheduler {
        Scheduler::Rr => rr::pick(service, state, states),
        Scheduler::Wrr => wrr::pick(service, state, states, place),
        _ => None,
    }
}

/// Whether `version` is later than `than`; both wrap. A worker with an older snapshot than the one that picked last finds
/// its version behind.
fn is_later(version: u32, than: u32) -> bool {
    version.wrapping_sub(than) as i32 > 0
}

/// Index of the first destination after the one with order `cursor`, whether or not that one is still in the list.
fn after(dests: &[Dest], cursor: u64) -> usize {
    dests.partition_point(|d| d.order >= cursor)
}

/// Eligible for a new connection.
fn eligible(dest: &Dest, states: &DestSlab) -> bool {
    dest.weight > 0 && !states[dest.slot].is_overloaded()
}

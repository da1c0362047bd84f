//! Schedulers: which destination takes a new connection. Kernel IPVS's algorithms, pick for pick.
//!
//! A scheduler sees the service's destinations in list order with their weights (snapshot) and their counts and
//! OVERLOAD flag ([`DestSlab`]), and keeps its position in a worker-private [`SchedState`]. It never sees a packet
//! and does not change counts: binding does. One algorithm a file; the smallest, [`lc`], is the template for the
//! next. A destination is *eligible* when its weight is positive and it is not overloaded.

pub mod lc;
pub mod rr;
pub mod wlc;
pub mod wrr;

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

/// Picks a destination for a new connection of `service`; `None` when none is eligible or the scheduler sends
/// nothing. Slow path of a worker; no allocation.
pub fn pick<'s>(service: &'s Service, state: &mut SchedState, states: &DestSlab) -> Option<&'s Dest> {
    if state.sched_gen != service.sched_gen {
        *state = SchedState { sched_gen: service.sched_gen, ..SchedState::EMPTY };
        wrr::start(service, state);
    }
    match service.scheduler {
        Scheduler::Rr => rr::pick(service, state, states),
        Scheduler::Wrr => wrr::pick(service, state, states),
        Scheduler::Lc => lc::pick(service, states),
        Scheduler::Wlc => wlc::pick(service, states),
        _ => None,
    }
}

/// Index of the first destination after the one with order `cursor`, whether or not that one is still in the list.
fn after(dests: &[Dest], cursor: u64) -> usize {
    dests.partition_point(|d| d.order >= cursor)
}

/// Eligible for a new connection.
fn eligible(dest: &Dest, states: &DestSlab) -> bool {
    dest.weight > 0 && !states[dest.slot].is_overloaded()
}

//! Weighted round robin, the kernel's interleaved form: a current weight `cw` falls from the maximum `mw` by the
//! weights' greatest common divisor `di`, and each pass takes the destinations that weigh at least `cw`.
//!
//! `cw` survives changes of the list by a rule that depends on its value at that moment, so a service carries the
//! recent changes ([`WrrPlan`]) and each worker takes in those it has not seen yet before its next pick.

use std::collections::VecDeque;

use crate::dest::DestSlab;
use crate::sched::{HEAD, Place, SchedState, after, is_later};
use crate::service::{Dest, Service};

/// Changes kept for workers that have not picked since. A worker further behind starts from `base`: its picks are as
/// fair, only not the kernel's very sequence.
const CHANGES_KEPT: usize = 64;

/// Maximum, step and recent history of one service's weights.
#[derive(Clone, Debug, Default)]
pub struct WrrPlan {
    now: Weights,
    /// (version, weights) of recent changes, oldest first.
    changes: VecDeque<(u32, Weights)>,
    /// Version and `cw` before the oldest kept change, as they are if nothing was ever picked.
    base: (u32, u32),
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Weights {
    /// Largest weight - (`step` - 1); 0 when no destination weighs anything.
    max: u32,
    /// Greatest common divisor of the positive weights; 1 without any.
    step: u32,
}

impl Weights {
    fn of(dests: &[Dest]) -> Self {
        let step = dests.iter().map(|d| d.weight).filter(|w| *w > 0).fold(0, gcd).max(1);
        let largest = dests.iter().map(|d| d.weight).max().unwrap_or(0);
        Self { max: largest.saturating_sub(step - 1), step }
    }

    /// `cw` after a change of the list to these weights.
    fn carry(self, cw: u32) -> u32 {
        match cw {
            0 => self.max,
            cw if cw > self.max => self.max,
            cw if self.step > 1 => cw / self.step * self.step + 1,
            cw => cw,
        }
    }
}

impl WrrPlan {
    /// Plan of a scheduler instance that starts on `dests` at `version`.
    pub fn start(dests: &[Dest], version: u32) -> Self {
        let now = Weights::of(dests);
        Self { now, changes: VecDeque::new(), base: (version, now.max) }
    }

    /// Takes in a changed list. Control.
    pub fn change(&mut self, dests: &[Dest], version: u32) {
        self.now = Weights::of(dests);
        self.changes.push_back((version, self.now));
        if self.changes.len() > CHANGES_KEPT
            && let Some((version, weights)) = self.changes.pop_front()
        {
            self.base = (version, weights.carry(self.base.1));
        }
    }
}

/// Starts a worker's state on a scheduler instance it has not seen.
pub(super) fn start(service: &Service, state: &mut SchedState) {
    (state.version, state.cw) = service.wrr.base;
}

pub(super) fn pick<'s>(
    service: &'s Service,
    state: &mut SchedState,
    states: &DestSlab,
    place: Place,
) -> Option<&'s Dest> {
    catch_up(service, state, place);
    let Weights { max, step } = service.wrr.now;
    if max == 0 {
        return None;
    }
    let dests = &service.dests;
    let start = state.cursor;
    let mut from = after(dests, start);
    let (mut wrapped, mut stop) = (false, None);
    let mut last = false;
    loop {
        for dest in &dests[from..] {
            if dest.weight >= state.cw && !states[dest.slot].is_overloaded() {
                state.cursor = dest.order;
                return Some(dest);
            }
            if stop == Some(dest.order) {
                state.cursor = dest.order;
                return None;
            }
        }
        from = 0;
        state.cw = state.cw.saturating_sub(step);
        if state.cw == 0 {
            state.cw = max;
            if last || start == HEAD {
                state.cursor = HEAD;
                return None;
            }
            wrapped = true;
        }
        last = state.cw <= step;
        if last && wrapped && start != HEAD {
            stop = Some(start);
        }
    }
}

/// Applies the changes that this worker has not seen.
fn catch_up(service: &Service, state: &mut SchedState, place: Place) {
    if !is_later(service.version, state.version) {
        return;
    }
    let plan = &service.wrr;
    if is_later(plan.base.0, state.version) {
        (state.version, state.cw) = plan.base;
    }
    for (version, weights) in &plan.changes {
        if is_later(*version, state.version) {
            state.cw = weights.carry(state.cw);
        }
    }
    state.version = service.version;
    state.cursor = place.start(&service.dests);
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

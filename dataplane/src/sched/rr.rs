//! Round robin: the next eligible destination after the last picked one, round through the head, the last picked
//! one itself last. The cursor is the picked destination's order number: when that destination is deleted the next
//! one in list order follows all the same, as with the kernel's move to the predecessor. Only where the kernel moves
//! to the head, for want of a predecessor, a number cannot tell: a destination added later comes first then. So a
//! service carries its recent deletions at the head ([`RrPlan`]), and each worker takes in those it has not seen yet.

use std::collections::VecDeque;

use crate::dest::DestSlab;
use crate::sched::{HEAD, SchedState, after, eligible, is_later};
use crate::service::{Dest, Service};

/// Deletions kept for workers that have not picked since; one further behind only loses the kernel's very sequence.
const DELETIONS_KEPT: usize = 64;

/// Recent deletions at the head of one service's list.
#[derive(Clone, Debug, Default)]
pub struct RrPlan {
    /// Order of the list's head; 0 when it is empty.
    head: u64,
    /// (version, order of the new head), oldest first.
    deletions: VecDeque<(u32, u64)>,
}

impl RrPlan {
    /// Takes in a changed list. Control.
    pub fn change(&mut self, dests: &[Dest], version: u32) {
        let head = dests.first().map_or(0, |d| d.order);
        if head < self.head {
            if self.deletions.len() == DELETIONS_KEPT {
                self.deletions.pop_front();
            }
            self.deletions.push_back((version, head));
        }
        self.head = head;
    }
}

pub(super) fn pick<'s>(service: &'s Service, state: &mut SchedState, states: &DestSlab) -> Option<&'s Dest> {
    catch_up(service, state);
    let (before, rest) = service.dests.split_at(after(&service.dests, state.cursor));
    let dest = rest.iter().chain(before).find(|d| eligible(d, states))?;
    state.cursor = dest.order;
    Some(dest)
}

/// A cursor that had nothing before it any more went to the head.
fn catch_up(service: &Service, state: &mut SchedState) {
    if !is_later(service.version, state.version) {
        return;
    }
    let unseen = |version: u32| is_later(version, state.version);
    if service.rr.deletions.iter().any(|(version, head)| unseen(*version) && *head < state.cursor) {
        state.cursor = HEAD;
    }
    state.version = service.version;
}

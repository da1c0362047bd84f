//! Round robin: the next eligible destination after the last picked one, round through the head, the last picked
//! one itself last. The cursor is the picked destination's order number: when that destination is deleted the next
//! one in list order follows all the same, as with the kernel's move to the predecessor.

use crate::dest::DestSlab;
use crate::sched::{SchedState, after, eligible};
use crate::service::{Dest, Service};

pub(super) fn pick<'s>(service: &'s Service, state: &mut SchedState, states: &DestSlab) -> Option<&'s Dest> {
    let (before, rest) = service.dests.split_at(after(&service.dests, state.cursor));
    let dest = rest.iter().chain(before).find(|d| eligible(d, states))?;
    state.cursor = dest.order;
    Some(dest)
}

//! Least connections: the eligible destination with the least overhead (256 x active + inactive), whatever its
//! weight; the first in list order wins ties.

use crate::dest::DestSlab;
use crate::sched::eligible;
use crate::service::{Dest, Service};

pub(super) fn pick<'s>(service: &'s Service, states: &DestSlab) -> Option<&'s Dest> {
    service.dests.iter().filter(|d| eligible(d, states)).min_by_key(|d| states[d.slot].overhead())
}

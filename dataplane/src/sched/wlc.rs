//! Weighted least connections: the least overhead per weight, compared by cross-multiplication in 64 bits; strictly
//! less replaces, so the first in list order wins ties and an all-idle service sends to its first eligible one.

use crate::dest::DestSlab;
use crate::sched::eligible;
use crate::service::{Dest, Service};

pub(super) fn pick<'s>(service: &'s Service, states: &DestSlab) -> Option<&'s Dest> {
    let load = |d: &Dest| u64::from(states[d.slot].overhead());
    let mut candidates = service.dests.iter().filter(|d| eligible(d, states));
    let first = candidates.next()?;
    let (best, _) = candidates.fold((first, load(first)), |(best, best_load), d| {
        let d_load = load(d);
        if best_load * u64::from(d.weight) > d_load * u64::from(best.weight) {
            (d, d_load)
        } else {
            (best, best_load)
        }
    });
    Some(best)
}

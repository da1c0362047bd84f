//! Addresses that became ours lately, in the order they did: control writes the list, the announcing worker goes
//! through it. It lies in pieces, so that one more address copies one of them and not the list.

use std::collections::VecDeque;
use std::net::Ipv4Addr;
use std::sync::Arc;

/// Addresses of a piece: 4 KiB.
const PIECE: usize = 1024;

/// The list, part of a snapshot: each address has a serial number, one more than the one before.
#[derive(Clone, Debug, Default)]
pub struct Announcements {
    first: u64,
    /// All of [`PIECE`] addresses but the last one.
    pieces: VecDeque<Arc<Vec<Ipv4Addr>>>,
}

impl Announcements {
    /// Serial number of the oldest address in the list.
    pub fn first(&self) -> u64 {
        self.first
    }

    /// Serial number of the next address to come.
    pub fn end(&self) -> u64 {
        self.first + self.len() as u64
    }

    /// The address of that number, if the list still has it. Worker, housekeeping.
    pub fn get(&self, serial: u64) -> Option<Ipv4Addr> {
        let at = usize::try_from(serial.checked_sub(self.first)?).ok()?;
        self.pieces.get(at / PIECE)?.get(at % PIECE).copied()
    }

    /// Adds one, and forgets the oldest as long as more than `kept` would remain without their piece. Control.
    pub(crate) fn push(&mut self, addr: Ipv4Addr, kept: usize) {
        match self.pieces.back_mut() {
            Some(piece) if piece.len() < PIECE => Arc::make_mut(piece).push(addr),
            _ => self.pieces.push_back(Arc::new(vec![addr])),
        }
        while self.len() >= kept + PIECE {
            self.pieces.pop_front();
            self.first += PIECE as u64;
        }
    }

    fn len(&self) -> usize {
        self.pieces.back().map_or(0, |last| (self.pieces.len() - 1) * PIECE + last.len())
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Beside a list of all that ever came: the newest are there, a copy stays as it was.
        #[test]
        fn the_newest_are_kept(kept in 1usize..3000, steps in proptest::collection::vec(1usize..1500, 1..8)) {
            let (mut list, mut all) = (Announcements::default(), Vec::new());
            for step in steps {
                let (copy, then) = (list.clone(), all.len());
                for _ in 0..step {
                    let addr = Ipv4Addr::from_bits(all.len() as u32);
                    all.push(addr);
                    list.push(addr, kept);
                }
                for (list, end) in [(&copy, then), (&list, all.len())] {
                    prop_assert_eq!(list.end(), end as u64);
                    prop_assert!(list.first() <= end.saturating_sub(kept) as u64);
                    prop_assert!(list.len() < kept + PIECE);
                    for serial in 0..end as u64 + 2 {
                        let there = serial >= list.first() && serial < end as u64;
                        prop_assert_eq!(list.get(serial), there.then(|| all[serial as usize]));
                    }
                }
            }
        }
    }
}

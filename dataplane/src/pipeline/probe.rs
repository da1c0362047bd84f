//! Probe: hash the burst's flows and, once the table is larger than the cache, fetch what their look-ups will touch.
//!
//! The look-up itself happens when the packet is decided, so it sees what earlier packets of the burst did.

use crate::conn::{Conns, Direction, Probe, Slot};
use crate::limits::BURST;
use crate::pipeline::parse::Meta;

/// Connections from which on look-ups are prefetched in stages. Below (about 0.7 MiB of records and buckets) they stay
/// in the second-level cache and two more passes cost more than they save; above, misses overlap: measured, a staged
/// look-up takes half the time of a plain one at 100 000 connections and a quarter at a million.
pub const PREFETCH_FROM: usize = 8_192;

/// A burst's hashes and, where staged, the places their records are expected at.
pub struct Probes {
    hashes: [u64; BURST],
    places: [Option<Probe>; BURST],
}

impl Probes {
    /// Of the burst's packets. Hot.
    #[inline(always)]
    pub fn of(conns: &Conns, metas: &[Meta]) -> Self {
        let table = conns.table();
        let mut probes = Self { hashes: [0; BURST], places: [None; BURST] };
        let n = metas.len().min(BURST);
        let mut words = [[0; 2]; BURST];
        for (words, meta) in words.iter_mut().zip(metas) {
            *words = meta.key.words();
        }
        table.hash_burst(&words[..n], &mut probes.hashes);
        if table.len() >= PREFETCH_FROM {
            let hashes = &probes.hashes[..n];
            for hash in hashes {
                table.prefetch_bucket(*hash);
            }
            for (place, hash) in probes.places.iter_mut().zip(hashes) {
                *place = Some(table.probe(*hash));
            }
        }
        probes
    }

    /// The connection of the burst's packet `i`. Hot.
    #[inline(always)]
    pub fn look_up(&self, conns: &Conns, i: usize, meta: &Meta) -> Option<(Slot, Direction)> {
        let table = conns.table();
        match self.places[i] {
            Some(place) => table.lookup_probed(place, self.hashes[i], &meta.key),
            None => table.lookup(self.hashes[i], &meta.key),
        }
    }
}

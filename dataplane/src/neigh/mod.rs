//! Neighbours: the MAC address behind each next hop, and the packets that wait for one.
//!
//! [`NeighTable`] is shared by all workers and control: an open-addressed array of atomics keyed by (port, IPv4
//! address). A connection keeps a 4-byte [`Hop`]: cell and generation, so that a reused cell is noticed. The worker
//! that starts to resolve a neighbour owns its ARP requests until it is settled ([`resolve::Resolver`], private to
//! each worker, which also holds the packets that wait). An ARP answer may reach any worker: it changes the table, and
//! the others with waiting packets see by [`NeighTable::news`] that it did. Nothing is ever learned from data packets.
//!
//! | state | packets | leaves by |
//! |---|---|---|
//! | idle | start a resolution and wait | first packet |
//! | incomplete | wait | ARP answer, or three requests a second apart |
//! | reachable | pass | 20 s without confirmation: probed by unicast |
//! | probing | pass | ARP answer; three probes without one make it idle |
//! | failed | dropped, `neigh_fail` | one second, or any ARP from it |
//! | permanent | pass | configuration |

pub mod resolve;

use std::net::Ipv4Addr;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use dpdk_sys::{Prefault, Slab, SlabError};
use zerocopy::FromZeros;

use crate::io::PortIndex;
use crate::limits::{NEIGH_FAILED_NS, NEIGH_REFRESH_NS};
use crate::wire::ethernet::Mac;

/// Cells that a key may lie in, from its home cell on. A look-up reads at most eight cache lines; a fuller window
/// than this at half load is improbable.
const WINDOW: usize = 16;

/// An entry that no new connection asked for in this time is given up instead of probed again, seconds.
const UNUSED_S: u32 = 600;

const USED: u64 = 1 << 63;
const MAC_MASK: u64 = (1 << 48) - 1;
const PORT_SHIFT: u32 = 48;
const STATE_SHIFT: u32 = 54;
const GEN_SHIFT: u32 = 57;

const IDLE: u64 = 0;
const INCOMPLETE: u64 = 1;
const REACHABLE: u64 = 2;
const PROBING: u64 = 3;
const FAILED: u64 = 4;
const PERMANENT: u64 = 5;

/// Names a neighbour: cell and generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hop(u32);

impl Hop {
    /// No neighbour.
    pub const NONE: Hop = Hop(u32::MAX);

    /// As stored in a connection record.
    pub const fn from_bits(bits: u32) -> Hop {
        Hop(bits)
    }

    /// For a connection record.
    pub const fn bits(self) -> u32 {
        self.0
    }

    fn new(cell: usize, generation: u64) -> Hop {
        Hop(cell as u32 | (generation as u32) << 24)
    }

    fn cell(self) -> usize {
        (self.0 & 0x00ff_ffff) as usize
    }
}

/// What is known of a next hop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reach {
    /// Send it there.
    Ready {
        /// MAC address.
        mac: Mac,
        /// Port it is on.
        port: PortIndex,
    },
    /// Not yet known.
    Waiting {
        /// Port it is on.
        port: PortIndex,
    },
    /// Does not answer.
    Failed {
        /// Port it is on.
        port: PortIndex,
    },
    /// The cell belongs to another neighbour by now: look the route up again.
    Gone,
}

/// One neighbour as shown to operators.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NeighRow {
    /// Address.
    pub addr: Ipv4Addr,
    /// Port it is on.
    pub port: PortIndex,
    /// MAC address, if known.
    pub mac: Option<Mac>,
    /// `idle`, `incomplete`, `reachable`, `probing`, `failed` or `permanent`.
    pub state: &'static str,
}

#[derive(FromZeros)]
#[repr(C, align(32))]
struct Cell {
    key: AtomicU64,
    entry: AtomicU64,
    /// When it was last confirmed, or failed.
    since_ns: AtomicU64,
    /// Second of the last route look-up that led here.
    used_s: AtomicU32,
}

/// All neighbours of the box.
pub struct NeighTable {
    cells: Slab<Cell>,
    news: AtomicU64,
}

impl NeighTable {
    /// Room for `max` neighbours: twice as many cells, 32 bytes each. Control, at start.
    pub fn new(max: usize) -> Result<Self, SlabError> {
        let cells = (max * 2).next_power_of_two().clamp(2 * WINDOW, 1 << 24);
        Ok(Self { cells: Slab::zeroed(cells, Prefault::Lazy)?, news: AtomicU64::new(0) })
    }

    /// Moves on whenever a neighbour becomes known that was not: packets that wait for one may be able to leave. Hot.
    #[inline(always)]
    pub fn news(&self) -> u64 {
        self.news.load(Acquire)
    }

    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.cells.len() * size_of::<Cell>()
    }

    /// What is known of `hop`. Hot: one load.
    #[inline(always)]
    pub fn reach(&self, hop: Hop) -> Reach {
        let Some(cell) = self.cells.get(hop.cell()) else { return Reach::Gone };
        let entry = cell.entry.load(Relaxed);
        if entry >> GEN_SHIFT != u64::from(hop.0 >> 24) {
            return Reach::Gone;
        }
        let port = port_of(entry);
        match state_of(entry) {
            REACHABLE | PROBING | PERMANENT => Reach::Ready { mac: Mac::from_bits(entry & MAC_MASK), port },
            FAILED => Reach::Failed { port },
            _ => Reach::Waiting { port },
        }
    }

    /// As [`NeighTable::reach`] for a new connection: the neighbour is in use. Worker.
    #[inline(always)]
    pub fn reach_used(&self, hop: Hop, now_ns: u64) -> Reach {
        let reach = self.reach(hop);
        if reach != Reach::Gone {
            let (used_s, now_s) = (&self.cells[hop.cell()].used_s, seconds(now_ns));
            if used_s.load(Relaxed) != now_s {
                used_s.store(now_s, Relaxed);
            }
        }
        reach
    }

    /// The neighbour `addr` on `port`, made if it is new; `None` when its window of the table is full. Slow path.
    pub fn find(&self, port: PortIndex, addr: Ipv4Addr, now_ns: u64) -> Option<Hop> {
        let key = key(port, addr);
        let now_s = seconds(now_ns);
        for index in self.window(key) {
            if self.cells[index].key.load(Relaxed) == key {
                return Some(self.used(index, now_s));
            }
        }
        self.window(key).find_map(|index| self.claim(index, key, port, now_s, false)).or_else(|| {
            // No free cell: one whose neighbour failed serves nobody.
            self.window(key).find_map(|index| self.claim(index, key, port, now_s, true))
        })
    }

    /// Takes in an ARP message: `addr` on `port` is at `mac`. Known neighbours are refreshed; with `create` an
    /// unknown one is made. The neighbour, if there is one now. Worker, slow path.
    pub fn learn(&self, port: PortIndex, addr: Ipv4Addr, mac: Mac, create: bool, now_ns: u64) -> Option<Hop> {
        let hop = if create { self.find(port, addr, now_ns)? } else { self.known(port, addr)? };
        self.set(hop, REACHABLE, Some(mac), now_ns);
        Some(hop)
    }

    /// Gives a neighbour a fixed MAC address. `false` when the table is full. Control.
    pub fn set_permanent(&self, port: PortIndex, addr: Ipv4Addr, mac: Mac, now_ns: u64) -> bool {
        let Some(hop) = self.find(port, addr, now_ns) else { return false };
        self.transition(hop, None, PERMANENT, Some(mac), now_ns);
        true
    }

    /// Takes a fixed MAC address back; the neighbour is resolved from now on. Control.
    pub fn clear_permanent(&self, port: PortIndex, addr: Ipv4Addr, now_ns: u64) {
        if let Some(hop) = self.known(port, addr) {
            self.transition(hop, Some(PERMANENT), IDLE, None, now_ns);
        }
    }

    /// Every neighbour. Control.
    pub fn rows(&self) -> impl Iterator<Item = NeighRow> {
        self.cells.iter().filter(|c| c.key.load(Relaxed) & USED != 0).map(|cell| {
            let (key, entry) = (cell.key.load(Relaxed), cell.entry.load(Relaxed));
            let known = matches!(state_of(entry), REACHABLE | PROBING | PERMANENT);
            NeighRow {
                addr: Ipv4Addr::from_bits(key as u32),
                port: port_of(entry),
                mac: known.then(|| Mac::from_bits(entry & MAC_MASK)),
                state: ["idle", "incomplete", "reachable", "probing", "failed", "permanent", "?", "?"]
                    [state_of(entry) as usize],
            }
        })
    }

    /// Whether a failed neighbour may be asked again. Slow path.
    pub fn may_retry(&self, hop: Hop, now_ns: u64) -> bool {
        self.failed_long_ago(hop, now_ns)
    }

    /// Starts a resolution: idle, or failed long enough ago, becomes incomplete. `true` for the one caller who owns
    /// it from now on.
    fn start(&self, hop: Hop, now_ns: u64) -> bool {
        self.transition(hop, Some(IDLE), INCOMPLETE, None, now_ns)
            || (self.failed_long_ago(hop, now_ns)
                && self.transition(hop, Some(FAILED), INCOMPLETE, None, now_ns))
    }

    fn failed_long_ago(&self, hop: Hop, now_ns: u64) -> bool {
        now_ns.saturating_sub(self.cells[hop.cell()].since_ns.load(Relaxed)) >= NEIGH_FAILED_NS
    }

    /// Ends a resolution without an answer.
    fn give_up(&self, hop: Hop, now_ns: u64) {
        if !self.transition(hop, Some(INCOMPLETE), FAILED, None, now_ns) {
            self.transition(hop, Some(PROBING), IDLE, None, now_ns);
        }
    }

    /// Looks at one cell for upkeep: a reachable neighbour whose confirmation is old becomes probing and is returned,
    /// or is freed when nobody asked for it for long.
    fn upkeep(&self, index: usize, now_ns: u64) -> Option<Hop> {
        let cell = &self.cells[index & (self.cells.len() - 1)];
        let entry = cell.entry.load(Relaxed);
        let due = now_ns.saturating_sub(cell.since_ns.load(Relaxed)) >= NEIGH_REFRESH_NS;
        if state_of(entry) != REACHABLE || !due {
            return None;
        }
        let hop = Hop::new(index & (self.cells.len() - 1), entry >> GEN_SHIFT);
        if seconds(now_ns).wrapping_sub(cell.used_s.load(Relaxed)) > UNUSED_S {
            self.free(hop, entry);
            return None;
        }
        self.transition(hop, Some(REACHABLE), PROBING, None, now_ns).then_some(hop)
    }

    /// Confirmed since a probe began.
    fn is_confirmed(&self, hop: Hop) -> bool {
        let entry = self.cells[hop.cell()].entry.load(Relaxed);
        entry >> GEN_SHIFT != u64::from(hop.0 >> 24) || state_of(entry) != PROBING
    }

    fn len(&self) -> usize {
        self.cells.len()
    }

    /// Address and MAC address of the neighbour in `hop`'s cell.
    pub(crate) fn identity(&self, hop: Hop) -> (PortIndex, Ipv4Addr, Mac) {
        let cell = &self.cells[hop.cell()];
        let entry = cell.entry.load(Relaxed);
        (port_of(entry), Ipv4Addr::from_bits(cell.key.load(Relaxed) as u32), Mac::from_bits(entry & MAC_MASK))
    }

    fn known(&self, port: PortIndex, addr: Ipv4Addr) -> Option<Hop> {
        let key = key(port, addr);
        let index = self.window(key).find(|i| self.cells[*i].key.load(Relaxed) == key)?;
        Some(Hop::new(index, self.cells[index].entry.load(Relaxed) >> GEN_SHIFT))
    }

    fn set(&self, hop: Hop, state: u64, mac: Option<Mac>, now_ns: u64) {
        let entry = self.cells[hop.cell()].entry.load(Relaxed);
        if state_of(entry) != PERMANENT {
            self.transition(hop, None, state, mac, now_ns);
        }
    }

    /// Moves `hop` from state `from` (any if `None`) to `to`; `false` if it was in another one or is gone.
    fn transition(&self, hop: Hop, from: Option<u64>, to: u64, mac: Option<Mac>, now_ns: u64) -> bool {
        let cell = &self.cells[hop.cell()];
        let moved = cell.entry.fetch_update(Relaxed, Relaxed, |entry| {
            let ours =
                entry >> GEN_SHIFT == u64::from(hop.0 >> 24) && from.is_none_or(|f| f == state_of(entry));
            let mac = mac.map_or(entry & MAC_MASK, Mac::to_bits);
            ours.then_some(entry & !(MAC_MASK | 7 << STATE_SHIFT) | mac | to << STATE_SHIFT)
        });
        if let Ok(before) = moved {
            cell.since_ns.store(now_ns, Relaxed);
            let known = |state| matches!(state, REACHABLE | PROBING | PERMANENT);
            if known(to) && !known(state_of(before)) {
                self.news.fetch_add(1, Release);
            }
        }
        moved.is_ok()
    }

    /// Takes a free cell, or with `evict` one whose neighbour failed, for `key`; a cell that another worker takes for it
    /// at the same time is the one.
    fn claim(&self, index: usize, key: u64, port: PortIndex, now_s: u32, evict: bool) -> Option<Hop> {
        let cell = &self.cells[index];
        let (old_key, old_entry) = (cell.key.load(Relaxed), cell.entry.load(Relaxed));
        if old_key == key {
            return Some(self.used(index, now_s));
        }
        let takeable = if evict { state_of(old_entry) == FAILED } else { old_key == 0 };
        if !takeable {
            return None;
        }
        if let Err(winner) = cell.key.compare_exchange(old_key, key, Relaxed, Relaxed) {
            return (winner == key).then(|| self.used(index, now_s));
        }
        // A cell that was given up has its new generation already.
        let generation = (old_entry >> GEN_SHIFT).wrapping_add(u64::from(evict)) & 0x7f;
        cell.used_s.store(now_s, Relaxed);
        cell.entry
            .store(generation << GEN_SHIFT | u64::from(port) << PORT_SHIFT | IDLE << STATE_SHIFT, Relaxed);
        Some(Hop::new(index, generation))
    }

    /// The neighbour in a cell, asked for now.
    fn used(&self, index: usize, now_s: u32) -> Hop {
        let cell = &self.cells[index];
        cell.used_s.store(now_s, Relaxed);
        Hop::new(index, cell.entry.load(Relaxed) >> GEN_SHIFT)
    }

    fn free(&self, hop: Hop, entry: u64) {
        let cell = &self.cells[hop.cell()];
        let next = (entry >> GEN_SHIFT).wrapping_add(1) & 0x7f;
        if cell.entry.compare_exchange(entry, next << GEN_SHIFT, Relaxed, Relaxed).is_ok() {
            cell.key.store(0, Relaxed);
        }
    }

    fn window(&self, key: u64) -> impl Iterator<Item = usize> + use<> {
        let mask = self.cells.len() - 1;
        let home = (key.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 40) as usize;
        (0..WINDOW).map(move |i| (home + i) & mask)
    }
}

fn key(port: PortIndex, addr: Ipv4Addr) -> u64 {
    USED | u64::from(port) << 32 | u64::from(addr.to_bits())
}

fn port_of(entry: u64) -> PortIndex {
    (entry >> PORT_SHIFT) as u8 & 0x3f
}

fn state_of(entry: u64) -> u64 {
    entry >> STATE_SHIFT & 7
}

fn seconds(ns: u64) -> u32 {
    (ns / 1_000_000_000) as u32
}

#[cfg(test)]
mod tests;

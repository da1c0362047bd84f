//! Connections of one worker: who they are, where a packet finds them, when they end.
//!
//! | part | is | written by |
//! |---|---|---|
//! | [`record`] | a connection: endpoints, state, destination, 64 bytes | the worker |
//! | [`table`] | the records and the index that finds them by flow | the worker |
//! | [`wheel`] | the timers, threaded through the records | the worker |
//! | [`state`] | TCP and UDP states and timeouts as data, no memory of its own | – |
//!
//! [`Conns`] ties table and wheel together so that no connection is without a timer. Everything here
//! belongs to one worker and is touched by no other thread; control asks by mailbox. Memory is fixed
//! at start. A new protocol adds a file beside [`state`]; IPv6 will be a second table of wider
//! records with the same index and wheel.

pub mod record;
pub mod state;
pub mod table;
pub mod wheel;

pub use record::{Direction, NO_DEST, Record, Tuple, flag};
pub use table::{ConnTable, MAX_CONNS, Probe, Slot, TableError, TableFull};
pub use wheel::{TICK_NS, Wheel, tick_of, ticks_of_secs};

use dpdk_sys::Prefault;

use crate::hash::{FlowHasher, HashFlow};

/// The connections of one worker, each with a running timer.
pub struct Conns<H = FlowHasher> {
    table: ConnTable<H>,
    wheel: Wheel,
}

impl<H: HashFlow> Conns<H> {
    /// No connections yet, room for `max`, time starting at `now_tick`. Control, at start; errors and
    /// `prefault` as [`ConnTable::new`].
    pub fn new(max: usize, hasher: H, prefault: Prefault, now_tick: u32) -> Result<Self, TableError> {
        Ok(Conns { table: ConnTable::new(max, hasher, prefault)?, wheel: Wheel::new(now_tick) })
    }

    /// Look-ups, their prefetch stages, dumps and sizes. Hot.
    #[inline(always)]
    pub fn table(&self) -> &ConnTable<H> {
        &self.table
    }

    /// The record at `slot`. Hot.
    #[inline(always)]
    pub fn get(&self, slot: Slot) -> &Record {
        self.table.get(slot)
    }

    /// The record at `slot`, to be changed. Hot.
    #[inline(always)]
    pub fn get_mut(&mut self, slot: Slot) -> &mut Record {
        self.table.get_mut(slot)
    }

    /// Takes in a new connection that ends `timeout` ticks after `now_tick`. Worker, slow path.
    /// When the table is full nothing changed.
    pub fn insert(&mut self, record: Record, now_tick: u32, timeout: u32) -> Result<Slot, TableFull> {
        let slot = self.table.insert(record)?;
        self.touch(slot, now_tick, timeout);
        Ok(slot)
    }

    /// Ends the staging of new connections: once a burst. Hot.
    #[inline(always)]
    pub fn settle(&mut self) {
        self.table.settle();
    }

    /// Restarts the timeout of the connection at `slot`: it ends `timeout` ticks after `now_tick`
    /// unless touched again. Hot: writes the record only, but for an end that comes sooner than
    /// before or a timer that had gone off.
    #[inline(always)]
    pub fn touch(&mut self, slot: Slot, now_tick: u32, timeout: u32) {
        if self.table.get_mut(slot).touch(now_tick, timeout) {
            self.wheel.arm(&mut self.table.records, slot);
        }
    }

    /// Arms the timer of the connection at `slot` anew, because [`Record::touch`] said so.
    pub fn rearm(&mut self, slot: Slot) {
        self.wheel.arm(&mut self.table.records, slot);
    }

    /// Ends the connection at `slot`; false if there is none. Worker.
    pub fn remove(&mut self, slot: Slot) -> bool {
        if (slot.index() as usize) < self.table.capacity() {
            self.wheel.disarm(&mut self.table.records, slot);
        }
        self.table.remove(slot)
    }

    /// Ends a connection that [`Conns::expire_next`] gave out, with what [`ConnTable::prefetch_flows`] said of it
    /// then. Worker.
    #[inline(always)]
    pub fn remove_expired(&mut self, slot: Slot, hashes: [u64; 2]) {
        self.table.remove_prefetched(slot, hashes);
    }

    /// The next connection whose time is up at `now_tick`, as [`Wheel::expire_next`] says. Worker,
    /// once a poll with that poll's budget.
    ///
    /// It is still in the table, so that its last words can be said; the caller must then either
    /// [`Conns::remove`] it or [`Conns::touch`] it for a longer life.
    #[inline]
    pub fn expire_next(&mut self, now_tick: u32, budget: &mut usize) -> Option<Slot> {
        self.wheel.expire_next(&mut self.table.records, now_tick, budget)
    }

    /// Ticks that the timers are behind, as [`Wheel::behind`]. Hot.
    #[inline(always)]
    pub fn behind(&self, now_tick: u32) -> u32 {
        self.wheel.behind(now_tick)
    }

    /// Timers running: all connections but those that [`Conns::expire_next`] gave out just now.
    pub fn timers(&self) -> usize {
        self.wheel.armed()
    }
}

#[cfg(test)]
mod tests;

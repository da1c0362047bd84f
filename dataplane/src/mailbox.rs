//! Messages between control and one worker: listings of connections and sweeps, in bounded pieces.
//!
//! Control sends a row buffer that it allocated; the worker fills it, some records a poll, and sends it back. Both
//! channels are bounded, so neither side ever waits or allocates.

use crossbeam::channel::{Receiver, Sender, TryRecvError, TrySendError};

use crate::conn::{Slot, Tuple};
use crate::io::PacketBuf;
use crate::limits::{SCAN_PER_BUSY_POLL, SCAN_PER_POLL};
use crate::pipeline::Core;

/// To a worker.
pub enum ToWorker {
    /// Fill the dump with connections from its cursor on and send it back.
    Dump(Box<Dump>),
    /// End every connection whose destination is not available any more (`expire_nodest_conn`).
    EndUnavailable,
}

/// From a worker.
pub enum FromWorker {
    /// A dump that is full or done.
    Dump(Box<Dump>),
}

/// A piece of a connection listing.
pub struct Dump {
    /// Rows found; filled up to the capacity it came with.
    pub rows: Vec<ConnRow>,
    /// Where to go on; 0 at first.
    pub cursor: u32,
    /// Nothing is left after these rows.
    pub done: bool,
}

impl Dump {
    /// An empty dump that comes back with at most `rows` rows.
    pub fn new(rows: usize) -> Box<Dump> {
        Box::new(Dump { rows: Vec::with_capacity(rows), cursor: 0, done: false })
    }
}

/// One connection as it was when it was listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnRow {
    /// Endpoints and protocol.
    pub tuple: Tuple,
    /// State number of its protocol.
    pub state: u8,
    /// Flag bits, forwarding method included.
    pub flags: u16,
    /// Time left, ticks of [`crate::conn::TICK_NS`].
    pub remaining: u32,
    /// Object slot of its destination.
    pub dest: u32,
    /// Packets from the client.
    pub in_pkts: u32,
}

/// A worker's end of both channels and the work in progress.
pub(crate) struct Mailbox {
    inbox: Receiver<ToWorker>,
    outbox: Sender<FromWorker>,
    dump: Option<Box<Dump>>,
    sweep: Option<u32>,
}

impl Mailbox {
    pub(crate) fn new(inbox: Receiver<ToWorker>, outbox: Sender<FromWorker>) -> Self {
        Self { inbox, outbox, dump: None, sweep: None }
    }

    /// The share of work of a poll that received so many packets.
    #[inline(always)]
    pub(crate) fn serve<B: PacketBuf>(&mut self, core: &mut Core<B>, tick: u32, received: usize) {
        if self.dump.is_some() || self.sweep.is_some() || !self.inbox.is_empty() {
            self.work(core, tick, if received == 0 { SCAN_PER_POLL } else { SCAN_PER_BUSY_POLL });
        }
    }

    #[cold]
    fn work<B: PacketBuf>(&mut self, core: &mut Core<B>, tick: u32, share: usize) {
        if let Some(cursor) = self.sweep {
            self.sweep = sweep(core, cursor, share);
        }
        match self.dump.take() {
            Some(dump) => self.fill(core, tick, dump, share),
            None => match self.inbox.try_recv() {
                Ok(ToWorker::Dump(dump)) => self.dump = Some(dump),
                Ok(ToWorker::EndUnavailable) => self.sweep = Some(0),
                Err(TryRecvError::Empty | TryRecvError::Disconnected) => {}
            },
        }
    }

    fn fill<B: PacketBuf>(&mut self, core: &Core<B>, tick: u32, mut dump: Box<Dump>, share: usize) {
        let table = core.conns.table();
        let free = dump.rows.capacity() - dump.rows.len();
        let end = dump.cursor.saturating_add(share.min(free) as u32).min(table.high_water());
        for slot in table.used(dump.cursor..end) {
            dump.rows.push(row(core, slot, tick));
        }
        dump.cursor = end;
        dump.done = end >= table.high_water();
        if !dump.done && dump.rows.len() < dump.rows.capacity() {
            self.dump = Some(dump);
        } else if let Err(TrySendError::Full(FromWorker::Dump(dump))) =
            self.outbox.try_send(FromWorker::Dump(dump))
        {
            // Control is behind: offered again next poll. A vanished control takes the dump with it.
            self.dump = Some(dump);
        }
    }
}

fn row<B: PacketBuf>(core: &Core<B>, slot: Slot, tick: u32) -> ConnRow {
    let conn = core.conns.get(slot);
    ConnRow {
        tuple: conn.tuple(),
        state: conn.state,
        flags: conn.flags(),
        remaining: conn.remaining(tick),
        dest: conn.dest,
        in_pkts: conn.in_pkts,
    }
}

/// Ends connections of unavailable destinations among the next `share` records; where to go on, if anywhere.
fn sweep<B: PacketBuf>(core: &mut Core<B>, cursor: u32, share: usize) -> Option<u32> {
    let end = cursor.saturating_add(share as u32);
    let slots: arrayvec::ArrayVec<Slot, SCAN_PER_POLL> = core.conns.table().used(cursor..end).collect();
    for slot in slots {
        if !core.dests[core.conns.get(slot).dest].is_available() {
            core.end_connection(slot);
        }
    }
    (end < core.conns.table().high_water()).then_some(end)
}

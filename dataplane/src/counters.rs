//! Counters of services, destinations and totals, and each worker's own figures.
//!
//! One slab per worker; slot `n` of every slab belongs to the object with object slot `n` (0 = totals of the
//! box). A slot is 32 bytes (inpkts, outpkts, inbytes, outbytes) in one array and 8 bytes (conns) in another, so that a
//! walk over rates streams densely. Single writer: the worker, by relaxed load, add, relaxed store (no locked
//! instruction). Readers load each cell relaxed and sum over workers; a reader may see a packet whose bytes are not
//! yet added. Counters are monotone; an object that inherits a slot starts from the slot's sums as its base.
//!
//! Slots lie in blocks of [`BLOCK`]. After counting, the worker moves the block's stamp on, so that who reads regularly may
//! leave out blocks in which nothing was counted. The totals move no stamp: they are counted with everything.

use std::sync::Arc;
use std::sync::atomic::{
    AtomicU64, AtomicUsize,
    Ordering::{Acquire, Relaxed, Release},
};

use arrayvec::ArrayVec;
use dpdk_sys::{COLUMNS, Prefault, Slab, SlabError, sum_columns};

use crate::sync::point;
use crate::verdict::DropReason;

/// Object slot of the totals.
pub const TOTALS: u32 = 0;

/// Slots of a block: 40 KiB of counters a worker, about 50 us to sum over 16 workers.
pub const BLOCK: usize = 1024;

const INPKTS: usize = 0;
const OUTPKTS: usize = 1;
const INBYTES: usize = 2;
const OUTBYTES: usize = 3;

/// Sums of one object. Bytes are IPv4 total lengths: no Ethernet header, requests before and replies after rewriting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Connections scheduled.
    pub conns: u64,
    /// Packets client to server.
    pub inpkts: u64,
    /// Packets server to client.
    pub outpkts: u64,
    /// Bytes client to server.
    pub inbytes: u64,
    /// Bytes server to client.
    pub outbytes: u64,
}

impl Totals {
    /// What was counted since `base`.
    pub fn since(self, base: Totals) -> Totals {
        Totals {
            conns: self.conns.wrapping_sub(base.conns),
            inpkts: self.inpkts.wrapping_sub(base.inpkts),
            outpkts: self.outpkts.wrapping_sub(base.outpkts),
            inbytes: self.inbytes.wrapping_sub(base.inbytes),
            outbytes: self.outbytes.wrapping_sub(base.outbytes),
        }
    }
}

/// One worker's counters of all objects.
pub struct CounterSlab {
    packets: Slab<[AtomicU64; 4]>,
    conns: Slab<AtomicU64>,
    stamps: Slab<AtomicU64>,
}

impl CounterSlab {
    /// Room for `slots` objects, 40 bytes each, reserved and not yet resident.
    pub fn new(slots: usize) -> Result<Self, SlabError> {
        /// Cache lines from one slab's start to the next one's: odd, so that the same slot of 64 slabs lies in 64 sets of any
        /// cache. At the same address in their huge pages, those of more workers than a cache has ways would drive each other out.
        const STAGGER: usize = 33;
        static MADE: AtomicUsize = AtomicUsize::new(0);
        let lines = MADE.fetch_add(1, Relaxed) % 64 * STAGGER;
        Ok(Self {
            packets: Slab::zeroed_from(lines * 2, slots, Prefault::Lazy)?,
            conns: Slab::zeroed_from(lines * 8, slots, Prefault::Lazy)?,
            stamps: Slab::zeroed(slots.div_ceil(BLOCK), Prefault::Now)?,
        })
    }

    /// Counts a request packet of `bytes` on a destination, its service and the totals. Hot; the owning worker only.
    #[inline]
    pub fn count_in(&self, dest: u32, service: u32, bytes: u64) {
        for slot in [dest, service, TOTALS] {
            let cells = &self.packets[slot as usize];
            bump(&cells[INPKTS], 1);
            bump(&cells[INBYTES], bytes);
        }
        self.touch(dest, service);
    }

    /// Counts a reply packet, as [`CounterSlab::count_in`].
    #[inline]
    pub fn count_out(&self, dest: u32, service: u32, bytes: u64) {
        for slot in [dest, service, TOTALS] {
            let cells = &self.packets[slot as usize];
            bump(&cells[OUTPKTS], 1);
            bump(&cells[OUTBYTES], bytes);
        }
        self.touch(dest, service);
    }

    /// Counts a new connection. The owning worker only.
    pub fn count_conn(&self, dest: u32, service: u32) {
        for slot in [dest, service, TOTALS] {
            bump(&self.conns[slot as usize], 1);
        }
        self.touch(dest, service);
    }

    /// Slots there is room for.
    pub fn slots(&self) -> usize {
        self.conns.len()
    }

    /// Stamp of a block: 0 before anything was counted in it, another number after each count. Who reads it and
    /// then the counters sees all that was counted before. Any thread.
    pub fn stamp(&self, block: usize) -> u64 {
        point();
        self.stamps[block].load(Acquire)
    }

    /// Moves the stamps of both objects' blocks on, after the counters.
    #[inline]
    fn touch(&self, dest: u32, service: u32) {
        for slot in [dest, service] {
            let stamp = &self.stamps[slot as usize / BLOCK];
            point();
            stamp.store(stamp.load(Relaxed).wrapping_add(1), Release);
        }
    }

    /// Makes the memory of a block's counters exist, so that the worker does not fault it in. Without memory for
    /// it the worker would: nothing is lost. Control, when it hands the block's first slot out.
    pub fn touch_block(&self, block: usize) {
        let slots = block * BLOCK..(block + 1) * BLOCK;
        let _ = self.packets.touch(slots.clone()).and_then(|()| self.conns.touch(slots));
    }

    /// Bytes reserved.
    pub fn memory_bytes(&self) -> usize {
        self.packets.len() * 40 + self.stamps.bytes()
    }

    fn add_to(&self, slot: u32, sum: &mut Totals) {
        point();
        let cells = &self.packets[slot as usize];
        sum.inpkts += cells[INPKTS].load(Relaxed);
        sum.outpkts += cells[OUTPKTS].load(Relaxed);
        sum.inbytes += cells[INBYTES].load(Relaxed);
        sum.outbytes += cells[OUTBYTES].load(Relaxed);
        sum.conns += self.conns[slot as usize].load(Relaxed);
    }
}

/// Sums object `slot` over all workers. Any thread; never waits.
pub fn sum(slabs: &[Arc<CounterSlab>], slot: u32) -> Totals {
    let mut sum = Totals::default();
    for slab in slabs {
        slab.add_to(slot, &mut sum);
    }
    sum
}

/// Adds the counters of the slots from `first` on, over all `slabs`, to `packets` (inpkts, outpkts, inbytes, outbytes) and
/// `conns`, which are as long as the range. Streams through four slabs at a time. Estimator threads; never waits.
pub fn sum_range(slabs: &[&CounterSlab], first: usize, packets: &mut [[u64; 4]], conns: &mut [u64]) {
    let range = first..first + conns.len();
    sum_cells(slabs, packets.as_flattened_mut(), |slab| slab.packets[range.clone()].as_flattened());
    sum_cells(slabs, conns, |slab| &slab.conns[range.clone()]);
}

fn sum_cells<'a>(
    slabs: &[&'a CounterSlab],
    sums: &mut [u64],
    cells: impl Fn(&'a CounterSlab) -> &'a [AtomicU64],
) {
    let columns = |group: &[&'a CounterSlab]| -> ArrayVec<&'a [AtomicU64], COLUMNS> {
        group.iter().map(|slab| cells(slab)).collect()
    };
    let mut groups = slabs.chunks(COLUMNS).map(columns).peekable();
    while let Some(group) = groups.next() {
        point();
        sum_columns(sums, &group, groups.peek().map_or(&[], |next| next));
    }
}

macro_rules! worker_figures {
    ($($field:ident: $doc:literal;)*) => {
        /// A worker's own figures; single writer, read by anyone.
        #[derive(Default)]
        #[repr(align(64))]
        pub struct WorkerStats {
            $(#[doc = $doc] pub $field: AtomicU64,)*
            drops: [AtomicU64; DropReason::COUNT],
            /// Snapshot generation in force on this worker; `u64::MAX` while it sleeps or is gone.
            pub generation: AtomicU64,
        }

        /// One reading of [`WorkerStats`].
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct WorkerFigures {
            $(#[doc = $doc] pub $field: u64,)*
            /// Drops by reason, in [`DropReason::ALL`]'s order.
            pub drops: [u64; DropReason::COUNT],
        }

        impl WorkerStats {
            /// Reads every figure. Any thread.
            pub fn read(&self) -> WorkerFigures {
                WorkerFigures {
                    $($field: self.$field.load(Relaxed),)*
                    drops: std::array::from_fn(|i| self.drops[i].load(Relaxed)),
                }
            }
        }

        impl std::ops::AddAssign for WorkerFigures {
            fn add_assign(&mut self, other: WorkerFigures) {
                $(self.$field += other.$field;)*
                for (sum, more) in self.drops.iter_mut().zip(other.drops) {
                    *sum += more;
                }
            }
        }
    };
}

worker_figures! {
    rx: "Packets received.";
    tx: "Packets handed to a transmit queue that took them.";
    generated: "Packets made by the worker: ARP, ICMP errors, echo replies, resets.";
    consumed: "Packets used up by the worker itself.";
    handed_out: "Packets handed to the workers that own them.";
    handed_in: "Packets taken over from other workers.";
    queued: "Packets now waiting for a transmit queue.";
    parked: "Packets now waiting for a neighbour's ARP answer.";
    polls: "Turns of the worker's loop.";
    busy_polls: "Turns that received or took over at least one packet.";
    busy_ns: "Time of those turns, from one to the next.";
    sleeps: "Sleeps in `shared` mode.";
    conns: "Connections now in the table.";
    created: "Connections created.";
    expired: "Connections whose timer ran out.";
    addr_conflict: "ARP frames in which another MAC claimed one of our addresses.";
    partial_csum: "TCP or UDP packets whose checksum holds only the pseudo header: a veth peer with checksum offload on.";
    no_reply: "NAT connections that expired without a single reply: a server without a route back.";
    mbuf_nomem: "Packets not generated because the buffer pool was empty.";
}

impl WorkerStats {
    /// Counts a drop. Hot; the owning worker only.
    #[inline]
    pub fn count_drop(&self, reason: DropReason) {
        bump(&self.drops[reason as usize], 1);
    }

    /// Drops for one reason so far. Any thread.
    #[inline]
    pub fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize].load(Relaxed)
    }
}

impl WorkerFigures {
    /// Packets handed over by some worker and not yet taken over by another, when these are the figures of all.
    pub fn in_rings(&self) -> i64 {
        self.handed_out as i64 - self.handed_in as i64
    }

    /// All drops together.
    pub fn dropped(&self) -> u64 {
        self.drops.iter().sum()
    }

    /// Drops for one reason.
    pub fn drops_for(&self, reason: DropReason) -> u64 {
        self.drops[reason as usize]
    }

    /// Packets that came from somewhere and are in none of the places where packets can be; 0 when every packet is
    /// accounted for, on each worker and so on all together.
    pub fn unaccounted(&self) -> i64 {
        let gone = self.tx + self.consumed + self.dropped() + self.queued + self.parked + self.handed_out;
        (self.rx + self.generated + self.handed_in) as i64 - gone as i64
    }
}

/// Adds to a cell that only the calling thread writes.
#[inline]
pub fn bump(cell: &AtomicU64, n: u64) {
    point();
    cell.store(cell.load(Relaxed).wrapping_add(n), Relaxed);
}

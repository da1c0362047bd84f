//! One worker's resolutions in progress: ARP requests to repeat, and packets that wait for the answers.
//!
//! Fixed memory: at most [`RESOLVING_MAX`] neighbours at a time and [`PARKED_MAX`] packets in one slab, threaded into
//! a queue per neighbour of at most [`PARKED_PER_NEIGHBOUR`].

use arrayvec::ArrayVec;

use super::{Hop, NeighTable};
use crate::limits::{ARP_RETRY_NS, ARP_TRIES, PARKED_MAX, PARKED_PER_NEIGHBOUR, RESOLVING_MAX};

const NIL: u16 = u16::MAX;

/// Where a parked request was going before NAT, to word a host unreachable that its client understands.
pub type Origin = Option<(u32, u16)>;

/// A worker's resolutions and waiting packets.
pub struct Resolver<B> {
    resolving: Vec<Resolving>,
    /// Place in `resolving` plus 1 by neighbour cell; 0 = none.
    place: Box<[u16]>,
    parked: Vec<Parked<B>>,
    free: u16,
    waiting: usize,
    /// Next cell to look at for upkeep.
    upkeep: usize,
}

struct Resolving {
    hop: Hop,
    asked: u8,
    next_ns: u64,
    /// Probe of a neighbour that is still in use: asks by unicast, nobody waits.
    probe: bool,
    head: u16,
    tail: u16,
    count: u16,
}

struct Parked<B> {
    packet: Option<(B, Origin)>,
    next: u16,
}

/// An ARP request that is due.
#[derive(Clone, Copy, Debug)]
pub struct Ask {
    /// Whom to ask for.
    pub hop: Hop,
    /// By unicast to the known MAC address.
    pub probe: bool,
}

impl<B> Resolver<B> {
    /// For a table of neighbours. Allocates everything it will ever use.
    pub fn new(table: &NeighTable) -> Self {
        let parked = (0..PARKED_MAX)
            .map(|i| Parked { packet: None, next: if i + 1 < PARKED_MAX { i as u16 + 1 } else { NIL } })
            .collect();
        Self {
            resolving: Vec::with_capacity(RESOLVING_MAX),
            place: vec![0; table.len()].into_boxed_slice(),
            parked,
            free: 0,
            waiting: 0,
            upkeep: 0,
        }
    }

    /// Packets that wait.
    pub fn waiting(&self) -> usize {
        self.waiting
    }

    /// Lets a packet wait for `hop`, starting its resolution if nobody did. Returns a packet that must be dropped
    /// instead: the oldest one of this neighbour, or this one.
    pub fn park(
        &mut self,
        table: &NeighTable,
        hop: Hop,
        packet: B,
        origin: Origin,
        now_ns: u64,
    ) -> Option<B> {
        let Some(at) = self.begin(table, hop, now_ns) else { return Some(packet) };
        let full = usize::from(self.resolving[at].count) >= PARKED_PER_NEIGHBOUR;
        let oldest = if full { self.pop(at).map(|(b, _)| b) } else { None };
        if self.free == NIL {
            return Some(packet);
        }
        let cell = self.free;
        let parked = &mut self.parked[usize::from(cell)];
        self.free = parked.next;
        *parked = Parked { packet: Some((packet, origin)), next: NIL };
        let queue = &mut self.resolving[at];
        if queue.count == 0 {
            queue.head = cell;
        } else {
            self.parked[usize::from(queue.tail)].next = cell;
        }
        queue.tail = cell;
        queue.count += 1;
        self.waiting += 1;
        oldest
    }

    /// Starts to resolve `hop` though nothing waits for it yet (gateways at start).
    pub fn kick(&mut self, table: &NeighTable, hop: Hop, now_ns: u64) {
        self.begin(table, hop, now_ns);
    }

    /// The next packet that waits for `hop`, now that it is settled one way or the other; call until `None`, which
    /// also forgets the resolution.
    pub fn release(&mut self, hop: Hop) -> Option<(B, Origin)> {
        // The cell may have a new tenant by now, so the place is only a hint here.
        let at = self.at(hop).or_else(|| self.resolving.iter().position(|r| r.hop == hop))?;
        let packet = self.pop(at);
        if packet.is_none() {
            self.forget(at);
        }
        packet
    }

    /// Requests that are due at `now_ns`, into `asks`; neighbours that ran out of tries are given up in the table and
    /// come back in `settled`, as do those that another worker resolved. Housekeeping.
    pub fn due(
        &mut self,
        table: &NeighTable,
        now_ns: u64,
        asks: &mut ArrayVec<Ask, RESOLVING_MAX>,
        settled: &mut ArrayVec<Hop, RESOLVING_MAX>,
    ) {
        for entry in &mut self.resolving {
            let decided = if entry.probe {
                table.is_confirmed(entry.hop)
            } else {
                !matches!(table.reach(entry.hop), super::Reach::Waiting { .. })
            };
            if decided {
                settled.push(entry.hop);
            } else if now_ns < entry.next_ns {
                continue;
            } else if entry.asked < ARP_TRIES {
                entry.asked += 1;
                entry.next_ns = now_ns + ARP_RETRY_NS;
                asks.push(Ask { hop: entry.hop, probe: entry.probe });
            } else {
                table.give_up(entry.hop, now_ns);
                settled.push(entry.hop);
            }
        }
    }

    /// Looks at the next `cells` cells of the table and probes neighbours whose confirmation grew old. One worker's.
    pub fn upkeep(&mut self, table: &NeighTable, cells: usize, now_ns: u64) {
        for _ in 0..cells {
            if self.resolving.len() >= RESOLVING_MAX / 2 {
                return;
            }
            if let Some(hop) = table.upkeep(self.upkeep, now_ns)
                && self.at(hop).is_none()
            {
                self.enlist(hop, true, now_ns);
            }
            self.upkeep = self.upkeep.wrapping_add(1);
        }
    }

    /// Packets that wait for anything, to be dropped at the end.
    pub fn drain(&mut self) -> impl Iterator<Item = B> + '_ {
        self.waiting = 0;
        self.resolving.clear();
        self.place.fill(0);
        self.parked.iter_mut().filter_map(|p| p.packet.take().map(|(b, _)| b))
    }

    /// The place of `hop`'s resolution, begun if need be; `None` when too many are under way.
    fn begin(&mut self, table: &NeighTable, hop: Hop, now_ns: u64) -> Option<usize> {
        if let Some(at) = self.at(hop) {
            self.resolving[at].probe = false;
            return Some(at);
        }
        if self.resolving.len() >= RESOLVING_MAX {
            return None;
        }
        // Whoever moves the neighbour to incomplete asks at once; another worker only waits, and asks after a while.
        let first = if table.start(hop, now_ns) { now_ns } else { now_ns + ARP_RETRY_NS };
        self.enlist(hop, false, first);
        Some(self.resolving.len() - 1)
    }

    fn enlist(&mut self, hop: Hop, probe: bool, next_ns: u64) {
        self.resolving.push(Resolving { hop, asked: 0, next_ns, probe, head: NIL, tail: NIL, count: 0 });
        self.place[hop.cell()] = self.resolving.len() as u16;
    }

    fn at(&self, hop: Hop) -> Option<usize> {
        let at = usize::from(*self.place.get(hop.cell())?).checked_sub(1)?;
        (self.resolving[at].hop == hop).then_some(at)
    }

    fn pop(&mut self, at: usize) -> Option<(B, Origin)> {
        let queue = &mut self.resolving[at];
        if queue.count == 0 {
            return None;
        }
        let cell = queue.head;
        let parked = &mut self.parked[usize::from(cell)];
        queue.head = parked.next;
        queue.count -= 1;
        parked.next = self.free;
        self.free = cell;
        self.waiting -= 1;
        parked.packet.take()
    }

    fn forget(&mut self, at: usize) {
        let gone = self.resolving.swap_remove(at);
        let place = &mut self.place[gone.hop.cell()];
        if usize::from(*place) == at + 1 {
            *place = 0;
        }
        if let Some(moved) = self.resolving.get(at) {
            let place = &mut self.place[moved.hop.cell()];
            if usize::from(*place) == self.resolving.len() + 1 {
                *place = at as u16 + 1;
            }
        }
    }
}

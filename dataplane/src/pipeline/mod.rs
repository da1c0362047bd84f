//! What happens to a packet between receive and transmit, stage by stage; each file adds methods to [`Core`].
//!
//! | stage | file | does |
//! |---|---|---|
//! | parse | [`parse`] | checks the packet once, notes offsets and flow in a [`parse::Meta`] |
//! | steer | `handoff` | with several workers: packets of other workers' flows go into their rings |
//! | probe | [`probe`] | hashes the whole burst and prefetches for its look-ups |
//! | decide | `fast` | packets of known connections: count, state |
//! | | `slow` | admission, service, scheduler, new connection, reuse |
//! | | `host` | ARP, echo, what is for us but for no service |
//! | forward | `forward` | TTL, MTU, NAT or direct routing |
//! | answer | `answer` | ICMP errors and resets, rate limited, in the offender's buffer |
//! | neigh, tx | `send` | next hop, Ethernet header, transmit queues |
//!
//! Nothing here allocates, locks, logs or asks for the time.

pub mod answer;
mod fast;
mod forward;
mod handoff;
mod host;
pub mod parse;
pub mod probe;
mod send;
mod slow;

pub use handoff::Handoff;
pub(crate) use handoff::same_port;
pub use send::Queues;

use std::sync::Arc;

use crate::conn::Conns;
use crate::counters::{CounterSlab, WorkerStats, bump};
use crate::dest::DestSlab;
use crate::io::{PacketBuf, PortIndex};
use crate::neigh::NeighTable;
use crate::neigh::resolve::Resolver;
use crate::sched::{Place, SchedState};
use crate::snapshot::Snapshot;
use crate::verdict::{DropReason, Verdict};

/// Everything a worker owns or shares but its ports and its snapshot.
pub struct Core<B> {
    pub(crate) conns: Conns,
    pub(crate) sched: Box<[SchedState]>,
    pub(crate) dests: Arc<DestSlab>,
    pub(crate) counters: Arc<CounterSlab>,
    pub(crate) stats: Arc<WorkerStats>,
    pub(crate) neigh: Arc<NeighTable>,
    pub(crate) resolver: Resolver<B>,
    pub(crate) queues: Queues<B>,
    pub(crate) handoff: Handoff<B>,
    pub(crate) place: Place,
    pub(crate) answers: answer::Answers,
    /// New connections since `drop_packet` last refused one.
    pub(crate) admitted: u32,
}

/// The circumstances of one poll.
#[derive(Clone, Copy)]
pub(crate) struct Cx<'a> {
    pub snap: &'a Snapshot,
    pub now_ns: u64,
    pub tick: u32,
    /// Whether `secure_tcp` is active.
    pub secure: bool,
    /// Port the packet came in on.
    pub port: PortIndex,
}

/// Low on connection memory: less than a tenth of the table is free. Turns `secure_tcp` and `drop_packet` on in their
/// automatic modes (the kernel compares free pages with `amemthresh`).
pub(crate) fn memory_low(conns: &Conns) -> bool {
    let table = conns.table();
    table.capacity() - table.len() < table.capacity() / 10
}

impl<B: PacketBuf> Core<B> {
    /// Drops a packet: counts the reason.
    #[inline(always)]
    pub(crate) fn drop(&self, reason: DropReason) -> Verdict {
        self.stats.count_drop(reason);
        Verdict::Free
    }

    /// Uses a packet up.
    pub(crate) fn consume(&self) -> Verdict {
        bump(&self.stats.consumed, 1);
        Verdict::Free
    }

    /// Does with a buffer what was decided.
    #[inline(always)]
    pub(crate) fn dispose(&mut self, cx: &Cx<'_>, buf: B, verdict: Verdict) {
        match verdict {
            Verdict::Send(port) => {
                if !self.queues.push(port, buf) {
                    self.stats.count_drop(DropReason::TxFull);
                }
            }
            Verdict::Park(hop, origin) => self.park(cx, buf, hop, origin),
            Verdict::Free => {}
        }
    }
}

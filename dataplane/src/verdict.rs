//! What becomes of a packet's buffer, and why packets are dropped: each reason has a name, a sentence and a counter.
//!
//! Conservation, checked by every test: `rx + generated + handed in = tx + consumed + drops + queued + parked + handed
//! out` on each worker; over all workers, what was handed out and not in again is in a ring. A packet that is answered by
//! a generated one (an ICMP error, a TCP reset) counts as dropped itself; the answer, made in the same buffer, counts as
//! generated.

use crate::io::PortIndex;
use crate::neigh::Hop;
use crate::neigh::resolve::Origin;

/// What to do with a buffer, decided in the pipeline; whatever was to be counted has been. `Copy`, never formatted on
/// the packet path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The frame in it is finished: send it on that port.
    Send(PortIndex),
    /// Let the packet in it wait until that neighbour's MAC address is known.
    Park(Hop, Origin),
    /// Free it: its packet was dropped or used up.
    Free,
}

macro_rules! drop_reasons {
    ($($variant:ident, $name:literal, $sentence:literal;)*) => {
        /// Why a packet was dropped. One counter per worker and reason.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
        #[repr(u8)]
        pub enum DropReason { $(#[doc = $sentence] $variant,)* }

        impl DropReason {
            /// Every reason, in listing order; the index of a reason is its place here.
            pub const ALL: &'static [DropReason] = &[$(DropReason::$variant,)*];
            /// Number of reasons: the length of a worker's drop counter array.
            pub const COUNT: usize = Self::ALL.len();

            /// Stable name: counter name in listings, JSON and metrics.
            pub const fn name(self) -> &'static str {
                match self { $(DropReason::$variant => $name,)* }
            }

            /// One sentence for the operator.
            pub const fn sentence(self) -> &'static str {
                match self { $(DropReason::$variant => $sentence,)* }
            }
        }
    };
}

drop_reasons! {
    L2NotOurs, "l2_not_ours", "The frame was not sent to this port's MAC address.";
    Ethertype, "ethertype", "Neither IPv4 nor ARP: this version forwards nothing else.";
    MultiSegment, "multi_segment", "The packet came in several buffers; raise the port's buffer size or lower its MTU.";
    L3Malformed, "l3_malformed", "The IPv4 or ARP header is short, contradicts itself, or has an impossible source.";
    IpCsum, "ip_csum", "The IPv4 header checksum is wrong.";
    IpOpt, "ip_opt", "The IPv4 header asks for source routing.";
    FragUnmatched, "frag_unmatched", "An IPv4 fragment: this version forwards whole packets only.";
    L4Short, "l4_short", "The TCP or UDP header is cut off.";
    DefenceDrop, "defence_drop", "The drop_packet defence refused a new connection.";
    NoDest, "no_dest", "The service has no destination that takes new connections; the client got port unreachable.";
    ConnNomem, "conn_nomem", "The connection table is full (connections.max).";
    DestGone, "dest_gone", "The connection's destination was deleted (expire_nodest_conn is 0).";
    Ttl, "ttl", "The time to live ran out; the sender got time exceeded.";
    Mtu, "mtu", "Longer than the next link's MTU; with DF the sender got fragmentation needed.";
    NoRoute, "no_route", "No route to the destination; the sender got host unreachable.";
    NeighFail, "neigh_fail", "The next hop does not answer ARP; the sender got host unreachable.";
    NeighQueue, "neigh_queue", "Too many packets waited for one next hop's ARP answer: the oldest went.";
    NeighFull, "neigh_full", "The neighbour table is full (limits.neighbours).";
    LocalBoundary, "local_boundary", "Loopback or one of our own addresses where it cannot be on the wire.";
    NatIcmp, "nat_icmp", "A server's stray packet was answered with port unreachable (nat_icmp_send is 1).";
    UnmatchedReset, "unmatched_reset", "For one of our addresses but no service or connection; answered as a closed port.";
    UnmatchedDrop, "unmatched_drop", "For one of our addresses but no service or connection; dropped in silence.";
    Transit, "transit", "For an address that is not ours, and no connection's reply.";
    IcmpIgnored, "icmp_ignored", "An ICMP message to us that is no echo request, or a damaged one.";
    IcmpLimited, "icmp_limited", "An echo request beyond the rate limit for answers.";
    ArpIgnored, "arp_ignored", "ARP that asks for nothing of ours.";
    TxFull, "tx_full", "The port's transmit queue stayed full.";
    WrongOwner, "wrong_owner", "It was on its way to another worker than its client's when its service was added.";
    RingFull, "ring_full", "The worker that owns the flow was too far behind: its ring was full.";
}

//! Every size and period of the packet path with its unit and derivation.

/// Packets per receive call, DPDK's customary burst: 32 frames fill about a L1 way and amortise a queue poll.
pub const BURST: usize = 32;

/// Frames that may wait for one port's transmit queue, packets. A burst's output and one neighbour's parked packets
/// ([`PARKED_PER_NEIGHBOUR`]) fit beside a full burst that the driver did not take; more would only add delay.
pub const TX_BACKLOG: usize = 4 * BURST;

/// Ports a worker can poll: an index fits the 6 bits a neighbour entry has for it.
pub const PORTS_MAX: usize = 32;

/// Workers of a daemon: their number fits the set of hand-off targets in one word, and a card's redirection table
/// ([`crate::steer::CELLS_MAX`]) still has eight cells for each.
pub const WORKERS_MAX: usize = 64;

/// Packets that may wait for one worker in all rings of the others together, so that memory grows with the number of
/// workers and not with its square: 4096 are what 10 Gb/s of small packets bring in the 275 us that a sleeping
/// worker of a busy machine may need to wake up.
pub const RINGS_OF_WORKER: usize = 4096;

/// Packets of one ring between two workers: its share of [`RINGS_OF_WORKER`], at least four bursts, at most 2048.
pub fn ring_size(workers: usize) -> usize {
    let peers = workers.saturating_sub(1).max(1);
    (RINGS_OF_WORKER / peers).clamp(4 * BURST, 2048)
}

/// Timer entries visited per poll, besides one for each packet received in it. 16 visits of a cold record (about
/// 100 ns each) bound an idle poll's extra work to about 2 us.
pub const TIMERS_PER_POLL: usize = 16;

/// The same in a poll that received [`BURST`] packets or more, so that others may wait: 4 visits of 40 ns are a
/// fifteenth of it. A million timers of one tick are through in a second.
pub const TIMERS_PER_FULL_POLL: usize = 4;

/// For each so many ticks that the timers are behind, such a poll visits one more: they never stay behind, and half a
/// second is made up for without a poll that is noticeably longer.
pub const TICKS_PER_TIMER: usize = 8;

/// Timer entries visited for each connection that the poll opened: the first timeout of a connection, the move to the
/// finer wheel and the end. So connections end as fast as packets make them; making one takes ten times as long.
pub const TIMERS_PER_NEW_CONN: usize = 3;

/// Connection records scanned per poll for a listing or a sweep. 64 sequential records are 4 KiB: about 1 us.
pub const SCAN_PER_POLL: usize = 64;

/// The same in a poll that received packets: 64 records are as long as a burst of 32 packets and would halve what a
/// worker forwards; 8 take a tenth of it, and a million are still through in 125 000 polls of 2 us.
pub const SCAN_PER_BUSY_POLL: usize = 8;

/// Packets that may wait for one neighbour's ARP answer (kernel: `unres_qlen` gives about as many).
pub const PARKED_PER_NEIGHBOUR: usize = 64;

/// Packets that may wait for ARP answers on one worker, all neighbours together: 16 full queues.
pub const PARKED_MAX: usize = 1024;

/// Neighbours that one worker may be resolving at the same time.
pub const RESOLVING_MAX: usize = 256;

/// ARP requests before a neighbour is declared dead (kernel: `mcast_solicit` 3).
pub const ARP_TRIES: u8 = 3;

/// Time between ARP requests, nanoseconds (kernel: `retrans_time_ms` 1000).
pub const ARP_RETRY_NS: u64 = 1_000_000_000;

/// Time a dead neighbour is not asked again, nanoseconds; packets to it are dropped at once meanwhile.
pub const NEIGH_FAILED_NS: u64 = 1_000_000_000;

/// A confirmed neighbour is asked again (unicast) after this time, nanoseconds. Direct routing has no return
/// traffic that could confirm a server, so every next hop is probed actively, well within switch ageing times.
pub const NEIGH_REFRESH_NS: u64 = 20_000_000_000;

/// Gratuitous ARP announcements per activated address, one each [`ANNOUNCE_NS`]: late switches and lost frames.
pub const ANNOUNCE_COUNT: usize = 5;

/// Time between announcements of one address, nanoseconds.
pub const ANNOUNCE_NS: u64 = 1_000_000_000;

/// Period of a worker's housekeeping (ARP retries, refreshes, announcements), nanoseconds. 10 ms is far finer than
/// any of its deadlines and invisible in cost.
pub const HOUSEKEEPING_NS: u64 = 10_000_000;

/// Per-receiver ICMP error credit, messages (kernel: `XRLIM_BURST_FACTOR` 6); refilled one a second.
pub const ICMP_PEER_BURST: u32 = 6;

/// Cells of the per-receiver ICMP limiter. Receivers that fall into one cell share its credit, so that a collision
/// limits more, never less.
pub const ICMP_PEER_CELLS: usize = 1024;

//! Where packets come from and go to. The worker is generic over [`Io`]: the same code runs over DPDK ports
//! ([`dpdk`]), in-memory ports with a fake clock ([`mem`]) and capture files ([`pcap`]).

pub mod dpdk;
pub mod mem;
pub mod pcap;

use arrayvec::ArrayVec;

use crate::limits::BURST;

/// Index of an Ethernet port in configuration order.
pub type PortIndex = u8;

/// One receive call's packets.
pub type Burst<B> = ArrayVec<B, BURST>;

/// What the receiver says about the IPv4 header checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CsumStatus {
    /// Not looked at: the worker verifies it.
    Unknown,
    /// Verified by the receiver.
    Good,
    /// Found wrong by the receiver.
    Bad,
}

/// A packet's buffer. Dropping it returns it to where it came from. Hot: every method is a few loads.
pub trait PacketBuf {
    /// The frame from the Ethernet header on.
    fn data(&self) -> &[u8];
    /// The frame, writable.
    fn data_mut(&mut self) -> &mut [u8];
    /// Sets the frame's length, bytes; new bytes have any value. `false` and unchanged when there is no room.
    fn set_len(&mut self, len: usize) -> bool;
    /// Receive offload's word on the IPv4 header checksum.
    fn ip_csum(&self) -> CsumStatus {
        CsumStatus::Unknown
    }
    /// Asks for the cache lines of a buffer that another core had.
    fn prefetch(&self) {}
    /// False when the frame lies in several pieces.
    fn is_contiguous(&self) -> bool {
        true
    }
    /// The port it came in on, as last set; travels with the buffer from worker to worker.
    fn port(&self) -> PortIndex;
    /// Notes the port it came in on.
    fn set_port(&mut self, port: PortIndex);
}

/// A worker's ports, buffers and rings to the other workers. All methods are hot and belong to the worker's own
/// thread. What has a body here is for several workers; who serves one worker leaves it as it is.
pub trait Io {
    /// The buffer type.
    type Buf: PacketBuf;
    /// Appends received packets of `port` to `burst`, as many as arrived and fit.
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Self::Buf>);
    /// Sends from the front of `queue`; what was accepted is gone from it, the rest stays in order.
    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<Self::Buf, N>);
    /// An empty buffer with room for a full frame, or `None` when the pool is empty.
    fn alloc(&mut self) -> Option<Self::Buf>;
    /// Asks for the cache lines of the rings from and to worker `peer`, some time before they are used.
    fn expect(&self, _peer: usize) {}
    /// Hands packets from the front of `queue` to worker `to`; what its ring had room for is gone from the queue.
    fn hand_over<const N: usize>(&mut self, _to: usize, _queue: &mut ArrayVec<Self::Buf, N>) {}
    /// Appends packets that worker `from` handed to this one to `burst`, oldest first, as many as fit.
    fn take_over(&mut self, _from: usize, _burst: &mut Burst<Self::Buf>) {}
    /// Sends what workers without a transmit queue of their own left with this one; how many packets.
    fn relay(&mut self) -> usize {
        0
    }
}

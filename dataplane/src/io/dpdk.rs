//! DPDK ports: the only file of the data plane that knows them. One queue pair per port and worker.

use arrayvec::ArrayVec;
use dpdk_sys::{Mbuf, Mempool, RxChecksum, RxQueue, TxQueue};

use super::{Burst, CsumStatus, Io, PacketBuf, PortIndex};

impl PacketBuf for Mbuf<'_> {
    #[inline(always)]
    fn data(&self) -> &[u8] {
        Mbuf::data(self)
    }

    #[inline(always)]
    fn data_mut(&mut self) -> &mut [u8] {
        Mbuf::data_mut(self)
    }

    #[inline(always)]
    fn set_len(&mut self, len: usize) -> bool {
        Mbuf::set_len(self, len).is_ok()
    }

    #[inline(always)]
    fn ip_csum(&self) -> CsumStatus {
        match self.ip_checksum() {
            RxChecksum::Good => CsumStatus::Good,
            RxChecksum::Bad => CsumStatus::Bad,
            RxChecksum::Unknown | RxChecksum::Intact => CsumStatus::Unknown,
        }
    }

    #[inline(always)]
    fn is_contiguous(&self) -> bool {
        Mbuf::is_contiguous(self)
    }
}

/// A worker's queues, by port index, and the pool it makes its own packets from.
pub struct DpdkIo<'eal> {
    queues: Vec<(RxQueue<'eal>, TxQueue<'eal>)>,
    pool: Mempool<'eal>,
}

impl<'eal> DpdkIo<'eal> {
    /// Of one queue pair a port, in port order.
    pub fn new(queues: Vec<(RxQueue<'eal>, TxQueue<'eal>)>, pool: Mempool<'eal>) -> Self {
        Self { queues, pool }
    }
}

impl<'eal> Io for DpdkIo<'eal> {
    type Buf = Mbuf<'eal>;

    #[inline(always)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<Mbuf<'eal>>) {
        self.queues[usize::from(port)].0.receive(burst);
    }

    #[inline(always)]
    fn tx<const N: usize>(&mut self, port: PortIndex, queue: &mut ArrayVec<Mbuf<'eal>, N>) {
        self.queues[usize::from(port)].1.transmit(queue);
    }

    fn alloc(&mut self) -> Option<Mbuf<'eal>> {
        self.pool.alloc().ok()
    }
}

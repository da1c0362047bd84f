//! The two ends of a port that worker lcores poll.
//!
//! A queue handle is made once for each start of its port, moves to one thread and is polled there
//! through `&mut self` (I3). It borrows the started port, so a stopped port cannot be polled, which
//! DPDK answers with a stack dump for each call.

use std::fmt;
use std::marker::PhantomData;

use arrayvec::ArrayVec;

use crate::burst::forget_front;
use crate::mbuf::Mbuf;
use crate::raw;

/// A receive queue.
///
/// ```
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::RxQueue<'static>>();
/// needs_send::<dpdk_sys::TxQueue<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::RxQueue<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::RxQueue<'static>>();
/// ```
/// It cannot outlive the run of its port:
/// ```compile_fail,E0505
/// fn poll_after_stop(port: dpdk_sys::Port<'_, dpdk_sys::Started>) {
///     let mut rx = port.take_rx(0).unwrap();
///     let _ = port.stop();
///     rx.receive(&mut arrayvec::ArrayVec::<_, 32>::new());
/// }
/// ```
pub struct RxQueue<'port> {
    end: QueueEnd,
    _port: PhantomData<&'port ()>,
}

/// A transmit queue.
///
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::TxQueue<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::TxQueue<'static>>();
/// ```
pub struct TxQueue<'port> {
    end: QueueEnd,
    _port: PhantomData<&'port ()>,
}

/// Where a queue's functions and data are found, fixed while its port runs.
struct QueueEnd {
    ops: *const raw::rte_eth_fp_ops,
    port: u16,
    queue: u16,
}

// SAFETY: I3; one handle exists for a queue and the pointer leads to DPDK's table of functions,
// which no thread changes while the port runs.
unsafe impl Send for RxQueue<'_> {}
// SAFETY: as above.
unsafe impl Send for TxQueue<'_> {}

impl<'port> RxQueue<'port> {
    /// Makes the handle of a queue.
    ///
    /// # Safety
    /// The port is started for all of `'port`, has the receive queue, and no other handle to that
    /// queue exists in `'port`.
    pub(crate) unsafe fn new(port: u16, queue: u16) -> Self {
        RxQueue { end: QueueEnd::new(port, queue), _port: PhantomData }
    }

    /// Appends received packets to `burst`, as many as it has room for, and returns how many. Hot.
    ///
    /// Leave room for [`BURST_MAX`](crate::BURST_MAX): some drivers return nothing when asked for
    /// fewer than 4, or work in blocks of 32. The packets may outlive the port; they are freed to
    /// their pools.
    ///
    /// JUSTIFICATION for the driver call in Rust instead of a shim: an empty poll costs 1.2-1.4 ns
    /// against 2.1, measured on `net_null,no-rx=1`.
    #[inline]
    pub fn receive<'m, const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf<'m>, N>) -> usize
    where
        'port: 'm,
    {
        self.receive_at_most(burst, u16::MAX)
    }

    /// As [`receive`](Self::receive), at most `limit` packets. Hot.
    #[inline]
    pub fn receive_at_most<'m, const N: usize>(
        &mut self,
        burst: &mut ArrayVec<Mbuf<'m>, N>,
        limit: u16,
    ) -> usize
    where
        'port: 'm,
    {
        let len = burst.len();
        let room = burst.remaining_capacity().min(limit.into()) as u16;
        if room == 0 {
            return 0;
        }
        let QueueEnd { ops, port, queue } = self.end;
        // SAFETY: I3; the port is started, so the table's entry is the driver's and `queue` is one
        // of its queues. I2, I9: the driver writes at most `room` mbufs, which become ours, behind
        // the `len` first entries.
        unsafe {
            let free = burst.as_mut_ptr().add(len).cast::<*mut raw::rte_mbuf>();
            let data = *(*ops).rxq.data.add(queue.into());
            let mut received = (*ops).rx_pkt_burst.unwrap_unchecked()(data, free, room);
            let callbacks = *(*ops).rxq.clbk.add(queue.into());
            if !callbacks.is_null() {
                received = raw::rte_eth_call_rx_callbacks(port, queue, free, received, room, callbacks);
            }
            burst.set_len(len + usize::from(received));
            received.into()
        }
    }

    /// Index of the queue in its port.
    pub fn index(&self) -> u16 {
        self.end.queue
    }

    /// DPDK's number of the port.
    pub fn port(&self) -> u16 {
        self.end.port
    }
}

impl TxQueue<'_> {
    /// Makes the handle of a queue.
    ///
    /// # Safety
    /// The port is started while the result lives, has the transmit queue, and no other handle to
    /// that queue exists in that time.
    pub(crate) unsafe fn new(port: u16, queue: u16) -> Self {
        TxQueue { end: QueueEnd::new(port, queue), _port: PhantomData }
    }

    /// Gives packets from the front of `burst` to the driver and returns how many it took; the rest
    /// stays in `burst`, first unsent packet first. Hot.
    #[inline]
    pub fn transmit<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf<'_>, N>) -> usize {
        if burst.is_empty() {
            return 0;
        }
        let QueueEnd { ops, port, queue } = self.end;
        // SAFETY: I3 as in `receive`; I2, I9: the driver owns the first `sent` mbufs from here on,
        // whose pools live as long as the EAL (I4). A callback may shorten the burst only by
        // freeing mbufs, and this crate installs none.
        unsafe {
            let mbufs = burst.as_mut_ptr().cast::<*mut raw::rte_mbuf>();
            let mut count = burst.len().min(u16::MAX.into()) as u16;
            let callbacks = *(*ops).txq.clbk.add(queue.into());
            if !callbacks.is_null() {
                count = raw::rte_eth_call_tx_callbacks(port, queue, mbufs, count, callbacks);
            }
            let data = *(*ops).txq.data.add(queue.into());
            let sent = (*ops).tx_pkt_burst.unwrap_unchecked()(data, mbufs, count);
            forget_front(burst, sent.into());
            sent.into()
        }
    }

    /// Index of the queue in its port.
    pub fn index(&self) -> u16 {
        self.end.queue
    }

    /// DPDK's number of the port.
    pub fn port(&self) -> u16 {
        self.end.port
    }
}

impl QueueEnd {
    fn new(port: u16, queue: u16) -> Self {
        // The address of the table's entry is taken without a reference to the table, whose other
        // entries change as their ports start and stop.
        let ops = (&raw const raw::rte_eth_fp_ops).cast::<raw::rte_eth_fp_ops>().wrapping_add(port.into());
        QueueEnd { ops, port, queue }
    }
}

impl fmt::Debug for RxQueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RxQueue({}/{})", self.end.port, self.end.queue)
    }
}

impl fmt::Debug for TxQueue<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "TxQueue({}/{})", self.end.port, self.end.queue)
    }
}

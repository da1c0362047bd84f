//! Handing mbufs from one lcore to another: the one way an mbuf leaves its thread.
//!
//! A ring has one sending and one receiving end, each owned by one thread (single producer, single
//! consumer). What is in the ring when both ends are gone is freed.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;
use std::sync::Arc;

use arrayvec::ArrayVec;

use crate::burst::{BURST_MAX, forget_front, free_bulk};
use crate::eal::Eal;
use crate::errno::{self, DpdkError, c_string};
use crate::mbuf::Mbuf;
use crate::mempool::socket_or_any;
use crate::prefetch::prefetch_address;
use crate::raw;

/// Makes a ring for exactly `size` mbufs and returns its two ends. Control thread.
///
/// `name` is unique in the process, at most 25 bytes.
///
/// # Errors
/// [`DpdkError::BadArgument`] for a size of 0; [`DpdkError::Ring`]: no memory, a size of 2^31 or
/// more, or the name is taken or too long.
pub fn handoff<'eal>(
    _eal: &'eal Eal,
    name: &str,
    size: u32,
    socket: Option<u32>,
) -> Result<(HandoffTx<'eal>, HandoffRx<'eal>), DpdkError> {
    let ring = Arc::new(Ring::create(name, size, socket)?);
    Ok((
        HandoffTx { ring: Arc::clone(&ring), _eal: PhantomData, _one_thread: PhantomData },
        HandoffRx { ring, _eal: PhantomData, _one_thread: PhantomData },
    ))
}

/// The sending end.
///
/// ```
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::HandoffTx<'static>>();
/// needs_send::<dpdk_sys::HandoffRx<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::HandoffTx<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::HandoffTx<'static>>();
/// ```
#[derive(Debug)]
pub struct HandoffTx<'eal> {
    ring: Arc<Ring>,
    _eal: PhantomData<&'eal ()>,
    _one_thread: PhantomData<Cell<()>>,
}

/// The receiving end.
///
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::HandoffRx<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::HandoffRx<'static>>();
/// ```
#[derive(Debug)]
pub struct HandoffRx<'eal> {
    ring: Arc<Ring>,
    _eal: PhantomData<&'eal ()>,
    _one_thread: PhantomData<Cell<()>>,
}

impl HandoffTx<'_> {
    /// Sends from the front of `burst` what the ring has room for and returns how many; the rest
    /// stays. Hot.
    #[inline]
    pub fn send<const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf<'_>, N>) -> usize {
        // SAFETY: I2, I9; the ring takes over the first `sent` mbufs. One producer: `&mut self`.
        unsafe {
            let sent = raw::shim_ring_enqueue(self.ring.0.as_ptr(), burst.as_ptr().cast(), burst.len() as u32)
                as usize;
            forget_front(burst, sent);
            sent
        }
    }

    /// Asks for the cache line in which the other end says how far it is; some time before a send. Hot.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.ring.prefetch_end(std::mem::offset_of!(raw::rte_ring, __bindgen_anon_2));
    }

    /// Mbufs waiting in the ring.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl<'eal> HandoffRx<'eal> {
    /// Appends to `burst` what waits in the ring, as far as there is room, and returns how many.
    /// Hot.
    #[inline]
    pub fn receive<'m, const N: usize>(&mut self, burst: &mut ArrayVec<Mbuf<'m>, N>) -> usize
    where
        'eal: 'm,
    {
        let len = burst.len();
        // SAFETY: I2, I9; the ring gives up what it returns, written behind the `len` first
        // entries. One consumer: `&mut self`. Each mbuf lives as long as the EAL, hence `'m`.
        unsafe {
            let received = raw::shim_ring_dequeue(
                self.ring.0.as_ptr(),
                burst.as_mut_ptr().add(len).cast(),
                burst.remaining_capacity() as u32,
            ) as usize;
            burst.set_len(len + received);
            received
        }
    }

    /// Asks for the cache line in which the other end says how far it is, and for the first entries; some time before a
    /// receive. Hot.
    #[inline(always)]
    pub fn prefetch(&self) {
        self.ring.prefetch_end(std::mem::offset_of!(raw::rte_ring, __bindgen_anon_1));
        self.ring.prefetch_entries();
    }

    /// Mbufs waiting in the ring.
    pub fn len(&self) -> usize {
        self.ring.len()
    }

    /// Whether none waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

/// The ring itself, owned by both ends.
pub(crate) struct Ring(NonNull<raw::rte_ring>);

// SAFETY: the ring may be filled by one thread while another empties it. Each end exists once and
// moves mbufs through `&mut self`, so there is one thread on either side wherever the ends are.
unsafe impl Send for Ring {}
// SAFETY: as above; what both ends share, the count and the drop, is safe on any thread.
unsafe impl Sync for Ring {}

impl Ring {
    pub(crate) fn create(name: &str, size: u32, socket: Option<u32>) -> Result<Ring, DpdkError> {
        if size == 0 {
            let (what, reason) = ("ring size", "holds no mbuf");
            return Err(DpdkError::BadArgument { what, value: "0".to_owned(), reason });
        }
        let c_name = c_string("ring name", name)?;
        let flags = raw::RING_F_SP_ENQ | raw::RING_F_SC_DEQ | raw::RING_F_EXACT_SZ;
        // SAFETY: I1, the caller holds an EAL; the name outlives the call, DPDK copies it.
        let ring = unsafe { raw::rte_ring_create(c_name.as_ptr(), size, socket_or_any(socket), flags) };
        NonNull::new(ring).map(Ring).ok_or_else(|| DpdkError::Ring {
            name: name.to_owned(),
            size,
            errno: errno::last(),
        })
    }

    #[cfg(feature = "testing")]
    pub(crate) fn as_raw(&self) -> *mut raw::rte_ring {
        self.0.as_ptr()
    }

    #[inline(always)]
    fn prefetch_end(&self, offset: usize) {
        prefetch_address(self.0.as_ptr().cast::<u8>().wrapping_add(offset));
    }

    /// Asks for the lines that hold the next burst's pointers, which follow the ring's head in memory.
    #[inline(always)]
    fn prefetch_entries(&self) {
        const LINE: usize = raw::RTE_CACHE_LINE_SIZE as usize;
        // SAFETY: I1; the consumer's place is written by nobody but the thread that calls this, the mask never.
        let (next, mask) = unsafe {
            let ring = self.0.as_ptr();
            ((*ring).__bindgen_anon_2.cons.head, (*ring).mask)
        };
        let first = (next & mask) as usize * size_of::<*mut u8>();
        for offset in (0..BURST_MAX / 2 * size_of::<*mut u8>()).step_by(LINE) {
            self.prefetch_end(size_of::<raw::rte_ring>() + first + offset);
        }
    }

    fn len(&self) -> usize {
        // SAFETY: I1; reads two indices, from any thread.
        unsafe { raw::shim_ring_count(self.0.as_ptr()) as usize }
    }
}

impl fmt::Debug for Ring {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ring").field("len", &self.len()).finish_non_exhaustive()
    }
}

impl Drop for Ring {
    fn drop(&mut self) {
        let mut burst = ArrayVec::<Mbuf<'_>, BURST_MAX>::new();
        // SAFETY: I1, I2; both ends are gone, so this is the only consumer, and what the ring holds
        // belongs to us. The EAL outlives the ends by their lifetime.
        unsafe {
            loop {
                let count =
                    raw::shim_ring_dequeue(self.0.as_ptr(), burst.as_mut_ptr().cast(), BURST_MAX as u32);
                if count == 0 {
                    break;
                }
                burst.set_len(count as usize);
                free_bulk(&mut burst);
            }
            raw::rte_ring_free(self.0.as_ptr());
        }
    }
}

//! Batches of mbufs.
//!
//! The common batch is `ArrayVec<Mbuf, N>`: queues, pools and rings fill and empty it without
//! copying anything but pointers. Left to itself it frees its mbufs one by one; [`free_bulk`] and
//! [`Burst`] free them in one call.

use std::ops::{Deref, DerefMut};

use arrayvec::ArrayVec;

use crate::mbuf::Mbuf;
use crate::raw;

/// Packets a queue is polled for at a time. DPDK's own choice: the vector drivers work in blocks of
/// 32, and the pointers fill four cache lines.
pub const BURST_MAX: usize = 32;

/// Frees all of `burst` in one call and leaves it empty. Hot.
///
/// DPDK groups neighbours of the same pool, so mbufs of several pools may be mixed.
#[inline]
pub fn free_bulk<const N: usize>(burst: &mut ArrayVec<Mbuf<'_>, N>) {
    let len = burst.len();
    // SAFETY: I2, I9; the mbufs are taken out of the array, with their right to be freed, before
    // DPDK frees each of them once.
    unsafe {
        burst.set_len(0);
        raw::rte_pktmbuf_free_bulk(burst.as_mut_ptr().cast(), len as u32);
    }
}

/// Up to [`BURST_MAX`] mbufs, freed in one call when dropped.
///
/// ```compile_fail,E0277
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::Burst<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::Burst<'static>>();
/// ```
#[derive(Debug, Default)]
pub struct Burst<'eal>(ArrayVec<Mbuf<'eal>, BURST_MAX>);

impl Burst<'_> {
    /// An empty burst.
    #[inline]
    pub fn new() -> Self {
        Burst(ArrayVec::new())
    }
}

impl<'eal> Deref for Burst<'eal> {
    type Target = ArrayVec<Mbuf<'eal>, BURST_MAX>;

    #[inline]
    fn deref(&self) -> &Self::Target {
        &self.0
    }
}

impl DerefMut for Burst<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut Self::Target {
        &mut self.0
    }
}

impl Drop for Burst<'_> {
    #[inline]
    fn drop(&mut self) {
        free_bulk(&mut self.0);
    }
}

/// Removes the first `count` mbufs, which now belong to DPDK, and moves the rest to the front.
///
/// # Safety
/// `count <= burst.len()`, and the first `count` mbufs have a new owner.
#[inline]
pub(crate) unsafe fn forget_front<const N: usize>(burst: &mut ArrayVec<Mbuf<'_>, N>, count: usize) {
    let rest = burst.len() - count;
    // SAFETY: I2; the entries given away are overwritten or cut off without being dropped, the
    // `rest` others are moved inside the array once.
    unsafe {
        burst.set_len(0);
        if count > 0 && rest > 0 {
            let first = burst.as_mut_ptr();
            std::ptr::copy(first.add(count), first, rest);
        }
        burst.set_len(rest);
    }
}

//! Pools of mbufs.
//!
//! A pool belongs to the EAL and is freed with it: a NIC or a ring may hold mbufs of a pool long
//! after the last handle to it is gone, so no handle has a `Drop` (I4). A handle may be cloned and
//! used on any lcore; each registered lcore allocates from and frees to a cache of its own (I7).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use arrayvec::ArrayVec;

use crate::eal::Eal;
use crate::errno::{self, DpdkError, c_string};
use crate::mbuf::Mbuf;
use crate::raw;

/// Bytes DPDK keeps free in front of the data of a new mbuf, for headers to come.
pub const HEADROOM_BYTES: u16 = raw::RTE_PKTMBUF_HEADROOM as u16;

/// Data room that holds a frame of the usual MTU, as DPDK's own default: 2048 and the headroom.
pub const DEFAULT_DATA_ROOM: u16 = 2048 + HEADROOM_BYTES;

/// What a pool is made of.
#[derive(Clone, Debug)]
pub struct PoolConfig {
    /// Name, unique in the process, at most 25 bytes.
    pub name: String,
    /// Number of mbufs. 2^n - 1 wastes no memory.
    pub count: u32,
    /// Mbufs each lcore may keep to itself: at most 512, and at most two thirds of `count`.
    pub cache: u32,
    /// Bytes of data room in each mbuf, [`HEADROOM_BYTES`] included.
    pub data_room: u16,
    /// NUMA node of the memory; `None` for any.
    pub socket: Option<u32>,
}

impl PoolConfig {
    /// A pool for the usual MTU, on any node, with a cache of 256 or what `count` allows.
    pub fn new(name: impl Into<String>, count: u32) -> Self {
        PoolConfig {
            name: name.into(),
            count,
            cache: (count / 4).min(256),
            data_room: DEFAULT_DATA_ROOM,
            socket: None,
        }
    }
}

/// A handle to a pool of mbufs.
///
/// ```
/// fn needs_send_sync_clone<T: Send + Sync + Clone>() {}
/// needs_send_sync_clone::<dpdk_sys::Mempool<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_copy<T: Copy>() {}
/// needs_copy::<dpdk_sys::Mempool<'static>>();
/// ```
#[derive(Clone)]
pub struct Mempool<'eal> {
    raw: NonNull<raw::rte_mempool>,
    _eal: PhantomData<&'eal ()>,
}

// SAFETY: the functions called on a shared pool are safe from any thread: DPDK's pools have a ring
// with many producers and consumers, and the caches are per lcore id (I7).
unsafe impl Send for Mempool<'_> {}
// SAFETY: as above.
unsafe impl Sync for Mempool<'_> {}

/// A pool had fewer free mbufs than asked for. Nothing was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the mempool is empty")]
pub struct PoolEmpty;

impl<'eal> Mempool<'eal> {
    /// Makes a pool. Control thread; touches all of its memory.
    ///
    /// # Errors
    /// [`DpdkError::Mempool`]: no memory, a bad size, or the name is taken or too long.
    pub fn create(_eal: &'eal Eal, config: &PoolConfig) -> Result<Self, DpdkError> {
        let name = c_string("mempool name", &config.name)?;
        // SAFETY: I1 by `_eal`; the name outlives the call, DPDK copies it.
        let pool = unsafe {
            raw::rte_pktmbuf_pool_create(
                name.as_ptr(),
                config.count,
                config.cache,
                0,
                config.data_room,
                socket_or_any(config.socket),
            )
        };
        match NonNull::new(pool) {
            Some(raw) => Ok(Mempool { raw, _eal: PhantomData }),
            None => Err(DpdkError::Mempool {
                name: config.name.clone(),
                count: config.count,
                data_room: config.data_room,
                errno: errno::last(),
            }),
        }
    }

    /// Mbufs in the pool when all are free.
    pub fn capacity(&self) -> u32 {
        // SAFETY: I1; `size` does not change after creation.
        unsafe { (*self.raw.as_ptr()).size }
    }

    /// Free mbufs, the lcores' caches included. Control thread: it visits each cache, and the sum
    /// is exact only while no lcore works.
    pub fn available(&self) -> u32 {
        // SAFETY: I1; reads counters only.
        unsafe { raw::rte_mempool_avail_count(self.raw.as_ptr()) }
    }

    /// Mbufs that are not free. As exact as [`available`](Self::available).
    pub fn in_use(&self) -> u32 {
        self.capacity() - self.available()
    }

    /// Bytes that an mbuf of this pool can hold after its headroom.
    pub fn data_bytes(&self) -> u32 {
        // SAFETY: I1; made by rte_pktmbuf_pool_create, whose private area follows the header.
        let room = unsafe { raw::shim_mbuf_data_room(self.raw.as_ptr()) };
        u32::from(room).saturating_sub(HEADROOM_BYTES.into())
    }

    /// Takes one empty mbuf. Hot.
    #[inline]
    pub fn alloc(&self) -> Result<Mbuf<'eal>, PoolEmpty> {
        // SAFETY: I1, I7.
        let mbuf = unsafe { raw::shim_mbuf_alloc(self.raw.as_ptr()) };
        // SAFETY: I2; a fresh mbuf has no other owner.
        NonNull::new(mbuf).map(|mbuf| unsafe { Mbuf::from_raw(mbuf) }).ok_or(PoolEmpty)
    }

    /// Appends `count` empty mbufs to `out`, or none. Hot, one call into DPDK.
    ///
    /// # Panics
    /// If `out` has no room for `count` more.
    #[inline]
    pub fn alloc_bulk<'m, const N: usize>(
        &self,
        out: &mut ArrayVec<Mbuf<'m>, N>,
        count: usize,
    ) -> Result<(), PoolEmpty>
    where
        'eal: 'm,
    {
        assert!(count <= out.remaining_capacity(), "no room for {count} mbufs");
        let len = out.len();
        // SAFETY: I1, I7, I9; the array has room for `count` pointers behind its `len` first, and
        // DPDK fills all of them or returns an error.
        unsafe {
            let free = out.as_mut_ptr().add(len).cast();
            if raw::shim_mbuf_alloc_bulk(self.raw.as_ptr(), free, count as u32) != 0 {
                return Err(PoolEmpty);
            }
            out.set_len(len + count);
        }
        Ok(())
    }

    pub(crate) fn as_raw(&self) -> *mut raw::rte_mempool {
        self.raw.as_ptr()
    }
}

impl fmt::Debug for Mempool<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mempool").field("capacity", &self.capacity()).finish_non_exhaustive()
    }
}

/// DPDK's form of an optional NUMA node.
pub(crate) fn socket_or_any(socket: Option<u32>) -> i32 {
    socket.map_or(raw::SOCKET_ID_ANY, |socket| socket as i32)
}

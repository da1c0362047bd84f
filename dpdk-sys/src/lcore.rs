//! Registering threads with DPDK, which gives them an lcore id and so their own mempool caches.

use std::fmt;
use std::marker::PhantomData;

use crate::eal::EalHandle;
use crate::errno::{self, DpdkError};
use crate::raw;

/// The calling thread's place among DPDK's lcores, given back when dropped.
///
/// Without one a thread may use every call of this crate, but each mbuf taken or freed goes to the
/// shared part of its pool. The id belongs to the thread (I7), so the token cannot leave it:
/// ```compile_fail,E0277
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::LcoreToken<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::LcoreToken<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::LcoreToken<'static>>();
/// ```
pub struct LcoreToken<'eal> {
    id: u32,
    _eal: PhantomData<EalHandle<'eal>>,
    _this_thread: PhantomData<*const ()>,
}

impl<'eal> LcoreToken<'eal> {
    /// Registers the calling thread. At thread start; takes a lock.
    ///
    /// # Errors
    /// [`DpdkError::LcoreAlready`] if the thread has an lcore id, as the thread that started the EAL
    /// has; [`DpdkError::Lcore`] if all 128 ids are taken.
    pub fn register(_eal: EalHandle<'eal>) -> Result<Self, DpdkError> {
        // DPDK itself would overwrite the id, and two threads could come to share the former one.
        if let Some(id) = current_id() {
            return Err(DpdkError::LcoreAlready { id });
        }
        // SAFETY: I1 by the handle.
        if unsafe { raw::rte_thread_register() } < 0 {
            return Err(DpdkError::Lcore { errno: errno::last() });
        }
        let id = current_id().expect("I7: a registered thread has an lcore id");
        Ok(LcoreToken { id, _eal: PhantomData, _this_thread: PhantomData })
    }

    /// The lcore id, 0 to 127.
    pub fn id(&self) -> u32 {
        self.id
    }
}

/// The calling thread's lcore id, if it has one.
fn current_id() -> Option<u32> {
    // SAFETY: reads a thread-local integer, valid at any time.
    Some(unsafe { raw::shim_lcore_id() }).filter(|&id| id < raw::RTE_MAX_LCORE)
}

impl fmt::Debug for LcoreToken<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("LcoreToken").field(&self.id).finish()
    }
}

impl Drop for LcoreToken<'_> {
    fn drop(&mut self) {
        // SAFETY: I7; the token never left the thread that registered.
        unsafe { raw::rte_thread_unregister() };
    }
}

//! The Environment Abstraction Layer: DPDK's memory, devices and lcore ids.
//!
//! One [`Eal`] exists in a process, on the thread that made it, and it is the last thing of DPDK to
//! go: pools, ports, rings and lcore tokens borrow from it (I1). A daemon that wants no lifetimes
//! keeps it for ever with [`Eal::leak`].
//!
//! The EAL gets one lcore, for the calling thread. Workers are threads of the caller's own that
//! register with [`LcoreToken`](crate::LcoreToken).

use std::fmt;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::args::EalArgs;
use crate::errno::{self, DpdkError};
use crate::pages::{PageChoice, free_hugepages_mb};
use crate::thread::Tid;
use crate::{log, raw};

/// DPDK, started. Dropping it cleans up; no second one can be made in the process.
///
/// It stays on the thread that started it:
/// ```compile_fail,E0277
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::Eal>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::Eal>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::Eal>();
/// ```
/// What borrows from it cannot outlive it:
/// ```compile_fail,E0505
/// use dpdk_sys::{Eal, EalArgs, Mempool, PoolConfig};
/// let eal = Eal::start(&EalArgs::new()).unwrap();
/// let pool = Mempool::create(&eal, &PoolConfig::new("pool", 1023)).unwrap();
/// drop(eal);
/// pool.available();
/// ```
pub struct Eal {
    pages: PageChoice,
    _this_thread: PhantomData<*const ()>,
}

/// Proof for other threads that the EAL is alive: what a worker needs to register itself.
#[derive(Clone, Copy, Debug)]
pub struct EalHandle<'eal> {
    _eal: PhantomData<&'eal ()>,
}

/// Set by the first attempt. DPDK cannot start again even after a failure or a clean-up.
static STARTED: AtomicBool = AtomicBool::new(false);

impl Eal {
    /// Starts DPDK. Control thread, takes about 0.15 s.
    ///
    /// DPDK pins the calling thread to a CPU; the thread's former CPU list is restored before this
    /// returns, so that threads made later do not inherit the pin. DPDK's log lines become
    /// `tracing` events of target `weir::eal`.
    ///
    /// # Errors
    /// [`DpdkError::BadArgument`] and [`DpdkError::Hugepages`] before anything is touched;
    /// [`DpdkError::EalAlreadyStarted`]; [`DpdkError::EalStart`], after which the process can only
    /// report and end.
    pub fn start(args: &EalArgs) -> Result<Eal, DpdkError> {
        let pages = args.page_choice(free_hugepages_mb())?;
        let argv = args.to_argv(pages)?;
        if STARTED.swap(true, Ordering::AcqRel) {
            return Err(DpdkError::EalAlreadyStarted);
        }
        log::install();

        // DPDK keeps pointers into the strings and reorders the array: both live for ever (I1).
        let argv: &'static [_] = Vec::leak(argv);
        let mut pointers: Vec<_> = argv.iter().map(|arg| arg.as_ptr().cast_mut()).collect();
        pointers.push(std::ptr::null_mut());
        let pointers = Vec::leak(pointers);

        let former_cpus = Tid::current().affinity();
        // SAFETY: I1; `pointers` is a null-terminated argv of `argv.len()` strings that are never
        // freed, and STARTED makes this the only call of the process.
        let ret = unsafe { raw::rte_eal_init(argv.len() as i32, pointers.as_mut_ptr()) };
        let failure = (ret < 0).then(errno::last);
        if let Ok(cpus) = former_cpus
            && let Err(error) = Tid::current().set_affinity(&cpus)
        {
            tracing::warn!(target: "weir::eal", %error, %cpus, "cannot restore the CPU list");
        }
        match failure {
            None => Ok(Eal { pages, _this_thread: PhantomData }),
            Some(errno) => Err(DpdkError::EalStart {
                args: argv.iter().map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" "),
                errno,
            }),
        }
    }

    /// Keeps DPDK until the process ends, for a daemon whose threads are not scoped.
    ///
    /// Nothing stays behind in the system: memory is anonymous with hugepages and without. A port
    /// that is leaked too gives queues that need no scope:
    /// ```no_run
    /// use dpdk_sys::*;
    /// let eal = Eal::start(&EalArgs::new().vdev("net_null0"))?.leak();
    /// let pool = Mempool::create(eal, &PoolConfig::new("packets", 8191))?;
    /// let port = eal.port_by_name("net_null0")?.configure(&PortConfig::default(), &pool)?.start()?;
    /// let mut rx: RxQueue<'static> = Box::leak(Box::new(port)).take_rx(0)?;
    /// std::thread::spawn(move || rx.receive(&mut Burst::new()));
    /// # Ok::<(), DpdkError>(())
    /// ```
    pub fn leak(self) -> &'static Eal {
        Box::leak(Box::new(self))
    }

    /// The kind of pages in use and why, to be logged once.
    pub fn pages(&self) -> PageChoice {
        self.pages
    }

    /// A proof of life to hand to other threads.
    pub fn handle(&self) -> EalHandle<'_> {
        EalHandle { _eal: PhantomData }
    }
}

impl fmt::Debug for Eal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Eal").field("pages", &self.pages).finish_non_exhaustive()
    }
}

impl Drop for Eal {
    fn drop(&mut self) {
        // SAFETY: I1, I4; whatever uses DPDK borrows from `self` and is gone; this is the thread
        // that started it.
        if let Err(errno) = errno::check(unsafe { raw::rte_eal_cleanup() }) {
            tracing::warn!(target: "weir::eal", %errno, "DPDK did not clean up");
        }
    }
}

//! DPDK 22.11 for Weir, and the few primitives that need `unsafe`. All of Weir's `unsafe` is here.
//!
//! # The parts
//!
//! | module | part |
//! |---|---|
//! | `args`, `eal` | [`EalArgs`], checked; [`Eal`], one in a process, the last to go; [`EalHandle`] |
//! | `log` | DPDK's log lines as `tracing` events of target `weir::eal` |
//! | `lcore`, `thread` | [`LcoreToken`] for the caller's own threads; CPU list, niceness, slack, name |
//! | `peer` | groups of a process that connects |
//! | `mempool`, `mbuf`, `burst` | [`Mempool`], [`Mbuf`], [`Burst`] and [`free_bulk`] |
//! | `port`, `device`, `queue`, `details` | [`PortClaim`], [`Port`], [`RxQueue`], [`TxQueue`], [`PortDetails`] |
//! | `ring` | [`handoff`]: mbufs from one lcore to another |
//! | `rss` | [`Rss`]: how a port spreads packets over queues |
//! | `clock`, `prefetch`, `simd`, `sum`, `pages` | [`TscClock`], cache hints, [`match_tags`], [`sum_columns`], [`Slab`] |
//! | `testing` (feature) | an EAL and a loopback port for tests |
//! | `raw`, `shim` | generated bindings; DPDK's inline functions, callable |
//!
//! The control thread starts DPDK, makes pools, claims, configures and starts ports, and takes
//! their queues. Each queue moves by value to the worker that polls it. Workers are std threads,
//! best scoped ones, which end before the ports and DPDK do; each registers for an lcore id:
//!
//! ```no_run
//! use arrayvec::ArrayVec;
//! use dpdk_sys::*;
//!
//! let eal = Eal::start(&EalArgs::new().no_pci().vdev("net_null0"))?;
//! let pool = Mempool::create(&eal, &PoolConfig::new("packets", 8191))?;
//! let port = eal.port_by_name("net_null0")?.configure(&PortConfig::default(), &pool)?.start()?;
//! let (mut rx, mut tx) = (port.take_rx(0)?, port.take_tx(0)?);
//! let handle = eal.handle();
//! std::thread::scope(|scope| {
//!     scope.spawn(move || {
//!         let _lcore = LcoreToken::register(handle).expect("an lcore id is free");
//!         let mut burst = ArrayVec::<_, BURST_MAX>::new();
//!         rx.receive(&mut burst);
//!         tx.transmit(&mut burst);
//!         free_bulk(&mut burst); // what was not sent
//!     });
//! });
//! # Ok::<(), DpdkError>(())
//! ```
//!
//! # The invariants
//!
//! Every `unsafe` block says on which of these it relies.
//!
//! 1. **I1, EAL alive.** Whatever calls DPDK borrows from [`Eal`] (`'eal`) or holds something that
//!    does. Argument strings live for ever.
//! 2. **I2, one owner.** An [`Mbuf`] value is the right to free that mbuf. An accepted transmit or
//!    hand-off takes it; the unsent rest comes back.
//! 3. **I3, one queue, one thread.** Queue handles are made once for each start of a port, are not
//!    cloned, are polled through `&mut self`, and borrow the started port. One that was given back
//!    can be taken again.
//! 4. **I4, teardown order.** Workers stop, ports stop, ports close, the EAL cleans up. Pools belong
//!    to the EAL, so no `Drop` elsewhere can be early; if a port does not close, it is said aloud.
//! 5. **I5, exclusive bytes.** `data_mut` needs a direct mbuf with one reference. This crate never
//!    clones or attaches one.
//! 6. **I6, bounds.** Slices cover the first segment only; whether there are more can be asked.
//! 7. **I7, per-lcore caches.** One thread per lcore id at a time: [`LcoreToken`] is unique and
//!    cannot leave its thread.
//! 8. **I8, no unwinding into C.** The only entry from C is the log stream; it catches panics.
//! 9. **I9, layout.** Wrappers handed over in arrays are transparent over `NonNull`, asserted at
//!    compile time; bindgen's layout tests stay on.
//! 10. **I10, errno at once.** Read immediately after the failing call, on the same thread, by
//!     `errno` only.
//!
//! # What moves where
//!
//! | type | `Send` | `Sync` | `Clone` | lifetime | drop |
//! |---|---|---|---|---|---|
//! | [`Eal`] | no | no | no | the process | cleans up, last |
//! | [`EalHandle`] | yes | yes | yes | `'eal` | nothing |
//! | [`Mempool`] | yes | yes | yes, not `Copy` | `'eal` | nothing |
//! | [`Mbuf`], [`Burst`] | no | no | no | `'eal` | free, the burst in bulk |
//! | [`PortClaim`] | yes | no | no | `'eal` | gives up the claim |
//! | [`Port`] | yes | no | no | `'eal` | stop, then close |
//! | [`RxQueue`], [`TxQueue`] | yes | no | no | `'port` | nothing |
//! | [`LcoreToken`] | no | no | no | the thread | unregister |
//! | [`HandoffTx`], [`HandoffRx`] | yes | no | no | `'eal` | the last drains and frees |
//! | [`Slab`] | as `T` | as `T` | no | own | unmaps |
//!
//! Each "no" is a doc test that must not compile.

mod aes;
mod args;
mod burst;
mod clock;
mod details;
mod device;
mod eal;
mod errno;
mod lcore;
mod log;
mod mbuf;
mod mempool;
mod pages;
mod peer;
mod port;
mod prefetch;
mod queue;
mod raw;
mod ring;
mod rss;
mod simd;
mod sum;
#[cfg(feature = "testing")]
pub mod testing;
mod thread;

pub use aes::AesHash;
pub use args::EalArgs;
pub use burst::{BURST_MAX, Burst, free_bulk};
pub use clock::{CALIBRATION, TscClock, monotonic_ns, thread_cpu_ns, tsc};
pub use details::{PortDetails, QueueSetup, SideDetails};
pub use eal::{Eal, EalHandle};
pub use errno::{DpdkError, Errno};
pub use lcore::LcoreToken;
pub use mbuf::{Mbuf, NoRoom, RxChecksum};
pub use mempool::{DEFAULT_DATA_ROOM, HEADROOM_BYTES, Mempool, PoolConfig, PoolEmpty};
pub use pages::{PageChoice, Pages, Prefault, Slab, SlabError};
pub use peer::peer_groups;
pub use port::{Configured, Link, MacBytes, Port, PortClaim, PortConfig, PortInfo, PortStats, Started};
pub use prefetch::{prefetch_index, prefetch_read, prefetch_write};
pub use queue::{RxQueue, TxQueue};
pub use ring::{HandoffRx, HandoffTx, handoff};
pub use rss::{Rss, RssAbility, RssEnd};
pub use simd::match_tags;
pub use sum::{COLUMNS, sum_columns};
pub use thread::{CpuSet, Policy, Tid, allowed_cpus, set_thread_name, set_timer_slack_ns};

//! Helpers for tests that need a live DPDK: no hugepages, no NIC, no root.
//!
//! One EAL exists in a process, so a test binary has one such test.

use crate::args::EalArgs;
use crate::eal::Eal;
use crate::errno::{self, DpdkError, c_string};
use crate::raw;
use crate::ring::Ring;

/// Arguments for a test: 64 MB of normal pages, no PCI.
pub fn eal_args() -> EalArgs {
    EalArgs::new().no_huge().memory_mb(64).no_pci().file_prefix("weir-test")
}

/// Starts DPDK for a test.
///
/// # Panics
/// If it does not start, with the reason.
pub fn eal() -> Eal {
    match Eal::start(&eal_args()) {
        Ok(eal) => eal,
        Err(error) => panic!("{error}"),
    }
}

/// Makes a port that receives on each queue what was transmitted on it, at most `depth` packets
/// waiting, and returns its name for [`Eal::port_by_name`].
///
/// The rings stay until the process ends, as the port refers to them.
pub fn loopback_port(_eal: &Eal, label: &str, queues: u16, depth: u32) -> Result<String, DpdkError> {
    let mut rings = Vec::new();
    for queue in 0..queues {
        rings.push(Ring::create(&format!("{label}_{queue}"), depth, None)?);
    }
    let raw_rings: Vec<_> = rings.iter().map(Ring::as_raw).collect();
    let name = c_string("port name", label)?;
    let count = u32::from(queues);
    // SAFETY: I1 by `_eal`; both lists hold `count` rings, which live on below.
    let ret = unsafe {
        raw::rte_eth_from_rings(name.as_ptr(), raw_rings.as_ptr(), count, raw_rings.as_ptr(), count, 0)
    };
    if ret < 0 {
        let (name, action) = (label.to_owned(), "be made of rings");
        return Err(DpdkError::Port { name, action, errno: errno::last() });
    }
    rings.into_iter().for_each(std::mem::forget);
    Ok(format!("net_ring_{label}"))
}

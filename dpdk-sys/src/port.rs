//! Ethernet ports, from the claim by name to the stop.
//!
//! ```text
//! Eal::port_by_name -> PortClaim -> configure -> Port<Configured> -> start -> Port<Started>
//!                                                      ^--------- stop <--------'
//! ```
//! A port is one control thread's at a time and has one owner in the process. Dropping it in any
//! state stops and closes the device (I4). Queues are taken from the started port by the workers
//! ([`RxQueue`], [`TxQueue`]) and borrow it.
//!
//! Offloads are asked of the device and used only where it has them: receive checksums and, with
//! several receive queues, RSS over addresses and L4 ports. Transmit checksums are always software.

use std::cell::Cell;
use std::fmt;
use std::marker::PhantomData;

use crate::device::Device;
use crate::eal::Eal;
use crate::errno::DpdkError;
use crate::mempool::Mempool;
use crate::queue::{RxQueue, TxQueue};
use crate::raw;
use crate::rss::{Rss, RssAbility};

/// An Ethernet (MAC) address in wire order.
pub type MacBytes = [u8; 6];

/// What a device can do, before it is configured.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortInfo {
    /// Name of the driver, such as `net_tap`.
    pub driver: String,
    /// Most receive queues.
    pub max_rx_queues: u16,
    /// Most transmit queues.
    pub max_tx_queues: u16,
    /// Smallest MTU in bytes, Ethernet header not counted.
    pub min_mtu: u16,
    /// Largest MTU in bytes.
    pub max_mtu: u16,
    /// Whether the device checks IPv4, TCP and UDP checksums of received packets.
    pub rx_checksum: bool,
    /// How it can spread received packets over queues.
    pub rss: RssAbility,
    /// NUMA node of the device, if it has one.
    pub socket: Option<u32>,
}

/// How a port shall run.
#[derive(Clone, Debug)]
pub struct PortConfig {
    /// Receive queues, one for each worker that polls the port.
    pub rx_queues: u16,
    /// Transmit queues, one for each worker.
    pub tx_queues: u16,
    /// Descriptors of a receive queue; moved to the nearest number the device can have.
    pub rx_descriptors: u16,
    /// Descriptors of a transmit queue, likewise.
    pub tx_descriptors: u16,
    /// MTU in bytes, Ethernet header not counted; `None` leaves the device's own.
    pub mtu: Option<u16>,
    /// How several receive queues share the packets; `None`: by addresses and L4 ports, where the device can.
    pub rss: Option<Rss>,
}

impl Default for PortConfig {
    /// One queue each way with 1024 descriptors, the device's MTU. 1024 packets are 70 us at
    /// 10 Gb/s and smallest size: what a worker may be away for.
    fn default() -> Self {
        PortConfig {
            rx_queues: 1,
            tx_queues: 1,
            rx_descriptors: 1024,
            tx_descriptors: 1024,
            mtu: None,
            rss: None,
        }
    }
}

/// Counts of a port since its start or the last reset, as the driver keeps them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct PortStats {
    /// Packets received.
    pub ipackets: u64,
    /// Packets transmitted.
    pub opackets: u64,
    /// Bytes received.
    pub ibytes: u64,
    /// Bytes transmitted.
    pub obytes: u64,
    /// Packets the device dropped because no descriptor was free: the worker is too slow.
    pub imissed: u64,
    /// Packets received in error.
    pub ierrors: u64,
    /// Packets that failed to go out.
    pub oerrors: u64,
    /// Receptions that failed for want of a free mbuf: the pool is too small.
    pub rx_nombuf: u64,
}

/// Link state.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Link {
    /// Whether the link is up.
    pub up: bool,
    /// Speed in Mb/s; `None` if the device does not know.
    pub speed_mbps: Option<u32>,
}

/// The right to one port, which is not yet configured.
///
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::PortClaim<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::PortClaim<'static>>();
/// ```
#[derive(Debug)]
pub struct PortClaim<'eal> {
    device: Device,
    _eal: PhantomData<&'eal ()>,
}

/// A configured or running port.
///
/// ```
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::Port<'static, dpdk_sys::Started>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::Port<'static, dpdk_sys::Started>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::Port<'static, dpdk_sys::Configured>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::Port<'static, dpdk_sys::Started>>();
/// ```
/// Only a started port has queues:
/// ```compile_fail,E0599
/// fn early(port: dpdk_sys::Port<'_, dpdk_sys::Configured>) {
///     port.take_rx(0);
/// }
/// ```
pub struct Port<'eal, State> {
    device: Device,
    state: State,
    _eal: PhantomData<&'eal ()>,
}

/// State of a port that has queues and does not move packets.
#[derive(Debug)]
pub struct Configured {
    rx_queues: u16,
    tx_queues: u16,
}

/// State of a port that moves packets.
#[derive(Debug)]
pub struct Started {
    configured: Configured,
    rx_taken: Box<[Cell<bool>]>,
    tx_taken: Box<[Cell<bool>]>,
}

impl Eal {
    /// Claims the port with the device name `name`: `net_tap0` for a virtual device, the address
    /// for a PCI device.
    ///
    /// # Errors
    /// [`DpdkError::PortNotFound`], also for a virtual device that failed to probe when DPDK
    /// started, which DPDK itself does not report; [`DpdkError::PortInUse`].
    pub fn port_by_name(&self, name: &str) -> Result<PortClaim<'_>, DpdkError> {
        Ok(PortClaim { device: Device::claim(name)?, _eal: PhantomData })
    }
}

impl<'eal> PortClaim<'eal> {
    /// What the device can do.
    pub fn info(&self) -> Result<PortInfo, DpdkError> {
        self.device.info().map(|info| self.device.describe(&info))
    }

    /// Name of the device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    /// Sets up queues that receive into mbufs of `pool`. Control thread.
    ///
    /// # Errors
    /// [`DpdkError::TooManyQueues`], [`DpdkError::PoolTooSmall`], or [`DpdkError::Port`] with the
    /// driver's refusal. The device is closed then.
    pub fn configure(
        mut self,
        config: &PortConfig,
        pool: &Mempool<'eal>,
    ) -> Result<Port<'eal, Configured>, DpdkError> {
        self.device.configure(config, pool)?;
        let state = Configured { rx_queues: config.rx_queues, tx_queues: config.tx_queues };
        Ok(Port { device: self.device, state, _eal: PhantomData })
    }
}

impl<'eal> Port<'eal, Configured> {
    /// Sets the port up anew with other queues or descriptors. On an error it is closed.
    ///
    /// # Errors
    /// As [`PortClaim::configure`].
    pub fn configure(mut self, config: &PortConfig, pool: &Mempool<'eal>) -> Result<Self, DpdkError> {
        self.device.configure(config, pool)?;
        self.state = Configured { rx_queues: config.rx_queues, tx_queues: config.tx_queues };
        Ok(self)
    }

    /// Starts the device. On an error it is closed.
    pub fn start(mut self) -> Result<Port<'eal, Started>, DpdkError> {
        self.device.start()?;
        let flags = |count| vec![Cell::new(false); usize::from(count)].into_boxed_slice();
        let state = Started {
            rx_taken: flags(self.state.rx_queues),
            tx_taken: flags(self.state.tx_queues),
            configured: self.state,
        };
        Ok(Port { device: self.device, state, _eal: PhantomData })
    }
}

impl<'eal> Port<'eal, Started> {
    /// Fills the redirection table with the receive queues of its cells, over and over. Control thread.
    ///
    /// # Errors
    /// [`DpdkError::Port`]: the device refuses, or has no such table.
    pub fn redirect(&self, queues: &[u16]) -> Result<(), DpdkError> {
        self.device.redirect(queues)
    }

    /// The redirection table: the receive queue of each cell.
    ///
    /// # Errors
    /// As [`Port::redirect`].
    pub fn redirection(&self) -> Result<Vec<u16>, DpdkError> {
        self.device.redirection()
    }

    /// Takes receive queue `queue`, once. It goes to the worker that polls it.
    pub fn take_rx(&self, queue: u16) -> Result<RxQueue<'_>, DpdkError> {
        self.take("rx", &self.state.rx_taken, queue)?;
        // SAFETY: I3; `self` is started while borrowed, the queue exists and was not taken before.
        Ok(unsafe { RxQueue::new(self.device.id(), queue) })
    }

    /// Takes transmit queue `queue`, once. It goes to the worker that fills it.
    pub fn take_tx(&self, queue: u16) -> Result<TxQueue<'_>, DpdkError> {
        self.take("tx", &self.state.tx_taken, queue)?;
        // SAFETY: I3; as in `take_rx`.
        Ok(unsafe { TxQueue::new(self.device.id(), queue) })
    }

    /// Takes a receive queue back, so that it can be taken again.
    ///
    /// # Panics
    /// If `queue` is another port's.
    pub fn return_rx(&self, queue: RxQueue<'_>) {
        assert_eq!(queue.port(), self.id(), "a queue of another port");
        // I3: handles to queues of an earlier start are gone, so this is the one that was taken.
        self.state.rx_taken[usize::from(queue.index())].set(false);
    }

    /// Takes a transmit queue back, likewise.
    pub fn return_tx(&self, queue: TxQueue<'_>) {
        assert_eq!(queue.port(), self.id(), "a queue of another port");
        self.state.tx_taken[usize::from(queue.index())].set(false);
    }

    /// Stops the device; all its queue handles are gone by then. On an error it is closed.
    pub fn stop(mut self) -> Result<Port<'eal, Configured>, DpdkError> {
        self.device.stop()?;
        Ok(Port { device: self.device, state: self.state.configured, _eal: PhantomData })
    }

    fn take(&self, kind: &'static str, taken: &[Cell<bool>], queue: u16) -> Result<(), DpdkError> {
        let reason = match taken.get(usize::from(queue)) {
            None => "does not exist",
            Some(flag) if flag.replace(true) => "was taken before",
            Some(_) => return Ok(()),
        };
        Err(DpdkError::Queue { name: self.name().to_owned(), kind, queue, reason })
    }
}

/// What a port can be asked and told in either state. Control thread.
impl<State> Port<'_, State> {
    /// Name of the device.
    pub fn name(&self) -> &str {
        self.device.name()
    }

    pub(crate) fn device(&self) -> &Device {
        &self.device
    }

    /// DPDK's number of the port, as [`Mbuf::port`](crate::Mbuf::port) gives it.
    pub fn id(&self) -> u16 {
        self.device.id()
    }

    /// What the device can do.
    pub fn info(&self) -> Result<PortInfo, DpdkError> {
        self.device.info().map(|info| self.device.describe(&info))
    }

    /// The port's own Ethernet address.
    pub fn mac(&self) -> Result<MacBytes, DpdkError> {
        let mut mac = raw::rte_ether_addr::default();
        // SAFETY: I1; `mac` is a valid place.
        let ret = unsafe { raw::rte_eth_macaddr_get(self.id(), &mut mac) };
        self.device.check("read the MAC address", ret)?;
        Ok(mac.addr_bytes)
    }

    /// Gives the port another Ethernet address.
    pub fn set_mac(&self, mac: MacBytes) -> Result<(), DpdkError> {
        let mut mac = raw::rte_ether_addr { addr_bytes: mac };
        // SAFETY: I1; DPDK copies the address.
        let ret = unsafe { raw::rte_eth_dev_default_mac_addr_set(self.id(), &mut mac) };
        self.device.check("set the MAC address", ret)
    }

    /// MTU in bytes, Ethernet header not counted.
    pub fn mtu(&self) -> Result<u16, DpdkError> {
        self.device.mtu()
    }

    /// Sets the MTU in bytes. Many drivers refuse this while the port runs, some always.
    pub fn set_mtu(&self, mtu: u16) -> Result<(), DpdkError> {
        self.device.set_mtu(mtu)
    }

    /// Receives packets for any address, or no longer.
    pub fn set_promiscuous(&self, on: bool) -> Result<(), DpdkError> {
        let change = if on { raw::rte_eth_promiscuous_enable } else { raw::rte_eth_promiscuous_disable };
        // SAFETY: I1; a number only.
        self.device.check("change promiscuous mode", unsafe { change(self.id()) })
    }

    /// Receives all multicast packets, or no longer.
    pub fn set_allmulticast(&self, on: bool) -> Result<(), DpdkError> {
        let change = if on { raw::rte_eth_allmulticast_enable } else { raw::rte_eth_allmulticast_disable };
        // SAFETY: I1; a number only.
        self.device.check("change all-multicast mode", unsafe { change(self.id()) })
    }

    /// Link state as the device has it now, without waiting for a negotiation.
    pub fn link(&self) -> Result<Link, DpdkError> {
        let mut link = raw::rte_eth_link::default();
        // SAFETY: I1; `link` is a valid place.
        let ret = unsafe { raw::rte_eth_link_get_nowait(self.id(), &mut link) };
        self.device.check("read the link state", ret)?;
        let unknown = [raw::RTE_ETH_SPEED_NUM_NONE, raw::RTE_ETH_SPEED_NUM_UNKNOWN];
        let speed_mbps = Some(link.link_speed).filter(|speed| !unknown.contains(speed));
        Ok(Link { up: u32::from(link.link_status()) == raw::RTE_ETH_LINK_UP, speed_mbps })
    }

    /// The driver's counts. It never disturbs the workers, though a driver may read device
    /// registers.
    pub fn stats(&self) -> Result<PortStats, DpdkError> {
        let mut stats = raw::rte_eth_stats::default();
        // SAFETY: I1; `stats` is a valid place.
        let ret = unsafe { raw::rte_eth_stats_get(self.id(), &mut stats) };
        self.device.check("read counts", ret)?;
        Ok(PortStats {
            ipackets: stats.ipackets,
            opackets: stats.opackets,
            ibytes: stats.ibytes,
            obytes: stats.obytes,
            imissed: stats.imissed,
            ierrors: stats.ierrors,
            oerrors: stats.oerrors,
            rx_nombuf: stats.rx_nombuf,
        })
    }

    /// Sets the driver's counts to zero.
    pub fn reset_stats(&self) -> Result<(), DpdkError> {
        // SAFETY: I1; a number only.
        self.device.check("reset counts", unsafe { raw::rte_eth_stats_reset(self.id()) })
    }
}

impl<State: fmt::Debug> fmt::Debug for Port<'_, State> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Port").field("device", &self.device).field("state", &self.state).finish()
    }
}

//! An Ethernet device by its number: the calls behind [`Port`](crate::Port), and its close.

use std::cell::Cell;
use std::ffi::CStr;
use std::marker::PhantomData;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::errno::{self, DpdkError, c_string};
use crate::mempool::Mempool;
use crate::port::{PortConfig, PortInfo};
use crate::raw;
use crate::rss::RssAbility;

/// Bytes of a frame around its payload: Ethernet header, a VLAN tag, and the check sequence.
const FRAME_OVERHEAD_BYTES: u32 = 14 + 4 + 4;

const RX_CHECKSUMS: u64 = raw::RTE_ETH_RX_OFFLOAD_IPV4_CKSUM
    | raw::RTE_ETH_RX_OFFLOAD_TCP_CKSUM
    | raw::RTE_ETH_RX_OFFLOAD_UDP_CKSUM;

const RSS_FIELDS: u64 = raw::RTE_ETH_RSS_IP | raw::RTE_ETH_RSS_TCP | raw::RTE_ETH_RSS_UDP;

/// Cells of a group of a redirection table.
const GROUP: usize = raw::RTE_ETH_RETA_GROUP_SIZE as usize;

/// Devices owned by a [`Device`], by number.
static CLAIMED: [AtomicBool; raw::RTE_MAX_ETHPORTS as usize] =
    [const { AtomicBool::new(false) }; raw::RTE_MAX_ETHPORTS as usize];

/// The one owner of a device. Dropping it stops and closes what was started and configured.
///
/// DPDK's calls on one device are not safe from two threads at once, so it is not `Sync`.
#[derive(Debug)]
pub(crate) struct Device {
    id: u16,
    name: String,
    configured: bool,
    started: bool,
    /// DPDK keeps a pointer to it.
    rss_key: Box<[u8]>,
    _one_thread: PhantomData<Cell<()>>,
}

impl Device {
    pub(crate) fn claim(name: &str) -> Result<Device, DpdkError> {
        let c_name = c_string("port name", name)?;
        let mut id = 0;
        // SAFETY: I1, the caller holds an EAL; the name outlives the call and `id` is a valid place.
        if unsafe { raw::rte_eth_dev_get_port_by_name(c_name.as_ptr(), &mut id) } != 0 {
            return Err(DpdkError::PortNotFound { name: name.to_owned() });
        }
        if CLAIMED[usize::from(id)].swap(true, Ordering::AcqRel) {
            return Err(DpdkError::PortInUse { name: name.to_owned() });
        }
        Ok(Device {
            id,
            name: name.to_owned(),
            configured: false,
            started: false,
            rss_key: Box::default(),
            _one_thread: PhantomData,
        })
    }

    pub(crate) fn id(&self) -> u16 {
        self.id
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    /// Turns what a DPDK call on the device returned into an error that names the device.
    pub(crate) fn check(&self, action: &'static str, ret: i32) -> Result<(), DpdkError> {
        match errno::check(ret) {
            Ok(_) => Ok(()),
            Err(errno) => Err(DpdkError::Port { name: self.name.clone(), action, errno }),
        }
    }

    pub(crate) fn info(&self) -> Result<raw::rte_eth_dev_info, DpdkError> {
        let mut info = raw::rte_eth_dev_info::default();
        // SAFETY: I1; `info` is a valid place.
        let ret = unsafe { raw::rte_eth_dev_info_get(self.id, &mut info) };
        self.check("be described", ret)?;
        Ok(info)
    }

    pub(crate) fn describe(&self, info: &raw::rte_eth_dev_info) -> PortInfo {
        PortInfo {
            // SAFETY: a driver's name is a static C string.
            driver: unsafe { CStr::from_ptr(info.driver_name) }.to_string_lossy().into_owned(),
            max_rx_queues: info.max_rx_queues,
            max_tx_queues: info.max_tx_queues,
            min_mtu: info.min_mtu,
            max_mtu: info.max_mtu,
            rss: RssAbility::of(info.flow_type_rss_offloads, info.reta_size, info.hash_key_size),
            rx_checksum: info.rx_offload_capa & RX_CHECKSUMS == RX_CHECKSUMS,
            socket: u32::try_from(self.socket()).ok(),
        }
    }

    pub(crate) fn configure(&mut self, config: &PortConfig, pool: &Mempool<'_>) -> Result<(), DpdkError> {
        let info = self.info()?;
        if config.rx_queues == 0 && config.tx_queues == 0 {
            // DPDK would choose numbers of its own.
            let (what, reason) = ("number of queues", "leaves the port without use");
            return Err(DpdkError::BadArgument { what, value: "0".to_owned(), reason });
        }
        self.check_queues("rx", config.rx_queues, info.max_rx_queues)?;
        self.check_queues("tx", config.tx_queues, info.max_tx_queues)?;

        // From here on the device holds memory: close it even if a later step fails.
        self.configured = true;
        if let Err(error) = self.set_up(config, &info) {
            if config.rss.is_none() {
                return Err(error);
            }
            tracing::warn!(target: "weir::port", port = self.name, %error, "the device does not spread packets as asked");
            self.set_up(&PortConfig { rss: None, ..config.clone() }, &info)?;
        }
        if let Some(mtu) = config.mtu
            && self.mtu()? != mtu
        {
            self.set_mtu(mtu)?;
        }
        self.check_pool(pool)?;

        let (mut rx_descriptors, mut tx_descriptors) = (config.rx_descriptors, config.tx_descriptors);
        // SAFETY: I1; both are valid places.
        let ret = unsafe {
            raw::rte_eth_dev_adjust_nb_rx_tx_desc(self.id, &mut rx_descriptors, &mut tx_descriptors)
        };
        self.check("adjust its descriptors", ret)?;
        let socket = self.socket() as u32;
        for queue in 0..config.rx_queues {
            // SAFETY: I1; a null configuration means the driver's own, and the pool lives as long
            // as the EAL (I4).
            let ret = unsafe {
                raw::rte_eth_rx_queue_setup(
                    self.id,
                    queue,
                    rx_descriptors,
                    socket,
                    std::ptr::null(),
                    pool.as_raw(),
                )
            };
            self.check("set up a receive queue", ret)?;
        }
        for queue in 0..config.tx_queues {
            // SAFETY: I1; as above.
            let ret = unsafe {
                raw::rte_eth_tx_queue_setup(self.id, queue, tx_descriptors, socket, std::ptr::null())
            };
            self.check("set up a transmit queue", ret)?;
        }
        Ok(())
    }

    /// Queues and offloads.
    fn set_up(&mut self, config: &PortConfig, info: &raw::rte_eth_dev_info) -> Result<(), DpdkError> {
        self.rss_key = config.rss.as_ref().map(|rss| rss.key(info.hash_key_size)).unwrap_or_default();
        let conf = device_conf(config, info, &mut self.rss_key);
        // SAFETY: I1; DPDK copies the structure, and the key that it points to lives as long as this device, which is
        // configured anew with another key only.
        let ret = unsafe { raw::rte_eth_dev_configure(self.id, config.rx_queues, config.tx_queues, &conf) };
        self.check("be configured", ret)
    }

    pub(crate) fn redirect(&self, queues: &[u16]) -> Result<(), DpdkError> {
        let (size, mut groups) = self.redirection_groups()?;
        for (cell, queue) in (0..usize::from(size)).zip(queues.iter().cycle()) {
            groups[cell / GROUP].reta[cell % GROUP] = *queue;
        }
        // SAFETY: I1; there are as many groups as `size` cells fill.
        let ret = unsafe { raw::rte_eth_dev_rss_reta_update(self.id, groups.as_mut_ptr(), size) };
        self.check("redirect received packets", ret)
    }

    pub(crate) fn redirection(&self) -> Result<Vec<u16>, DpdkError> {
        let (size, mut groups) = self.redirection_groups()?;
        // SAFETY: I1; there are as many groups as `size` cells fill.
        let ret = unsafe { raw::rte_eth_dev_rss_reta_query(self.id, groups.as_mut_ptr(), size) };
        self.check("read its redirection table", ret)?;
        Ok(groups.iter().flat_map(|group| group.reta).take(size.into()).collect())
    }

    /// Size of the redirection table, and groups of cells, every cell chosen.
    fn redirection_groups(&self) -> Result<(u16, Vec<raw::rte_eth_rss_reta_entry64>), DpdkError> {
        let size = self.info()?.reta_size;
        let group = raw::rte_eth_rss_reta_entry64 { mask: u64::MAX, reta: [0; GROUP] };
        Ok((size, vec![group; usize::from(size).div_ceil(GROUP)]))
    }

    pub(crate) fn start(&mut self) -> Result<(), DpdkError> {
        // SAFETY: I1; a number only.
        self.check("start", unsafe { raw::rte_eth_dev_start(self.id) })?;
        self.started = true;
        Ok(())
    }

    pub(crate) fn stop(&mut self) -> Result<(), DpdkError> {
        // SAFETY: I1, I4; no queue handle exists, they borrow the port that is being stopped.
        self.check("stop", unsafe { raw::rte_eth_dev_stop(self.id) })?;
        self.started = false;
        Ok(())
    }

    pub(crate) fn mtu(&self) -> Result<u16, DpdkError> {
        let mut mtu = 0;
        // SAFETY: I1; `mtu` is a valid place.
        let ret = unsafe { raw::rte_eth_dev_get_mtu(self.id, &mut mtu) };
        self.check("read the MTU", ret)?;
        Ok(mtu)
    }

    pub(crate) fn set_mtu(&self, mtu: u16) -> Result<(), DpdkError> {
        // SAFETY: I1; numbers only.
        self.check("set the MTU", unsafe { raw::rte_eth_dev_set_mtu(self.id, mtu) })
    }

    /// NUMA node of the device; negative for any.
    fn socket(&self) -> i32 {
        // SAFETY: I1; a number only.
        unsafe { raw::rte_eth_dev_socket_id(self.id) }
    }

    fn check_queues(&self, kind: &'static str, requested: u16, capacity: u16) -> Result<(), DpdkError> {
        if requested <= capacity {
            return Ok(());
        }
        Err(DpdkError::TooManyQueues { name: self.name.clone(), kind, requested, capacity })
    }

    /// A frame must fit one mbuf: several segments are not asked for (I6).
    fn check_pool(&self, pool: &Mempool<'_>) -> Result<(), DpdkError> {
        let frame = u32::from(self.mtu()?) + FRAME_OVERHEAD_BYTES;
        let room = pool.data_bytes();
        if frame <= room {
            return Ok(());
        }
        Err(DpdkError::PoolTooSmall { name: self.name.clone(), frame, room })
    }
}

/// The device's configuration with the offloads it has.
fn device_conf(config: &PortConfig, info: &raw::rte_eth_dev_info, rss_key: &mut [u8]) -> raw::rte_eth_conf {
    let mut conf = raw::rte_eth_conf::default();
    conf.rxmode.offloads = RX_CHECKSUMS & info.rx_offload_capa;
    let rss_fields = RSS_FIELDS & info.flow_type_rss_offloads;
    if config.rx_queues > 1 && rss_fields != 0 {
        conf.rxmode.mq_mode = raw::RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf.rss_hf = rss_fields;
    }
    if let Some(rss) = &config.rss {
        conf.rxmode.mq_mode = raw::RTE_ETH_MQ_RX_RSS;
        conf.rx_adv_conf.rss_conf = raw::rte_eth_rss_conf {
            rss_key: rss_key.as_mut_ptr(),
            rss_key_len: rss_key.len() as u8,
            rss_hf: rss.fields(info.flow_type_rss_offloads),
        };
    }
    conf
}

impl Drop for Device {
    fn drop(&mut self) {
        if self.started
            && let Err(error) = self.stop()
        {
            tracing::error!(target: "weir::port", port = self.name, %error, "port did not stop");
        }
        if self.configured {
            // SAFETY: I1, I4; stopped, and its queue handles are gone.
            let closed = self.check("close", unsafe { raw::rte_eth_dev_close(self.id) });
            if let Err(error) = closed {
                // Its mbufs stay with it; their pool is freed with the EAL only, so nothing dangles.
                tracing::error!(target: "weir::port", port = self.name, %error, "port did not close");
            }
        }
        CLAIMED[usize::from(self.id)].store(false, Ordering::Release);
    }
}

//! What a port says of itself at length: limits, modes, queue parameters, driver's own counters.
//!
//! Nothing here is needed to forward; bench and diagnosis print it. Control thread.

use std::ffi::CStr;

use crate::eal::Eal;
use crate::errno::{self, DpdkError};
use crate::mempool::Mempool;
use crate::port::Port;
use crate::raw;

/// A device's limits and present modes.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct PortDetails {
    /// Firmware, if the driver knows one.
    pub firmware: Option<String>,
    /// Arguments the device was made with; `None` if it was not named in an argument.
    pub devargs: Option<String>,
    /// Link state.
    pub link_up: bool,
    /// Link speed in DPDK's words, such as `10 Gbps`.
    pub link_speed: String,
    /// Whether both ends may send at once.
    pub full_duplex: bool,
    /// Whether the speed was negotiated.
    pub autoneg: bool,
    /// Whether packets for other addresses are received.
    pub promiscuous: bool,
    /// Whether all multicast packets are received.
    pub allmulticast: bool,
    /// Most addresses of its own.
    pub max_macs: u32,
    /// Most addresses by hash filter.
    pub max_hash_macs: u32,
    /// VLAN strip, filter, extend and QinQ strip; `None` if the driver does not say.
    pub vlan: Option<[bool; 4]>,
    /// Bytes of the RSS key.
    pub rss_key_bytes: u8,
    /// Entries of the RSS redirection table.
    pub rss_table: u16,
    /// RSS flow types it can hash, `RTE_ETH_RSS_*`.
    pub rss_types: u64,
    /// Smallest receive buffer, bytes.
    pub min_rx_buffer: u32,
    /// Longest frame it receives, bytes.
    pub max_rx_frame: u32,
    /// Longest packet that large receive offload makes, bytes.
    pub max_lro_frame: u32,
    /// Most virtual functions.
    pub max_vfs: u16,
    /// Most VMDq pools.
    pub max_vmdq_pools: u16,
    /// Receive side.
    pub rx: SideDetails,
    /// Transmit side.
    pub tx: SideDetails,
    /// Most segments of a sent packet.
    pub max_segments: u16,
    /// Most segments of a sent packet of MTU size.
    pub max_mtu_segments: u16,
    /// Device capabilities, `RTE_ETH_DEV_CAPA_*`.
    pub capabilities: u64,
    /// How the device recovers from faults: `none`, `passive` or `proactive`.
    pub error_handling: &'static str,
}

/// Queues and descriptors of one direction.
#[derive(Clone, Copy, Debug)]
pub struct SideDetails {
    /// Queues that are set up.
    pub queues: u16,
    /// Most queues.
    pub max_queues: u16,
    /// Fewest descriptors of a queue.
    pub min_descriptors: u16,
    /// Most descriptors of a queue.
    pub max_descriptors: u16,
    /// Descriptors come in multiples of this.
    pub alignment: u16,
}

/// Parameters of one queue.
#[derive(Clone, Copy, Debug)]
pub struct QueueSetup {
    /// Descriptors; `None` if the driver does not tell what it made of the number asked for.
    pub descriptors: Option<u16>,
    /// Descriptors that become free before the device is told.
    pub free_threshold: u16,
    /// Prefetch, host and write-back thresholds.
    pub thresholds: [u8; 3],
    /// Offloads of this queue.
    pub offloads: u64,
    /// Transmit: descriptors between two reports of the device; 0 for receive queues.
    pub rs_threshold: u16,
}

impl Eal {
    /// Names of all ports that were probed, in the order of their numbers.
    pub fn port_names(&self) -> Vec<String> {
        let mut names = Vec::new();
        let mut next = 0;
        loop {
            // SAFETY: I1 by `self`; a number only.
            let id = unsafe { raw::rte_eth_find_next_owned_by(next, u64::from(raw::RTE_ETH_DEV_NO_OWNER)) };
            let Some(id) = u16::try_from(id).ok().filter(|id| u32::from(*id) < raw::RTE_MAX_ETHPORTS) else {
                return names;
            };
            let mut name = [0u8; raw::RTE_ETH_NAME_MAX_LEN as usize];
            // SAFETY: I1; DPDK writes at most RTE_ETH_NAME_MAX_LEN bytes, the zero included.
            if unsafe { raw::rte_eth_dev_get_name_by_port(id, name.as_mut_ptr().cast()) } == 0 {
                names.push(text(&name));
            }
            next = id + 1;
        }
    }
}

impl Mempool<'_> {
    /// DPDK's choice of how a pool hands out mbufs, such as `ring_mp_mc`.
    pub fn preferred_ops(_eal: &Eal) -> String {
        // SAFETY: I1 by `_eal`; returns a string that lives as long as the EAL.
        unsafe { CStr::from_ptr(raw::rte_mbuf_best_mempool_ops()) }.to_string_lossy().into_owned()
    }
}

impl<State> Port<'_, State> {
    /// Limits and present modes.
    pub fn details(&self) -> Result<PortDetails, DpdkError> {
        let info = self.device().info()?;
        let mut link = raw::rte_eth_link::default();
        // SAFETY: I1; `link` is a valid place.
        let ret = unsafe { raw::rte_eth_link_get_nowait(self.id(), &mut link) };
        self.device().check("read the link state", ret)?;
        // SAFETY: I1; numbers only. The text of a speed is a static C string.
        let (promiscuous, allmulticast, vlan, speed) = unsafe {
            (
                raw::rte_eth_promiscuous_get(self.id()) == 1,
                raw::rte_eth_allmulticast_get(self.id()) == 1,
                raw::rte_eth_dev_get_vlan_offload(self.id()),
                CStr::from_ptr(raw::rte_eth_link_speed_to_str(link.link_speed)),
            )
        };
        let vlan_bits = [
            raw::RTE_ETH_VLAN_STRIP_OFFLOAD,
            raw::RTE_ETH_VLAN_FILTER_OFFLOAD,
            raw::RTE_ETH_VLAN_EXTEND_OFFLOAD,
            raw::RTE_ETH_QINQ_STRIP_OFFLOAD,
        ];
        Ok(PortDetails {
            firmware: self.firmware(),
            devargs: devargs(&info),
            link_up: u32::from(link.link_status()) == raw::RTE_ETH_LINK_UP,
            link_speed: speed.to_string_lossy().into_owned(),
            full_duplex: u32::from(link.link_duplex()) == raw::RTE_ETH_LINK_FULL_DUPLEX,
            autoneg: u32::from(link.link_autoneg()) == raw::RTE_ETH_LINK_AUTONEG,
            promiscuous,
            allmulticast,
            max_macs: info.max_mac_addrs,
            max_hash_macs: info.max_hash_mac_addrs,
            vlan: u32::try_from(vlan).ok().map(|set| vlan_bits.map(|bit| set & bit != 0)),
            rss_key_bytes: info.hash_key_size,
            rss_table: info.reta_size,
            rss_types: info.flow_type_rss_offloads,
            min_rx_buffer: info.min_rx_bufsize,
            max_rx_frame: info.max_rx_pktlen,
            max_lro_frame: info.max_lro_pkt_size,
            max_vfs: info.max_vfs,
            max_vmdq_pools: info.max_vmdq_pools,
            rx: side(info.nb_rx_queues, info.max_rx_queues, info.rx_desc_lim),
            tx: side(info.nb_tx_queues, info.max_tx_queues, info.tx_desc_lim),
            max_segments: info.tx_desc_lim.nb_seg_max,
            max_mtu_segments: info.tx_desc_lim.nb_mtu_seg_max,
            capabilities: info.dev_capa,
            error_handling: match info.err_handle_mode {
                raw::RTE_ETH_ERROR_HANDLE_MODE_PASSIVE => "passive",
                raw::RTE_ETH_ERROR_HANDLE_MODE_PROACTIVE => "proactive",
                _ => "none",
            },
        })
    }

    /// Receive and transmit offloads the port was configured with.
    pub fn offloads(&self) -> Result<(u64, u64), DpdkError> {
        let mut conf = raw::rte_eth_conf::default();
        // SAFETY: I1; `conf` is a valid place.
        let ret = unsafe { raw::rte_eth_dev_conf_get(self.id(), &mut conf) };
        self.device().check("tell its configuration", ret)?;
        Ok((conf.rxmode.offloads, conf.txmode.offloads))
    }

    /// Parameters of receive queue `queue`; where the driver does not tell, its defaults.
    pub fn rx_queue_setup(&self, queue: u16) -> Result<QueueSetup, DpdkError> {
        let mut told = raw::rte_eth_rxq_info::default();
        // SAFETY: I1; `told` is a valid place.
        let known = unsafe { raw::rte_eth_rx_queue_info_get(self.id(), queue, &mut told) } == 0;
        let conf = if known { told.conf } else { self.device().info()?.default_rxconf };
        Ok(QueueSetup {
            descriptors: known.then_some(told.nb_desc),
            free_threshold: conf.rx_free_thresh,
            thresholds: [conf.rx_thresh.pthresh, conf.rx_thresh.hthresh, conf.rx_thresh.wthresh],
            offloads: conf.offloads,
            rs_threshold: 0,
        })
    }

    /// Parameters of transmit queue `queue`, likewise.
    pub fn tx_queue_setup(&self, queue: u16) -> Result<QueueSetup, DpdkError> {
        let mut told = raw::rte_eth_txq_info::default();
        // SAFETY: I1; `told` is a valid place.
        let known = unsafe { raw::rte_eth_tx_queue_info_get(self.id(), queue, &mut told) } == 0;
        let conf = if known { told.conf } else { self.device().info()?.default_txconf };
        Ok(QueueSetup {
            descriptors: known.then_some(told.nb_desc),
            free_threshold: conf.tx_free_thresh,
            thresholds: [conf.tx_thresh.pthresh, conf.tx_thresh.hthresh, conf.tx_thresh.wthresh],
            offloads: conf.offloads,
            rs_threshold: conf.tx_rs_thresh,
        })
    }

    /// The driver's own counters by name, in its order.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        // SAFETY: I1; without a place DPDK returns the number of counters.
        let ret = unsafe { raw::rte_eth_xstats_get_names(self.id(), std::ptr::null_mut(), 0) };
        self.device().check("name its counters", ret)?;
        let count = ret as usize;
        let mut names = vec![raw::rte_eth_xstat_name { name: [0; 64] }; count];
        let mut values = vec![raw::rte_eth_xstat { id: 0, value: 0 }; count];
        // SAFETY: I1; both places hold `count` entries.
        let (named, counted) = unsafe {
            (
                raw::rte_eth_xstats_get_names(self.id(), names.as_mut_ptr(), count as u32),
                raw::rte_eth_xstats_get(self.id(), values.as_mut_ptr(), count as u32),
            )
        };
        self.device().check("name its counters", named)?;
        self.device().check("read its counters", counted)?;
        values.truncate(counted as usize);
        let name = |id: u64| names.get(id as usize).map(|name| text(&name.name.map(|byte| byte as u8)));
        Ok(values.iter().filter_map(|stat| Some((name(stat.id)?, stat.value))).collect())
    }

    /// Sets the driver's own counters to zero.
    pub fn reset_xstats(&self) -> Result<(), DpdkError> {
        // SAFETY: I1; a number only.
        self.device().check("reset its counters", unsafe { raw::rte_eth_xstats_reset(self.id()) })
    }

    fn firmware(&self) -> Option<String> {
        let mut name = [0u8; 64];
        // SAFETY: I1; the place has the size given.
        let ret = unsafe { raw::rte_eth_dev_fw_version_get(self.id(), name.as_mut_ptr().cast(), name.len()) };
        errno::check(ret).ok().filter(|needed| *needed == 0).map(|_| text(&name))
    }
}

fn devargs(info: &raw::rte_eth_dev_info) -> Option<String> {
    // SAFETY: I1; a device and its arguments live as long as its port, and the arguments, if there are
    // any, are a C string.
    unsafe {
        let devargs = raw::rte_dev_devargs(info.device);
        let args = devargs.as_ref()?.__bindgen_anon_1.args;
        (!args.is_null()).then(|| CStr::from_ptr(args).to_string_lossy().into_owned())
    }
}

fn side(queues: u16, max_queues: u16, limits: raw::rte_eth_desc_lim) -> SideDetails {
    SideDetails {
        queues,
        max_queues,
        min_descriptors: limits.nb_min,
        max_descriptors: limits.nb_max,
        alignment: limits.nb_align,
    }
}

/// The bytes before the first zero.
fn text(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

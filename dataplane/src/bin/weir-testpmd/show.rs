//! What `show config` and `show port` print, character for character as testpmd 22.11.

use std::fmt::Write as _;

use dpdk_sys::{DpdkError, PortDetails, QueueSetup};

use crate::ports::PortSlot;
use crate::settings::{Layout, Mode, Settings, mac_text};

/// A forwarding core as it is named: its number and its NUMA node.
#[derive(Clone, Copy, Debug)]
pub struct CoreName {
    /// lcore number.
    pub id: u32,
    /// NUMA node of its first CPU.
    pub socket: u32,
}

/// `show config fwd`, and the head of `start`.
pub fn config_fwd(
    settings: &Settings,
    layout: &Layout,
    cores: &[CoreName],
    slots: &[PortSlot<'_>],
) -> String {
    let mut text = format!(
        "{} packet forwarding - ports={} - cores={} - streams={} - NUMA support enabled, MP allocation mode: native\n",
        settings.mode.name(),
        settings.nb_ports,
        layout.cores.len(),
        layout.streams().count()
    );
    let socket = |port: u16| slots.get(usize::from(port)).map_or(0, |slot| slot.socket);
    for (core, streams) in cores.iter().zip(&layout.cores) {
        let _ = write!(
            text,
            "Logical Core {} (socket {}) forwards packets on {} streams:",
            core.id,
            core.socket,
            streams.len()
        );
        for s in streams {
            let _ = write!(
                text,
                "\n  RX P={}/Q={} (socket {}) -> TX P={}/Q={} (socket {}) peer={}",
                s.rx_port,
                s.rx_queue,
                socket(s.rx_port),
                s.tx_port,
                s.tx_queue,
                socket(s.tx_port),
                mac_text(settings.peer(s.tx_port))
            );
        }
        text.push('\n');
    }
    text.push('\n');
    text
}

/// `show config rxtx`, and the rest of `start`.
pub fn config_rxtx(settings: &Settings, slots: &[PortSlot<'_>]) -> String {
    let mut text = format!("  {} packet forwarding packets/burst={}\n", settings.mode.name(), settings.burst);
    if matches!(settings.mode, Mode::TxOnly | Mode::FlowGen) {
        let _ = writeln!(text, "  packet len={} - nb packet segments=1", settings.txpkts);
    }
    let _ = writeln!(
        text,
        "  nb forwarding cores={} - nb forwarding ports={}",
        settings.nb_cores, settings.nb_ports
    );
    for (id, slot) in slots.iter().enumerate() {
        let (rx_offloads, tx_offloads) = slot.offloads();
        let _ = write!(
            text,
            "  port {id}: RX queue number: {} Tx queue number: {}\n    \
             Rx offloads=0x{rx_offloads:x} Tx offloads=0x{tx_offloads:x}\n",
            settings.rxq, settings.txq
        );
        if let Ok((rx, tx)) = slot.queue_setup() {
            let thresholds = |q: &QueueSetup| {
                let [p, h, w] = q.thresholds;
                format!("pthresh={p} hthresh={h}  wthresh={w}")
            };
            let _ = write!(
                text,
                "    RX queue: 0\n      RX desc={} - RX free threshold={}\n      \
                 RX threshold registers: {}\n      RX Offloads=0x{:x}\n    \
                 TX queue: 0\n      TX desc={} - TX free threshold={}\n      \
                 TX threshold registers: {}\n      TX offloads=0x{:x} - TX RS bit threshold={}\n",
                rx.descriptors.unwrap_or(settings.rxd),
                rx.free_threshold,
                thresholds(&rx),
                rx.offloads,
                tx.descriptors.unwrap_or(settings.txd),
                tx.free_threshold,
                thresholds(&tx),
                tx.offloads,
                tx.rs_threshold
            );
        }
    }
    text
}

/// `show config cores`.
pub fn config_cores(settings: &Settings, cores: &[CoreName]) -> String {
    let mut text = "List of forwarding lcores:".to_owned();
    for core in cores.iter().take(settings.nb_cores) {
        let _ = write!(text, " {:2}", core.id);
    }
    text.push('\n');
    text
}

/// `show config txpkts`.
pub fn config_txpkts(settings: &Settings) -> String {
    format!("Number of segments: 1\nSegment sizes: {}\nSplit packet: off\n", settings.txpkts)
}

/// `show port summary`; `ids` of those wanted.
pub fn summary(ids: &[u16], slots: &[PortSlot<'_>]) -> String {
    let mut text = format!(
        "Number of available ports: {}\n{:<4} {:<17} {:<12} {:<14} {:<8} Link\n",
        slots.len(),
        "Port",
        "MAC Address",
        "Name",
        "Driver",
        "Status"
    );
    for &id in ids {
        let slot = &slots[usize::from(id)];
        if let Ok(details) = slot.details() {
            let _ = writeln!(
                text,
                "{id:<4} {:<17} {:<12} {:<14} {:<8} {}",
                mac_text(slot.mac()),
                slot.name,
                slot.driver,
                if details.link_up { "up" } else { "down" },
                details.link_speed
            );
        }
    }
    text
}

/// `show port xstats N`.
pub fn xstats(id: u16, slot: &PortSlot<'_>) -> Result<String, DpdkError> {
    let mut text = format!("###### NIC extended statistics for port {id} \n");
    for (name, value) in slot.xstats()? {
        let _ = writeln!(text, "{name}: {value}");
    }
    Ok(text)
}

/// `show port info N`.
pub fn info(id: u16, slot: &PortSlot<'_>) -> Result<String, DpdkError> {
    let details = slot.details()?;
    let border = "*".repeat(21);
    let mut text = format!(
        "\n{border} Infos for port {id:<2} {border}\nMAC address: {}\nDevice name: {}\nDriver name: {}\n\
         Firmware-version: {}\n",
        mac_text(slot.mac()),
        slot.name,
        slot.driver,
        details.firmware.as_deref().unwrap_or("not available")
    );
    if let Some(devargs) = &details.devargs {
        let _ = writeln!(text, "Devargs: {devargs}");
    }
    let on = |yes, no| move |is: bool| if is { yes } else { no };
    let _ = write!(
        text,
        "Connect to socket: {socket}\nmemory allocation on the socket: {socket}\nLink status: {}\nLink speed: {}\n\
         Link duplex: {}\nAutoneg status: {}\n",
        on("up", "down")(details.link_up),
        details.link_speed,
        on("full-duplex", "half-duplex")(details.full_duplex),
        on("On", "Off")(details.autoneg),
        socket = slot.socket
    );
    if let Ok(mtu) = slot.mtu() {
        let _ = writeln!(text, "MTU: {mtu}");
    }
    let _ = write!(
        text,
        "Promiscuous mode: {}\nAllmulticast mode: {}\nMaximum number of MAC addresses: {}\n\
         Maximum number of MAC addresses of hash filtering: {}\n",
        on("enabled", "disabled")(details.promiscuous),
        on("enabled", "disabled")(details.allmulticast),
        details.max_macs,
        details.max_hash_macs
    );
    if let Some([strip, filter, extend, qinq]) = details.vlan {
        let state = on("on", "off");
        let _ = write!(
            text,
            "VLAN offload: \n  strip {}, filter {}, extend {}, qinq strip {}\n",
            state(strip),
            state(filter),
            state(extend),
            state(qinq)
        );
    }
    rss(&mut text, &details);
    limits(&mut text, &details);
    Ok(text)
}

fn rss(text: &mut String, details: &PortDetails) {
    if details.rss_key_bytes > 0 {
        let _ = writeln!(text, "Hash key size in bytes: {}", details.rss_key_bytes);
    }
    if details.rss_table > 0 {
        let _ = writeln!(text, "Redirection table size: {}", details.rss_table);
    }
    if details.rss_types == 0 {
        text.push_str("No RSS offload flow type is supported.\n");
        return;
    }
    text.push_str("Supported RSS offload flow types:\n");
    let mut line = String::new();
    for bit in (0..u64::BITS).filter(|bit| details.rss_types >> bit & 1 == 1) {
        let known = RSS_TYPES.iter().find(|(of, _)| *of == bit);
        let name = known.map_or_else(|| format!("user-defined-{bit}"), |(_, name)| (*name).to_owned());
        // A line has at most 64 characters; each name stands behind two spaces.
        if !line.is_empty() && line.len() + name.len() + 2 > RSS_LINE {
            let _ = writeln!(text, "{line}");
            line.clear();
        }
        let _ = write!(line, "  {name}");
    }
    let _ = writeln!(text, "{line}");
}

fn limits(text: &mut String, details: &PortDetails) {
    let _ = write!(
        text,
        "Minimum size of RX buffer: {}\nMaximum configurable length of RX packet: {}\n\
         Maximum configurable size of LRO aggregated packet: {}\n",
        details.min_rx_buffer, details.max_rx_frame, details.max_lro_frame
    );
    if details.max_vfs > 0 {
        let _ = writeln!(text, "Maximum number of VFs: {}", details.max_vfs);
    }
    if details.max_vmdq_pools > 0 {
        let _ = writeln!(text, "Maximum number of VMDq pools: {}", details.max_vmdq_pools);
    }
    for (side, name) in [(&details.rx, "RX"), (&details.tx, "TX")] {
        let _ = write!(
            text,
            "Current number of {name} queues: {}\nMax possible {name} queues: {}\n\
             Max possible number of {name}Ds per queue: {}\nMin possible number of {name}Ds per queue: {}\n\
             {name}Ds number alignment: {}\n",
            side.queues, side.max_queues, side.max_descriptors, side.min_descriptors, side.alignment
        );
    }
    let _ = write!(
        text,
        "Max segment number per packet: {}\nMax segment number per MTU/TSO: {}\nDevice capabilities: 0x{:x}({} )\n\
         Device error handling mode: {}\n",
        details.max_segments,
        details.max_mtu_segments,
        details.capabilities,
        capabilities(details.capabilities),
        details.error_handling
    );
}

fn capabilities(set: u64) -> String {
    let names = [
        "RUNTIME_RX_QUEUE_SETUP",
        "RUNTIME_TX_QUEUE_SETUP",
        "RXQ_SHARE",
        "FLOW_RULE_KEEP",
        "FLOW_SHARED_OBJECT_KEEP",
    ];
    names
        .iter()
        .enumerate()
        .filter(|(bit, _)| set >> bit & 1 == 1)
        .map(|(_, name)| format!(" {name}"))
        .collect()
}

/// Characters of a line of RSS types.
const RSS_LINE: usize = 64;

/// Bits of `RTE_ETH_RSS_*` with testpmd's names.
#[rustfmt::skip]
const RSS_TYPES: [(u32, &str); 40] = [
    (2, "ipv4"), (3, "ipv4-frag"), (4, "ipv4-tcp"), (5, "ipv4-udp"), (6, "ipv4-sctp"), (7, "ipv4-other"),
    (8, "ipv6"), (9, "ipv6-frag"), (10, "ipv6-tcp"), (11, "ipv6-udp"), (12, "ipv6-sctp"), (13, "ipv6-other"),
    (14, "l2-payload"), (15, "ipv6-ex"), (16, "ipv6-tcp-ex"), (17, "ipv6-udp-ex"), (18, "port"), (19, "vxlan"),
    (20, "geneve"), (21, "nvgre"), (23, "gtpu"), (24, "eth"), (25, "s-vlan"), (26, "c-vlan"), (27, "esp"),
    (28, "ah"), (29, "l2tpv3"), (30, "pfcp"), (31, "pppoe"), (32, "ecpri"), (33, "mpls"), (34, "ipv4-chksum"),
    (35, "l4-chksum"), (36, "l2tpv2"),
    (58, "l2-dst-only"), (59, "l2-src-only"), (60, "l4-dst-only"), (61, "l4-src-only"), (62, "l3-dst-only"),
    (63, "l3-src-only"),
];

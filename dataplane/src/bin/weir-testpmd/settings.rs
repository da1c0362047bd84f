//! What is to be forwarded how: the settings that options and commands change, and the streams that follow from them.
//!
//! Pure. [`Settings::layout`] is testpmd's distribution: streams go over ports first and queues second, cores get equal
//! shares, the last ones one more where it does not divide.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use dataplane::wire::ethernet::Mac;
use dpdk_sys::MacBytes;

/// Packets of a burst at most, as testpmd's.
pub const BURST_LIMIT: usize = 512;

/// How packets are treated.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Untouched to the other port.
    Io,
    /// With the addresses of the next link.
    Mac,
    /// With MAC addresses exchanged.
    MacSwap,
    /// With MAC, IP addresses and ports exchanged.
    FiveTupleSwap,
    /// Received and freed.
    RxOnly,
    /// Sent, all alike.
    TxOnly,
    /// Sent as many flows; what comes in is freed.
    FlowGen,
    /// Balanced by Weir's own worker.
    Lb,
    /// Clients and servers for a balancer.
    LbGen,
}

impl Mode {
    /// All modes, in the order they are listed.
    pub const ALL: [Mode; 9] = [
        Mode::Io,
        Mode::Mac,
        Mode::MacSwap,
        Mode::FlowGen,
        Mode::RxOnly,
        Mode::TxOnly,
        Mode::FiveTupleSwap,
        Mode::Lb,
        Mode::LbGen,
    ];

    /// Name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Mode::Io => "io",
            Mode::Mac => "mac",
            Mode::MacSwap => "macswap",
            Mode::FiveTupleSwap => "5tswap",
            Mode::RxOnly => "rxonly",
            Mode::TxOnly => "txonly",
            Mode::FlowGen => "flowgen",
            Mode::Lb => "lb",
            Mode::LbGen => "lbgen",
        }
    }

    /// The mode of that name.
    pub fn from_name(name: &str) -> Option<Mode> {
        Mode::ALL.into_iter().find(|mode| mode.name() == name)
    }

    /// All names, separated as testpmd does.
    pub fn names() -> String {
        Mode::ALL.map(Mode::name).join("|")
    }

    /// Whether a core needs a queue pair of every port, which it polls itself.
    pub fn needs_all_ports(self) -> bool {
        matches!(self, Mode::Lb | Mode::LbGen)
    }
}

/// Which port a stream sends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// 0 with 1, 2 with 3; a last one alone with itself.
    Paired,
    /// 0 to 1 to 2 to 0.
    Chained,
    /// Each to itself.
    Loop,
}

/// What `lbgen` sends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Traffic {
    /// A SYN for each packet.
    Syn,
    /// Packets of connections that it opens first.
    Established,
    /// As established, and short connections from SYN to FIN besides.
    Mixed,
    /// Datagrams.
    Udp,
}

impl Traffic {
    /// The traffic of that name.
    pub fn from_name(name: &str) -> Option<Traffic> {
        [
            ("syn", Traffic::Syn),
            ("established", Traffic::Established),
            ("mixed", Traffic::Mixed),
            ("udp", Traffic::Udp),
        ]
        .into_iter()
        .find_map(|(known, traffic)| (known == name).then_some(traffic))
    }
}

/// How `lb` is configured.
#[derive(Clone, Debug)]
pub struct LbSettings {
    /// Configuration file; without one the services of [`crate::engine::lab`].
    pub config: Option<PathBuf>,
    /// Forwarding method of those services.
    pub method: String,
    /// Connections the tables hold, all cores together.
    pub conns: u32,
}

/// How `lbgen` behaves.
#[derive(Clone, Copy, Debug)]
pub struct LbGenSettings {
    /// Flows of its clients.
    pub flows: u32,
    /// New connections a second, all cores together; 0 for as many as there are packets.
    pub rate: u64,
    /// What it sends.
    pub traffic: Traffic,
    /// The service it calls.
    pub service: SocketAddrV4,
}

/// Everything that options and commands set.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Forward mode.
    pub mode: Mode,
    /// Packets of a burst.
    pub burst: u16,
    /// Frame length of txonly and flowgen, bytes.
    pub txpkts: u16,
    /// Forwarding ports, in order.
    pub ports: Vec<u16>,
    /// Those of [`Settings::ports`] in use.
    pub nb_ports: usize,
    /// Forwarding cores wanted.
    pub nb_cores: usize,
    /// Topology.
    pub topology: Topology,
    /// Receive queues a port.
    pub rxq: u16,
    /// Transmit queues a port.
    pub txq: u16,
    /// Receive descriptors a queue; 0 for the driver's number.
    pub rxd: u16,
    /// Transmit descriptors a queue, likewise.
    pub txd: u16,
    /// MAC address that `mac`, `txonly` and `flowgen` send to, by port number.
    pub peers: Vec<MacBytes>,
    /// Ports whose peer was given by the user.
    pub peers_given: Vec<bool>,
    /// Flows of flowgen.
    pub flowgen_flows: u32,
    /// Addresses of txonly.
    pub tx_ip: (Ipv4Addr, Ipv4Addr),
    /// Ports of txonly.
    pub tx_udp: (u16, u16),
    /// txonly varies the source address.
    pub multi_flow: bool,
    /// Packets waiting in the queues are thrown away before a start.
    pub flush_rx: bool,
    /// The balancer.
    pub lb: LbSettings,
    /// Its traffic.
    pub lbgen: LbGenSettings,
}

/// One direction of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stream {
    /// Received on.
    pub rx_port: u16,
    /// Its queue.
    pub rx_queue: u16,
    /// Sent on.
    pub tx_port: u16,
    /// Its queue.
    pub tx_queue: u16,
}

/// Streams by forwarding core.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Layout {
    /// Streams of each core that has some, in the order of the cores.
    pub cores: Vec<Vec<Stream>>,
}

impl Layout {
    /// All streams in testpmd's order.
    pub fn streams(&self) -> impl Iterator<Item = &Stream> {
        self.cores.iter().flatten()
    }
}

impl Settings {
    /// The settings of a testpmd with `ports` ports and `cores` forwarding cores that was told nothing.
    pub fn new(ports: usize, cores: usize) -> Settings {
        Settings {
            mode: Mode::Io,
            burst: 32,
            txpkts: 64,
            ports: (0..ports as u16).collect(),
            nb_ports: ports,
            nb_cores: cores,
            topology: Topology::Paired,
            rxq: 1,
            txq: 1,
            rxd: 0,
            txd: 0,
            peers: (0..ports).map(|port| [2, 0, 0, 0, 0, port as u8]).collect(),
            peers_given: vec![false; ports],
            flowgen_flows: 1024,
            tx_ip: (Ipv4Addr::new(198, 18, 0, 1), Ipv4Addr::new(198, 18, 0, 2)),
            tx_udp: (9, 9),
            multi_flow: false,
            flush_rx: true,
            lb: LbSettings { config: None, method: "nat".into(), conns: 1 << 20 },
            lbgen: LbGenSettings {
                flows: 1024,
                rate: 0,
                traffic: Traffic::Established,
                service: SocketAddrV4::new(crate::engine::lab::VIP, crate::engine::lab::PORT),
            },
        }
    }

    /// Ports that forward.
    pub fn forwarding(&self) -> &[u16] {
        &self.ports[..self.nb_ports]
    }

    /// Whether a last port has no partner.
    pub fn has_lone_port(&self) -> bool {
        self.topology == Topology::Paired && self.nb_ports % 2 == 1
    }

    /// Address of the machine behind `port`.
    pub fn peer(&self, port: u16) -> MacBytes {
        self.peers.get(usize::from(port)).copied().unwrap_or([2, 0, 0, 0, 0, port as u8])
    }

    /// The streams of each core.
    pub fn layout(&self) -> Layout {
        let ports = self.forwarding();
        let queues = if self.rxq > 1 && self.txq > 1 { self.rxq.min(self.txq) } else { 1 };
        let streams: Vec<Stream> = (0..queues)
            .flat_map(|queue| {
                (0..ports.len()).map(move |at| Stream {
                    rx_port: ports[at],
                    rx_queue: queue,
                    tx_port: ports[self.partner(at)],
                    tx_queue: queue,
                })
            })
            .collect();
        let cores = self.nb_cores.min(streams.len());
        if cores == 0 {
            return Layout::default();
        }
        let (share, longer) = (streams.len() / cores, streams.len() % cores);
        let mut streams = streams.into_iter();
        let cores = (0..cores)
            .map(|core| streams.by_ref().take(share + usize::from(core >= cores - longer)).collect())
            .collect();
        Layout { cores }
    }

    /// Index among the forwarding ports of the one that `at` sends on.
    fn partner(&self, at: usize) -> usize {
        match self.topology {
            Topology::Paired if at % 2 == 1 => at - 1,
            Topology::Paired if at + 1 < self.nb_ports => at + 1,
            Topology::Paired | Topology::Loop => at,
            Topology::Chained => (at + 1) % self.nb_ports,
        }
    }
}

/// A MAC address as testpmd prints it.
pub fn mac_text(mac: MacBytes) -> String {
    mac.map(|byte| format!("{byte:02X}")).join(":")
}

/// Reads `02:00:00:00:00:aa`.
pub fn parse_mac(text: &str) -> Option<MacBytes> {
    text.parse::<config::Mac>().ok().map(|mac| Mac(mac.0).0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn layout(ports: usize, cores: usize, queues: u16, topology: Topology) -> String {
        let settings = Settings { rxq: queues, txq: queues, topology, ..Settings::new(ports, cores) };
        let core = |streams: &Vec<Stream>| {
            let show = |s: &Stream| format!("{}.{}>{}.{}", s.rx_port, s.rx_queue, s.tx_port, s.tx_queue);
            streams.iter().map(show).collect::<Vec<_>>().join(" ")
        };
        settings.layout().cores.iter().map(core).collect::<Vec<_>>().join(" | ")
    }

    #[test]
    fn streams_are_distributed_as_testpmd_does() {
        use Topology::{Chained, Loop, Paired};
        for (ports, cores, queues, topology, expected) in [
            (2, 1, 1, Paired, "0.0>1.0 1.0>0.0"),
            (2, 2, 2, Paired, "0.0>1.0 1.0>0.0 | 0.1>1.1 1.1>0.1"),
            (3, 1, 1, Chained, "0.0>1.0 1.0>2.0 2.0>0.0"),
            (2, 1, 1, Loop, "0.0>0.0 1.0>1.0"),
            (1, 1, 1, Paired, "0.0>0.0"),
            (3, 2, 1, Paired, "0.0>1.0 | 1.0>0.0 2.0>2.0"),
            (2, 4, 1, Paired, "0.0>1.0 | 1.0>0.0"),
            (1, 3, 2, Paired, "0.0>0.0 | 0.1>0.1"),
            (0, 1, 1, Paired, ""),
        ] {
            assert_eq!(layout(ports, cores, queues, topology), expected, "{ports} ports, {cores} cores");
        }
    }

    #[test]
    fn names_of_modes_lead_back() {
        for mode in Mode::ALL {
            assert_eq!(Mode::from_name(mode.name()), Some(mode));
        }
        assert_eq!(Mode::from_name("nosuch"), None);
        assert_eq!(mac_text([2, 0, 0, 0, 0, 0xaa]), "02:00:00:00:00:AA");
        assert_eq!(parse_mac("02:11:22:33:44:55"), Some([2, 0x11, 0x22, 0x33, 0x44, 0x55]));
        assert_eq!(parse_mac("02:11"), None);
    }
}

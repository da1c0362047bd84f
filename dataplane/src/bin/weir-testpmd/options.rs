//! testpmd's own options, behind `--`: those honoured, and the names of those that are not.
//!
//! As with testpmd's getopt a long option may be shortened while it stays clear.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;

use clap::{CommandFactory, Parser};
use dpdk_sys::MacBytes;

use crate::lcores::numbers;
use crate::settings::{BURST_LIMIT, Mode, Settings, Topology, Traffic, parse_mac};

/// Options of testpmd 22.11 that this program does not honour.
#[rustfmt::skip]
const REFUSED: [&str; 74] = [
    "display-xstats", "num-procs", "proc-id", "coremask", "portmask", "no-numa", "port-numa-config",
    "ring-numa-config", "socket-num", "mbuf-size", "max-pkt-len", "max-lro-pkt-size", "eth-peers-configfile",
    "disable-crc-strip", "enable-scatter", "enable-lro", "enable-rx-cksum", "enable-rx-timestamp", "enable-hw-vlan",
    "enable-hw-vlan-filter", "enable-hw-vlan-strip", "enable-hw-vlan-extend", "enable-hw-qinq-strip",
    "enable-drop-en", "disable-rss", "rss-ip", "rss-udp", "rss-level-inner", "rss-level-outer", "hairpinq",
    "flowgen-clones", "rxpt", "rxht", "rxfreet", "rxwt", "txpt", "txht", "txwt", "txfreet", "txrst", "rxoffs",
    "rxpkts", "rxhdrs", "multi-rx-mempool", "eth-link-speed", "rxq-share", "disable-link-check",
    "disable-device-start", "no-lsc-interrupt", "no-rmv-interrupt", "bitrate-stats", "latencystats", "print-event",
    "mask-event", "flow-isolate-all", "tx-offloads", "rx-offloads", "hot-plug", "vxlan-gpe-port",
    "geneve-parsed-port", "mlockall", "no-mlockall", "mp-alloc", "noisy-tx-sw-buffer-size",
    "noisy-tx-sw-buffer-flushtime", "noisy-lkup-memory", "noisy-lkup-num-writes", "noisy-lkup-num-reads",
    "noisy-lkup-num-reads-writes", "no-iova-contig", "rx-mq-mode", "record-core-cycles", "record-burst-stats",
    "hairpin-mode",
];

/// What was typed behind `--`.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "weir-testpmd",
    bin_name = "weir-testpmd [EAL options] --",
    no_binary_name = true,
    infer_long_args = true,
    disable_help_flag = true,
    override_usage = "weir-testpmd [EAL options] -- [testpmd options]",
    after_help = "EXAMPLE:\n  weir-testpmd -l 0-1 --no-pci --vdev=net_memif0,role=server -- -i --forward-mode=lb"
)]
pub struct Options {
    /// run in interactive mode
    #[arg(short = 'i', long)]
    pub interactive: bool,
    /// execute the commands of a file before the prompt
    #[arg(long, value_name = "FILE")]
    pub cmdline_file: Option<PathBuf>,
    /// start forwarding on init [always when non-interactive]
    #[arg(short = 'a', long)]
    pub auto_start: bool,
    /// display this message and quit
    #[arg(short = 'h', long)]
    pub help: bool,
    /// start forwarding sending a burst first (only if interactive is disabled)
    #[arg(long)]
    pub tx_first: bool,
    /// show statistics every PERIOD seconds (only if interactive is disabled)
    #[arg(long, value_name = "PERIOD")]
    pub stats_period: Option<u16>,
    /// number of forwarding cores
    #[arg(long, value_name = "N")]
    pub nb_cores: Option<usize>,
    /// number of forwarding ports
    #[arg(long, value_name = "N")]
    pub nb_ports: Option<usize>,
    /// forwarding ports, in this order
    #[arg(long, value_name = "PORTLIST", value_parser = port_list)]
    pub portlist: Option<PortList>,
    /// allocate on the NUMA node of the port [as it is always]
    #[arg(long)]
    pub numa: bool,
    /// number of mbufs of the pool
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..))]
    pub total_num_mbufs: Option<u32>,
    /// mbufs that each core may keep to itself
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(0..=512))]
    pub mbcache: Option<u32>,
    /// MAC address of the machine behind port X
    #[arg(long, value_name = "X,M:M:M:M:M:M", value_parser = eth_peer)]
    pub eth_peer: Vec<(u16, MacBytes)>,
    /// which port a packet leaves by: paired, chained or loop
    #[arg(long, value_name = "TOPOLOGY", value_parser = topology)]
    pub port_topology: Option<Topology>,
    /// forwarding mode: io, mac, macswap, flowgen, rxonly, txonly, 5tswap, lb or lbgen
    #[arg(long, value_name = "MODE", value_parser = mode)]
    pub forward_mode: Option<Mode>,
    /// receive queues per port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub rxq: Option<u16>,
    /// descriptors of a receive queue
    #[arg(long, value_name = "N")]
    pub rxd: Option<u16>,
    /// transmit queues per port
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..))]
    pub txq: Option<u16>,
    /// descriptors of a transmit queue
    #[arg(long, value_name = "N")]
    pub txd: Option<u16>,
    /// packets per burst
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=BURST_LIMIT as i64))]
    pub burst: Option<u16>,
    /// flows of flowgen mode
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..1 << 31))]
    pub flowgen_flows: Option<u32>,
    /// don't flush RX streams before forwarding
    #[arg(long)]
    pub no_flush_rx: bool,
    /// bytes of a frame of txonly and flowgen; one segment
    #[arg(long, value_name = "X", value_parser = txpkts)]
    pub txpkts: Option<u16>,
    /// vary the source address in txonly mode
    #[arg(long)]
    pub txonly_multi_flow: bool,
    /// IP addresses in txonly mode
    #[arg(long, value_name = "SRC,DST", value_parser = tx_ip)]
    pub tx_ip: Option<(Ipv4Addr, Ipv4Addr)>,
    /// UDP ports in txonly mode
    #[arg(long, value_name = "SRC[,DST]", value_parser = tx_udp)]
    pub tx_udp: Option<(u16, u16)>,
    /// lb: configuration as for `weir run`, `[[port]]` in the order of the forwarding ports; without it one service
    #[arg(long, value_name = "FILE")]
    pub lb_config: Option<PathBuf>,
    /// lb: forwarding method of the service it makes up, nat or dr
    #[arg(long, value_name = "METHOD", value_parser = ["nat", "dr"])]
    pub lb_method: Option<String>,
    /// lb: connections its tables hold, all cores together
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1024..=1 << 26))]
    pub lb_conns: Option<u32>,
    /// lbgen: flows of its clients
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1 << 25))]
    pub flows: Option<u32>,
    /// lbgen: new connections a second, all cores together [as many as there are packets]
    #[arg(long, value_name = "N")]
    pub new_per_second: Option<u64>,
    /// lbgen: syn, established, mixed or udp
    #[arg(long, value_name = "KIND", value_parser = traffic)]
    pub traffic: Option<Traffic>,
    /// lbgen: the service it calls
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub service: Option<SocketAddrV4>,
}

/// A list of ports as one value.
#[derive(Clone, Debug)]
pub struct PortList(pub Vec<u16>);

impl Options {
    /// Reads the words behind `--`. The error is for people and may have several lines.
    pub fn read(words: &[String]) -> Result<Options, String> {
        for word in words {
            let Some(name) = word.strip_prefix("--").map(|w| w.split('=').next().unwrap_or(w)) else {
                continue;
            };
            if REFUSED.contains(&name) {
                return Err(format!("--{name}: an option of testpmd that weir-testpmd does not honour"));
            }
        }
        Options::try_parse_from(words).map_err(|error| error.to_string().trim_end().to_owned())
    }

    /// The text of `--help`.
    pub fn help() -> String {
        format!("\n{}", Options::command().render_long_help())
    }

    /// The settings that the options make of the defaults, for `ports` ports and `cores` forwarding cores.
    pub fn settings(&self, ports: usize, cores: usize) -> Result<Settings, String> {
        let mut settings = Settings::new(ports, cores);
        macro_rules! set { ($($to:expr => $from:expr;)*) => { $(if let Some(value) = $from.clone() { $to = value; })* } }
        set! {
            settings.mode => self.forward_mode;
            settings.burst => self.burst;
            settings.txpkts => self.txpkts;
            settings.topology => self.port_topology;
            settings.rxq => self.rxq;
            settings.txq => self.txq;
            settings.rxd => self.rxd;
            settings.txd => self.txd;
            settings.flowgen_flows => self.flowgen_flows;
            settings.tx_ip => self.tx_ip;
            settings.tx_udp => self.tx_udp;
            settings.lb.method => self.lb_method;
            settings.lb.conns => self.lb_conns;
            settings.lbgen.flows => self.flows;
            settings.lbgen.rate => self.new_per_second;
            settings.lbgen.traffic => self.traffic;
            settings.lbgen.service => self.service;
        }
        settings.lb.config = self.lb_config.clone();
        settings.multi_flow = self.txonly_multi_flow;
        settings.flush_rx = !self.no_flush_rx;
        if let Some(PortList(list)) = &self.portlist {
            settings.set_ports(list)?;
        }
        for &(port, mac) in &self.eth_peer {
            settings.set_peer(port, mac)?;
        }
        if let Some(n) = self.nb_ports {
            if n == 0 || n > settings.ports.len() {
                return Err(format!("nb-ports should be > 0 and <= {}", settings.ports.len()));
            }
            settings.nb_ports = n;
        }
        if let Some(n) = self.nb_cores {
            if n == 0 || n > cores {
                return Err(format!("nb-cores should be > 0 and <= {cores}"));
            }
            settings.nb_cores = n;
        } else {
            settings.nb_cores = 1;
        }
        Ok(settings)
    }
}

impl Settings {
    /// Forwards on these ports, in this order.
    pub fn set_ports(&mut self, list: &[u16]) -> Result<(), String> {
        for (at, port) in list.iter().enumerate() {
            if usize::from(*port) >= self.peers.len() {
                return Err(format!("Invalid port {port}"));
            }
            if list[..at].contains(port) {
                return Err(format!("Port {port} is listed twice"));
            }
        }
        if list.is_empty() {
            return Err("no port".into());
        }
        (self.ports, self.nb_ports) = (list.to_vec(), list.len());
        Ok(())
    }

    /// Sets the MAC address behind `port`.
    pub fn set_peer(&mut self, port: u16, mac: MacBytes) -> Result<(), String> {
        let at = usize::from(port);
        let peer = self.peers.get_mut(at).ok_or(format!("Invalid port {port}"))?;
        *peer = mac;
        self.peers_given[at] = true;
        Ok(())
    }
}

/// `0,2-3`.
pub fn port_list(text: &str) -> Result<PortList, String> {
    Ok(PortList(numbers(text)?.into_iter().map(|n| n as u16).collect()))
}

/// Bytes of an Ethernet, an IPv4 and a UDP header.
const TXPKTS_MIN: u32 = 42;

/// One length of a frame: its headers fit, and it fits an mbuf.
pub fn txpkts(text: &str) -> Result<u16, String> {
    if text.contains(',') {
        return Err(format!("{text}: packets of several segments are not sent"));
    }
    if let Some(letter) = text.chars().find(|c| !c.is_ascii_digit()) {
        return Err(format!("character {letter} is not a decimal digit"));
    }
    let len: u32 = text.parse().map_err(|_| format!("{text} is no length"))?;
    match len {
        0..TXPKTS_MIN => Err(format!("total packet length={len} < {TXPKTS_MIN} - give up")),
        64..=1518 => Ok(len as u16),
        _ => Err(format!("{len}: expected 64 to 1518 bytes")),
    }
}

fn eth_peer(text: &str) -> Result<(u16, MacBytes), String> {
    let wrong = || format!("{text}: expected a port and a MAC address, such as 0,02:00:00:00:00:01");
    let (port, mac) = text.split_once(',').ok_or_else(wrong)?;
    Ok((port.parse().map_err(|_| wrong())?, parse_mac(mac).ok_or_else(wrong)?))
}

fn topology(text: &str) -> Result<Topology, String> {
    match text {
        "paired" => Ok(Topology::Paired),
        "chained" => Ok(Topology::Chained),
        "loop" => Ok(Topology::Loop),
        _ => Err(format!("{text}: expected paired, chained or loop")),
    }
}

fn mode(text: &str) -> Result<Mode, String> {
    Mode::from_name(text).ok_or_else(|| format!("{text}: expected {}", Mode::names()))
}

fn traffic(text: &str) -> Result<Traffic, String> {
    Traffic::from_name(text).ok_or_else(|| format!("{text}: expected syn, established, mixed or udp"))
}

fn tx_ip(text: &str) -> Result<(Ipv4Addr, Ipv4Addr), String> {
    let wrong = || format!("{text}: expected SRC,DST");
    let (src, dst) = text.split_once(',').ok_or_else(wrong)?;
    Ok((src.parse().map_err(|_| wrong())?, dst.parse().map_err(|_| wrong())?))
}

fn tx_udp(text: &str) -> Result<(u16, u16), String> {
    let wrong = || format!("{text}: expected SRC or SRC,DST");
    let (src, dst) = text.split_once(',').unwrap_or((text, text));
    Ok((src.parse().map_err(|_| wrong())?, dst.parse().map_err(|_| wrong())?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<Options, String> {
        Options::read(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn options_set_what_they_name() {
        let options = read(
            "-i --total-num-mbufs=8192 --nb-cores=2 --rxq=2 --txq 2 --rxd=512 --burst=64 --forward-mode=macswap \
             --port-top=loop --eth-peer=0,02:00:00:00:00:aa --portlist=1,0 --tx-ip=10.0.0.1,10.0.0.2 --tx-udp=7",
        )
        .unwrap();
        let settings = options.settings(2, 2).unwrap();
        assert!(options.interactive && !options.auto_start);
        assert_eq!((settings.mode, settings.burst, settings.nb_cores), (Mode::MacSwap, 64, 2));
        assert_eq!((settings.rxq, settings.txq, settings.rxd, settings.txd), (2, 2, 512, 0));
        assert_eq!((settings.topology, settings.ports.as_slice()), (Topology::Loop, &[1, 0][..]));
        assert_eq!((settings.peer(0)[5], settings.peer(1)[5]), (0xaa, 1));
        assert_eq!((settings.tx_ip.1, settings.tx_udp), (Ipv4Addr::new(10, 0, 0, 2), (7, 7)));
        assert_eq!(read("").unwrap().settings(2, 2).unwrap().nb_cores, 1, "one core unless told");
    }

    #[test]
    fn what_is_not_honoured_is_refused_by_name() {
        for (line, expected) in [
            ("--coremask=2", "--coremask: an option of testpmd"),
            ("--noisy-lkup-memory 3", "--noisy-lkup-memory: an option of testpmd"),
            ("--nosuch", "--nosuch"),
            ("--forward-mode=csum", "csum: expected io|mac"),
            ("--txpkts=64,64", "several segments"),
            ("--txpkts=41", "total packet length=41 < 42 - give up"),
            ("--txpkts=6x", "character x is not a decimal digit"),
            ("--burst=1000", "1000 is not in 1..=512"),
        ] {
            let error = read(line).unwrap_err();
            assert!(error.contains(expected), "{line}: {error}");
        }
        for (line, expected) in [
            ("--nb-cores=3", "nb-cores should be > 0 and <= 1"),
            ("--nb-ports=0", "nb-ports should be > 0 and <= 2"),
            ("--portlist=7", "Invalid port 7"),
            ("--portlist=1,1", "Port 1 is listed twice"),
        ] {
            assert_eq!(read(line).unwrap().settings(2, 1).unwrap_err(), expected, "{line}");
        }
    }
}

//! What can be typed at the prompt. Pure: a line in, a [`Command`] out.

use dpdk_sys::MacBytes;

use crate::options::port_list;
use crate::settings::{Mode, parse_mac};

/// One line, understood.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Command {
    /// Nothing was typed.
    Empty,
    /// `start`, with bursts to send first.
    Start(u32),
    /// `stop`.
    Stop,
    /// `quit`.
    Quit,
    /// `help [section]`.
    Help(Option<String>),
    /// `show port stats|info|xstats|summary`.
    ShowPort(PortFacts, Ports),
    /// `clear port stats|xstats`.
    ClearPort(PortFacts, Ports),
    /// `show fwd stats all`.
    ShowFwd,
    /// `clear fwd stats all`.
    ClearFwd,
    /// `show config fwd|rxtx|cores|txpkts`.
    ShowConfig(Config),
    /// `set ...`.
    Set(Setting),
    /// `port start|stop`.
    Port(PortAction, Ports),
    /// `port config all rxq|txq|rxd|txd N`.
    PortConfig(QueueSetting, u16),
}

/// What is shown of a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortFacts {
    /// Counts.
    Stats,
    /// Limits and modes.
    Info,
    /// The driver's own counters.
    Xstats,
    /// One line.
    Summary,
}

/// Which ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ports {
    /// All of them.
    All,
    /// One.
    One(u32),
}

/// What is shown of the configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Config {
    /// Streams.
    Fwd,
    /// Queues.
    Rxtx,
    /// Cores.
    Cores,
    /// Frame length.
    Txpkts,
}

/// What is set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Setting {
    /// Forward mode.
    Fwd(Mode),
    /// Packets of a burst.
    Burst(u32),
    /// Forwarding cores.
    NbCore(usize),
    /// Forwarding ports.
    NbPort(usize),
    /// Forwarding ports by number.
    PortList(Vec<u16>),
    /// MAC address behind a port.
    EthPeer(u16, MacBytes),
    /// Frame length as typed.
    Txpkts(String),
    /// Promiscuous mode.
    Promisc(Ports, bool),
    /// All-multicast mode.
    Allmulti(Ports, bool),
}

/// What is done to ports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PortAction {
    /// Start.
    Start,
    /// Stop.
    Stop,
}

/// What `port config all` sets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueSetting {
    /// Receive queues.
    Rxq,
    /// Transmit queues.
    Txq,
    /// Receive descriptors.
    Rxd,
    /// Transmit descriptors.
    Txd,
}

/// Why a line is no command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Misunderstood {
    /// No command begins so.
    Unknown,
    /// A command with other arguments.
    BadArguments,
    /// A command of testpmd that is not honoured: its first word.
    NotHonoured(String),
}

/// First words of testpmd's commands that this program has nothing of.
#[rustfmt::skip]
const FOREIGN: [&str; 38] = [
    "add", "bpf-load", "bpf-unload", "cleanup", "create", "csum", "ddp", "del", "dump_devargs", "dump_log_types",
    "dump_lcores", "dump_mempool", "dump_memzone", "dump_physmem", "dump_ring", "dump_socket_mem", "dump_struct_sizes",
    "flow", "flow_director_mask", "gro", "gso", "ip", "load", "mac_addr", "mcast_addr", "mtr", "pctype", "ptype",
    "read", "resume", "rx_vlan", "suspend", "tso", "tunnel_tso", "tx_vlan", "vlan", "vxlan", "write",
];

/// Understands one line.
pub fn parse(line: &str) -> Result<Command, Misunderstood> {
    let words: Vec<&str> = line.split_whitespace().take_while(|word| !word.starts_with('#')).collect();
    let known = match words.as_slice() {
        [] => Some(Command::Empty),
        ["start"] => Some(Command::Start(0)),
        ["start", "tx_first"] => Some(Command::Start(1)),
        ["start", "tx_first", n] => number(n).map(Command::Start),
        ["stop"] => Some(Command::Stop),
        ["quit"] => Some(Command::Quit),
        ["help"] => Some(Command::Help(None)),
        ["help", section] => Some(Command::Help(Some((*section).to_owned()))),
        ["show", "port", facts, ports] => show_port(facts, ports),
        ["clear", "port", "stats", ports] => which(ports).map(|p| Command::ClearPort(PortFacts::Stats, p)),
        ["clear", "port", "xstats", ports] => which(ports).map(|p| Command::ClearPort(PortFacts::Xstats, p)),
        ["show", "fwd", "stats", "all"] => Some(Command::ShowFwd),
        ["clear", "fwd", "stats", "all"] => Some(Command::ClearFwd),
        ["show", "config", what] => config(what).map(Command::ShowConfig),
        ["set", rest @ ..] => set(rest).map(Command::Set),
        ["port", "start", ports] => which(ports).map(|p| Command::Port(PortAction::Start, p)),
        ["port", "stop", ports] => which(ports).map(|p| Command::Port(PortAction::Stop, p)),
        ["port", "config", "all", what, n] => {
            queue_setting(what).zip(number(n)).map(|(what, n)| Command::PortConfig(what, n))
        }
        _ => None,
    };
    known.ok_or_else(|| match words.first() {
        Some(first) if FOREIGN.contains(first) => Misunderstood::NotHonoured((*first).to_owned()),
        Some(&("start" | "stop" | "quit" | "help" | "show" | "clear" | "set" | "port")) => {
            Misunderstood::BadArguments
        }
        _ => Misunderstood::Unknown,
    })
}

fn number<T: std::str::FromStr>(word: &str) -> Option<T> {
    word.parse().ok()
}

fn which(word: &str) -> Option<Ports> {
    if word == "all" { Some(Ports::All) } else { number(word).map(Ports::One) }
}

fn show_port(facts: &str, ports: &str) -> Option<Command> {
    let facts = match facts {
        "stats" => PortFacts::Stats,
        "info" => PortFacts::Info,
        "xstats" => PortFacts::Xstats,
        "summary" => PortFacts::Summary,
        _ => return None,
    };
    which(ports).map(|ports| Command::ShowPort(facts, ports))
}

fn config(word: &str) -> Option<Config> {
    Some(match word {
        "fwd" => Config::Fwd,
        "rxtx" => Config::Rxtx,
        "cores" => Config::Cores,
        "txpkts" => Config::Txpkts,
        _ => return None,
    })
}

fn set(words: &[&str]) -> Option<Setting> {
    let on = |word: &str| match word {
        "on" => Some(true),
        "off" => Some(false),
        _ => None,
    };
    match words {
        ["fwd", mode] => Mode::from_name(mode).map(Setting::Fwd),
        ["burst", n] => number(n).map(Setting::Burst),
        ["nbcore", n] => number(n).map(Setting::NbCore),
        ["nbport", n] => number(n).map(Setting::NbPort),
        ["portlist", list] => port_list(list).ok().map(|list| Setting::PortList(list.0)),
        ["eth-peer", port, mac] => {
            number(port).zip(parse_mac(mac)).map(|(port, mac)| Setting::EthPeer(port, mac))
        }
        ["txpkts", len] => Some(Setting::Txpkts((*len).to_owned())),
        ["promisc", ports, state] => which(ports).zip(on(state)).map(|(p, on)| Setting::Promisc(p, on)),
        ["allmulti", ports, state] => which(ports).zip(on(state)).map(|(p, on)| Setting::Allmulti(p, on)),
        _ => None,
    }
}

fn queue_setting(word: &str) -> Option<QueueSetting> {
    Some(match word {
        "rxq" => QueueSetting::Rxq,
        "txq" => QueueSetting::Txq,
        "rxd" => QueueSetting::Rxd,
        "txd" => QueueSetting::Txd,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_understood() {
        let cases = [
            ("", Command::Empty),
            ("  # a remark", Command::Empty),
            ("start", Command::Start(0)),
            ("start tx_first", Command::Start(1)),
            ("start tx_first 4", Command::Start(4)),
            ("show port stats all", Command::ShowPort(PortFacts::Stats, Ports::All)),
            ("show port info 0", Command::ShowPort(PortFacts::Info, Ports::One(0))),
            ("clear port stats all", Command::ClearPort(PortFacts::Stats, Ports::All)),
            ("set fwd 5tswap", Command::Set(Setting::Fwd(Mode::FiveTupleSwap))),
            ("set portlist 1,0", Command::Set(Setting::PortList(vec![1, 0]))),
            ("set eth-peer 0 02:11:22:33:44:55", {
                Command::Set(Setting::EthPeer(0, [2, 0x11, 0x22, 0x33, 0x44, 0x55]))
            }),
            ("port config all rxq 2", Command::PortConfig(QueueSetting::Rxq, 2)),
            ("port stop 9", Command::Port(PortAction::Stop, Ports::One(9))),
            ("help display", Command::Help(Some("display".into()))),
        ];
        for (line, command) in cases {
            assert_eq!(parse(line), Ok(command), "{line}");
        }
        for (line, why) in [
            ("foo bar", Misunderstood::Unknown),
            ("sto", Misunderstood::Unknown),
            ("show port stats", Misunderstood::BadArguments),
            ("set fwd nosuch", Misunderstood::BadArguments),
            ("set fwd csum", Misunderstood::BadArguments),
            ("set burst x", Misunderstood::BadArguments),
            ("flow list 0", Misunderstood::NotHonoured("flow".into())),
        ] {
            assert_eq!(parse(line), Err(why), "{line}");
        }
    }
}

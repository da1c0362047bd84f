//! The grammar as tables: every word with its letter and value, every command with the options that go with it.

use std::collections::HashSet;

use clap::{Arg, ArgAction};

/// What a word takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Takes {
    Nothing,
    Value,
    /// A value, unless the next word begins with `-`.
    ValueOrNothing,
}

/// What a word means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Word {
    Command(Command),
    Help,
    Version,
    TcpService,
    UdpService,
    SctpService,
    FwmarkService,
    Ipv6,
    Scheduler,
    Persistent,
    Netmask,
    Engine,
    Ops,
    SchedulerFlags,
    RealServer,
    Gatewaying,
    Ipip,
    Masquerading,
    Weight,
    UpperThreshold,
    LowerThreshold,
    TunnelType,
    TunnelPort,
    TunnelNoChecksum,
    TunnelChecksum,
    TunnelRemoteChecksum,
    Numeric,
    Connection,
    Timeout,
    Daemon,
    Stats,
    Rate,
    Thresholds,
    PersistentConn,
    TunnelInfo,
    NoSort,
    Sort,
    Exact,
    McastInterface,
    SyncId,
    SyncMaxlen,
    McastGroup,
    McastPort,
    McastTtl,
    SaveAll,
    Atomic,
}

/// One row of the table of words: long name, letter, value, meaning.
type WordRow = (&'static str, Option<char>, Takes, Word);

use Takes::{Nothing, Value, ValueOrNothing};

#[rustfmt::skip]
const WORDS: &[WordRow] = &[
    ("add-service",     Some('A'), Nothing, Word::Command(Command::AddService)),
    ("edit-service",    Some('E'), Nothing, Word::Command(Command::EditService)),
    ("delete-service",  Some('D'), Nothing, Word::Command(Command::DeleteService)),
    ("clear",           Some('C'), Nothing, Word::Command(Command::Flush)),
    ("list",            Some('L'), Nothing, Word::Command(Command::List)),
    ("list",            Some('l'), Nothing, Word::Command(Command::List)),
    ("zero",            Some('Z'), Nothing, Word::Command(Command::Zero)),
    ("add-server",      Some('a'), Nothing, Word::Command(Command::AddServer)),
    ("edit-server",     Some('e'), Nothing, Word::Command(Command::EditServer)),
    ("delete-server",   Some('d'), Nothing, Word::Command(Command::DeleteServer)),
    ("restore",         Some('R'), Nothing, Word::Command(Command::Restore)),
    ("save",            Some('S'), Nothing, Word::Command(Command::Save)),
    ("set",             None,      Nothing, Word::Command(Command::Set)),
    ("start-daemon",    None,      Value,   Word::Command(Command::StartDaemon)),
    ("stop-daemon",     None,      Value,   Word::Command(Command::StopDaemon)),
    ("help",            Some('h'), Nothing, Word::Help),
    ("version",         Some('v'), Nothing, Word::Version),
    ("tcp-service",     Some('t'), Value,   Word::TcpService),
    ("udp-service",     Some('u'), Value,   Word::UdpService),
    ("sctp-service",    None,      Value,   Word::SctpService),
    ("fwmark-service",  Some('f'), Value,   Word::FwmarkService),
    ("ipv6",            Some('6'), Nothing, Word::Ipv6),
    ("scheduler",       Some('s'), Value,   Word::Scheduler),
    ("persistent",      Some('p'), ValueOrNothing, Word::Persistent),
    ("netmask",         Some('M'), Value,   Word::Netmask),
    ("pe",              None,      Value,   Word::Engine),
    ("ops",             Some('o'), Nothing, Word::Ops),
    ("sched-flags",     Some('b'), Value,   Word::SchedulerFlags),
    ("real-server",     Some('r'), Value,   Word::RealServer),
    ("gatewaying",      Some('g'), Nothing, Word::Gatewaying),
    ("ipip",            Some('i'), Nothing, Word::Ipip),
    ("masquerading",    Some('m'), Nothing, Word::Masquerading),
    ("weight",          Some('w'), Value,   Word::Weight),
    ("u-threshold",     Some('x'), Value,   Word::UpperThreshold),
    ("l-threshold",     Some('y'), Value,   Word::LowerThreshold),
    ("tun-type",        None,      Value,   Word::TunnelType),
    ("tun-port",        None,      Value,   Word::TunnelPort),
    ("tun-nocsum",      None,      Nothing, Word::TunnelNoChecksum),
    ("tun-csum",        None,      Nothing, Word::TunnelChecksum),
    ("tun-remcsum",     None,      Nothing, Word::TunnelRemoteChecksum),
    ("numeric",         Some('n'), Nothing, Word::Numeric),
    ("connection",      Some('c'), Nothing, Word::Connection),
    ("timeout",         None,      Nothing, Word::Timeout),
    ("daemon",          None,      Nothing, Word::Daemon),
    ("stats",           None,      Nothing, Word::Stats),
    ("rate",            None,      Nothing, Word::Rate),
    ("thresholds",      None,      Nothing, Word::Thresholds),
    ("persistent-conn", None,      Nothing, Word::PersistentConn),
    ("tun-info",        None,      Nothing, Word::TunnelInfo),
    ("nosort",          None,      Nothing, Word::NoSort),
    ("sort",            None,      Nothing, Word::Sort),
    ("exact",           Some('X'), Nothing, Word::Exact),
    ("mcast-interface", None,      Value,   Word::McastInterface),
    ("syncid",          None,      Value,   Word::SyncId),
    ("sync-maxlen",     None,      Value,   Word::SyncMaxlen),
    ("mcast-group",     None,      Value,   Word::McastGroup),
    ("mcast-port",      None,      Value,   Word::McastPort),
    ("mcast-ttl",       None,      Value,   Word::McastTtl),
    ("save-all",        None,      Nothing, Word::SaveAll),
    ("atomic",          None,      Nothing, Word::Atomic),
];

/// The words as a command line of clap, for what can be made of one: completions, and tests of the manual. `--socket`,
/// which comes before the words, is among them.
pub fn words_as_command() -> clap::Command {
    let argument = |(name, letter, takes, _): &WordRow| {
        let action = if *takes == Nothing { ArgAction::SetTrue } else { ArgAction::Set };
        let argument = Arg::new(*name).long(*name).action(action);
        letter.map_or(argument.clone(), |letter| argument.short(letter))
    };
    // `list` has two letters, and two rows.
    let mut names = HashSet::new();
    let rows = WORDS.iter().filter(|row| names.insert(row.0)).map(argument);
    let mut command = clap::Command::new("weiradm").disable_help_flag(true).disable_version_flag(true);
    command = command.arg(Arg::new("socket").long("socket").action(ArgAction::Set)).args(rows);
    command
}

/// The row of a long name; it cannot be abbreviated.
pub(super) fn by_name(name: &str) -> Option<(Takes, Word)> {
    WORDS.iter().find(|row| row.0 == name).map(|row| (row.2, row.3))
}

/// The row of a letter.
pub(super) fn by_letter(letter: char) -> Option<(Takes, Word)> {
    WORDS.iter().find(|row| row.1 == Some(letter)).map(|row| (row.2, row.3))
}

/// What is to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Command {
    AddService,
    EditService,
    DeleteService,
    Flush,
    List,
    AddServer,
    DeleteServer,
    EditServer,
    Set,
    StartDaemon,
    StopDaemon,
    Restore,
    Save,
    Zero,
}

/// An option as messages name it: several words may be one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Opt {
    Numeric,
    Connection,
    Service,
    Scheduler,
    Persistent,
    Netmask,
    Server,
    Forward,
    Weight,
    Upper,
    Lower,
    McastInterface,
    Timeout,
    Daemon,
    Stats,
    Rate,
    Thresholds,
    PersistentConn,
    NoSort,
    SyncId,
    Exact,
    Ops,
    Engine,
    SchedulerFlags,
    McastGroup,
    McastPort,
    McastTtl,
    SyncMaxlen,
    TunnelInfo,
    TunnelType,
    TunnelPort,
    TunnelNoChecksum,
    TunnelChecksum,
    TunnelRemoteChecksum,
    SaveAll,
    Atomic,
}

/// Every option with the word for it, in the order in which they are checked.
#[rustfmt::skip]
const OPTIONS: &[(Opt, &str)] = &[
    (Opt::Numeric, "numeric"), (Opt::Connection, "connection"), (Opt::Service, "service-address"),
    (Opt::Scheduler, "scheduler"), (Opt::Persistent, "persistent"), (Opt::Netmask, "netmask"),
    (Opt::Server, "real-server"), (Opt::Forward, "forwarding-method"), (Opt::Weight, "weight"),
    (Opt::Upper, "u-threshold"), (Opt::Lower, "l-threshold"), (Opt::McastInterface, "mcast-interface"),
    (Opt::Timeout, "timeout"), (Opt::Daemon, "daemon"), (Opt::Stats, "stats"), (Opt::Rate, "rate"),
    (Opt::Thresholds, "thresholds"), (Opt::PersistentConn, "persistent-conn"), (Opt::NoSort, "nosort"),
    (Opt::SyncId, "syncid"), (Opt::Exact, "exact"), (Opt::Ops, "ops"), (Opt::Engine, "pe"),
    (Opt::SchedulerFlags, "sched-flags"), (Opt::McastGroup, "mcast-group"), (Opt::McastPort, "mcast-port"),
    (Opt::McastTtl, "mcast-ttl"), (Opt::SyncMaxlen, "sync-maxlen"), (Opt::TunnelInfo, "tun-info"),
    (Opt::TunnelType, "tun-type"), (Opt::TunnelPort, "tun-port"), (Opt::TunnelNoChecksum, "tun-nocsum"),
    (Opt::TunnelChecksum, "tun-csum"), (Opt::TunnelRemoteChecksum, "tun-remcsum"),
    (Opt::SaveAll, "save-all"), (Opt::Atomic, "atomic"),
];

impl Opt {
    /// The word for it in messages.
    pub(super) fn word(self) -> &'static str {
        OPTIONS.iter().find(|(option, _)| *option == self).map_or("", |(_, word)| word)
    }
}

/// A set of options.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Options(u64);

impl Options {
    pub(super) fn has(self, option: Opt) -> bool {
        self.0 & (1 << option as u8) != 0
    }

    pub(super) fn has_any(self, options: &[Opt]) -> bool {
        options.iter().any(|option| self.has(*option))
    }

    /// Adds one; false when it was there.
    pub(super) fn add(&mut self, option: Opt) -> bool {
        let fresh = !self.has(option);
        self.0 |= 1 << option as u8;
        fresh
    }
}

/// Which options go with something: what must be there, may be there, and of which at most one may be there.
pub(super) struct Rules {
    /// The word in messages.
    word: &'static str,
    must: &'static [Opt],
    may: &'static [Opt],
    one_of: &'static [Opt],
}

const SERVICE_OPTIONS: &[Opt] =
    &[Opt::Scheduler, Opt::Persistent, Opt::Netmask, Opt::Ops, Opt::Engine, Opt::SchedulerFlags];
/// Options that describe a tunnel.
pub(super) const TUNNEL_OPTIONS: &[Opt] = &[
    Opt::TunnelType,
    Opt::TunnelPort,
    Opt::TunnelNoChecksum,
    Opt::TunnelChecksum,
    Opt::TunnelRemoteChecksum,
];
#[rustfmt::skip]
const SERVER_OPTIONS: &[Opt] = &[
    Opt::Forward, Opt::Weight, Opt::Upper, Opt::Lower,
    Opt::TunnelType, Opt::TunnelPort, Opt::TunnelNoChecksum, Opt::TunnelChecksum, Opt::TunnelRemoteChecksum,
];
#[rustfmt::skip]
const LIST_OPTIONS: &[Opt] = &[
    Opt::Numeric, Opt::Stats, Opt::Rate, Opt::Thresholds, Opt::PersistentConn, Opt::NoSort, Opt::Exact,
    Opt::TunnelInfo, Opt::SyncId,
];
const LIST_ONE_OF: &[Opt] = &[Opt::Service, Opt::Connection, Opt::Timeout, Opt::Daemon];
#[rustfmt::skip]
const DAEMON_OPTIONS: &[Opt] = &[
    Opt::McastInterface, Opt::SyncId, Opt::SyncMaxlen, Opt::McastGroup, Opt::McastPort, Opt::McastTtl,
];
const SERVER: &[Opt] = &[Opt::Service, Opt::Server];

#[rustfmt::skip]
const COMMANDS: &[(Command, Rules)] = &[
    (Command::AddService,    Rules { word: "add-service", must: &[Opt::Service], may: SERVICE_OPTIONS, one_of: &[] }),
    (Command::EditService,   Rules { word: "edit-service", must: &[Opt::Service], may: SERVICE_OPTIONS, one_of: &[] }),
    (Command::DeleteService, Rules { word: "delete-service", must: &[Opt::Service], may: &[], one_of: &[] }),
    (Command::Flush,         Rules { word: "flush", must: &[], may: &[], one_of: &[] }),
    (Command::List,          Rules { word: "list", must: &[], may: LIST_OPTIONS, one_of: LIST_ONE_OF }),
    (Command::AddServer,     Rules { word: "add-server", must: SERVER, may: SERVER_OPTIONS, one_of: &[] }),
    (Command::DeleteServer,  Rules { word: "delete-server", must: SERVER, may: &[], one_of: &[] }),
    (Command::EditServer,    Rules { word: "edit-server", must: SERVER, may: SERVER_OPTIONS, one_of: &[] }),
    (Command::Set,           Rules { word: "set", must: &[], may: &[], one_of: &[] }),
    (Command::StartDaemon,   Rules { word: "start-daemon", must: &[], may: DAEMON_OPTIONS, one_of: &[] }),
    (Command::StopDaemon,    Rules { word: "stop-daemon", must: &[], may: &[Opt::SyncId], one_of: &[] }),
    (Command::Restore,       Rules { word: "restore", must: &[], may: &[Opt::Atomic], one_of: &[] }),
    (Command::Save,          Rules { word: "save", must: &[], may: &[Opt::Numeric, Opt::SaveAll], one_of: &[] }),
    (Command::Zero,          Rules { word: "zero", must: &[], may: &[Opt::Service], one_of: &[] }),
];

const CHECKSUMS: &[Opt] = &[Opt::TunnelNoChecksum, Opt::TunnelChecksum, Opt::TunnelRemoteChecksum];
#[rustfmt::skip]
const TUNNELS: &[Rules] = &[
    Rules { word: "ipip", must: &[], may: &[], one_of: &[] },
    Rules { word: "gue", must: &[Opt::TunnelPort], may: &[], one_of: CHECKSUMS },
    Rules { word: "gre", must: &[], may: &[], one_of: &[Opt::TunnelNoChecksum, Opt::TunnelChecksum] },
];

/// The number of a tunnel type.
pub(super) fn tunnel_type(word: &str) -> Option<u8> {
    TUNNELS.iter().position(|rules| rules.word == word).and_then(|at| u8::try_from(at).ok())
}

/// The word for a tunnel type.
pub(super) fn tunnel_word(kind: u8) -> Option<&'static str> {
    TUNNELS.get(usize::from(kind)).map(|rules| rules.word)
}

/// Whether the options go with the command; else what is wrong.
pub(super) fn check_command(command: Command, options: Options) -> Result<(), String> {
    let rules = COMMANDS.iter().find(|(of, _)| *of == command).map(|(_, rules)| rules);
    rules.map_or(Ok(()), |rules| check(rules, "command", OPTIONS, options))
}

/// Whether the options that describe a tunnel go with its type; else what is wrong.
pub(super) fn check_tunnel(kind: u8, options: Options) -> Result<(), String> {
    let tunnel_options = OPTIONS.iter().filter(|(option, _)| TUNNEL_OPTIONS.contains(option));
    let described: Vec<_> =
        tunnel_options.filter(|(option, _)| *option != Opt::TunnelType).copied().collect();
    TUNNELS.get(usize::from(kind)).map_or(Ok(()), |rules| check(rules, "tunnel type", &described, options))
}

fn check(rules: &Rules, of: &str, table: &[(Opt, &str)], options: Options) -> Result<(), String> {
    let command = rules.word;
    let mut chosen: Option<&str> = None;
    for (option, word) in table {
        if !options.has(*option) {
            if rules.must.contains(option) {
                return Err(format!("You need to supply the '{word}' option for the '{command}' {of}"));
            }
        } else if rules.one_of.contains(option) {
            if let Some(other) = chosen {
                return Err(format!(
                    "The option '{word}' conflicts with the '{other}' option in the '{command}' {of}"
                ));
            }
            chosen = Some(word);
        } else if !rules.must.contains(option) && !rules.may.contains(option) {
            return Err(format!("Illegal '{word}' option with the '{command}' {of}"));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_options_has_each_once_and_in_order() {
        for (at, (option, _)) in OPTIONS.iter().enumerate() {
            assert_eq!(*option as usize, at);
        }
        assert!(OPTIONS.len() < 64);
        assert_eq!(OPTIONS.last().map(|(option, _)| *option), Some(Opt::Atomic));
    }

    #[test]
    fn no_letter_and_no_name_means_two_things() {
        for (at, (name, letter, takes, word)) in WORDS.iter().enumerate() {
            for (other, other_letter, other_takes, other_word) in &WORDS[..at] {
                assert!(letter.is_none() || letter != other_letter, "{name}");
                assert!(name != other || (word, takes) == (other_word, other_takes), "{name}");
            }
        }
    }
}

//! The table's changes for people: a line each, as the difference between two files is printed.

use std::fmt::Write as _;

use super::op::seconds;
use super::{DestEntry, Entry, Op, Table};
use crate::ipvs::{Method, flag, tunnel_flag, tunnel_type};

/// Names of the idle times, in the order of [`Op::Timeouts`].
const TIMEOUTS: [&str; 11] = [
    "tcp",
    "tcpfin",
    "udp",
    "synsent",
    "synrecv",
    "timewait",
    "close",
    "closewait",
    "lastack",
    "listen",
    "synack",
];

/// Names and values of one object; no value: not set.
type Values = Vec<(&'static str, Option<String>)>;

impl Table {
    /// An op that is about to be taken, in a line: `+` for what comes, `~` for what is edited, `-` for what goes.
    /// `None` when it changes nothing.
    pub fn describe(&self, op: &Op) -> Option<String> {
        Some(match op {
            Op::Service(head) => {
                let mut after = Table::default();
                after.take(op);
                let new = values(after.entry(&head.key())?);
                match self.entry(&head.key()) {
                    None => format!("+ service {}{}", head.key(), given(&new)),
                    Some(old) => format!("~ service {} {}", head.key(), edited(&values(old), &new)?),
                }
            }
            Op::NoService(key) => format!("- service {}", self.entry(key)?.key),
            Op::Dest(service, dest) => match self.entry(service).and_then(|entry| entry.dest(&dest.key)) {
                None => format!("+ dest {} of {service}{}", dest.key, given(&dest_values(dest))),
                Some(old) => {
                    let edited = edited(&dest_values(old), &dest_values(dest))?;
                    format!("~ dest {} of {service} {edited}", dest.key)
                }
            },
            Op::NoDest(service, dest) => format!("- dest {dest} of {service}"),
            Op::Clear => "- all services".to_owned(),
            Op::Timeouts(new) => {
                let values = |seconds: &[u32; 11]| {
                    TIMEOUTS.into_iter().zip(seconds.map(|s| Some(s.to_string()))).collect::<Values>()
                };
                format!("~ timeouts {}", edited(&values(&seconds(&self.timeouts)), &values(new))?)
            }
            Op::Daemons(new) => {
                let names = |daemons: &[crate::ipvs::Daemon]| {
                    let name =
                        |d: &crate::ipvs::Daemon| format!("{:?} on {}", d.state, d.interface).to_lowercase();
                    daemons.iter().map(name).collect::<Vec<_>>().join(", ")
                };
                format!("~ sync daemons [{}] -> [{}]", names(&self.daemons), names(new))
            }
            Op::Tunables(text) => {
                let changes = self.tunables.changes(&self.tunables_of(text));
                let texts: Vec<_> = changes.iter().map(ToString::to_string).collect();
                return (!texts.is_empty()).then(|| texts.join("; "));
            }
            // A setting of the file brought it about, which has its own line.
            Op::Defaults { .. } => return None,
        })
    }
}

/// What can be set on a service.
fn values(entry: &Entry) -> Values {
    let options = &entry.options;
    let has = |bit| options.flags & bit != 0;
    let persistent = has(flag::PERSISTENT).then(|| options.timeout_seconds.to_string());
    let full = options.netmask == entry.key.family().full_netmask();
    let scheduler_flags: Vec<_> = (1..)
        .zip(flag::SCHEDULER)
        .filter(|(_, bit)| has(*bit))
        .map(|(number, _)| format!("flag-{number}"))
        .collect();
    vec![
        ("scheduler", Some(options.scheduler.clone())),
        ("persistent", persistent),
        ("netmask", (!full).then(|| netmask(entry))),
        ("engine", options.engine.clone()),
        ("one-packet", has(flag::ONE_PACKET).then(|| "true".to_owned())),
        ("flags", (!scheduler_flags.is_empty()).then(|| scheduler_flags.join(","))),
        ("announce", entry.announce.map(|yes| yes.to_string())),
        ("unmatched", entry.unmatched.map(|answer| answer.to_string())),
    ]
}

fn netmask(entry: &Entry) -> String {
    let mask = entry.options.netmask;
    match entry.key.family() {
        crate::ipvs::Family::V4 => std::net::Ipv4Addr::from_bits(mask).to_string(),
        crate::ipvs::Family::V6 => mask.to_string(),
    }
}

/// What can be set on a destination.
fn dest_values(dest: &DestEntry) -> Values {
    let options = &dest.options;
    let method = match options.method {
        Method::MASQUERADE => "nat".to_owned(),
        Method::LOCAL => "local".to_owned(),
        Method::TUNNEL => "tunnel".to_owned(),
        Method::DIRECT_ROUTE => "dr".to_owned(),
        Method(other) => other.to_string(),
    };
    let tunnel = options.tunnel;
    let checksum = match tunnel.flags {
        flags if flags & tunnel_flag::REMOTE_CHECKSUM != 0 => "remcsum",
        flags if flags & tunnel_flag::CHECKSUM != 0 => "csum",
        _ => "nocsum",
    };
    let kind = match tunnel.kind {
        tunnel_type::IPIP => None,
        tunnel_type::GUE => Some(format!("gue:{}:{checksum}", tunnel.port)),
        _ => Some(format!("gre:{checksum}")),
    };
    vec![
        ("method", Some(method)),
        ("weight", Some(options.weight.to_string())),
        ("upper", Some(options.upper.to_string())),
        ("lower", Some(options.lower.to_string())),
        ("tunnel", kind),
    ]
}

/// ` name value` for each that is set.
fn given(values: &Values) -> String {
    let mut out = String::new();
    for (name, value) in values {
        if let Some(value) = value {
            let _ = write!(out, " {name} {value}");
        }
    }
    out
}

/// `name old -> new` for each that differs, `None` if none does.
fn edited(old: &Values, new: &Values) -> Option<String> {
    let text = |value: &Option<String>| value.as_deref().unwrap_or("unset").to_owned();
    let pairs = old.iter().zip(new).filter(|(old, new)| old.1 != new.1);
    let texts: Vec<_> = pairs.map(|(o, n)| format!("{} {} -> {}", o.0, text(&o.1), text(&n.1))).collect();
    (!texts.is_empty()).then(|| texts.join(", "))
}

//! Values of options: what each may be, and what is said when it is something else.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::address::number;
use super::order::Stop;
use crate::ipvs::flag;

/// Longest timeout that can be asked for, seconds: 31 days.
const TIMEOUT_MAX: i64 = 31 * 24 * 60 * 60;

/// A timeout in seconds.
pub(super) fn timeout(value: &str, min: i64) -> Result<u32, Stop> {
    number(value, min, TIMEOUT_MAX)
        .and_then(|seconds| u32::try_from(seconds).ok())
        .ok_or_else(|| Stop::usage(format!("invalid timeout value `{value}' specified")))
}

/// A multicast group.
pub(super) fn group(value: &str) -> Result<IpAddr, Stop> {
    let (version, address) = if value.contains(':') {
        ("IPv6", value.parse::<Ipv6Addr>().map(IpAddr::from))
    } else {
        ("IPv4", value.parse::<Ipv4Addr>().map(IpAddr::from))
    };
    address
        .ok()
        .filter(IpAddr::is_multicast)
        .ok_or_else(|| Stop::usage(format!("invalid {version} mcast-group `{value}'")))
}

/// Names of scheduler flags: the scheduler they are for, if only one, and the bit.
#[rustfmt::skip]
const SCHEDULER_FLAGS: &[(&str, Option<&str>, u32)] = &[
    ("flag-1", None, flag::SCHEDULER[0]),
    ("flag-2", None, flag::SCHEDULER[1]),
    ("flag-3", None, flag::SCHEDULER[2]),
    ("sh-fallback", Some("sh"), flag::SCHEDULER[0]),
    ("sh-port", Some("sh"), flag::SCHEDULER[1]),
    ("mh-fallback", Some("mh"), flag::SCHEDULER[0]),
    ("mh-port", Some("mh"), flag::SCHEDULER[1]),
];

/// Bits of a list of scheduler flags, for a service with this scheduler.
pub(super) fn scheduler_flags(scheduler: &str, list: &str) -> Result<u32, Stop> {
    let mut names = list.split(',').filter(|name| !name.is_empty()).peekable();
    // ipvsadm takes the empty text for no flags, and crashes on commas alone.
    if names.peek().is_none() && !list.is_empty() {
        return Err(Stop::usage(format!("invalid scheduler flag `{list}'")));
    }
    let mut bits = 0;
    for name in names {
        let (_, only_for, bit) = SCHEDULER_FLAGS
            .iter()
            .find(|(known, ..)| *known == name)
            .ok_or_else(|| Stop::usage(format!("invalid scheduler flag `{name}'")))?;
        if only_for.is_some_and(|only| only != scheduler) {
            return Err(Stop::usage(format!("incompatible scheduler flag `{name}'")));
        }
        bits |= bit;
    }
    Ok(bits)
}

/// At most so many bytes, cut between characters.
pub(super) fn cut(value: &str, max: usize) -> &str {
    let end = (0..=max.min(value.len())).rev().find(|end| value.is_char_boundary(*end));
    &value[..end.unwrap_or(0)]
}

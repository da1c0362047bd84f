//! Keys of services and destinations.

use super::row::{Key, Kind::*, Preset, Table};
use crate::{types::Method, valid::Unmatched};

/// Weights and thresholds are signed 32-bit numbers in the kernel's interface, and not negative.
const COUNT_MAX: i64 = i32::MAX as i64;

#[rustfmt::skip]
pub(super) const SERVICE: Table = Table {
    name: "service", list: true,
    sentence: "One virtual service: an address and port that clients connect to.",
    keys: &[
        Key::new("address", Service, Preset::Required, "",
            "Protocol, address and port: \"tcp://198.51.100.1:80\".",
            "It is what the service is."),
        Key::new("scheduler", Scheduler, Preset::Text("wlc"), "",
            "What chooses the destination of a new connection: rr, wrr, lc, wlc. The kernel's others are accepted and send nothing yet.",
            "ipvsadm's."),
        Key::new("flags", Flags, Preset::Empty, "",
            "Flags of the scheduler.",
            "The schedulers' own defaults."),
        Key::new("announce", Bool, Preset::Bool(true), "",
            "Whether we answer ARP for the address and announce it at start.",
            "Without it nobody finds the service, unless a router sends its packets here."),
        Key::new("unmatched", Word(Unmatched::NAMES), Preset::Unset("as policy.unmatched"), "",
            "Packets for this service that no connection takes and that make none: refused (reset) or dropped in silence (drop).",
            "One policy for all services, unless said otherwise."),
    ],
};

#[rustfmt::skip]
pub(super) const DESTINATION: Table = Table {
    name: "service.destination", list: true,
    sentence: "One real server of the service above it.",
    keys: &[
        Key::new("address", Destination, Preset::Required, "",
            "Address and port: \"10.0.0.11:8080\". Without the port, the service's.",
            "It is what the destination is."),
        Key::new("method", Word(Method::NAMES), Preset::Text("nat"), "",
            "How packets reach it: rewritten, with replies through us (nat), or by direct routing to a server that owns the service address itself (dr).",
            "nat needs nothing on the server but a route back through us."),
        Key::new("weight", Int(0, COUNT_MAX), Preset::Int(1), "",
            "Its share of new connections; 0 takes no new ones and keeps the old.",
            "ipvsadm's: all alike."),
        Key::new("upper", Int(0, COUNT_MAX), Preset::Int(0), "connections",
            "From so many connections on it takes no new ones; 0: never.",
            "ipvsadm's: no limit."),
        Key::new("lower", Int(0, COUNT_MAX), Preset::Int(0), "connections",
            "Below so many it takes new ones again; 0: below three quarters of upper.",
            "ipvsadm's."),
    ],
};

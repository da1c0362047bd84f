//! The classic mistakes of a first start, told in the log and by `weir status`: what is seen, what it likely
//! means, what to do.
//!
//! Model: every few seconds control gathers [`Facts`]; [`hints`] turns them into a list, purely. [`Hints`]
//! remembers which were told: a hint is logged when it appears, at most once an hour, and stands in the
//! status as long as it holds. A new hint is one `if` in [`hints`] and a row in its test.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::{Duration, Instant};

use config::{DestKey, ServiceKey};
use dataplane::counters::WorkerFigures;
use dataplane::verdict::DropReason;
use tracing::warn;

use crate::api::rows::WarningRow;

/// A hint that comes and goes is not logged more often than this.
const SILENCE: Duration = Duration::from_secs(3600);
/// A server is called silent after getting packets for so long without an answer; a TCP client gives up a
/// first SYN after about a minute and has sent four by then.
const SILENT_AFTER: Duration = Duration::from_secs(10);

/// What control sees of the machine and the network.
#[derive(Clone, Debug, Default)]
pub struct Facts {
    /// What workers counted in the last minute or two.
    pub recent: WorkerFigures,
    /// Ports whose link is down.
    pub links_down: Vec<String>,
    /// Gateways that do not answer ARP, with their ports.
    pub dead_gateways: Vec<(Ipv4Addr, String)>,
    /// Servers that do not answer ARP.
    pub dead_servers: Vec<Ipv4Addr>,
    /// TCP destinations behind NAT that get packets and return none.
    pub silent_dests: Vec<(ServiceKey, DestKey)>,
}

/// The hints that these facts give.
pub fn hints(facts: &Facts) -> Vec<WarningRow> {
    let recent = &facts.recent;
    let mut hints = Vec::new();
    let mut add = |seen: String, meaning: &str, remedy: &str| {
        hints.push(WarningRow { seen, meaning: meaning.to_owned(), remedy: remedy.to_owned() });
    };
    for port in &facts.links_down {
        add(
            format!("the link of port {port} is down"),
            "no cable, or the interface at the other end is down",
            "for a veth or tap device: ip link set dev PEER up",
        );
    }
    for (gateway, port) in &facts.dead_gateways {
        add(
            format!("gateway {gateway} on port {port} does not answer ARP"),
            "its address is wrong, it is down, or it is on another link",
            "check `gateway` in [[port]] and `via` in [[route]]; ping it from another machine on that link",
        );
    }
    for server in &facts.dead_servers {
        add(
            format!("server {server} does not answer ARP"),
            "it is down, its address is wrong, or it is on another link",
            "check the destination's address and the prefixes of [[port]] addresses",
        );
    }
    for (service, dest) in &facts.silent_dests {
        add(
            format!("destination {dest} of service {service} gets packets and returns none"),
            "the server has no route back through this machine, or nothing listens there",
            "make our address on the server's network its default gateway: ip route replace default via ADDRESS",
        );
    }
    if recent.partial_csum > 0 {
        add(
            "TCP or UDP packets come with a checksum over the pseudo header only".to_owned(),
            "the veth or tap peer leaves checksums to hardware that is not there; receivers drop such packets",
            "turn checksum offload off at the peer's end: ethtool -K PEER tx off",
        );
    }
    if recent.addr_conflict > 0 {
        add(
            "another machine claims one of our addresses in ARP".to_owned(),
            "the address is configured twice, often on the kernel's own interface of the same port",
            "remove it there: ip address del ADDRESS dev INTERFACE",
        );
    }
    if recent.drops_for(DropReason::NoRoute) > 0 {
        add(
            "packets have no route".to_owned(),
            "a client or server is in no network of ours, and no gateway is configured",
            "set `gateway` in [[port]] or add a [[route]]",
        );
    }
    if recent.drops_for(DropReason::ConnNomem) > 0 {
        add(
            "new connections are refused: the connection table is full".to_owned(),
            "more connections than planned, or a flood of first packets",
            "raise `max` in [connections]; see `weir conns` and sysctl drop_packet",
        );
    }
    if recent.mbuf_nomem > 0 {
        add(
            "the mbuf pool is empty now and then".to_owned(),
            "more packets are under way than queues and waiting lists should hold",
            "look at MISSED in `weir status` and report it with `weir status --json`",
        );
    }
    hints
}

/// Hints that hold, and those already logged.
#[derive(Debug, Default)]
pub struct Hints {
    held: Vec<WarningRow>,
    logged: HashMap<String, Instant>,
    suspects: HashMap<(ServiceKey, DestKey), Instant>,
}

impl Hints {
    /// Replaces the hints that hold and logs those that are new.
    pub fn update(&mut self, now: Instant, hints: Vec<WarningRow>) {
        self.logged.retain(|_, at| now.duration_since(*at) < SILENCE);
        for hint in &hints {
            self.logged.entry(hint.seen.clone()).or_insert_with(|| {
                warn!(target: "weir::worker", means = hint.meaning, remedy = hint.remedy, "{}", hint.seen);
                now
            });
        }
        self.held = hints;
    }

    /// Those that hold.
    pub fn held(&self) -> &[WarningRow] {
        &self.held
    }

    /// Of destinations that got packets and never returned one, those that have done so for long enough.
    pub fn silent(
        &mut self,
        now: Instant,
        suspects: Vec<(ServiceKey, DestKey)>,
    ) -> Vec<(ServiceKey, DestKey)> {
        let before = std::mem::take(&mut self.suspects);
        self.suspects = suspects.into_iter().map(|s| (s, before.get(&s).copied().unwrap_or(now))).collect();
        let mut silent: Vec<_> = self
            .suspects
            .iter()
            .filter(|(_, since)| now.duration_since(**since) >= SILENT_AFTER)
            .map(|(s, _)| *s)
            .collect();
        silent.sort();
        silent
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_fact_gives_its_hint() {
        assert_eq!(hints(&Facts::default()), []);
        let service = "tcp:198.51.100.1:80".parse().unwrap();
        let dest = "10.0.0.11:8080".parse().unwrap();
        let figures = |change: fn(&mut WorkerFigures)| {
            let mut recent = WorkerFigures::default();
            change(&mut recent);
            Facts { recent, ..Facts::default() }
        };
        let cases = [
            (Facts { links_down: vec!["wan".into()], ..Facts::default() }, "port wan is down", "ip link set"),
            (
                Facts {
                    dead_gateways: vec![(Ipv4Addr::new(192, 0, 2, 1), "wan".into())],
                    ..Facts::default()
                },
                "gateway 192.0.2.1 on port wan",
                "`gateway`",
            ),
            (
                Facts { dead_servers: vec![Ipv4Addr::new(10, 0, 0, 11)], ..Facts::default() },
                "server 10.0.0.11",
                "address",
            ),
            (
                Facts { silent_dests: vec![(service, dest)], ..Facts::default() },
                "10.0.0.11:8080 of service tcp:198.51.100.1:80",
                "default gateway",
            ),
            (figures(|f| f.partial_csum = 1), "pseudo header", "ethtool -K"),
            (figures(|f| f.addr_conflict = 1), "claims", "ip address del"),
            (figures(|f| f.drops[DropReason::NoRoute as usize] = 1), "no route", "gateway"),
            (figures(|f| f.drops[DropReason::ConnNomem as usize] = 1), "table is full", "max"),
            (figures(|f| f.mbuf_nomem = 1), "mbuf pool is empty", "report"),
        ];
        for (facts, seen, remedy) in cases {
            let hints = hints(&facts);
            assert_eq!(hints.len(), 1, "{facts:?}");
            assert!(hints[0].seen.contains(seen) && hints[0].remedy.contains(remedy), "{hints:?}");
        }
    }

    #[test]
    fn a_server_is_silent_only_after_a_while() {
        let suspect = ("tcp:198.51.100.1:80".parse().unwrap(), "10.0.0.11:8080".parse().unwrap());
        let start = Instant::now();
        let mut hints = Hints::default();
        assert_eq!(hints.silent(start, vec![suspect]), []);
        assert_eq!(hints.silent(start + SILENT_AFTER / 2, vec![suspect]), []);
        assert_eq!(hints.silent(start + SILENT_AFTER, vec![suspect]), [suspect]);
        assert_eq!(hints.silent(start + SILENT_AFTER, vec![]), [], "it answered");
        assert_eq!(hints.silent(start + SILENT_AFTER * 2, vec![suspect]), []);
    }

    #[test]
    fn a_hint_holds_as_long_as_its_fact() {
        let row = WarningRow { seen: "a".into(), ..WarningRow::default() };
        let mut hints = Hints::default();
        hints.update(Instant::now(), vec![row.clone()]);
        assert_eq!(hints.held(), [row]);
        hints.update(Instant::now(), Vec::new());
        assert_eq!(hints.held(), []);
    }
}

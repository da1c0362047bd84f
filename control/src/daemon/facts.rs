//! Gathering of what [`super::hints`] judges: links, neighbours, servers without an answer, recent counts.

use std::collections::{HashMap, HashSet};
use std::net::Ipv4Addr;
use std::time::Instant;

use config::{DestKey, Method, Proto, ServiceKey};
use dataplane::counters::WorkerFigures;
use dataplane::registry::Registry;

use super::hints::Facts;
use super::state::Daemon;

/// Destinations up to which each is looked at for answers; beyond, the look would cost control too much.
const DESTS_LOOKED_AT: u32 = 10_000;
/// Addresses named in hints of one kind; the first ones tell the story.
const NAMED_MAX: usize = 8;

/// What control sees now. Reads shared figures only.
pub fn gather(daemon: &mut Daemon<'_>, now: Instant, figures: &WorkerFigures) -> Facts {
    let unanswered = unanswered_arp(&daemon.registry);
    let gateways: HashMap<Ipv4Addr, u8> =
        daemon.registry.net().gateways.iter().map(|hop| (hop.addr, hop.port)).collect();
    let port_name =
        |index: u8| daemon.ports.get(usize::from(index)).map_or_else(String::new, |p| p.name.clone());
    let mut dead_gateways: Vec<_> = gateways
        .iter()
        .filter(|(addr, _)| unanswered.contains(addr))
        .map(|(addr, port)| (*addr, port_name(*port)))
        .collect();
    dead_gateways.sort();
    let links_down = daemon
        .ports
        .iter()
        .filter(|booted| booted.port.link().is_ok_and(|link| !link.up))
        .map(|booted| booted.name.clone())
        .collect();
    let (mut dead_servers, suspects) = servers(&daemon.registry, &unanswered);
    dead_servers.truncate(NAMED_MAX);
    let mut silent_dests = daemon.hints.silent(now, suspects);
    silent_dests.truncate(NAMED_MAX);
    Facts { recent: since(figures, &daemon.past[0]), links_down, dead_gateways, dead_servers, silent_dests }
}

/// Next hops that were asked for by ARP and did not answer.
fn unanswered_arp(registry: &Registry) -> HashSet<Ipv4Addr> {
    registry.shared().neigh.rows().filter(|row| row.state == "failed").map(|row| row.addr).collect()
}

/// Servers that do not answer ARP, and TCP destinations behind NAT that got packets and never returned one.
fn servers(
    registry: &Registry,
    unanswered: &HashSet<Ipv4Addr>,
) -> (Vec<Ipv4Addr>, Vec<(ServiceKey, DestKey)>) {
    let (mut dead, mut suspects) = (Vec::new(), Vec::new());
    if registry.sizes().1 > DESTS_LOOKED_AT {
        return (dead, suspects);
    }
    for row in registry.rows() {
        for dest in &row.dests {
            let addr = dest.dest.addr;
            let answers = dest.totals.outpkts > 0 || dest.totals.inpkts == 0;
            if unanswered.contains(&addr) {
                dead.push(addr);
            } else if !answers && dest.dest.method == Method::Nat && row.service.key.proto == Proto::Tcp {
                suspects.push((row.service.key, DestKey::new(addr.into(), dest.dest.port)));
            }
        }
    }
    dead.sort();
    dead.dedup();
    (dead, suspects)
}

/// What was counted since `base`, for the figures that hints look at.
fn since(now: &WorkerFigures, base: &WorkerFigures) -> WorkerFigures {
    let mut recent = *now;
    recent.partial_csum -= base.partial_csum;
    recent.addr_conflict -= base.addr_conflict;
    recent.mbuf_nomem -= base.mbuf_nomem;
    for (count, before) in recent.drops.iter_mut().zip(base.drops) {
        *count -= before;
    }
    recent
}

//! Services and destinations.

use std::collections::HashMap;
use std::net::IpAddr;

use super::place::{Hop, Place, not_a_host};
use crate::error::{Problems, Span};
use crate::keys;
use crate::section::Section;
use crate::types::{DestKey, FLAGS, Method, Scheduler, ServiceFlags, ServiceKey};
use crate::valid::{Destination, Limits, Policy, Service, ServiceSettings};
use crate::value::Value;
use crate::walk::Document;

/// All services; those with a problem are left out, and the problem noted.
pub(super) fn validate(
    document: &Document,
    place: &Place,
    policy: &Policy,
    limits: &Limits,
    problems: &mut Problems,
) -> Vec<Service> {
    let mut rules = Rules { place, problems, announced: announced(document) };
    let mut seen: HashMap<ServiceKey, Span> = HashMap::new();
    let mut announces: HashMap<IpAddr, (bool, Span)> = HashMap::new();
    let mut services = Vec::new();
    for (section, dests) in &document.services {
        let settings = rules.settings(section, policy);
        let key = match section.given("address") {
            Some((Value::Service(key), at)) => {
                rules.address(*key, settings.announce, at, section);
                rules.unique(*key, at, section, &mut seen);
                rules.same_announce(key.addr, settings.announce, section, &mut announces);
                Some(*key)
            }
            _ => None,
        };
        let destinations = rules.destinations(key, dests);
        services.extend(key.map(|key| Service { key, settings, destinations }));
    }
    within_limits(document, limits, problems);
    services
}

struct Rules<'a> {
    place: &'a Place,
    problems: &'a mut Problems,
    /// Service addresses that we answer ARP for.
    announced: HashMap<IpAddr, ServiceKey>,
}

impl Rules<'_> {
    fn settings(&mut self, section: &Section, policy: &Policy) -> ServiceSettings {
        let scheduler = match section.given("scheduler") {
            Some((Value::Scheduler(scheduler), _)) => *scheduler,
            _ => Scheduler::Wlc,
        };
        let unmatched = match section.given("unmatched") {
            Some(_) => section.field("unmatched"),
            None => policy.unmatched,
        };
        let flags = self.flags(section, scheduler);
        ServiceSettings { scheduler, flags, announce: section.field("announce"), unmatched }
    }

    fn flags(&mut self, section: &Section, scheduler: Scheduler) -> ServiceFlags {
        let given = match section.given("flags") {
            Some((Value::Flags(list), _)) => list.as_slice(),
            _ => &[],
        };
        let mut flags = ServiceFlags::default();
        for (name, at) in given {
            let (_, bits, owner) = FLAGS.iter().find(|f| f.0 == *name).expect("checked against FLAGS");
            match owner {
                Some(owner) if *owner != scheduler && !section.refused("scheduler") => {
                    self.problems
                        .push(
                            at,
                            section.path("flags"),
                            format!("{name} is no flag of scheduler {scheduler}"),
                        )
                        .help(format!("remove the flag, or write scheduler = \"{owner}\""));
                }
                _ => flags = flags.union(*bits),
            }
        }
        flags
    }

    fn address(&mut self, key: ServiceKey, announce: bool, at: &Span, section: &Section) {
        let path = section.path("address");
        if let Some(why) = self.no_host(key.addr) {
            self.problems
                .push(at, path, format!("{} {why}", key.addr))
                .help("a service has an address that clients can send to");
        } else if let Some(port) = self.place.gateway(key.addr) {
            self.problems.push(at, path, format!("{} is the gateway of port {port}", key.addr)).help(
                "announcing it would take the router's packets; give the service an address of its own",
            );
        } else if let Some(port) = self.place.own(key.addr)
            && announce
        {
            self.problems
                .push(
                    at,
                    path,
                    format!("{} is the address of port {port}, which answers for it already", key.addr),
                )
                .help("write announce = false for this service, or give it an address of its own");
        }
    }

    fn unique(
        &mut self,
        key: ServiceKey,
        at: &Span,
        section: &Section,
        seen: &mut HashMap<ServiceKey, Span>,
    ) {
        if let Some(first) = seen.insert(key, at.clone()) {
            let line = self.problems.line_of(&first);
            self.problems
                .push(at, section.path("address"), format!("there is a service {key} already"))
                .help(format!("the first is in line {line}; put all destinations there"));
        }
    }

    fn same_announce(
        &mut self,
        address: IpAddr,
        announce: bool,
        section: &Section,
        announces: &mut HashMap<IpAddr, (bool, Span)>,
    ) {
        if section.refused("announce") {
            return;
        }
        let at = section.place("announce");
        let (first, first_at) = announces.entry(address).or_insert((announce, at.clone()));
        if *first != announce {
            let line = self.problems.line_of(first_at);
            self.problems
                .push(
                    at,
                    section.path("announce"),
                    format!("{announce} here and {first} in another service of {address}"),
                )
                .help(format!(
                    "the other is in line {line}; an address is announced or not, for all its services"
                ));
        }
    }

    fn destinations(&mut self, service: Option<ServiceKey>, sections: &[Section]) -> Vec<Destination> {
        let mut seen: HashMap<DestKey, Span> = HashMap::new();
        let mut destinations = Vec::new();
        for section in sections {
            let settings = DestinationSettings::read(section);
            self.thresholds(&settings, section);
            let (Some(service), Some((Value::Destination(address, port), at))) =
                (service, section.given("address"))
            else {
                continue;
            };
            let key = DestKey::new(*address, port.unwrap_or(service.port));
            self.reachable(key, service, settings.method, at, section);
            if let Some(first) = seen.insert(key, at.clone()) {
                let line = self.problems.line_of(&first);
                self.problems
                    .push(at, section.path("address"), format!("{service} has a destination {key} already"))
                    .help(format!("the first is in line {line}; for a larger share raise its weight"));
            }
            let DestinationSettings { method, weight, upper, lower } = settings;
            destinations.push(Destination { key, method, weight, upper, lower });
        }
        destinations
    }

    fn thresholds(&mut self, settings: &DestinationSettings, section: &Section) {
        let DestinationSettings { upper, lower, .. } = *settings;
        if lower > upper && !section.refused("upper") {
            let help = match upper {
                0 => "lower is where upper ends: write an upper, or remove lower".to_string(),
                _ => format!("write a lower of at most {upper}, or 0 for three quarters of upper"),
            };
            self.problems
                .push(
                    section.place("lower"),
                    section.path("lower"),
                    format!("{lower} is above upper, which is {upper}"),
                )
                .help(help);
        }
    }

    /// Whether packets can be sent to the destination by its method.
    fn reachable(&mut self, key: DestKey, service: ServiceKey, method: Method, at: &Span, section: &Section) {
        let (path, address) = (section.path("address"), key.addr);
        if let Some(why) = self.no_host(address) {
            self.problems
                .push(at, path, format!("{address} {why}"))
                .help("a destination is one server: write its own address");
            return;
        }
        if let Some(port) = self.place.own(address) {
            self.problems
                .push(at, path, format!("{address} is the address of port {port}: there is no server here"))
                .help("write the address of the server");
            return;
        }
        if let Some(other) = self.announced.get(&address) {
            let other = *other;
            self.problems
                .push(at, path, format!("{address} is the address of service {other}, which is announced here"))
                .help("write the server's own address; with dr too, where the service address is only on its loopback");
            return;
        }
        match method {
            Method::Nat => self.routed(address, at, &path),
            Method::Dr => {
                if key.port != service.port {
                    self.problems
                        .push(
                            at,
                            &path,
                            format!("port {}, but dr leaves the port {}", key.port, service.port),
                        )
                        .help(format!("write \"{address}\" without a port, or method = \"nat\""));
                }
                self.on_link(address, at, &path);
            }
        }
    }

    fn routed(&mut self, address: IpAddr, at: &Span, path: &str) {
        if !self.place.partial && self.place.hop(address).is_none() {
            self.problems
                .push(at, path, format!("there is no route to {address}"))
                .help("add a [[route]] for it, or a gateway to a [[port]]");
        }
    }

    fn on_link(&mut self, address: IpAddr, at: &Span, path: &str) {
        let why = match self.place.hop(address) {
            Some(Hop::OnLink(_)) => return,
            Some(Hop::Gateway(router)) => {
                format!("{address} is behind router {router}, where dr cannot reach it")
            }
            None => format!("{address} is on no network of a port, where dr cannot reach it"),
        };
        if !self.place.partial {
            let nets = self.place.on_link(None);
            let problem = self.problems.push(at, path, why);
            if !nets.is_empty() {
                problem.expected(format!("an address in one of: {nets}"));
            }
            problem.help(
                "dr changes only the frame, so the server must be on the wire of a port; \
                 write method = \"nat\", or a [[route]] with port if it is on that wire",
            );
        }
    }

    fn no_host(&self, address: IpAddr) -> Option<String> {
        not_a_host(address).map(str::to_string).or_else(|| self.place.not_a_host_here(address))
    }
}

/// What can be edited of a destination.
struct DestinationSettings {
    method: Method,
    weight: u32,
    upper: u32,
    lower: u32,
}

impl DestinationSettings {
    fn read(section: &Section) -> DestinationSettings {
        DestinationSettings {
            method: section.field("method"),
            weight: section.field("weight"),
            upper: section.field("upper"),
            lower: section.field("lower"),
        }
    }
}

fn announced(document: &Document) -> HashMap<IpAddr, ServiceKey> {
    let mut announced = HashMap::new();
    for (section, _) in &document.services {
        if let Some((Value::Service(key), _)) = section.given("address")
            && section.field("announce")
        {
            announced.entry(key.addr).or_insert(*key);
        }
    }
    announced
}

fn within_limits(document: &Document, limits: &Limits, problems: &mut Problems) {
    let section = document.single("limits");
    let services = document.services.len();
    let dests: usize = document.services.iter().map(|(_, dests)| dests.len()).sum();
    let given = [
        ("services", services, limits.services),
        ("destinations", dests, limits.destinations),
        ("neighbours", document.neighbours.len(), limits.neighbours),
    ];
    for (name, count, limit) in given {
        if count > limit as usize && !section.refused(name) {
            let max = match keys::table("limits").key(name).map(|key| key.kind) {
                Some(keys::Kind::Int(_, max)) => max,
                _ => unreachable!("limits are integers"),
            };
            problems
                .push(section.place(name), section.path(name), format!("{limit}, but the file has {count}"))
                .help(format!("in [limits] write {name} = {count} or more, up to {max}"));
        }
    }
}

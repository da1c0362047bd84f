//! Ports, routes and neighbours, and where they put an address.

use std::collections::HashMap;
use std::net::IpAddr;

use ipnet::IpNet;

use super::place::{Hop, Place, edge_of, not_a_host};
use crate::error::{Problems, Span};
use crate::section::Section;
use crate::valid::{Neighbour, Network, Port, PortAddresses, Route, Via};
use crate::value::{Value, nearest, quoted};
use crate::walk::Document;

/// All of the network, and the picture of it.
pub(super) fn validate(document: &Document, problems: &mut Problems) -> (Vec<Port>, Network, Place) {
    let mut place = Place::default();
    let ports = ports(&document.ports, &mut place, problems);
    let addresses = addresses(&document.ports, &mut place, problems);
    let mut defaults = Vec::new();
    let gateways = gateways(&document.ports, &mut place, &mut defaults, problems);
    let ports_network = addresses
        .into_iter()
        .zip(gateways)
        .zip(&place.names)
        .map(|((addresses, gateways), name)| PortAddresses { name: name.clone(), addresses, gateways })
        .collect();
    let routes: Vec<_> =
        document.routes.iter().filter_map(|s| route(s, &mut place, &mut defaults, problems)).collect();
    place.partial |= routes.len() < document.routes.len();
    let neighbours = neighbours(&document.neighbours, &place, problems);
    (ports, Network { ports: ports_network, routes, neighbours }, place)
}

fn ports(sections: &[Section], place: &mut Place, problems: &mut Problems) -> Vec<Port> {
    let mut names: HashMap<String, Span> = HashMap::new();
    let mut devices: HashMap<String, Span> = HashMap::new();
    let mut ports = Vec::new();
    for section in sections {
        let text = |key| match section.given(key) {
            Some((Value::Text(text), _)) => text.clone(),
            _ => String::new(),
        };
        let (name, device) = (text("name"), text("device"));
        place.partial |= section.refused("name") || section.refused("addresses");
        if let Some(first) = names.insert(name.clone(), section.place("name").clone())
            && !name.is_empty()
        {
            let line = problems.line_of(&first);
            problems
                .push(section.place("name"), section.path("name"), format!("there is a port {name} already"))
                .help(format!("the first is in line {line}; give this one another name"));
        }
        // What follows the comma are arguments: two devices of one name are one device.
        let id = device.split(',').next().unwrap_or_default().to_string();
        if let Some(first) = devices.insert(id.clone(), section.place("device").clone())
            && !id.is_empty()
        {
            let line = problems.line_of(&first);
            problems
                .push(
                    section.place("device"),
                    section.path("device"),
                    format!("device {id} is another port's"),
                )
                .help(format!(
                    "line {line} has it; a virtual device needs a number of its own, like net_af_packet1"
                ));
        }
        place.names.push(name.clone());
        ports.push(Port {
            name,
            device,
            mtu: section.field("mtu"),
            mac: section.field("mac"),
            promiscuous: section.field("promiscuous"),
        });
    }
    ports
}

fn addresses(sections: &[Section], place: &mut Place, problems: &mut Problems) -> Vec<Vec<IpNet>> {
    let mut all = Vec::new();
    for (port, section) in sections.iter().enumerate() {
        let given = match section.given("addresses") {
            Some((Value::Interfaces(list), _)) => list.as_slice(),
            _ => &[],
        };
        for (net, at) in given {
            let path = || section.path("addresses");
            let address = net.addr();
            if let Some(why) = not_a_host(address).map(str::to_string).or_else(|| edge_of(*net, address)) {
                problems
                    .push(at, path(), format!("{address} {why}"))
                    .help("give the port an address of its own in that network");
                place.partial = true;
                continue;
            }
            if let Some(other) = place.own(address).map(str::to_string) {
                problems
                    .push(at, path(), format!("{address} is given twice, here and on port {other}"))
                    .help("an address is on one port, once");
                place.partial = true;
                continue;
            }
            place.own.insert(address, port);
            place.nets.push(*net);
            match place.hops.get(&net.trunc()) {
                Some(Hop::OnLink(other)) if *other != port => {
                    let name = &place.names[*other];
                    problems
                        .push(at, path(), format!("{} is the network of port {name} too", net.trunc()))
                        .help(
                            "one network is on one port; two ports on one switch need networks of their own",
                        );
                    place.partial = true;
                }
                _ => place.insert(net.trunc(), Hop::OnLink(port)),
            }
        }
        all.push(given.iter().map(|(net, _)| *net).collect());
    }
    all
}

fn gateways(
    sections: &[Section],
    place: &mut Place,
    defaults: &mut Vec<(IpNet, Span)>,
    problems: &mut Problems,
) -> Vec<Vec<IpAddr>> {
    let mut all = Vec::new();
    for (port, section) in sections.iter().enumerate() {
        let given = match section.given("gateway") {
            Some((Value::Addresses(list), _)) => list.as_slice(),
            _ => &[],
        };
        place.partial |= section.refused("gateway");
        for (gateway, at) in given {
            if !section.refused("addresses") {
                router(*gateway, Some(port), at, &section.path("gateway"), place, problems);
            }
            place.gateways.insert(*gateway, port);
            let default = IpNet::new(any_address(*gateway), 0).expect("0 is a prefix length");
            default_route(default, at, &section.path("gateway"), defaults, problems);
            place.insert(default, Hop::Gateway(*gateway));
        }
        all.push(given.iter().map(|(gateway, _)| *gateway).collect());
    }
    all
}

fn route(
    section: &Section,
    place: &mut Place,
    defaults: &mut Vec<(IpNet, Span)>,
    problems: &mut Problems,
) -> Option<Route> {
    if section.refused("prefix") || section.refused("via") || section.refused("port") {
        return None;
    }
    let Some((Value::Network(prefix), at)) = section.given("prefix") else { return None };
    let (via, hop) = match (section.given("via"), section.given("port")) {
        (Some((Value::Address(address), at)), None) => {
            let port = router(*address, None, at, &section.path("via"), place, problems)?;
            (Via::Gateway { address: *address, port }, Hop::Gateway(*address))
        }
        (None, Some((Value::Text(name), at))) => {
            let port = port_named(name, at, &section.path("port"), place, problems)?;
            (Via::Port(port), Hop::OnLink(port))
        }
        (Some(_), Some((_, at))) => {
            problems
                .push(at, section.path("port"), "the route has a via already")
                .help("keep via for a router, or port for hosts on the wire of that port");
            return None;
        }
        _ => {
            problems
                .push(&section.at, "route", "says nothing of where the prefix is")
                .help("add via = \"ADDRESS\" of a router, or port = \"NAME\"");
            return None;
        }
    };
    if prefix.prefix_len() == 0 {
        default_route(*prefix, at, &section.path("prefix"), defaults, problems);
    } else if let Some(other) = place.hops.get(prefix) {
        let where_to = match other {
            Hop::OnLink(port) => format!("on the wire of port {}", place.names[*port]),
            Hop::Gateway(router) => format!("behind {router}"),
        };
        problems
            .push(at, section.path("prefix"), format!("{prefix} is {where_to} already"))
            .help("remove one of the two; a longer prefix wins over a shorter one");
    }
    place.insert(*prefix, hop);
    Some(Route { prefix: *prefix, via })
}

fn neighbours(sections: &[Section], place: &Place, problems: &mut Problems) -> Vec<Neighbour> {
    let mut seen: HashMap<IpAddr, Span> = HashMap::new();
    let mut neighbours = Vec::new();
    for section in sections {
        let (Some((Value::Address(address), at)), Some((Value::Mac(mac), _))) =
            (section.given("address"), section.given("mac"))
        else {
            continue;
        };
        let path = section.path("address");
        if let Some(first) = seen.insert(*address, at.clone()) {
            let line = problems.line_of(&first);
            problems
                .push(at, path, format!("{address} has an entry already"))
                .help(format!("the first is in line {line}; remove one of the two"));
            continue;
        }
        if let Some(name) = place.own(*address) {
            problems
                .push(at, path, format!("{address} is the address of port {name} itself"))
                .help("remove the entry: a port knows its own Ethernet address");
            continue;
        }
        let named = match section.given("port") {
            Some((Value::Text(name), at)) => {
                let Some(port) = port_named(name, at, &section.path("port"), place, problems) else {
                    continue;
                };
                Some(port)
            }
            _ => None,
        };
        match (place.hop(*address), named) {
            (Some(Hop::OnLink(port)), None) => {
                neighbours.push(Neighbour { address: *address, mac: *mac, port });
            }
            (Some(Hop::OnLink(port)), Some(named)) if port == named => {
                neighbours.push(Neighbour { address: *address, mac: *mac, port });
            }
            _ if !place.partial => {
                let on = named.map_or("any port".to_string(), |port| format!("port {}", place.names[port]));
                problems
                    .push(at, path, format!("{address} is not on a network of {on}"))
                    .expected(format!("an address in one of: {}", place.on_link(None)))
                    .help("a host behind a router is reached by the router's Ethernet address");
            }
            _ => {}
        }
    }
    neighbours
}

/// The port on whose network a router is; notes a problem if there is none, or if it is not `port`.
fn router(
    address: IpAddr,
    port: Option<usize>,
    at: &Span,
    path: &str,
    place: &Place,
    problems: &mut Problems,
) -> Option<usize> {
    if let Some(name) = place.own(address) {
        problems
            .push(at, path, format!("{address} is the address of port {name} itself"))
            .help("write the router's address");
        return None;
    }
    if let Some(why) = not_a_host(address).map(str::to_string).or_else(|| place.not_a_host_here(address)) {
        problems.push(at, path, format!("{address} {why}")).help("write the router's address");
        return None;
    }
    // Gateways come before routes, so that what is on-link here is on the network of a port address.
    match place.hop(address) {
        Some(Hop::OnLink(found)) if port.is_none_or(|port| port == found) => return Some(found),
        _ if place.partial => return None,
        _ => {}
    }
    let on = port.map_or("any port".to_string(), |port| format!("port {}", place.names[port]));
    let nets = place.on_link(port);
    let problem = problems.push(at, path, format!("{address} is not on a network of {on}"));
    if nets.is_empty() {
        problem.help("give the port an address in the router's network: addresses = [\"ADDRESS/LENGTH\"]");
    } else {
        problem
            .expected(format!("an address in one of: {nets}"))
            .help("correct it, or give the port an address in the router's network");
    }
    None
}

fn default_route(
    default: IpNet,
    at: &Span,
    path: &str,
    defaults: &mut Vec<(IpNet, Span)>,
    problems: &mut Problems,
) {
    if let Some((_, first)) = defaults.iter().find(|(net, _)| *net == default) {
        let line = problems.line_of(first);
        problems
            .push(at, path, "a second route for all destinations")
            .help(format!("the first is in line {line}; write a [[route]] for the prefixes this one is for"));
    }
    defaults.push((default, at.clone()));
}

fn port_named(name: &str, at: &Span, path: &str, place: &Place, problems: &mut Problems) -> Option<usize> {
    let found = place.names.iter().position(|port| port == name);
    if found.is_none() && !place.partial {
        let names = place.names.iter().map(String::as_str);
        let near = nearest(name, names.clone()).map(|near| format!("did you mean \"{near}\"?"));
        let problem = problems.push(at, path, format!("there is no port {}", quoted(name)));
        if !place.names.is_empty() {
            problem.expected(crate::keys::one_of(names));
        }
        problem.help(near.unwrap_or_else(|| "ports are named by [[port]]".to_string()));
    }
    found
}

fn any_address(like: IpAddr) -> IpAddr {
    match like {
        IpAddr::V4(_) => IpAddr::V4(std::net::Ipv4Addr::UNSPECIFIED),
        IpAddr::V6(_) => IpAddr::V6(std::net::Ipv6Addr::UNSPECIFIED),
    }
}

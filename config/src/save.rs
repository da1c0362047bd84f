//! A configuration as text: for people and for reading back.
//!
//! Model: every object gives its keys with TOML values in the order of the table of keys; [`Valid::to_toml`]
//! writes them under their headers with the sentences of the table as comments. Whatever is written parses back
//! to the same configuration.

use std::fmt::Write;

use ipnet::IpNet;

use crate::field::{Field, Settings, toml_list, toml_text};
use crate::keys::{self, Key, Preset, Table};
use crate::types::{FLAGS, Scheduler, ServiceFlags, ServiceKey};
use crate::valid::{
    Destination, Neighbour, Network, Port, PortAddresses, Route, ServiceSettings, Valid, Via,
};

/// Keys of one object with their TOML values; `None`: not written.
pub(crate) type Values = Vec<(&'static str, Option<String>)>;

impl Valid {
    /// The configuration as a file: every default written out, every key with its sentence and unit.
    ///
    /// Parses back to the same value. Objects of a list are commented once, at the first.
    pub fn to_toml(&self) -> String {
        let mut out = String::new();
        table(&mut out, "daemon", self.daemon().values());
        table(&mut out, "eal", self.eal().values());
        for (i, (port, addresses)) in self.ports().iter().zip(&self.network.ports).enumerate() {
            let mut values = vec![("name", port.name.toml())];
            let mut rest = port_values(port);
            let device = rest.remove(0);
            values.push(device);
            values.extend(address_values(addresses));
            values.extend(rest);
            object(&mut out, "port", values, i == 0);
        }
        for (i, route) in self.network.routes.iter().enumerate() {
            object(&mut out, "route", route_values(route, &self.network), i == 0);
        }
        for (i, neighbour) in self.network.neighbours.iter().enumerate() {
            object(&mut out, "neighbour", neighbour_values(neighbour, &self.network), i == 0);
        }
        table(&mut out, "workers", self.workers().values());
        table(&mut out, "estimators", self.estimators.values());
        table(&mut out, "connections", self.connections().values());
        table(&mut out, "limits", self.limits().values());
        table(&mut out, "timeouts", self.timeouts.values());
        table(&mut out, "policy", self.policy.values());
        table(&mut out, "sysctl", self.knobs.values());
        let mut first_dest = true;
        for (i, service) in self.services.iter().enumerate() {
            let mut values = vec![("address", Some(toml_text(&service_url(&service.key))))];
            values.extend(service_values(&service.settings));
            object(&mut out, "service", values, i == 0);
            for dest in &service.destinations {
                let mut values = vec![("address", Some(toml_text(&dest.key.to_string())))];
                values.extend(dest_values(dest));
                object(&mut out, "service.destination", values, first_dest);
                first_dest = false;
            }
        }
        out
    }
}

/// A service as its `address` key writes it: `tcp://198.51.100.1:80`.
pub(crate) fn service_url(key: &ServiceKey) -> String {
    format!("{}://{}", key.proto, std::net::SocketAddr::new(key.addr, key.port))
}

/// Settings of a service, without its address.
pub(crate) fn service_values(settings: &ServiceSettings) -> Values {
    vec![
        ("scheduler", Some(toml_text(settings.scheduler.name()))),
        ("flags", Some(toml_list(flag_names(settings.flags, settings.scheduler)))),
        ("announce", settings.announce.toml()),
        ("unmatched", settings.unmatched.toml()),
    ]
}

/// Settings of a destination, without its address.
pub(crate) fn dest_values(dest: &Destination) -> Values {
    vec![
        ("method", dest.method.toml()),
        ("weight", dest.weight.toml()),
        ("upper", dest.upper.toml()),
        ("lower", dest.lower.toml()),
    ]
}

/// The device part of a port, without its name.
pub(crate) fn port_values(port: &Port) -> Values {
    vec![
        ("device", port.device.toml()),
        ("mtu", port.mtu.toml()),
        ("mac", port.mac.toml()),
        ("promiscuous", port.promiscuous.toml()),
    ]
}

/// One text for each address, gateway, route and neighbour.
pub(crate) fn network_lines(network: &Network) -> Vec<String> {
    let mut lines = Vec::new();
    for port in &network.ports {
        lines.extend(port.addresses.iter().map(|address| format!("address {address} on {}", port.name)));
        lines.extend(port.gateways.iter().map(|gateway| format!("gateway {gateway} on {}", port.name)));
    }
    let place = |values: Values| {
        let given = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
        let texts: Vec<_> = given.map(|(name, value)| format!("{name} {}", without_quotes(&value))).collect();
        texts.join(" ")
    };
    lines.extend(network.routes.iter().map(|route| format!("route {}", place(route_values(route, network)))));
    lines.extend(
        network.neighbours.iter().map(|n| format!("neighbour {}", place(neighbour_values(n, network)))),
    );
    lines
}

/// A TOML text without its quotes, anything else as it is.
pub(crate) fn without_quotes(value: &str) -> &str {
    value.strip_prefix('"').and_then(|rest| rest.strip_suffix('"')).unwrap_or(value)
}

fn address_values(port: &PortAddresses) -> Values {
    vec![("addresses", Some(toml_list(&port.addresses))), ("gateway", Some(toml_list(&port.gateways)))]
}

fn route_values(route: &Route, network: &Network) -> Values {
    let (via, port) = match route.via {
        Via::Gateway { address, .. } => (Some(toml_text(&address.to_string())), None),
        Via::Port(port) => (None, network.ports[port].name.toml()),
    };
    vec![("prefix", Some(toml_text(&IpNet::to_string(&route.prefix)))), ("via", via), ("port", port)]
}

fn neighbour_values(neighbour: &Neighbour, network: &Network) -> Values {
    vec![
        ("address", Some(toml_text(&neighbour.address.to_string()))),
        ("mac", Some(toml_text(&neighbour.mac.to_string()))),
        ("port", network.ports[neighbour.port].name.toml()),
    ]
}

/// Names of the flags that are set, those of the scheduler where it has its own.
fn flag_names(flags: ServiceFlags, scheduler: Scheduler) -> Vec<&'static str> {
    let own = |bits: ServiceFlags| {
        FLAGS.iter().find(|f| f.1 == bits && f.2.is_none_or(|owner| owner == scheduler)).map(|f| f.0)
    };
    let bits = [ServiceFlags::SCHED_1, ServiceFlags::SCHED_2, ServiceFlags::SCHED_3];
    bits.into_iter().filter(|bits| flags.contains(*bits)).filter_map(own).collect()
}

fn table(out: &mut String, name: &str, values: Values) {
    object(out, name, values, true);
}

/// One table with its values; with comments if `first`.
fn object(out: &mut String, name: &str, values: Values, first: bool) {
    let table: &Table = keys::table(name);
    if !out.is_empty() {
        out.push('\n');
    }
    if first {
        line(out, &format!("# {}", table.sentence));
    }
    line(out, &table.header());
    for (name, value) in values {
        let key = table.key(name).expect("what is written is in the table of keys");
        match value {
            Some(value) if first => line(out, &format!("{name} = {value}  # {}", comment(key))),
            Some(value) => line(out, &format!("{name} = {value}")),
            None if first => line(out, &format!("# {name} is not set: {}", unset(key))),
            None => {}
        }
    }
}

fn line(out: &mut String, text: &str) {
    writeln!(out, "{text}").expect("writing to a String cannot fail");
}

fn comment(key: &Key) -> String {
    match key.unit {
        "" => key.sentence.to_string(),
        unit => format!("{unit}; {}", key.sentence),
    }
}

fn unset(key: &Key) -> &'static str {
    match key.default {
        Preset::Unset(meaning) => meaning,
        _ => unreachable!("only keys without a default value can be unset"),
    }
}

//! Services and destinations in ipvsadm's words, numbers only: for the log.

use std::net::SocketAddr;

use super::save::tunnel;
use crate::ipvs::{DestKey, DestOptions, Family, Method, ServiceKey, ServiceOptions, flag};

/// A command about a service: `-A -t 192.0.2.1:80 -s wlc`.
pub fn service(command: &str, key: &ServiceKey, options: &ServiceOptions) -> String {
    let mut out = format!("{command} {} -s {}", service_name(key), options.scheduler);
    if options.flags & flag::PERSISTENT != 0 {
        out.push_str(&format!(" -p {}", options.timeout_seconds));
    }
    if let Some(engine) = &options.engine {
        out.push_str(&format!(" --pe {engine}"));
    }
    if options.flags & flag::ONE_PACKET != 0 {
        out.push_str(" -o");
    }
    let numbers = (1..).zip(flag::SCHEDULER).filter(|(_, bit)| options.flags & bit != 0);
    let flags: Vec<String> = numbers.map(|(number, _)| format!("flag-{number}")).collect();
    if !flags.is_empty() {
        out.push_str(&format!(" -b {}", flags.join(",")));
    }
    out
}

/// A command about a destination: `-a -t 192.0.2.1:80 -r 10.0.0.11:8080 -m -w 1`.
pub fn dest(command: &str, service: &ServiceKey, key: &DestKey, options: &DestOptions) -> String {
    let method = match options.method {
        Method::MASQUERADE => " -m".to_owned(),
        Method::TUNNEL => format!(" -i{}", tunnel(&options.tunnel)),
        _ => " -g".to_owned(),
    };
    let mut out = format!("{command} {} -r {key}{method} -w {}", service_name(service), options.weight);
    for (option, value) in [("-x", options.upper), ("-y", options.lower)] {
        if value != 0 {
            out.push_str(&format!(" {option} {value}"));
        }
    }
    out
}

/// A service's name as an option: `-t 192.0.2.1:80`, `-f 7 -6`.
pub fn service_name(key: &ServiceKey) -> String {
    match *key {
        ServiceKey::Mark { family, mark } => {
            format!("-f {mark}{}", if family == Family::V6 { " -6" } else { "" })
        }
        ServiceKey::Address { protocol, address, port } => {
            format!("{} {}", protocol_option(protocol), SocketAddr::new(address, port))
        }
    }
}

/// The option that names a service of this protocol.
pub(super) fn protocol_option(protocol: u16) -> &'static str {
    match protocol {
        6 => "-t",
        17 => "-u",
        132 => "--sctp-service",
        _ => "--xxx-service",
    }
}

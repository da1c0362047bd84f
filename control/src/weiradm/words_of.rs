//! Commands in ipvsadm's words, numbers only: for the log, and what saved lines share with it.

use std::net::SocketAddr;

use super::grammar;
use crate::ipvs::{
    Daemon, DaemonState, DestKey, DestOptions, Family, Method, ServiceKey, ServiceOptions, Timeouts, Tunnel,
    flag, tunnel_flag, tunnel_type,
};
use crate::show::listing::endpoint_text;

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
    let flags = numbered(options.flags);
    if !flags.is_empty() {
        out.push_str(&format!(" -b {flags}"));
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
            format!("{} {}", protocol_option(protocol), endpoint_text(SocketAddr::new(address, port)))
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

/// The command that sets the timeouts.
pub fn timeouts(timeouts: &Timeouts) -> String {
    format!("--set {} {} {}", timeouts.tcp, timeouts.tcp_fin, timeouts.udp)
}

/// The command that starts a sync daemon.
pub fn start_daemon(daemon: &Daemon) -> String {
    format!(
        "--start-daemon {} --mcast-interface {} --syncid {} --sync-maxlen {} --mcast-group {} --mcast-port {} \
         --mcast-ttl {}",
        daemon.state.name(),
        daemon.interface,
        daemon.sync_id,
        daemon.max_bytes,
        daemon.group,
        daemon.port,
        daemon.ttl
    )
}

/// The command that stops one.
pub fn stop_daemon(state: DaemonState) -> String {
    format!("--stop-daemon {}", state.name())
}

/// Scheduler flags by the names that every scheduler knows.
pub(super) fn numbered(flags: u32) -> String {
    let set = (1..).zip(flag::SCHEDULER).filter(|(_, bit)| flags & bit != 0);
    set.map(|(number, _)| format!("flag-{number}")).collect::<Vec<_>>().join(",")
}

/// Options of a tunnelled destination, a blank before each.
pub(super) fn tunnel(tunnel: &Tunnel) -> String {
    let word = grammar::tunnel_word(tunnel.kind).unwrap_or("(null)");
    let mut out = format!(" --tun-type {word}");
    if tunnel.kind == tunnel_type::GUE {
        out.push_str(&format!(" --tun-port {}", tunnel.port));
    }
    if [tunnel_type::GUE, tunnel_type::GRE].contains(&tunnel.kind) {
        out.push_str(match tunnel.flags {
            flags if flags & tunnel_flag::REMOTE_CHECKSUM != 0 => " --tun-remcsum",
            flags if flags & tunnel_flag::CHECKSUM != 0 => " --tun-csum",
            _ => " --tun-nocsum",
        });
    }
    out
}

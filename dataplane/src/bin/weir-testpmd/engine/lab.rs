//! The network that lb and lbgen agree on when neither is told anything: one service, its servers, its clients.
//!
//! ```text
//! clients 100.64.0.0/10 ── router 192.0.2.254 ── 192.0.2.1  lb  10.0.0.254 ── servers 10.0.0.11 … 14, port 8080
//!                                                service 203.0.113.10:80, TCP and UDP
//! ```
//! lbgen is the router with all clients behind it, and all servers. With one port everything is on that one link.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use crate::settings::LbSettings;

/// Address of the service.
pub const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// Its port.
pub const PORT: u16 = 80;
/// The balancer on the clients' side.
pub const BALANCER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// The clients' router.
pub const ROUTER: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// The balancer on the servers' side.
pub const BALANCER_INSIDE: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// First client; client n has the address n / [`FLOWS_PER_CLIENT`] further.
pub const CLIENTS: u32 = u32::from_be_bytes([100, 64, 0, 0]);
/// Flows of one client address.
pub const FLOWS_PER_CLIENT: u32 = 16;

/// Servers, and the port they listen on behind NAT.
const SERVERS: [Ipv4Addr; 4] = [
    Ipv4Addr::new(10, 0, 0, 11),
    Ipv4Addr::new(10, 0, 0, 12),
    Ipv4Addr::new(10, 0, 0, 13),
    Ipv4Addr::new(10, 0, 0, 14),
];
const SERVER_PORT: u16 = 8080;

/// The balancer's configuration over these devices: one, or one for clients and one for servers.
pub fn configuration(devices: &[&str], lb: &LbSettings) -> Result<String, String> {
    let (outside, inside) = (format!("\"{BALANCER}/24\""), format!("\"{BALANCER_INSIDE}/24\""));
    let addresses = match devices.len() {
        1 => vec![format!("{outside}, {inside}")],
        2 => vec![outside, inside],
        n => return Err(format!("lb: {n} ports; without --lb-config there are one or two")),
    };
    let mut text = format!("[connections]\nmax = {}\n", lb.conns);
    for (number, (device, addresses)) in devices.iter().zip(addresses).enumerate() {
        let gateway = if number == 0 { format!("gateway = [\"{ROUTER}\"]\n") } else { String::new() };
        let _ = write!(
            text,
            "[[port]]\nname = \"p{number}\"\ndevice = \"{device}\"\naddresses = [{addresses}]\n{gateway}"
        );
    }
    let server_port = if lb.method == "nat" { SERVER_PORT } else { PORT };
    for protocol in ["tcp", "udp"] {
        let _ = write!(
            text,
            "[[service]]\naddress = \"{protocol}://{VIP}:{PORT}\"\nscheduler = \"rr\"\nannounce = false\n"
        );
        for server in SERVERS {
            let _ = write!(
                text,
                "[[service.destination]]\naddress = \"{server}:{server_port}\"\nmethod = \"{}\"\n",
                lb.method
            );
        }
    }
    Ok(text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_made_up_configuration_is_accepted() {
        for (devices, method) in [(&["net_memif0"][..], "nat"), (&["net_null0", "net_null1"], "dr")] {
            let lb = LbSettings { config: None, method: method.into(), conns: 4096 };
            let text = configuration(devices, &lb).unwrap();
            let valid = config::parse(&text, "lab").unwrap_or_else(|errors| panic!("{errors}\n{text}"));
            assert_eq!((valid.ports().len(), valid.services().len()), (devices.len(), 2));
        }
        let lb = LbSettings { config: None, method: "nat".into(), conns: 4096 };
        assert!(configuration(&["a", "b", "c"], &lb).is_err());
    }
}

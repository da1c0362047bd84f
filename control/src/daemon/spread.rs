//! How packets come to their workers: owners of flows, and what the ports' devices are told so that most packets arrive
//! at their owner.
//!
//! A device can help if it has a receive queue for every worker, hashes one end of a packet alone, and has a redirection
//! table that can be set. Then the owner is what such a device finds, under a random key of period 16 bits: from the
//! source on ports that clients are behind, from the destination on ports that servers are behind. A port with both
//! behind it is set for the clients; its replies cross a ring, as everything does on ports that cannot help. Without any
//! port that can, the owner is a keyed hash that nobody can foresee.

use std::net::IpAddr;

use config::{Method, Steer as By, Valid};
use dataplane::steer::{CELLS_MAX, Steer};
use dpdk_sys::{Rss, RssAbility, RssEnd};

/// Owners, and the settings of each port that helps.
#[derive(Debug)]
pub struct Spread {
    /// Owners of flows.
    pub steer: Steer,
    /// By port index; `None` for one that cannot help.
    pub rss: Vec<Option<Rss>>,
}

/// What a port brings along.
#[derive(Clone, Copy, Debug)]
pub struct PortAbility {
    /// Most receive queues.
    pub rx_queues: u16,
    /// How it can spread packets.
    pub rss: RssAbility,
}

impl Spread {
    /// Among `workers` workers over ports with these abilities, by a secret key.
    pub fn new(valid: &Valid, ports: &[PortAbility], workers: usize, key: (u64, u64)) -> Spread {
        let by = valid.workers().steer;
        let with_port = by == By::ClientPort;
        let helps = |port: &PortAbility| {
            let one_end = if with_port { port.rss.one_end_with_port } else { port.rss.one_end };
            let cells = usize::from(port.rss.cells);
            one_end && cells.is_power_of_two() && cells >= workers && usize::from(port.rx_queues) >= workers
        };
        let none = || ports.iter().map(|_| None).collect();
        if workers < 2 {
            return Spread { steer: Steer::ONE, rss: none() };
        }
        let Some(cells) = ports.iter().filter(|port| helps(port)).map(|port| port.rss.cells).min() else {
            return Spread { steer: Steer::keyed(workers, by, key), rss: none() };
        };
        let key = rss_key(key);
        let steer = Steer::toeplitz(workers, by, key, usize::from(cells).min(CELLS_MAX));
        let rss = |(index, port): (usize, &PortAbility)| {
            let queues = steer.cells().map(|worker| worker as u16).collect();
            helps(port).then(|| Rss { end: end(valid, index), with_port, key, queues })
        };
        let rss = ports.iter().enumerate().map(rss).collect();
        Spread { steer, rss }
    }
}

/// 16 random bits, an odd number of them set: only then are all 65536 hashes reached.
fn rss_key((random, _): (u64, u64)) -> u16 {
    let key = random as u16;
    if key.count_ones() % 2 == 1 { key } else { key ^ 1 }
}

/// The end of packets on a port at which clients are.
fn end(valid: &Valid, index: usize) -> RssEnd {
    let Some(port) = valid.network().ports.get(index) else { return RssEnd::Source };
    let on_link = |address: IpAddr| port.addresses.iter().any(|net| net.contains(&address));
    let mut dests = valid.services().iter().flat_map(|service| &service.destinations);
    let has_servers = dests.any(|dest| dest.method == Method::Nat && on_link(dest.key.addr));
    if port.gateways.is_empty() && has_servers { RssEnd::Destination } else { RssEnd::Source }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEY: (u64, u64) = (0xdead_beef_0000_6d5b, 7);

    fn valid(steer: &str) -> Valid {
        let text = format!(
            "[workers]\nsteer = \"{steer}\"\n\
             [[port]]\nname = \"wan\"\ndevice = \"a\"\naddresses = [\"192.0.2.1/24\"]\ngateway = [\"192.0.2.254\"]\n\
             [[port]]\nname = \"lan\"\ndevice = \"b\"\naddresses = [\"10.0.0.254/24\"]\n\
             [[port]]\nname = \"dmz\"\ndevice = \"c\"\naddresses = [\"10.9.0.254/24\"]\n\
             [[service]]\naddress = \"tcp://203.0.113.1:80\"\nscheduler = \"rr\"\n\
             [[service.destination]]\naddress = \"10.0.0.1:80\"\nmethod = \"nat\"\n"
        );
        config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    fn able(rx_queues: u16, cells: u16, one_end: bool, one_end_with_port: bool) -> PortAbility {
        PortAbility { rx_queues, rss: RssAbility { one_end, one_end_with_port, cells, key_bytes: 40 } }
    }

    #[test]
    fn a_port_helps_if_it_can_do_all_of_it() {
        let full = able(16, 512, true, true);
        // steering, workers, the first port, whether it helps
        let cases = [
            ("client", 2, full, true),
            ("client-port", 2, full, true),
            ("client", 1, full, false),
            ("client", 2, able(16, 512, true, false), true),
            ("client-port", 2, able(16, 512, true, false), false),
            ("client", 2, able(16, 512, false, false), false),
            ("client", 2, able(1, 512, true, true), false),
            ("client", 17, full, false),
            ("client", 2, able(16, 0, true, true), false),
            ("client", 2, able(16, 100, true, true), false),
            ("client", 16, able(16, 8, true, true), false),
        ];
        for (steer, workers, port, expected) in cases {
            let spread = Spread::new(&valid(steer), &[port], workers, KEY);
            let helps = spread.rss[0].is_some();
            assert_eq!(helps, expected, "{steer}, {workers} workers, {port:?}");
            assert_eq!(spread.steer.workers(), workers);
        }
    }

    #[test]
    fn ports_agree_on_key_and_cells_and_hash_the_clients_end() {
        let ports = [able(8, 512, true, true), able(4, 128, true, true), able(4, 2048, true, true)];
        let Spread { steer, rss } = Spread::new(&valid("client"), &ports, 4, KEY);
        let rss: Vec<Rss> = rss.into_iter().flatten().collect();
        let ends = [RssEnd::Source, RssEnd::Destination, RssEnd::Source];
        assert_eq!(rss.iter().map(|port| port.end).collect::<Vec<_>>(), ends);
        let owners: Vec<u16> = steer.cells().map(|worker| worker as u16).collect();
        assert_eq!((owners.len(), &owners[..6]), (128, &[0, 1, 2, 3, 0, 1][..]));
        for port in rss {
            assert_eq!((port.key, port.with_port, &port.queues), (0x6d5a, false, &owners));
        }
    }

    #[test]
    fn a_key_reaches_every_cell() {
        for random in [0, 1, 3, 0xffff, 0x6d5a, 0x6d5b] {
            assert_eq!(rss_key((random, 0)).count_ones() % 2, 1, "{random:x}");
        }
    }
}

//! Exchanges through the kernel's balancer: its rules, what was captured on both sides, and the listing after.
//!
//! Network of the recordings: client 10.1.0.2 and virtual address 10.1.0.100 on the client side, our own addresses
//! 10.1.0.1 and 10.2.0.1, server 10.2.0.11.

use std::net::{Ipv4Addr, SocketAddrV4};
use std::path::PathBuf;
use std::time::Duration;

use pcap_file::pcap::PcapReader;

use super::{cut, number};
use crate::case::Out;

/// One exchange.
#[derive(Clone, Debug)]
pub struct Exchange {
    /// Name, and name of its captures.
    pub name: &'static str,
    /// The only service.
    pub service: Service,
    /// What client and server did.
    pub actions: &'static str,
    /// Figures of the service afterwards, then of its server.
    pub listing: Vec<Figures>,
    /// Connection left: state and client.
    pub connections: Vec<(&'static str, SocketAddrV4)>,
}

/// The rules as they were typed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Service {
    /// UDP, else TCP.
    pub udp: bool,
    /// Virtual address and port.
    pub address: SocketAddrV4,
    /// Server, and whether it is reached by direct routing instead of NAT.
    pub server: Option<(SocketAddrV4, bool)>,
}

/// A line of `--stats`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
#[allow(missing_docs, reason = "the names are ipvsadm's")]
pub struct Figures {
    pub conns: u64,
    pub inpkts: u64,
    pub outpkts: u64,
    pub inbytes: u64,
    pub outbytes: u64,
}

/// A captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Captured {
    /// Since the epoch.
    pub at: Duration,
    /// 0 the client's side, 1 the servers'.
    pub port: usize,
    /// From Ethernet header on.
    pub frame: Vec<u8>,
}

impl Captured {
    /// Whether the balancer sent it: its MAC addresses are 02:00:00:00:01:01 and 02:00:00:00:02:01.
    pub fn is_ours(&self) -> bool {
        self.frame.get(6..12) == Some(&[2, 0, 0, 0, self.port as u8 + 1, 1])
    }
}

/// Every exchange.
pub fn exchanges() -> Vec<Exchange> {
    let text = include_str!("../../data/kernel/packets.txt");
    text.split("\n=== ").skip(1).map(exchange).collect()
}

impl Exchange {
    /// Both captures, merged by time.
    pub fn frames(&self) -> Vec<Captured> {
        let mut all = [read(self.name, "client", 0), read(self.name, "server", 1)].concat();
        all.sort_by_key(|frame| frame.at);
        all
    }

    /// What the balancer sent, and what it was sent (or overheard), each by time.
    pub fn split(&self) -> (Vec<Out>, Vec<Captured>) {
        let (ours, theirs): (Vec<_>, Vec<_>) = self.frames().into_iter().partition(Captured::is_ours);
        (ours.into_iter().map(|c| Out { port: c.port, frame: c.frame }).collect(), theirs)
    }
}

fn read(name: &str, side: &str, port: usize) -> Vec<Captured> {
    let path: PathBuf =
        [env!("CARGO_MANIFEST_DIR"), "data/kernel/pcap", &format!("{name}.{side}.pcap")].iter().collect();
    let file = std::fs::File::open(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
    let mut reader = PcapReader::new(file).expect("a capture file");
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet.expect("a whole record");
        frames.push(Captured { at: packet.timestamp, port, frame: packet.data.into_owned() });
    }
    frames
}

fn exchange(text: &'static str) -> Exchange {
    let name = cut(text, "\n").0;
    let field = |prefix: &'static str| text.lines().filter_map(move |line| line.strip_prefix(prefix));
    let mut service = None;
    for words in field("$ ipvsadm ").map(|line| line.split(' ').collect::<Vec<_>>()) {
        match words[..] {
            ["-A", proto, address, "-s", "rr"] => {
                service = Some(Service { udp: proto == "-u", address: socket(address), server: None });
            }
            ["-a", _, _, "-r", server, method] => {
                let service = service.as_mut().expect("a service before its server");
                service.server = Some((socket(server), method == "-g"));
            }
            _ => panic!("command {words:?}"),
        }
    }
    let mut listing = Vec::new();
    let mut connections = Vec::new();
    for line in text.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        match words[..] {
            ["TCP" | "UDP", address, a, b, c, d, e] | ["->", address, a, b, c, d, e] => {
                socket(address);
                listing.push(Figures {
                    conns: number(a),
                    inpkts: number(b),
                    outpkts: number(c),
                    inbytes: number(d),
                    outbytes: number(e),
                });
            }
            ["TCP" | "UDP", _timer, state, client, _virtual, _server] => {
                connections.push((state, socket(client)))
            }
            _ => {}
        }
    }
    Exchange {
        name,
        service: service.unwrap_or_else(|| panic!("{name}: no service")),
        actions: field("actions: ").next().unwrap_or_default(),
        listing,
        connections,
    }
}

fn socket(text: &str) -> SocketAddrV4 {
    let (address, port) = cut(text, ":");
    let address: Ipv4Addr = address.parse().unwrap_or_else(|_| panic!("address {text:?}"));
    SocketAddrV4::new(address, number(port))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn every_exchange_is_understood_and_its_frames_are_valid() {
        let all = exchanges();
        assert_eq!(all.len(), 12);
        for exchange in &all {
            let servers = usize::from(exchange.service.server.is_some());
            assert_eq!(exchange.listing.len(), 1 + servers, "{}", exchange.name);
            let frames = exchange.frames();
            assert!(frames.iter().any(|f| !f.is_ours()), "{}", exchange.name);
            for captured in frames {
                match check::decode(&captured.frame) {
                    Ok(frame) => assert!(frame.is_valid(), "{}: {frame:?}", exchange.name),
                    // Multicast listener reports of the machines around it.
                    Err(fault) => assert_eq!(fault, check::Fault::Ethertype(0x86dd), "{}", exchange.name),
                }
            }
        }
    }
}

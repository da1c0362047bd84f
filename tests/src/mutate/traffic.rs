//! The correct frames: each kind once as bytes, with the client filled in for every use.

use std::net::Ipv4Addr;

use super::{Rng, fix};
use crate::packets::{
    self, BROADCAST, DIP, GATEWAY, GATEWAY_MAC, Mac, P0, P0_MAC, P1_MAC, Packet, VIP, flags,
};

/// A second virtual address.
pub const VIP_2: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 20);

/// Servers that answer ARP, or whose MAC address is written down.
pub const SERVERS: [(Ipv4Addr, Mac); 3] = [
    (packets::SERVER, packets::SERVER_MAC),
    (Ipv4Addr::new(10, 0, 0, 2), [0x02, 0, 0, 0, 0x01, 0x0b]),
    (Ipv4Addr::new(10, 0, 0, 3), [0x02, 0, 0, 0, 0x01, 0x0c]),
];

/// A server that says nothing for most of the time.
pub const SILENT: (Ipv4Addr, Mac) = (Ipv4Addr::new(10, 0, 0, 9), [0x02, 0, 0, 0, 0x01, 0x09]);

/// Services, by L4 port.
pub mod port {
    #![allow(missing_docs, reason = "the names say it")]
    pub const WEB: u16 = 80;
    pub const DIRECT: u16 = 81;
    pub const EMPTY: u16 = 90;
    pub const SILENT: u16 = 91;
    pub const DNS: u16 = 53;
    pub const LOG: u16 = 514;
}

/// L4 port of the web servers.
pub const WEB_SERVER_PORT: u16 = 8080;

/// Clients that come back: address and port are theirs for good.
const CLIENTS: usize = 300;

/// Of so many packets one is from a client port never seen before.
const NEWCOMERS: usize = 24;

/// Where the client stands in a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Client {
    Source,
    Destination,
    Nowhere,
}

/// A correct frame.
#[derive(Clone, Debug)]
pub struct Base {
    /// Port it arrives on.
    pub port: u8,
    client: Client,
    frame: Vec<u8>,
}

impl Base {
    /// Writes the frame of some client, with that IPv4 identification, into `out`.
    pub fn write(&self, rng: &mut Rng, id: u16, out: &mut Vec<u8>) {
        out.clear();
        out.extend_from_slice(&self.frame);
        if out[12..14] != [8, 0] {
            return;
        }
        out[18..20].copy_from_slice(&id.to_be_bytes());
        let (address, port) = client(rng);
        let at = match self.client {
            Client::Source => Some((26, 34)),
            Client::Destination => Some((30, 36)),
            Client::Nowhere => None,
        };
        if let Some((address_at, port_at)) = at {
            out[address_at..address_at + 4].copy_from_slice(&address);
            if matches!(out[23], 6 | 17) {
                out[port_at..port_at + 2].copy_from_slice(&port.to_be_bytes());
            }
        }
        fix(out);
    }
}

fn client(rng: &mut Rng) -> ([u8; 4], u16) {
    let number = rng.below(CLIENTS);
    let port = if rng.one_in(NEWCOMERS) { rng.word() | 1024 } else { 2000 + number as u16 };
    ([198, 51, 100, 1 + (number % 250) as u8], port)
}

/// Every kind of frame.
pub fn bases() -> Vec<Base> {
    let mut bases = requests();
    bases.extend(replies());
    bases.extend(icmp_and_others());
    bases.extend(arp());
    bases
}

fn requests() -> Vec<Base> {
    let any = (packets::CLIENT, 1);
    let tcp =
        |to, kind, payload: &[u8]| from_client(packets::tcp(any, to, kind).seq_ack(7, 9).payload(payload));
    let udp = |to, payload: &[u8]| from_client(packets::udp(any, to, payload));
    let mut bases = Vec::new();
    for to in [(VIP, port::WEB), (VIP, port::WEB), (VIP, port::DIRECT), (VIP, port::SILENT)] {
        bases.extend([
            from_client(packets::tcp(any, to, flags::SYN).options(&[2, 4, 5, 0xb4, 1, 3, 3, 7])),
            tcp(to, flags::ACK, b""),
            tcp(to, flags::ACK | flags::PSH, b"GET / HTTP/1.1\r\nHost: example.org\r\n\r\n"),
            tcp(to, flags::ACK, &[0x5a; 700]),
            tcp(to, flags::FIN | flags::ACK, b""),
            tcp(to, flags::RST, b""),
        ]);
    }
    for to in [(VIP, port::DNS), (VIP, port::DNS), (VIP_2, port::LOG)] {
        bases.extend([
            udp(to, b""),
            udp(to, b"odd"),
            udp(to, &[0xa5; 200]),
            from_client(packets::udp(any, to, b"unchecked").with(|p| p.udp().check = Some(0))),
        ]);
    }
    bases.extend([
        tcp((VIP, port::EMPTY), flags::SYN, b""),
        tcp((VIP, 9), flags::SYN, b""),
        tcp((P0, 22), flags::SYN, b""),
        udp((VIP, 9), b"closed"),
        tcp((Ipv4Addr::new(192, 0, 2, 77), 80), flags::SYN, b""),
        from_client(packets::tcp(any, (VIP, port::WEB), flags::SYN).with(|p| p.pad_to = 60)),
    ]);
    bases
}

fn replies() -> Vec<Base> {
    let any = (packets::CLIENT, 1);
    let mut bases = Vec::new();
    for (address, mac) in SERVERS {
        let from_server = |mut packet: Packet| {
            (packet.ether.src, packet.ether.dst) = (mac, P1_MAC);
            Base { port: 1, client: Client::Destination, frame: packet.bytes() }
        };
        for kind in [flags::SYN | flags::ACK, flags::ACK, flags::FIN | flags::ACK, flags::RST] {
            let from = (address, WEB_SERVER_PORT);
            bases.push(from_server(packets::tcp(from, any, kind).seq_ack(9, 8)));
        }
        bases.push(from_server(
            packets::tcp((address, WEB_SERVER_PORT), any, flags::ACK).payload(&[0xc3; 900]),
        ));
        bases.push(from_server(packets::udp((address, port::DNS), any, b"answer")));
        bases.push(from_server(packets::udp((address, port::DNS), any, b"no check").with(|p| {
            p.udp().check = Some(0);
        })));
    }
    bases
}

fn icmp_and_others() -> Vec<Base> {
    let client = packets::CLIENT;
    let quoted = packets::tcp((VIP, port::WEB), (client, 2000), flags::ACK).payload(&[0; 20]).ip_bytes();
    vec![
        from_client(packets::icmp(client, VIP, 8, 0, 0x0001_0002, b"abcdefghijklmnopqrstuvw")),
        from_client(packets::icmp(client, P0, 8, 0, 0x0001_0003, &[0x33; 1000])),
        from_client(packets::icmp(client, VIP, 3, 3, 0, &quoted)),
        from_client(packets::icmp(client, VIP, 3, 4, 1400, &quoted)),
        from_client(packets::icmp(client, VIP, 11, 0, 0, &quoted)),
        from_client(packets::icmp(client, VIP, 0, 0, 1, b"reply")),
        from_client(packets::raw(client, VIP, 47).payload(&[0, 0, 8, 0, 0x45])),
        from_client(packets::raw(client, VIP, 132).payload(&[0; 16])),
    ]
}

fn arp() -> Vec<Base> {
    let frame = |port, frame| Base { port, client: Client::Nowhere, frame };
    let (server, server_mac) = SERVERS[0];
    vec![
        frame(0, packets::arp_request((GATEWAY_MAC, GATEWAY), VIP)),
        frame(0, packets::arp_request((GATEWAY_MAC, GATEWAY), P0)),
        frame(0, packets::arp_request((GATEWAY_MAC, GATEWAY), GATEWAY)),
        frame(0, packets::arp(P0_MAC, 2, (GATEWAY_MAC, GATEWAY), (P0_MAC, P0))),
        frame(1, packets::arp_request((server_mac, server), DIP)),
        frame(1, packets::arp(P1_MAC, 2, (server_mac, server), (P1_MAC, DIP))),
        frame(1, packets::arp(BROADCAST, 1, (server_mac, server), ([0; 6], Ipv4Addr::new(10, 0, 0, 77)))),
    ]
}

fn from_client(packet: Packet) -> Base {
    Base { port: 0, client: Client::Source, frame: packet.bytes() }
}

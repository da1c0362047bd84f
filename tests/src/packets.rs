//! Whole frames by name, every field settable, so that a test reads as "this packet with that oddity".
//!
//! # Model
//!
//! [`tcp`], [`udp`], [`icmp`] and [`arp_request`] make a correct frame of the test network; fields are public and
//! are changed afterwards, and [`Packet::bytes`] computes what is left at `None`: lengths and checksums. What is
//! set stays as it is, however wrong. Nothing here uses the wire code of the balancer: an error there cannot hide
//! behind the same error here.
//!
//! The test network: a client behind a gateway on port 0, one server on port 1, and the balancer between them.

use std::net::Ipv4Addr;

/// Six bytes of a MAC address.
pub type Mac = [u8; 6];

/// The client, behind the gateway.
pub const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 10);
/// Port of the client in the golden packets.
pub const CLIENT_PORT: u16 = 40000;
/// The gateway's address on the wire of port 0.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 254);
/// The gateway's MAC address.
pub const GATEWAY_MAC: Mac = [0x02, 0, 0, 0, 0, 0xfe];
/// Our own address on port 0.
pub const P0: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);
/// MAC address of port 0.
pub const P0_MAC: Mac = [0x02, 0, 0, 0, 0, 0x01];
/// Our own address on port 1, the servers' side.
pub const DIP: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 254);
/// MAC address of port 1.
pub const P1_MAC: Mac = [0x02, 0, 0, 0, 0x01, 0x01];
/// The real server.
pub const SERVER: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 1);
/// The real server's MAC address.
pub const SERVER_MAC: Mac = [0x02, 0, 0, 0, 0x01, 0x0a];
/// L4 port of the real server under NAT.
pub const SERVER_PORT: u16 = 8080;
/// The virtual address.
pub const VIP: Ipv4Addr = Ipv4Addr::new(203, 0, 113, 10);
/// L4 port of the service.
pub const VIP_PORT: u16 = 80;
/// All stations.
pub const BROADCAST: Mac = [0xff; 6];

/// TCP flags in wire order.
pub mod flags {
    #![allow(missing_docs, reason = "the names are the RFC's")]
    pub const FIN: u8 = 0x01;
    pub const SYN: u8 = 0x02;
    pub const RST: u8 = 0x04;
    pub const PSH: u8 = 0x08;
    pub const ACK: u8 = 0x10;
    pub const URG: u8 = 0x20;
}

/// Ethernet header.
#[derive(Clone, Debug)]
pub struct Ether {
    /// Destination.
    pub dst: Mac,
    /// Source.
    pub src: Mac,
    /// Tag control information of an 802.1Q tag.
    pub vlan: Option<u16>,
    /// EtherType of the payload.
    pub ethertype: u16,
}

/// IPv4 header; `None` is computed.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub struct Ip {
    pub version: u8,
    pub ihl: Option<u8>,
    pub tos: u8,
    pub total_len: Option<u16>,
    pub id: u16,
    /// Flags and offset: 0x4000 don't fragment, 0x2000 more fragments, the rest in units of 8 bytes.
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub check: Option<u16>,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    /// Padded with zeros to a multiple of four bytes.
    pub options: Vec<u8>,
}

/// TCP header; `None` is computed.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub struct Tcp {
    pub sport: u16,
    pub dport: u16,
    pub seq: u32,
    pub ack: u32,
    /// Header length in 32-bit words.
    pub doff: Option<u8>,
    pub flags: u8,
    pub window: u16,
    pub check: Option<u16>,
    pub urgent: u16,
    /// Padded with zeros to a multiple of four bytes.
    pub options: Vec<u8>,
}

/// UDP header; `None` is computed.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub struct Udp {
    pub sport: u16,
    pub dport: u16,
    pub length: Option<u16>,
    /// `Some(0)` sends none.
    pub check: Option<u16>,
}

/// ICMP header; `None` is computed.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub struct Icmp {
    pub kind: u8,
    pub code: u8,
    pub check: Option<u16>,
    /// Identifier and sequence number of an echo, MTU of a 3/4.
    pub rest: u32,
}

/// What follows the IPv4 header.
#[derive(Clone, Debug)]
#[allow(missing_docs, reason = "the names say it")]
pub enum L4 {
    Tcp(Tcp),
    Udp(Udp),
    Icmp(Icmp),
    /// Payload follows the IPv4 header directly.
    Raw,
}

/// One IPv4 packet in its frame.
#[derive(Clone, Debug)]
pub struct Packet {
    /// Ethernet header.
    pub ether: Ether,
    /// IPv4 header.
    pub ip: Ip,
    /// Transport header.
    pub l4: L4,
    /// Payload.
    pub payload: Vec<u8>,
    /// Ethernet padding up to this many bytes of frame; 0 for none.
    pub pad_to: usize,
}

/// A TCP segment from the client's side: ID 0x1234, TTL 64, DF, window 65535, sequence number 0x11111111.
pub fn tcp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: u8) -> Packet {
    let tcp = Tcp {
        sport: from.1,
        dport: to.1,
        seq: 0x1111_1111,
        ack: 0,
        doff: None,
        flags,
        window: 0xffff,
        check: None,
        urgent: 0,
        options: Vec::new(),
    };
    Packet { l4: L4::Tcp(tcp), ..raw(from.0, to.0, 6) }
}

/// A UDP datagram from the client's side.
pub fn udp(from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), payload: &[u8]) -> Packet {
    let udp = Udp { sport: from.1, dport: to.1, length: None, check: None };
    Packet { l4: L4::Udp(udp), payload: payload.to_vec(), ..raw(from.0, to.0, 17) }
}

/// An ICMP message from the client's side.
pub fn icmp(from: Ipv4Addr, to: Ipv4Addr, kind: u8, code: u8, rest: u32, payload: &[u8]) -> Packet {
    let icmp = Icmp { kind, code, check: None, rest };
    Packet { l4: L4::Icmp(icmp), payload: payload.to_vec(), ..raw(from, to, 1) }
}

/// An IPv4 packet of any protocol from the client's side, gateway to port 0.
pub fn raw(from: Ipv4Addr, to: Ipv4Addr, protocol: u8) -> Packet {
    Packet {
        ether: Ether { dst: P0_MAC, src: GATEWAY_MAC, vlan: None, ethertype: 0x0800 },
        ip: Ip {
            version: 4,
            ihl: None,
            tos: 0,
            total_len: None,
            id: 0x1234,
            fragment: 0x4000,
            ttl: 64,
            protocol,
            check: None,
            src: from,
            dst: to,
            options: Vec::new(),
        },
        l4: L4::Raw,
        payload: Vec::new(),
        pad_to: 0,
    }
}

/// SYN of the client to the service, as in the golden packets: MSS 1460.
pub fn client_syn() -> Packet {
    tcp((CLIENT, CLIENT_PORT), (VIP, VIP_PORT), flags::SYN).options(&[2, 4, 0x05, 0xb4])
}

impl Packet {
    /// Same packet on the wire between server and port 1.
    pub fn from_server(mut self) -> Self {
        self.ether.dst = P1_MAC;
        self.ether.src = SERVER_MAC;
        self
    }

    /// Changes anything.
    pub fn with(mut self, change: impl FnOnce(&mut Self)) -> Self {
        change(&mut self);
        self
    }

    /// Sets the payload.
    pub fn payload(mut self, bytes: &[u8]) -> Self {
        self.payload = bytes.to_vec();
        self
    }

    /// Sets the time to live.
    pub fn ttl(mut self, ttl: u8) -> Self {
        self.ip.ttl = ttl;
        self
    }

    /// Sets sequence and acknowledgement number. TCP only.
    pub fn seq_ack(mut self, seq: u32, ack: u32) -> Self {
        let tcp = self.tcp();
        (tcp.seq, tcp.ack) = (seq, ack);
        self
    }

    /// Sets TCP options. TCP only.
    pub fn options(mut self, options: &[u8]) -> Self {
        self.tcp().options = options.to_vec();
        self
    }

    /// The TCP header. Panics if there is none: the test is wrong.
    pub fn tcp(&mut self) -> &mut Tcp {
        match &mut self.l4 {
            L4::Tcp(tcp) => tcp,
            other => panic!("not a TCP packet: {other:?}"),
        }
    }

    /// The UDP header. Panics if there is none: the test is wrong.
    pub fn udp(&mut self) -> &mut Udp {
        match &mut self.l4 {
            L4::Udp(udp) => udp,
            other => panic!("not a UDP packet: {other:?}"),
        }
    }

    /// The ICMP header. Panics if there is none: the test is wrong.
    pub fn icmp(&mut self) -> &mut Icmp {
        match &mut self.l4 {
            L4::Icmp(icmp) => icmp,
            other => panic!("not an ICMP packet: {other:?}"),
        }
    }

    /// The whole frame.
    pub fn bytes(&self) -> Vec<u8> {
        let mut frame = ethernet(&self.ether);
        frame.extend(self.ip_bytes());
        let pad = self.pad_to.saturating_sub(frame.len());
        frame.resize(frame.len() + pad, 0);
        frame
    }

    /// The IPv4 packet without Ethernet.
    pub fn ip_bytes(&self) -> Vec<u8> {
        let ip = &self.ip;
        let l4 = self.l4_bytes();
        let mut options = ip.options.clone();
        options.resize(options.len().next_multiple_of(4), 0);
        let header_len = 20 + options.len();
        let ihl = ip.ihl.unwrap_or((header_len / 4) as u8);
        let total_len = ip.total_len.unwrap_or((header_len + l4.len()) as u16);

        let mut out = vec![ip.version << 4 | ihl & 0x0f, ip.tos];
        out.extend(total_len.to_be_bytes());
        out.extend(ip.id.to_be_bytes());
        out.extend(ip.fragment.to_be_bytes());
        out.extend([ip.ttl, ip.protocol, 0, 0]);
        out.extend(ip.src.octets());
        out.extend(ip.dst.octets());
        out.extend(options);
        let check = ip.check.unwrap_or_else(|| !ones_sum(&[&out]));
        out[10..12].copy_from_slice(&check.to_be_bytes());
        out.extend(l4);
        out
    }

    fn l4_bytes(&self) -> Vec<u8> {
        let mut out = Vec::new();
        match &self.l4 {
            L4::Tcp(tcp) => {
                let mut options = tcp.options.clone();
                options.resize(options.len().next_multiple_of(4), 0);
                out.extend(tcp.sport.to_be_bytes());
                out.extend(tcp.dport.to_be_bytes());
                out.extend(tcp.seq.to_be_bytes());
                out.extend(tcp.ack.to_be_bytes());
                let doff = tcp.doff.unwrap_or(5 + (options.len() / 4) as u8);
                out.extend([doff << 4, tcp.flags]);
                out.extend(tcp.window.to_be_bytes());
                out.extend([0, 0]);
                out.extend(tcp.urgent.to_be_bytes());
                out.extend(options);
                out.extend(&self.payload);
                let check = tcp.check.unwrap_or_else(|| !self.pseudo_sum(&out));
                out[16..18].copy_from_slice(&check.to_be_bytes());
            }
            L4::Udp(udp) => {
                out.extend(udp.sport.to_be_bytes());
                out.extend(udp.dport.to_be_bytes());
                out.extend(udp.length.unwrap_or(8 + self.payload.len() as u16).to_be_bytes());
                out.extend([0, 0]);
                out.extend(&self.payload);
                let check = udp.check.unwrap_or_else(|| match !self.pseudo_sum(&out) {
                    0 => 0xffff,
                    other => other,
                });
                out[6..8].copy_from_slice(&check.to_be_bytes());
            }
            L4::Icmp(icmp) => {
                out.extend([icmp.kind, icmp.code, 0, 0]);
                out.extend(icmp.rest.to_be_bytes());
                out.extend(&self.payload);
                let check = icmp.check.unwrap_or_else(|| !ones_sum(&[&out]));
                out[2..4].copy_from_slice(&check.to_be_bytes());
            }
            L4::Raw => out.extend(&self.payload),
        }
        out
    }

    fn pseudo_sum(&self, l4: &[u8]) -> u16 {
        let [a, b] = (l4.len() as u16).to_be_bytes();
        let rest = [0, self.ip.protocol, a, b];
        ones_sum(&[&self.ip.src.octets(), &self.ip.dst.octets(), &rest, l4])
    }
}

/// Asks who has `target`: a broadcast frame of 42 bytes.
pub fn arp_request(sender: (Mac, Ipv4Addr), target: Ipv4Addr) -> Vec<u8> {
    arp(BROADCAST, 1, sender, ([0; 6], target))
}

/// Tells `target` that `sender` is there.
pub fn arp_reply(sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    arp(target.0, 2, sender, target)
}

/// Any ARP frame for IPv4 over Ethernet.
pub fn arp(to: Mac, operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr)) -> Vec<u8> {
    let mut frame = ethernet(&Ether { dst: to, src: sender.0, vlan: None, ethertype: 0x0806 });
    frame.extend([0, 1, 8, 0, 6, 4]);
    frame.extend(operation.to_be_bytes());
    frame.extend(sender.0);
    frame.extend(sender.1.octets());
    frame.extend(target.0);
    frame.extend(target.1.octets());
    frame
}

fn ethernet(ether: &Ether) -> Vec<u8> {
    let mut out = Vec::new();
    out.extend(ether.dst);
    out.extend(ether.src);
    if let Some(tag) = ether.vlan {
        out.extend([0x81, 0x00]);
        out.extend(tag.to_be_bytes());
    }
    out.extend(ether.ethertype.to_be_bytes());
    out
}

/// One's complement sum of the concatenation, word by word (RFC 1071). All parts but the last have even length.
pub(crate) fn ones_sum(parts: &[&[u8]]) -> u16 {
    let mut sum = 0u32;
    for pair in parts.iter().flat_map(|part| part.chunks(2)) {
        sum += u32::from(pair[0]) * 256 + pair.get(1).map_or(0, |low| u32::from(*low));
    }
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    sum as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::golden::hex;

    #[test]
    fn the_golden_syn() {
        let expected = hex("0200000000010200000000fe0800 4500002c123440004006c24fc633640acb00710a \
                            9c40005011111111000000006002ffff732b0000020405b4");
        assert_eq!(client_syn().bytes(), expected);
    }

    #[test]
    fn the_golden_reply() {
        let reply = tcp((SERVER, SERVER_PORT), (CLIENT, CLIENT_PORT), flags::SYN | flags::ACK)
            .options(&[2, 4, 0x05, 0xb4])
            .seq_ack(0x2222_2222, 0x1111_1112)
            .from_server()
            .with(|p| {
                p.ip.id = 0;
                p.tcp().window = 0x7210;
            });
        let expected = hex("02000000010102000000010a0800 4500002c000040004006068e0a000001c633640a \
                            1f909c40222222221111111260127210cf8f0000020405b4");
        assert_eq!(reply.bytes(), expected);
    }

    #[test]
    fn udp_without_a_check_and_padding() {
        let hello = udp((CLIENT, CLIENT_PORT), (VIP, 53), b"hello").with(|p| {
            p.ip.id = 7;
            p.ip.fragment = 0;
            p.udp().check = Some(0);
            p.pad_to = 60;
        });
        let expected = hex("45000021000700004011147dc633640acb00710a 9c400035000d000068656c6c6f");
        assert_eq!(hello.ip_bytes(), expected);
        assert_eq!(hello.bytes().len(), 60);
    }

    #[test]
    fn arp_frames() {
        let request = arp_request((P1_MAC, DIP), SERVER);
        let expected = hex("ffffffffffff 020000000101 0806 0001 0800 06 04 0001 \
                            020000000101 0a0000fe 000000000000 0a000001");
        assert_eq!(request, expected);
    }
}

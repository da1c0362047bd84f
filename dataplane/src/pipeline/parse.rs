//! Parse: the one place that judges a frame. What passes is safe to read at the offsets of its [`Meta`].

use std::net::Ipv4Addr;

use crate::hash::FlowKey;
use crate::io::{CsumStatus, PacketBuf};
use crate::verdict::DropReason;
use crate::wire::ethernet::{self, Mac};
use crate::wire::{ipv4, tcp, udp};

/// What a frame turned out to be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// TCP or UDP with its whole fixed header: `key` is its flow.
    Flow,
    /// ICMP; `key.src` and `key.dst` are its addresses.
    Icmp,
    /// Another protocol over IPv4; addresses as for ICMP.
    Other,
    /// An ARP frame.
    Arp,
    /// To be dropped.
    Bad(DropReason),
}

/// One packet's facts, found once.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// Addresses, ports and protocol as on the wire, host byte order.
    pub key: FlowKey,
    /// Kind of frame.
    pub kind: Kind,
    /// IPv4 total length, bytes.
    pub ip_len: u16,
    /// Offset of the L4 header in the frame, bytes.
    pub l4: u8,
    /// TCP flags; 0 for others.
    pub tcp_flags: u8,
    /// Time to live.
    pub ttl: u8,
}

impl Meta {
    /// Of a frame that was not looked at.
    pub const NONE: Meta = Meta::bad(DropReason::L3Malformed);

    const fn bad(reason: DropReason) -> Meta {
        let key = FlowKey { src: 0, dst: 0, sport: 0, dport: 0, proto: 0 };
        Meta { key, kind: Kind::Bad(reason), ip_len: 0, l4: 0, tcp_flags: 0, ttl: 0 }
    }

    /// Source address.
    pub fn src(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.key.src)
    }

    /// Destination address.
    pub fn dst(&self) -> Ipv4Addr {
        Ipv4Addr::from_bits(self.key.dst)
    }
}

/// Judges a frame that arrived on the port with MAC address `ours`. Hot.
#[inline(always)]
pub fn parse<B: PacketBuf>(buf: &B, ours: Mac) -> Meta {
    let frame = buf.data();
    let Some(ether) = ethernet::Header::at(frame) else { return Meta::bad(DropReason::L3Malformed) };
    if !ether.is_for(ours) {
        return not_for_mac(frame, ether.dst());
    }
    if ether.ethertype() != ethernet::IPV4 {
        return match ether.ethertype() {
            ethernet::ARP => Meta { kind: Kind::Arp, ..Meta::NONE },
            _ => Meta::bad(DropReason::Ethertype),
        };
    }
    if !buf.is_contiguous() {
        return Meta::bad(DropReason::MultiSegment);
    }
    let verify = match buf.ip_csum() {
        CsumStatus::Unknown => true,
        CsumStatus::Good => false,
        CsumStatus::Bad => return Meta::bad(DropReason::IpCsum),
    };
    let packet = frame.get(ethernet::LEN..).unwrap_or_default();
    match ipv4::check(packet, verify) {
        Ok(lengths) => parse_ipv4(packet, lengths),
        Err(ipv4::Error::Malformed) => Meta::bad(DropReason::L3Malformed),
        Err(ipv4::Error::Checksum) => Meta::bad(DropReason::IpCsum),
    }
}

#[inline(always)]
fn parse_ipv4(packet: &[u8], lengths: ipv4::Lengths) -> Meta {
    let Some(ip) = ipv4::Header::at(packet) else { return Meta::NONE };
    let proto = ip.protocol();
    let mut meta = Meta {
        key: FlowKey { src: ip.src(), dst: ip.dst(), sport: 0, dport: 0, proto },
        kind: Kind::Other,
        ip_len: lengths.total as u16,
        l4: (ethernet::LEN + lengths.header) as u8,
        tcp_flags: 0,
        ttl: ip.ttl(),
    };
    if !ipv4::is_usable_source(meta.key.src) {
        return Meta::bad(DropReason::L3Malformed);
    }
    if lengths.header > ipv4::LEN {
        match ipv4::options(packet.get(ipv4::LEN..lengths.header).unwrap_or_default()) {
            ipv4::Options::Harmless => {}
            ipv4::Options::SourceRoute => return Meta::bad(DropReason::IpOpt),
            ipv4::Options::Malformed => return Meta::bad(DropReason::L3Malformed),
        }
    }
    if ip.is_fragment() {
        return Meta::bad(DropReason::FragUnmatched);
    }
    let l4 = packet.get(lengths.header..lengths.total).unwrap_or_default();
    match proto {
        ipv4::TCP => {
            let Some(tcp) = tcp::Header::at(l4) else { return Meta::bad(DropReason::L4Short) };
            (meta.key.sport, meta.key.dport) = (tcp.sport(), tcp.dport());
            meta.tcp_flags = tcp.flags();
            meta.kind = Kind::Flow;
        }
        ipv4::UDP => {
            let Some(udp) = udp::Header::at(l4) else { return Meta::bad(DropReason::L4Short) };
            (meta.key.sport, meta.key.dport) = (udp.sport(), udp.dport());
            meta.kind = Kind::Flow;
        }
        ipv4::ICMP => meta.kind = Kind::Icmp,
        _ => {}
    }
    meta
}

/// A frame for another MAC address: only group ARP is ours.
#[cold]
fn not_for_mac(frame: &[u8], dst: Mac) -> Meta {
    let arp = ethernet::Header::at(frame).is_some_and(|e| e.ethertype() == ethernet::ARP);
    if dst.is_multicast() && arp {
        Meta { kind: Kind::Arp, ..Meta::NONE }
    } else {
        Meta::bad(DropReason::L2NotOurs)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::mem::{Arrival, MemIo};
    use crate::io::{Burst, Io};

    const OURS: Mac = Mac([2, 0, 0, 0, 0, 1]);

    /// A datagram of 9 bytes over IPv4 to `OURS`; its header checksum is wrong if `spoiled`.
    fn frame(ethertype: u16, spoiled: bool) -> Vec<u8> {
        let mut packet = [0; 37];
        packet[..12].copy_from_slice(&[0x45, 0, 0, 37, 0, 0, 0, 0, 64, ipv4::UDP, 0, 0]);
        packet[12..20].copy_from_slice(&[192, 0, 2, 7, 192, 0, 2, 100]);
        packet[20..28].copy_from_slice(&[0x9c, 0x40, 0, 53, 0, 17, 0, 0]);
        let check = crate::wire::checksum::check(&packet[..ipv4::LEN]) ^ u16::from(spoiled);
        packet[10..12].copy_from_slice(&check.to_be_bytes());
        [&OURS.0[..], &[2, 0, 0, 0, 0, 9], &ethertype.to_be_bytes(), &packet].concat()
    }

    #[test]
    fn what_the_port_says_of_a_frame_counts() {
        let (whole, pieces) = (Arrival::default(), Arrival { contiguous: false, ..Arrival::default() });
        let says = |ip_csum| Arrival { ip_csum, ..Arrival::default() };
        let flow = Kind::Flow;
        let bad = Kind::Bad;
        let table = [
            ("nothing said, right", ethernet::IPV4, false, whole, flow),
            ("nothing said, wrong", ethernet::IPV4, true, whole, bad(DropReason::IpCsum)),
            ("good by the port's word", ethernet::IPV4, true, says(CsumStatus::Good), flow),
            ("bad by the port's word", ethernet::IPV4, false, says(CsumStatus::Bad), bad(DropReason::IpCsum)),
            ("in several buffers", ethernet::IPV4, false, pieces, bad(DropReason::MultiSegment)),
            ("no IPv4, in several buffers", 0x86dd, false, pieces, bad(DropReason::Ethertype)),
        ];
        for (what, ethertype, spoiled, arrival, kind) in table {
            let mut io = MemIo::new(1, 1);
            assert!(io.inject_with(0, &frame(ethertype, spoiled), arrival));
            let mut burst = Burst::new();
            io.rx(0, &mut burst);
            assert_eq!(parse(&burst[0], OURS).kind, kind, "{what}");
        }
    }
}

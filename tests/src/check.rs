//! An independent decoder: what a frame says, and whether its lengths and checksums are right.
//!
//! Tests and benches hold every frame the balancer emits against it. It shares no code with the balancer's wire
//! module; where the two disagree, one of them is wrong.

use std::net::Ipv4Addr;

use crate::packets::{Mac, ones_sum};

/// What is structurally wrong with a frame; checksums are reported in the fields instead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Shorter than its headers.
    Short,
    /// Neither ARP nor IPv4.
    Ethertype(u16),
    /// An ARP packet of another kind than IPv4 over Ethernet.
    Arp,
    /// Version, header length or total length of the IPv4 header.
    IpLength,
    /// TCP header length or UDP length.
    L4Length,
}

impl std::fmt::Display for Fault {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Short => f.write_str("shorter than its headers"),
            Self::Ethertype(found) => write!(f, "neither ARP nor IPv4 but EtherType {found:04x}"),
            Self::Arp => f.write_str("ARP of another kind than IPv4 over Ethernet"),
            Self::IpLength => f.write_str("lengths of the IPv4 header contradict each other or the frame"),
            Self::L4Length => f.write_str("TCP header length or UDP length contradicts the packet"),
        }
    }
}

/// State of one checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Check {
    /// Right.
    Valid,
    /// UDP without a checksum, or a part of a datagram that cannot be verified.
    Absent,
    /// Wrong: the one's complement sum over everything is this instead of 0xffff.
    Wrong(u16),
}

/// A decoded frame.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub struct Frame {
    pub dst: Mac,
    pub src: Mac,
    pub vlan: Option<u16>,
    pub body: Body,
}

/// What a frame carries.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub enum Body {
    Arp { operation: u16, sender: (Mac, Ipv4Addr), target: (Mac, Ipv4Addr) },
    Ip(Ip),
}

/// A decoded IPv4 packet.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFC's")]
pub struct Ip {
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: usize,
    pub id: u16,
    pub fragment: u16,
    pub ttl: u8,
    pub protocol: u8,
    pub check: Check,
    pub src: Ipv4Addr,
    pub dst: Ipv4Addr,
    pub options: Vec<u8>,
    pub l4: L4,
}

/// A decoded transport header. `check` is that of the whole segment.
#[derive(Clone, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names are the RFCs'")]
pub enum L4 {
    Tcp {
        sport: u16,
        dport: u16,
        seq: u32,
        ack: u32,
        flags: u8,
        window: u16,
        check: Check,
        options: Vec<u8>,
        payload: Vec<u8>,
    },
    Udp {
        sport: u16,
        dport: u16,
        check: Check,
        payload: Vec<u8>,
    },
    Icmp {
        kind: u8,
        code: u8,
        rest: u32,
        check: Check,
        payload: Vec<u8>,
    },
    /// Another protocol, or a later fragment.
    Other(Vec<u8>),
}

impl Frame {
    /// The IPv4 packet. Panics with the frame if it is ARP: the test expected otherwise.
    pub fn ip(&self) -> &Ip {
        match &self.body {
            Body::Ip(ip) => ip,
            Body::Arp { .. } => panic!("not IPv4: {self:?}"),
        }
    }

    /// Whether every checksum in it is right or rightly absent.
    pub fn is_valid(&self) -> bool {
        match &self.body {
            Body::Arp { .. } => true,
            Body::Ip(ip) => ip.check == Check::Valid && !matches!(ip.l4.check(), Check::Wrong(_)),
        }
    }
}

impl L4 {
    /// The checksum of the segment.
    pub fn check(&self) -> Check {
        match self {
            Self::Tcp { check, .. } | Self::Udp { check, .. } | Self::Icmp { check, .. } => *check,
            Self::Other(_) => Check::Absent,
        }
    }

    /// Source and destination port.
    pub fn ports(&self) -> Option<(u16, u16)> {
        match self {
            Self::Tcp { sport, dport, .. } | Self::Udp { sport, dport, .. } => Some((*sport, *dport)),
            _ => None,
        }
    }
}

/// Decodes a frame that must be right in every length and checksum. Panics with the reason and the bytes.
#[track_caller]
pub fn valid(frame: &[u8]) -> Frame {
    match decode(frame) {
        Ok(decoded) if decoded.is_valid() => decoded,
        other => panic!("bad frame emitted: {other:?}\n{}", crate::case::hexdump(frame)),
    }
}

/// Decodes a frame.
pub fn decode(frame: &[u8]) -> Result<Frame, Fault> {
    let mut at = Cursor(frame);
    let (dst, src) = (at.array()?, at.array()?);
    let mut ethertype = at.u16()?;
    let mut vlan = None;
    if ethertype == 0x8100 {
        vlan = Some(at.u16()? & 0x0fff);
        ethertype = at.u16()?;
    }
    let body = match ethertype {
        0x0806 => arp(at)?,
        0x0800 => Body::Ip(decode_ip(at.0)?),
        other => return Err(Fault::Ethertype(other)),
    };
    Ok(Frame { dst, src, vlan, body })
}

/// Decodes an IPv4 packet; bytes behind its total length are ignored.
pub fn decode_ip(packet: &[u8]) -> Result<Ip, Fault> {
    let mut at = Cursor(packet);
    let [version_ihl, tos] = at.array()?;
    let total_len = usize::from(at.u16()?);
    let (id, fragment) = (at.u16()?, at.u16()?);
    let [ttl, protocol] = at.array()?;
    at.u16()?;
    let (src, dst) = (Ipv4Addr::from(at.array::<4>()?), Ipv4Addr::from(at.array::<4>()?));

    let header_len = usize::from(version_ihl & 0x0f) * 4;
    if version_ihl >> 4 != 4 || header_len < 20 || total_len < header_len || total_len > packet.len() {
        return Err(Fault::IpLength);
    }
    let (header, segment) = packet[..total_len].split_at(header_len);
    let mut pseudo = [src.octets(), dst.octets()].concat();
    pseudo.extend([0, protocol]);
    pseudo.extend((segment.len() as u16).to_be_bytes());

    let l4 = if fragment & 0x1fff != 0 {
        L4::Other(segment.to_vec())
    } else {
        decode_l4(protocol, segment, &pseudo, fragment & 0x2000 == 0)?
    };
    let check = judge(ones_sum(&[header]));
    let options = header[20..].to_vec();
    Ok(Ip { tos, total_len, id, fragment, ttl, protocol, check, src, dst, options, l4 })
}

fn decode_l4(protocol: u8, segment: &[u8], pseudo: &[u8], whole: bool) -> Result<L4, Fault> {
    let sum = |parts: &[&[u8]]| if whole { judge(ones_sum(parts)) } else { Check::Absent };
    let mut at = Cursor(segment);
    Ok(match protocol {
        6 => {
            let (sport, dport) = (at.u16()?, at.u16()?);
            let (seq, ack) = (at.u32()?, at.u32()?);
            let [doff, flags] = at.array()?;
            let window = at.u16()?;
            at.u32()?;
            let header_len = usize::from(doff >> 4) * 4;
            if header_len < 20 || header_len > segment.len() {
                return Err(Fault::L4Length);
            }
            L4::Tcp {
                sport,
                dport,
                seq,
                ack,
                flags,
                window,
                check: sum(&[pseudo, segment]),
                options: segment[20..header_len].to_vec(),
                payload: segment[header_len..].to_vec(),
            }
        }
        17 => {
            let (sport, dport) = (at.u16()?, at.u16()?);
            let (length, check) = (usize::from(at.u16()?), at.u16()?);
            if whole && length != segment.len() {
                return Err(Fault::L4Length);
            }
            let check = if check == 0 { Check::Absent } else { sum(&[pseudo, segment]) };
            L4::Udp { sport, dport, check, payload: at.0.to_vec() }
        }
        1 => {
            let [kind, code] = at.array()?;
            at.u16()?;
            let rest = at.u32()?;
            L4::Icmp { kind, code, rest, check: sum(&[segment]), payload: at.0.to_vec() }
        }
        _ => L4::Other(segment.to_vec()),
    })
}

fn arp(mut at: Cursor<'_>) -> Result<Body, Fault> {
    if at.array::<6>()? != [0, 1, 8, 0, 6, 4] {
        return Err(Fault::Arp);
    }
    let operation = at.u16()?;
    let sender = (at.array()?, Ipv4Addr::from(at.array::<4>()?));
    let target = (at.array()?, Ipv4Addr::from(at.array::<4>()?));
    Ok(Body::Arp { operation, sender, target })
}

fn judge(sum: u16) -> Check {
    if sum == 0xffff { Check::Valid } else { Check::Wrong(sum) }
}

/// Reads from the front; `Short` at the end.
struct Cursor<'a>(&'a [u8]);

impl Cursor<'_> {
    fn array<const N: usize>(&mut self) -> Result<[u8; N], Fault> {
        let (head, rest) = self.0.split_first_chunk().ok_or(Fault::Short)?;
        self.0 = rest;
        Ok(*head)
    }

    fn u16(&mut self) -> Result<u16, Fault> {
        self.array().map(u16::from_be_bytes)
    }

    fn u32(&mut self) -> Result<u32, Fault> {
        self.array().map(u32::from_be_bytes)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets::{self, CLIENT, VIP};

    #[test]
    fn built_frames_are_valid_and_say_what_was_built() {
        let frame = valid(&packets::client_syn().bytes());
        let ip = frame.ip();
        assert_eq!((ip.src, ip.dst, ip.ttl, ip.total_len), (CLIENT, VIP, 64, 44));
        assert_eq!(ip.l4.ports(), Some((40000, 80)));
        valid(&packets::udp((CLIENT, 1), (VIP, 2), b"odd").bytes());
        valid(&packets::icmp(CLIENT, VIP, 8, 0, 7, b"data").bytes());
        valid(&packets::arp_request((packets::P1_MAC, packets::DIP), packets::SERVER));
    }

    /// Every single flipped bit behind the Ethernet header is noticed.
    #[test]
    fn any_flipped_bit_is_noticed() {
        let good = packets::client_syn().payload(b"some payload").bytes();
        for bit in 14 * 8..good.len() * 8 {
            let mut bad = good.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // The protocol field chooses the checksum: header check still catches it.
            let noticed = decode(&bad).map_or(true, |frame| !frame.is_valid());
            assert!(noticed, "bit {bit}");
        }
    }

    #[test]
    fn every_truncation_is_noticed() {
        let good = packets::client_syn().bytes();
        for len in 0..good.len() {
            assert!(decode(&good[..len]).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn an_absent_udp_check_is_no_fault() {
        let packet = packets::udp((CLIENT, 1), (VIP, 2), b"x").with(|p| p.udp().check = Some(0));
        let frame = valid(&packet.bytes());
        assert_eq!(frame.ip().l4.check(), Check::Absent);
    }
}

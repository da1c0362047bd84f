//! One line for one frame: who to whom, flags, time to live, length.

use std::net::{Ipv4Addr, SocketAddrV4};

use dataplane::wire::arp::{self, Operation};
use dataplane::wire::{ethernet, icmp, ipv4, tcp, udp};

/// The frame in words; whatever its bytes, there is a line.
pub fn line(frame: &[u8]) -> String {
    let Some(payload) = ethernet::payload(frame) else {
        return format!("frame of {} bytes", frame.len());
    };
    let bytes = frame.get(payload.offset..).unwrap_or_default();
    match payload.ethertype {
        ethernet::IPV4 => ipv4_line(bytes),
        ethernet::ARP => arp_line(bytes),
        ethernet::IPV6 => format!("IPv6 len {}", bytes.len()),
        other => format!("ethertype {other:#06x} len {}", bytes.len()),
    }
}

fn ipv4_line(packet: &[u8]) -> String {
    let Some(header) = ipv4::Header::at(packet) else {
        return format!("IPv4, {} bytes only", packet.len());
    };
    let (src, dst) = (Ipv4Addr::from_bits(header.src()), Ipv4Addr::from_bits(header.dst()));
    let tail = format!("ttl {} len {}", header.ttl(), header.total_len());
    let first = header.fragment() & ipv4::OFFSET == 0;
    let above = packet.get(header.header_len()..).unwrap_or_default();
    let flow = |name: &str, sport: u16, dport: u16, flags: String| {
        format!("{name} {} > {}{flags} {tail}", SocketAddrV4::new(src, sport), SocketAddrV4::new(dst, dport))
    };
    match header.protocol() {
        ipv4::TCP if first => match tcp::Header::at(above) {
            Some(segment) => flow("TCP", segment.sport(), segment.dport(), tcp_flags(segment.flags())),
            None => format!("TCP {src} > {dst}, header cut off, {tail}"),
        },
        ipv4::UDP if first => match udp::Header::at(above) {
            Some(datagram) => flow("UDP", datagram.sport(), datagram.dport(), String::new()),
            None => format!("UDP {src} > {dst}, header cut off, {tail}"),
        },
        ipv4::ICMP if first => match icmp::Header::at(above) {
            Some(message) => {
                format!("ICMP {src} > {dst} type {} code {} {tail}", message.kind(), message.code())
            }
            None => format!("ICMP {src} > {dst}, header cut off, {tail}"),
        },
        protocol if first => format!("IP protocol {protocol} {src} > {dst} {tail}"),
        protocol => format!("fragment of protocol {protocol} {src} > {dst} {tail}"),
    }
}

fn arp_line(payload: &[u8]) -> String {
    let Some(arp) = arp::Repr::parse(payload) else { return "ARP, malformed".to_owned() };
    let (sender, target) = (Ipv4Addr::from_bits(arp.sender_ip), Ipv4Addr::from_bits(arp.target_ip));
    match arp.operation {
        Operation::Request if sender == target => {
            format!("ARP {sender} is at {}", config::Mac(arp.sender_mac.0))
        }
        Operation::Request => format!("ARP who has {target}, tell {sender}"),
        _ => format!("ARP {sender} is at {}, to {target}", config::Mac(arp.sender_mac.0)),
    }
}

/// Flags in tcpdump's letters: ` [S.]` is SYN with ACK.
fn tcp_flags(flags: u8) -> String {
    let letters = [
        (tcp::SYN, 'S'),
        (tcp::FIN, 'F'),
        (tcp::RST, 'R'),
        (tcp::PSH, 'P'),
        (tcp::ACK, '.'),
        (tcp::URG, 'U'),
    ];
    let set: String = letters.iter().filter(|(bit, _)| flags & bit != 0).map(|(_, letter)| *letter).collect();
    format!(" [{}]", if set.is_empty() { "none" } else { &set })
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Ethernet and IPv4 headers of 192.0.2.7 > 192.0.2.100, time to live 64, with this above them.
    fn frame(protocol: u8, fragment: u16, above: &[u8]) -> Vec<u8> {
        let mut bytes = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
        let total = (20 + above.len()) as u16;
        bytes.extend([0x45, 0]);
        bytes.extend(total.to_be_bytes());
        bytes.extend([0, 0]);
        bytes.extend(fragment.to_be_bytes());
        bytes.extend([64, protocol, 0, 0, 192, 0, 2, 7, 192, 0, 2, 100]);
        bytes.extend(above);
        bytes
    }

    fn tcp(flags: u8) -> Vec<u8> {
        let mut segment = vec![0; 20];
        segment[..4].copy_from_slice(&[0x9c, 0x40, 0, 80]);
        (segment[12], segment[13]) = (0x50, flags);
        segment
    }

    #[test]
    fn frames_are_told_in_a_line() {
        let mut request = vec![0xff; 6];
        request.extend([2, 0, 0, 0, 0, 9, 8, 6, 0, 1, 8, 0, 6, 4, 0, 1, 2, 0, 0, 0, 0, 9, 10, 0, 0, 1]);
        let mut gratuitous = request.clone();
        request.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 2]);
        gratuitous.extend([0, 0, 0, 0, 0, 0, 10, 0, 0, 1]);
        let cases = [
            (frame(6, 0, &tcp(0x12)), "TCP 192.0.2.7:40000 > 192.0.2.100:80 [S.] ttl 64 len 40"),
            (frame(6, 0, &tcp(0)), "TCP 192.0.2.7:40000 > 192.0.2.100:80 [none] ttl 64 len 40"),
            (frame(17, 0, &[0, 53, 0, 54, 0, 8, 0, 0]), "UDP 192.0.2.7:53 > 192.0.2.100:54 ttl 64 len 28"),
            (frame(17, 0, &[0, 53]), "UDP 192.0.2.7 > 192.0.2.100, header cut off, ttl 64 len 22"),
            (frame(17, 5, &[0; 8]), "fragment of protocol 17 192.0.2.7 > 192.0.2.100 ttl 64 len 28"),
            (
                frame(1, 0, &[3, 1, 0, 0, 0, 0, 0, 0]),
                "ICMP 192.0.2.7 > 192.0.2.100 type 3 code 1 ttl 64 len 28",
            ),
            (frame(47, 0, &[]), "IP protocol 47 192.0.2.7 > 192.0.2.100 ttl 64 len 20"),
            (request, "ARP who has 10.0.0.2, tell 10.0.0.1"),
            (gratuitous, "ARP 10.0.0.1 is at 02:00:00:00:00:09"),
            (vec![0; 3], "frame of 3 bytes"),
        ];
        for (frame, expected) in cases {
            assert_eq!(line(&frame), expected);
        }
    }

    proptest! {
        #[test]
        fn any_bytes_have_a_line(bytes in proptest::collection::vec(any::<u8>(), 0..80), protocol in 0usize..4) {
            prop_assert!(!line(&bytes).is_empty());
            let protocol = [1, 6, 17, 99][protocol];
            prop_assert!(!line(&frame(protocol, 0, &bytes)).is_empty());
        }
    }
}

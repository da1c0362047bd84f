//! Tests of the ICMP builders against recorded packets and slow rebuilds.

use proptest::prelude::*;

use super::*;

/// 198.51.100.10:40000 → 203.0.113.10:80, SYN, TTL 1.
const OFFENDER: [u8; 44] = [
    0x45, 0x00, 0x00, 0x2c, 0x12, 0x34, 0x40, 0x00, 0x01, 0x06, 0x01, 0x50, 0xc6, 0x33, 0x64, 0x0a, 0xcb,
    0x00, 0x71, 0x0a, 0x9c, 0x40, 0x00, 0x50, 0x11, 0x11, 0x11, 0x11, 0x00, 0x00, 0x00, 0x00, 0x60, 0x02,
    0xff, 0xff, 0x73, 0x2b, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4,
];
const VIP: u32 = 0xcb00_710a;
const CLIENT: u32 = 0xc633_640a;

#[test]
fn time_exceeded_byte_for_byte() {
    let mut out = [0xaa; ERROR_MAX];
    let len = error(&mut out, &OFFENDER, Problem::TtlExceeded, VIP, 0).unwrap();
    let expected = [
        0x45, 0xc0, 0x00, 0x48, 0x00, 0x00, 0x00, 0x00, 0x40, 0x01, 0x13, 0xad, 0xcb, 0x00, 0x71, 0x0a, 0xc6,
        0x33, 0x64, 0x0a, 0x0b, 0x00, 0x5b, 0x67, 0, 0, 0, 0,
    ];
    assert_eq!(out[..28], expected);
    assert_eq!(out[28..len], OFFENDER);
}

#[test]
fn port_unreachable_byte_for_byte() {
    let mut packet = OFFENDER;
    packet[8..12].copy_from_slice(&[0x40, 0x06, 0xc2, 0x4f]);
    let mut out = [0xaa; ERROR_MAX];
    let len = error(&mut out, &packet, Problem::PortUnreachable, VIP, 0).unwrap();
    assert_eq!(out[20..28], [0x03, 0x03, 0x63, 0x64, 0, 0, 0, 0]);
    assert_eq!(out[28..len], packet);
}

#[test]
fn quote_ends_at_576_bytes_and_at_the_buffer() {
    let mut packet = vec![0x5a; 1500];
    packet[..44].copy_from_slice(&OFFENDER);
    packet[1] = 0xff;
    let problem = Problem::FragmentationNeeded { mtu: 1400 };

    let mut out = [0; 1500];
    assert_eq!(error(&mut out, &packet, problem, VIP, 7), Some(576));
    assert_eq!(ipv4::check(&out, true).unwrap().total, 576);
    let ip = ipv4::Header::at(&out).unwrap();
    assert_eq!((ip.tos(), ip.id(), ip.ttl(), ip.fragment()), (0xde, 7, 64, 0));
    let icmp = Header::at(&out[20..]).unwrap();
    assert_eq!((icmp.kind(), icmp.code(), icmp.rest()), (3, 4, 1400));
    assert!(checksum_valid(&out[20..576]));
    assert_eq!(out[28..576], packet[..548]);

    assert_eq!(error(&mut out[..48], &packet, problem, VIP, 7), Some(48));
    assert_eq!(error(&mut out[..47], &packet, problem, VIP, 7), None);
    assert_eq!(error(&mut out[..10], &packet, problem, VIP, 7), None);
    assert_eq!(error(&mut out, &packet[..19], problem, VIP, 7), None);
}

#[test]
fn may_report_table() {
    let edit = |edits: &[(usize, u8)]| {
        let mut packet = OFFENDER;
        for &(at, value) in edits {
            packet[at] = value;
        }
        packet
    };
    // Protocol at 9, fragment word at 6, source at 12, destination at 16, ICMP type at 20.
    let table = [
        ("tcp", edit(&[]), true),
        ("first fragment", edit(&[(6, 0x20)]), true),
        ("later fragment", edit(&[(7, 1)]), false),
        ("to a group", edit(&[(16, 0xe0)]), false),
        ("to all", edit(&[(16, 0xff), (17, 0xff), (18, 0xff), (19, 0xff)]), false),
        ("from nobody", edit(&[(12, 0), (13, 0), (14, 0), (15, 0)]), false),
        ("from a group", edit(&[(12, 0xe1)]), false),
        ("echo request", edit(&[(9, 1), (20, 8)]), true),
        ("unreachable", edit(&[(9, 1), (20, 3)]), false),
        ("redirect", edit(&[(9, 1), (20, 5)]), false),
        ("time exceeded", edit(&[(9, 1), (20, 11)]), false),
        ("timestamp reply", edit(&[(9, 1), (20, 14)]), true),
        ("unknown type", edit(&[(9, 1), (20, 42)]), false),
    ];
    for (what, packet, expected) in table {
        assert_eq!(may_report(&packet), expected, "{what}");
    }
    assert!(!may_report(&edit(&[(9, 1)])[..20]), "ICMP without a type");
}

/// An echo request of CLIENT to VIP with `data`, and with options if `options` is a multiple of 4.
fn echo_request(data: &[u8], options: usize) -> Vec<u8> {
    let total = 20 + options + 8 + data.len();
    let mut packet = vec![1; total];
    let repr = ipv4::Repr {
        tos: 0x10,
        total_len: total as u16,
        id: 99,
        fragment: ipv4::DF,
        ttl: 17,
        protocol: ipv4::ICMP,
        src: CLIENT,
        dst: VIP,
    };
    repr.emit(packet.first_chunk_mut().unwrap());
    packet[0] = 0x45 + (options / 4) as u8;
    packet[10..12].fill(0);
    let check = checksum::check(&packet[..20 + options]);
    packet[10..12].copy_from_slice(&check.to_be_bytes());
    let message = &mut packet[20 + options..];
    message[..8].copy_from_slice(&[8, 0, 0, 0, 0x12, 0x34, 0, 1]);
    message[8..].copy_from_slice(data);
    let check = checksum::check(message);
    message[2..4].copy_from_slice(&check.to_be_bytes());
    packet
}

proptest! {
    #[test]
    fn echo_reply_is_a_fresh_reply(data in proptest::collection::vec(any::<u8>(), 0..100), words in 0usize..=10, id: u16) {
        let options = words * 4;
        let mut packet = echo_request(&data, options);
        let before = packet.clone();
        prop_assert!(echo_reply(&mut packet, id));
        prop_assert_eq!(ipv4::check(&packet, true).unwrap().total, before.len());
        let ip = ipv4::Header::at(&packet).unwrap();
        prop_assert_eq!((ip.src(), ip.dst(), ip.ttl(), ip.fragment()), (VIP, CLIENT, 64, 0));
        prop_assert_eq!((ip.id(), ip.tos()), (id, 0x10));
        prop_assert_eq!(&packet[20..20 + options], &before[20..20 + options]);
        let message = &packet[20 + options..];
        prop_assert!(checksum_valid(message));
        prop_assert_eq!((message[0], message[1]), (0, 0));
        prop_assert_eq!(&message[4..], &before[24 + options..]);
    }

    /// Whatever the bytes: no panic, and a refused packet is left as it was.
    #[test]
    fn any_bytes_are_survived(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), lead in 0x44u8..0x50) {
        if bytes.len() > 9 {
            bytes[0] = lead;
            bytes[9] = ipv4::ICMP;
        }
        let _ = may_report(&bytes);
        let _ = error(&mut [0; ERROR_MAX], &bytes, Problem::HostUnreachable, VIP, 0);
        let before = bytes.clone();
        if !echo_reply(&mut bytes, 1) {
            prop_assert_eq!(bytes, before);
        }
    }
}

#[test]
fn what_is_no_whole_echo_request_is_left_alone() {
    let good = echo_request(b"hello", 0);
    // Echo reply with a matching check, broken check, fragment, other protocol.
    let edits: [&[(usize, u8)]; 4] =
        [&[(20, 0), (22, good[22].wrapping_add(8))], &[(22, !good[22])], &[(6, 0x20)], &[(9, 17)]];
    for edit in edits {
        let mut packet = good.clone();
        for &(at, value) in edit {
            packet[at] = value;
        }
        let before = packet.clone();
        assert!(!echo_reply(&mut packet, 5), "{edit:?}");
        assert_eq!(packet, before);
    }
    assert!(!echo_reply(&mut good.clone()[..27], 5), "cut");
}

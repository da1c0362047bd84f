//! Tests of IPv4 views, checks and options.

use super::*;
use proptest::prelude::*;

/// 198.51.100.10 → 203.0.113.10, TCP, TTL 64, DF, ID 0x1234.
const REQUEST: [u8; LEN] = [
    0x45, 0x00, 0x00, 0x2c, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0xc2, 0x4f, 0xc6, 0x33, 0x64, 0x0a, 0xcb,
    0x00, 0x71, 0x0a,
];
const REPR: Repr = Repr {
    tos: 0,
    total_len: 44,
    id: 0x1234,
    fragment: DF,
    ttl: 64,
    protocol: TCP,
    src: 0xc633_640a,
    dst: 0xcb00_710a,
};

fn packet() -> [u8; 60] {
    let mut packet = [0xee; 60];
    packet[..LEN].copy_from_slice(&REQUEST);
    packet
}

#[test]
fn fields_are_where_they_are() {
    let view = Header(&REQUEST);
    assert_eq!((view.version(), view.header_len(), view.tos()), (4, 20, 0));
    assert_eq!((view.total_len(), view.id(), view.fragment()), (44, 0x1234, DF));
    assert_eq!((view.ttl(), view.protocol(), view.check()), (64, TCP, 0xc24f));
    assert_eq!((view.src(), view.dst()), (REPR.src, REPR.dst));
    assert!(!view.is_fragment());
    let mut again = [0xff; LEN];
    REPR.emit(&mut again);
    assert_eq!(again, REQUEST);
}

#[test]
fn ttl_decrement_as_the_kernel_sends_it() {
    let mut bytes = REQUEST;
    Header(&mut bytes).decrement_ttl();
    assert_eq!((bytes[8], Header(&bytes).check()), (63, 0xc34f));
}

#[test]
fn check_table() {
    let good = Ok(Lengths { header: 20, total: 44 });
    let edit = |at: usize, value: u8| {
        let mut packet = packet();
        packet[at] = value;
        packet
    };
    // Description, packet, bytes present, verify, expected.
    let table = [
        ("whole, padded", packet(), 60, true, good),
        ("whole, exact", packet(), 44, true, good),
        ("one byte missing", packet(), 43, true, Err(Error::Malformed)),
        ("header cut", packet(), 19, true, Err(Error::Malformed)),
        ("nothing", packet(), 0, true, Err(Error::Malformed)),
        ("version 6", edit(0, 0x65), 60, true, Err(Error::Malformed)),
        ("IHL 4", edit(0, 0x44), 60, true, Err(Error::Malformed)),
        ("IHL past total", edit(0, 0x4f), 60, true, Err(Error::Malformed)),
        ("total below header", edit(3, 19), 60, true, Err(Error::Malformed)),
        ("total past frame", edit(2, 1), 60, true, Err(Error::Malformed)),
        ("bad check", edit(10, 0xc3), 60, true, Err(Error::Checksum)),
        ("bad check, vouched for", edit(10, 0xc3), 60, false, good),
        ("IHL 6, check not over it", edit(0, 0x46), 60, true, Err(Error::Checksum)),
    ];
    for (what, packet, present, verify, expected) in table {
        assert_eq!(check(&packet[..present], verify), expected, "{what}");
    }
}

#[test]
fn options_table() {
    let table: [(&[u8], Options); 9] = [
        (&[], Options::Harmless),
        (&[1, 1, 1, 0], Options::Harmless),
        (&[0x94, 4, 0, 0], Options::Harmless),
        (&[7, 7, 4, 0, 0, 0, 0, 0x83], Options::SourceRoute),
        (&[1, 0x89, 7, 4], Options::SourceRoute),
        (&[0, 0x83, 7, 4], Options::Harmless),
        (&[7, 1, 0, 0], Options::Malformed),
        (&[7, 5, 0, 0], Options::Malformed),
        (&[1, 1, 1, 7], Options::Malformed),
    ];
    for (bytes, expected) in table {
        assert_eq!(options(bytes), expected, "{bytes:02x?}");
    }
}

#[test]
fn sources() {
    for (address, usable) in [
        (0x0000_0001, false),
        (0x7f00_0001, false),
        (0xe000_0001, false),
        (0xefff_ffff, false),
        (0xffff_ffff, false),
        (0x0a00_0001, true),
        (0xc633_640a, true),
    ] {
        assert_eq!(is_usable_source(address), usable, "{address:08x}");
    }
}

proptest! {
    #[test]
    fn decrement_equals_a_fresh_header(tos: u8, total_len: u16, id: u16, fragment: u16, ttl in 1u8.., protocol: u8, src: u32, dst: u32) {
        let repr = Repr { tos, total_len, id, fragment, ttl, protocol, src, dst };
        let mut bytes = [0; LEN];
        repr.emit(&mut bytes);
        Header(&mut bytes).decrement_ttl();
        let mut fresh = [0; LEN];
        Repr { ttl: ttl - 1, ..repr }.emit(&mut fresh);
        prop_assert_eq!(bytes, fresh);
    }

    /// Arbitrary bytes: no panic, and lengths that hold.
    #[test]
    fn check_yields_lengths_that_fit(mut bytes in proptest::collection::vec(any::<u8>(), 0..100), verify: bool) {
        if let Some(first) = bytes.first_mut() { *first = 0x40 | *first & 0x0f; }
        if bytes.len() > 3 { bytes[2] = 0; }
        if let Ok(lengths) = check(&bytes, verify) {
            prop_assert!(LEN <= lengths.header && lengths.header <= lengths.total && lengths.total <= bytes.len());
            let _ = options(&bytes[LEN..lengths.header]);
        }
    }
}

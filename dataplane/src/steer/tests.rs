//! Owners against Toeplitz as Microsoft defines it, and the one promise: every packet of a connection has one owner.

use config::Valid;
use proptest::prelude::*;

use super::*;
use crate::io::mem::{MemBuf, MemIo};
use crate::io::{Burst, Io};
use crate::pipeline::parse::parse;
use crate::wire::ethernet::Mac;

/// Key of the Microsoft RSS verification suite.
const MICROSOFT: [u8; 40] = [
    0x6d, 0x5a, 0x56, 0xda, 0x25, 0x5b, 0x0e, 0xc2, 0x41, 0x67, 0x25, 0x3d, 0x43, 0xa3, 0x8f, 0xb0, 0xd0,
    0xca, 0x2b, 0xcb, 0xae, 0x7b, 0x30, 0xb4, 0x77, 0xcb, 0x2d, 0xa3, 0x80, 0x30, 0xf2, 0x0c, 0x6a, 0x42,
    0xb7, 0x3b, 0xbe, 0xac, 0x01, 0xfa,
];

/// Toeplitz by its definition: for every set bit of the input the 32 key bits from there on.
fn reference(key: &[u8], input: &[u8]) -> u32 {
    let bit = |i: usize| u32::from(key[i / 8 % key.len()] >> (7 - i % 8) & 1);
    let window = |from: usize| (0..32).fold(0, |word, i| word << 1 | bit(from + i));
    (0..input.len() * 8).filter(|i| input[i / 8] >> (7 - i % 8) & 1 == 1).fold(0, |hash, i| hash ^ window(i))
}

fn input(parts: &[(u32, usize)]) -> Vec<u8> {
    parts.iter().flat_map(|(value, bytes)| value.to_be_bytes()[4 - bytes..].to_vec()).collect()
}

fn address(a: u8, b: u8, c: u8, d: u8) -> u32 {
    u32::from_be_bytes([a, b, c, d])
}

/// The published vectors of the Microsoft suite: source, destination, hash over addresses and ports, over addresses.
#[test]
fn the_reference_agrees_with_the_published_vectors() {
    let vectors = [
        (address(66, 9, 149, 187), 2794, address(161, 142, 100, 80), 1766, 0x51cc_c178, 0x323e_8fc2),
        (address(199, 92, 111, 2), 14230, address(65, 69, 140, 83), 4739, 0xc626_b0ea, 0xd718_262a),
        (address(24, 19, 198, 95), 12898, address(12, 22, 207, 184), 38024, 0x5c2b_394a, 0xd2d0_a5de),
        (address(38, 27, 205, 30), 48228, address(209, 142, 163, 6), 2217, 0xafc7_327f, 0x8298_9176),
        (address(153, 39, 163, 191), 44251, address(202, 188, 127, 2), 1303, 0x10e8_28a2, 0x5d18_09c5),
    ];
    for (src, sport, dst, dport, with_ports, addresses) in vectors {
        assert_eq!(reference(&MICROSOFT, &input(&[(src, 4), (dst, 4), (sport, 2), (dport, 2)])), with_ports);
        assert_eq!(reference(&MICROSOFT, &input(&[(src, 4), (dst, 4)])), addresses);
    }
}

/// 198.51.100.10:40000 under 6d5a on both sides of the balancer.
#[test]
fn a_repeated_key_gives_a_client_one_hash_wherever_it_stands() {
    let key = [0x6d, 0x5a];
    let client = [(address(198, 51, 100, 10), 4), (40000, 2)];
    assert_eq!(reference(&key, &input(&client)), 0x69b7_69b7);
    assert_eq!(reference(&key, &input(&[(0, 4), client[0], (0, 2), client[1]])), 0x69b7_69b7);
    let word = (address(198, 51, 100, 10) >> 16) as u16 ^ address(198, 51, 100, 10) as u16 ^ 40000;
    assert_eq!(toeplitz_word(0x6d5a, word), 0x69b7);
}

proptest! {
    /// A card with that key and a table of `cells << more` cells filled round robin in steps of `cells` picks the
    /// owner's queue, from the source of a request and from the destination of a reply.
    #[test]
    fn a_card_agrees_with_the_owner(
        client: u32, port: u16, key: u16, workers in 1usize..=WORKERS_MAX, more in 0u32..3, by_port: bool,
    ) {
        let (by, cells) = (if by_port { By::ClientPort } else { By::Client }, 128usize);
        let steer = Steer::toeplitz(workers, by, key, cells);
        let fields = if by_port { vec![(client, 4), (u32::from(port), 2)] } else { vec![(client, 4)] };
        let hash = reference(&key.to_be_bytes(), &input(&fields)) as usize;
        let cell = hash & ((cells << more) - 1);
        prop_assert_eq!(steer.owner((client, port)), cell % cells % workers);
    }

    #[test]
    fn clients_spread_evenly(key: (u64, u64), first: u32, workers in 2usize..=16) {
        for steer in [Steer::keyed(workers, By::Client, key), Steer::toeplitz(workers, By::Client, 0x6d5a, 512)] {
            let mut counts = vec![0; workers];
            let clients = 1 << 14;
            (0..clients).for_each(|i| counts[steer.owner((first.wrapping_add(i), 0))] += 1);
            let share = clients as usize / workers;
            prop_assert!(counts.iter().all(|n| (share * 3 / 4..share * 5 / 4).contains(n)), "{:?}", counts);
        }
    }

    /// Request, reply, and ICMP errors about either have one owner, whatever the method.
    #[test]
    fn every_packet_of_a_connection_has_one_owner(
        client in (0x0b00_0000u32..0x7f00_0000, any::<u16>()), server: u16, vip in 0usize..40, key: (u64, u64), workers in 1usize..=8,
        nat: bool, by_port: bool, toeplitz: bool, udp: bool,
    ) {
        let (services, vips) = services(40);
        let vip = (vips[vip], 80);
        let dest = if nat { (address(10, 0, 0, 7), server) } else { vip };
        let by = if by_port { By::ClientPort } else { By::Client };
        let steer =
            if toeplitz { Steer::toeplitz(workers, by, 0x6d5a, 256) } else { Steer::keyed(workers, by, key) };
        let proto = if udp { ipv4::UDP } else { ipv4::TCP };
        let owner = steer.owner(client);
        let router = address(10, 9, 9, 9);
        let packets = [
            packet(client, vip, proto),
            packet(dest, client, proto),
            // About the request behind us, from a router there to the client.
            error(router, client.0, &packet(client, dest, proto)),
            // About the reply before us, to the address it came from.
            error(router, vip.0, &packet(vip, client, proto)),
        ];
        for packet in packets {
            let mut io = MemIo::new(1, 1);
            let frame = frame(&packet);
            prop_assert!(io.inject(0, &frame));
            let mut burst: Burst<MemBuf> = Burst::new();
            io.rx(0, &mut burst);
            let meta = parse(&burst[0], Mac([2, 0, 0, 0, 0, 1]));
            prop_assert!(matches!(meta.kind, Kind::Flow | Kind::Icmp), "{:?}", meta);
            prop_assert_eq!(owner_of(&steer, &services, &burst, meta, 99), owner);
        }
    }
}

/// The owner of the one packet of a burst that `me` received.
fn owner_of(steer: &Steer, services: &ServiceMap, burst: &Burst<MemBuf>, meta: Meta, me: usize) -> usize {
    let mut owners = [0; BURST];
    let foreign = steer.owners(services, burst, &[meta; BURST], me, &mut owners);
    assert_eq!(foreign, usize::from(owners[0]) != me);
    owners[0].into()
}

/// What is damaged, or no error, stays where it came in.
#[test]
fn other_messages_are_the_receivers() {
    let (services, vips) = services(1);
    let steer = Steer::keyed(8, By::Client, (3, 5));
    let inner = packet((1 << 30, 1), (vips[0], 80), ipv4::TCP);
    let mut cut = error(7 << 24, vips[0], &inner);
    cut.truncate(20 + icmp::LEN + 10);
    cut[2..4].copy_from_slice(&38u16.to_be_bytes());
    let mut echo = error(7 << 24, vips[0], &inner);
    echo[20] = icmp::ECHO_REQUEST;
    for mut packet in [cut, echo] {
        fill_checksum(&mut packet);
        let mut io = MemIo::new(1, 1);
        assert!(io.inject(0, &frame(&packet)));
        let mut burst: Burst<MemBuf> = Burst::new();
        io.rx(0, &mut burst);
        let meta = parse(&burst[0], Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(meta.kind, Kind::Icmp);
        assert_eq!(owner_of(&steer, &services, &burst, meta, 5), 5);
    }
}

/// A map of services on that many addresses, and the addresses.
fn services(count: u32) -> (ServiceMap, Vec<u32>) {
    let vips: Vec<u32> = (0..count).map(|i| address(203, 0, 113, 0) + i * 7).collect();
    let services = vips.iter().map(|vip| {
        let vip = std::net::Ipv4Addr::from_bits(*vip);
        format!("[[service]]\naddress = \"tcp://{vip}:80\"\nscheduler = \"rr\"\nannounce = false\n")
    });
    let port = "[[port]]\nname = \"a\"\ndevice = \"net_null0\"\naddresses = [\"10.0.0.1/24\"]\n";
    let text = port.to_owned() + &services.collect::<String>();
    let valid = config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"));
    let facts = vec![crate::route::PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }];
    let mut registry = crate::registry::Registry::new(&valid, facts, 1).unwrap();
    for change in config::plan(&Valid::empty(), &valid).changes {
        registry.apply(&change).unwrap();
    }
    (registry.snapshot().services, vips)
}

fn packet(src: (u32, u16), dst: (u32, u16), proto: u8) -> Vec<u8> {
    let mut packet = header(40, proto, src.0, dst.0);
    packet.extend(src.1.to_be_bytes());
    packet.extend(dst.1.to_be_bytes());
    packet.extend(if proto == ipv4::UDP { [0, 20, 0, 0] } else { [0; 4] });
    packet.extend([0, 0, 0, 0, 0x50, 0x10, 0, 0, 0, 0, 0, 0]);
    packet
}

fn error(src: u32, dst: u32, about: &[u8]) -> Vec<u8> {
    let mut packet = header((20 + icmp::LEN + about.len()) as u16, ipv4::ICMP, src, dst);
    packet.extend([icmp::UNREACHABLE, 1, 0, 0, 0, 0, 0, 0]);
    packet.extend(about);
    packet
}

fn header(total: u16, proto: u8, src: u32, dst: u32) -> Vec<u8> {
    let mut header = vec![0x45, 0];
    header.extend(total.to_be_bytes());
    header.extend([0, 0, 0x40, 0, 64, proto, 0, 0]);
    header.extend(src.to_be_bytes());
    header.extend(dst.to_be_bytes());
    fill_checksum(&mut header);
    header
}

fn fill_checksum(packet: &mut [u8]) {
    packet[10..12].fill(0);
    let sum: u32 = packet[..20].chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], w[1]]))).sum();
    let folded = (sum & 0xffff) + (sum >> 16);
    packet[10..12].copy_from_slice(&(!(((folded & 0xffff) + (folded >> 16)) as u16)).to_be_bytes());
}

fn frame(packet: &[u8]) -> Vec<u8> {
    let mut frame = vec![2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 9, 8, 0];
    frame.extend(packet);
    frame
}

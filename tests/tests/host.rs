//! What the box does besides balancing: announcing its addresses, learning its neighbours, speaking for itself.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dataplane::verdict::DropReason;
use tests::case::Out;
use tests::packets::{self, CLIENT, DIP, P0, P1_MAC, VIP, VIP_PORT, flags};
use tests::topo::{Method, Proto, Rules, Server, Service, Topo};

/// Time between looks at what was sent: no more than a pool of buffers holds.
const LOOK: Duration = Duration::from_millis(50);

fn vip_rules(announce: bool) -> Rules {
    Rules::test_network().service(Service { announce, ..Service::new(Proto::Tcp, VIP, VIP_PORT, "rr") })
}

/// The address that a gratuitous ARP announces.
fn announced(out: &Out) -> Option<Ipv4Addr> {
    let (frame, ours) = (&out.frame, |at: usize| <[u8; 4]>::try_from(&out.frame[at..at + 4]).expect("four"));
    (frame[12..14] == [8, 6] && ours(28) == ours(38)).then(|| ours(28).into())
}

/// Announcements of the virtual address in a minute, however the rules change while they are under way.
#[test]
fn an_address_is_announced_while_it_is_ours() {
    let (ours, silent, gone) = (vip_rules(true), vip_rules(false), Rules::test_network());
    let table = [
        ("stays", 0, &ours, 5),
        ("is taken back at once", 0, &gone, 1),
        ("is deleted after half a second", 500, &gone, 1),
        ("is deleted after two rounds", 1500, &gone, 2),
        ("is to be silent after half a second", 500, &silent, 1),
        ("has been announced before", 10_000, &gone, 5),
    ];
    for (what, after_ms, then, times) in table {
        let mut topo = Topo::new(&gone);
        topo.reload(&ours);
        topo.advance(Duration::from_millis(after_ms).max(LOOK));
        topo.reload(then);
        topo.advance_secs(60);
        let sent: Vec<_> =
            topo.sent().iter().filter(|out| announced(out) == Some(VIP)).map(|o| o.port).collect();
        let expected = [vec![0; times], vec![1; times]].concat();
        assert_eq!(sent, expected, "the address {what}: on each of the two ports");
    }
}

/// However many become ours together, and while others do: five times each, a second apart, and none waits for the
/// last round of those before it.
#[test]
fn every_new_address_is_announced_five_times() {
    const TOGETHER: u32 = 6000;
    let network = || Rules { extra: "[limits]\nservices = 10000\n".to_owned(), ..Rules::test_network() };
    let address = |n| Ipv4Addr::from_bits(0xcb00_0000 + n);
    let service = |n| Service::new(Proto::Tcp, address(n), VIP_PORT, "rr");
    let mut rules = network();
    rules.services.extend((0..TOGETHER).map(service));
    let mut topo = Topo::new(&network());
    topo.reload(&rules);
    let (mut seen, mut came) = (HashMap::<Ipv4Addr, Vec<Duration>>::new(), TOGETHER);
    let mut now = Duration::ZERO;
    while now < Duration::from_secs(120) {
        if came < TOGETHER + 3 && now >= Duration::from_secs(5) * (came - TOGETHER + 1) {
            rules.services.push(service(came));
            topo.reload(&rules);
            came += 1;
        }
        topo.advance(LOOK);
        now += LOOK;
        for out in topo.sent().iter().filter(|out| out.port == 0) {
            seen.entry(announced(out).expect("nothing else is sent")).or_default().push(now);
        }
    }
    for n in 0..came {
        let times = seen.get(&address(n)).map_or(&[][..], Vec::as_slice);
        assert_eq!(times.len(), 5, "address {n}: {times:?}");
        let close = times.windows(2).find(|pair| pair[1] - pair[0] < Duration::from_secs(1));
        assert_eq!(close, None, "address {n}: {times:?}");
        assert!(times[0] < Duration::from_secs(25), "address {n}: {times:?}");
    }
}

/// Many servers answer ARP in one burst: everything that waited for them leaves.
#[test]
fn arp_answers_in_one_burst_let_every_packet_go() {
    const SERVERS: u8 = 10;
    const EACH: u16 = 40;
    let server = |n| Ipv4Addr::new(10, 0, 0, n);
    let mut service = Service::new(Proto::Tcp, VIP, VIP_PORT, "rr");
    service.servers = (1..=SERVERS).map(|n| Server::new(server(n), 8080, Method::Nat)).collect();
    let mut rules = Rules::test_network().service(service);
    rules.neighbours.retain(|(port, ..)| *port == 0);
    let mut topo = Topo::new(&rules);
    let waiting = u64::from(SERVERS) * u64::from(EACH);
    for n in 0..waiting {
        let sent =
            topo.deliver(0, &packets::tcp((CLIENT, 10_000 + n as u16), (VIP, VIP_PORT), flags::SYN).bytes());
        assert_eq!(sent, []);
    }
    topo.advance(LOOK);
    assert_eq!((topo.figures().parked, topo.sent().len()), (waiting, SERVERS.into()), "all asked for");
    let mac = |n| [2, 0, 0, 0, 2, n];
    for n in 1..SERVERS {
        assert!(topo.io.inject(1, &packets::arp_reply((mac(n), server(n)), (P1_MAC, DIP))));
    }
    let sent = topo.deliver(1, &packets::arp_reply((mac(SERVERS), server(SERVERS)), (P1_MAC, DIP)));
    for n in 1..=SERVERS {
        let to = sent.iter().filter(|out| out.port == 1 && out.frame[..6] == mac(n)).count();
        let full = topo.figures().drops_for(DropReason::TxFull);
        assert_eq!((to, full), (usize::from(EACH), 0), "server {n}");
    }
}

/// Two of our ports on one wire hear each other; another host with one of our addresses is a conflict.
#[test]
fn only_another_host_can_have_our_address() {
    let table = [("our other port", P1_MAC, 0), ("another host", [2, 0, 0, 0, 9, 9], 1)];
    for (who, mac, conflicts) in table {
        for address in [VIP, P0, DIP] {
            let mut topo = Topo::new(&vip_rules(true));
            let ours = address != DIP;
            assert_eq!(topo.deliver(0, &packets::arp_request((mac, address), address)), []);
            let counted = topo.figures().addr_conflict;
            assert_eq!(counted, if ours { conflicts } else { 0 }, "{who} announces {address}");
        }
    }
}

/// An echo request is answered unless its source says that it is from ourselves.
#[test]
fn nobody_else_asks_in_our_name() {
    for (from, answers) in [(CLIENT, 1), (VIP, 0), (P0, 0), (DIP, 0)] {
        for to in [VIP, P0] {
            let mut topo = Topo::new(&vip_rules(true));
            let sent = topo.deliver(0, &packets::icmp(from, to, 8, 0, 0x0001_0001, b"ping").bytes());
            let refused = topo.figures().drops_for(DropReason::LocalBoundary);
            assert_eq!((sent.len(), refused), (answers, 1 - answers as u64), "from {from} to {to}");
        }
    }
}

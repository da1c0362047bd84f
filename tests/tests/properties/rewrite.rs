//! What network address translation changes in a packet, and that it changes nothing else.

use std::net::Ipv4Addr;

use proptest::prelude::*;
use tests::check::{self, Check};
use tests::packets::{
    self, CLIENT, GATEWAY_MAC, P0_MAC, P1_MAC, Packet, SERVER, SERVER_MAC, SERVER_PORT, VIP, VIP_PORT,
};
use tests::topo::{Method, Proto, Server, Service, Topo};

use crate::small_rules;

/// What may vary in a packet that opens a connection.
#[derive(Clone, Debug)]
struct Varied {
    proto: Proto,
    client: (Ipv4Addr, u16),
    ttl: u8,
    tos: u8,
    id: u16,
    df: bool,
    ip_options: Vec<u8>,
    payload: Vec<u8>,
    /// Added to the L4 checksum in one's complement arithmetic; 0 leaves it right.
    error: u16,
    padding: usize,
}

fn varied() -> impl Strategy<Value = Varied> {
    let proto = prop::sample::select(vec![Proto::Tcp, Proto::Udp]);
    let client = (0..=255_u8, 1..=0xffff_u16).prop_filter("FTP data is nobody's", |(_, port)| *port != 20);
    let options = prop::sample::select(vec![vec![], vec![1, 1, 1, 0], vec![7, 7, 4, 0, 0, 0, 0, 0]]);
    let error = prop_oneof![Just(0), 1..0xffff_u16];
    let ip = (2..=255_u8, any::<u8>(), any::<u16>(), any::<bool>(), options);
    (proto, client, ip, prop::collection::vec(any::<u8>(), 0..600), error, 0..40_usize).prop_map(
        |(proto, (host, port), (ttl, tos, id, df, ip_options), payload, error, padding)| Varied {
            proto,
            client: (Ipv4Addr::new(198, 51, 100, host), port),
            ttl,
            tos,
            id,
            df,
            ip_options,
            payload,
            error,
            padding,
        },
    )
}

impl Varied {
    /// A packet between these two with all that varies, in the direction of `between`.
    fn packet(&self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16)) -> Packet {
        let packet = match self.proto {
            Proto::Tcp => {
                packets::tcp(from, to, packets::flags::SYN).options(&[2, 4, 5, 0xb4]).payload(&self.payload)
            }
            Proto::Udp => packets::udp(from, to, &self.payload),
        };
        packet.with(|p| {
            (p.ip.ttl, p.ip.tos, p.ip.id) = (self.ttl, self.tos, self.id);
            p.ip.fragment = if self.df { 0x4000 } else { 0 };
            p.ip.options.clone_from(&self.ip_options);
        })
    }

    /// The frame of a packet with its checksum wrong by [`Varied::error`], and padding behind it.
    fn frame(&self, packet: &Packet) -> Vec<u8> {
        let mut frame = packet.bytes();
        let at = self.check_at();
        let check = u32::from(u16::from_be_bytes([frame[at], frame[at + 1]])) + u32::from(self.error);
        let check = (check & 0xffff) + (check >> 16);
        frame[at..at + 2].copy_from_slice(&(check as u16).to_be_bytes());
        frame.resize(frame.len() + self.padding, 0xee);
        frame
    }

    fn check_at(&self) -> usize {
        34 + self.ip_options.len() + if self.proto == Proto::Tcp { 16 } else { 6 }
    }

    fn topo(&self) -> Topo {
        let service = Service::new(self.proto, VIP, VIP_PORT, "rr");
        Topo::new(&small_rules().service(service.server(Server::new(SERVER, SERVER_PORT, Method::Nat))))
    }
}

/// That `out` is `expected` but for an L4 checksum that is wrong by as much as that of `input`.
fn same_but_error(varied: &Varied, input: &[u8], out: &[u8], expected: &Packet) -> Result<(), TestCaseError> {
    let mut expected = expected.bytes();
    let sums = |frame: &[u8]| check::decode(frame).map(|decoded| decoded.ip().l4.check());
    prop_assert_eq!(sums(out), sums(input), "the error is kept");
    prop_assert_eq!(check::decode(out).map(|decoded| decoded.ip().check), Ok(Check::Valid));
    if varied.error != 0 {
        let at = varied.check_at();
        expected[at..at + 2].copy_from_slice(&out[at..at + 2]);
    }
    prop_assert_eq!(out, &expected[..]);
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// There and back: the server sees its own address, the client the service's, and nobody anything else changed.
    /// A checksum that is wrong by some amount stays wrong by that amount.
    #[test]
    fn nat_changes_one_endpoint_and_nothing_else(varied in varied()) {
        let (service, server) = ((VIP, VIP_PORT), (SERVER, SERVER_PORT));
        let request = varied.frame(&varied.packet(varied.client, service));
        let reply = varied.frame(&varied.packet(server, varied.client).from_server());
        let unchecked = |frame: &[u8]| frame[varied.check_at()..][..2] == [0, 0] && varied.proto == Proto::Udp;
        prop_assume!(!unchecked(&request) && !unchecked(&reply));

        let mut topo = varied.topo();
        let out = topo.deliver(0, &request);
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(out[0].port, 1);
        let expected = varied.packet(varied.client, server).with(|p| {
            (p.ether.src, p.ether.dst) = (P1_MAC, SERVER_MAC);
            p.ip.ttl -= 1;
        });
        same_but_error(&varied, &request, &out[0].frame, &expected)?;

        let out = topo.deliver(1, &reply);
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(out[0].port, 0);
        let expected = varied.packet(service, varied.client).with(|p| {
            (p.ether.src, p.ether.dst) = (P0_MAC, GATEWAY_MAC);
            p.ip.ttl -= 1;
        });
        same_but_error(&varied, &reply, &out[0].frame, &expected)?;
    }

    /// Direct routing changes the frame and the time to live.
    #[test]
    fn direct_routing_changes_no_address(varied in varied()) {
        let service = Service::new(varied.proto, VIP, VIP_PORT, "wlc");
        let server = Server::new(SERVER, VIP_PORT, Method::Dr);
        let mut topo = Topo::new(&small_rules().service(service.server(server)));
        let request = varied.frame(&varied.packet(varied.client, (VIP, VIP_PORT)));
        let out = topo.deliver(0, &request);
        prop_assert_eq!(out.len(), 1);
        let expected = varied.packet(varied.client, (VIP, VIP_PORT)).with(|p| {
            (p.ether.src, p.ether.dst) = (P1_MAC, SERVER_MAC);
            p.ip.ttl -= 1;
        });
        let at = varied.check_at();
        let mut expected = expected.bytes();
        expected[at..at + 2].copy_from_slice(&request[at..at + 2]);
        prop_assert_eq!(&out[0].frame, &expected);
    }

    /// A datagram without a checksum reaches the server with a right one.
    #[test]
    fn nat_fills_in_a_missing_checksum(payload in prop::collection::vec(any::<u8>(), 0..300), port in 21..=0xffff_u16) {
        let varied = Varied { proto: Proto::Udp, ..plain() };
        let datagram = packets::udp((CLIENT, port), (VIP, VIP_PORT), &payload).with(|p| p.udp().check = Some(0));
        let out = varied.topo().deliver(0, &datagram.bytes());
        prop_assert_eq!(out.len(), 1);
        prop_assert_eq!(check::valid(&out[0].frame).ip().l4.check(), Check::Valid);
    }
}

fn plain() -> Varied {
    Varied {
        proto: Proto::Tcp,
        client: (CLIENT, packets::CLIENT_PORT),
        ttl: 64,
        tos: 0,
        id: 1,
        df: true,
        ip_options: Vec::new(),
        payload: Vec::new(),
        error: 0,
        padding: 0,
    }
}

//! TCP and UDP states through the whole worker: every packet sequence that was recorded from kernel IPVS.

use std::fmt::Write as _;

use tests::check;
use tests::kernel::states::{Kind, Packet, Table, tables};
use tests::packets::{self, CLIENT, SERVER, SERVER_PORT, VIP, VIP_PORT, flags};
use tests::topo::{Method, Proto, Rules, Server, Service, Topo};

#[test]
fn every_recorded_sequence_leads_to_the_same_state_and_timer() {
    let mut failed = String::new();
    println!("{:<56} {:>9} {:>7}  result", "table", "sequences", "packets");
    for table in tables() {
        let played = table.played();
        let packets: usize = played.iter().map(Vec::len).sum();
        let outcome = play(&table, &played);
        let result = if outcome.is_ok() { "equal" } else { "DIFFERS" };
        println!("{:<56} {:>9} {packets:>7}  {result}", table.title, played.len());
        if let Err(why) = outcome {
            let _ = writeln!(failed, "{}: {why}", table.title);
        }
    }
    println!("SCTP tables: later");
    assert!(failed.is_empty(), "{failed}");
}

/// Replies of a directly routed connection that pass through us are counted, forwarded as they are, and from the first
/// of them on the connection's states follow both sides.
#[test]
fn replies_under_direct_routing_are_followed_when_they_pass() {
    let client = (CLIENT, 20_000);
    let (rules, ..) = rules("TCP, DR ");
    let mut topo = Topo::new(&rules);
    let steps = [
        (Kind::Syn, false, "SYN_RECV"),
        (Kind::SynAck, true, "SYN_RECV"),
        (Kind::Ack, false, "ESTABLISHED"),
        (Kind::Fin, false, "CLOSE_WAIT"),
        (Kind::Fin, true, "TIME_WAIT"),
    ];
    for (kind, from_server, state) in steps {
        let (port, frame) = build(Packet { from_server, kind }, client, Method::Dr);
        let sent = topo.deliver(port, &frame);
        let [out] = &sent[..] else { panic!("{kind:?}: {sent:?}") };
        assert_eq!(out.port, 1 - port);
        let (was, is) = (check::valid(&frame), check::valid(&out.frame));
        let expected = check::Ip { ttl: was.ip().ttl - 1, ..was.ip().clone() };
        assert_eq!(*is.ip(), expected, "{kind:?}");
        assert_eq!(topo.conn(Proto::Tcp, client).map(|conn| conn.state).as_deref(), Some(state), "{kind:?}");
    }
    let figures = topo.service_figures(&rules.services[0]);
    assert_eq!((figures.inpkts, figures.outpkts), (3, 2));
}

/// A SYN on a connection that exists: `conn_reuse_mode` says whether it starts a new one.
#[test]
fn a_syn_starts_anew_where_reuse_allows() {
    use Kind::{Ack, Fin, Rst, Syn, SynAck};
    const CLIENT_SENT: bool = false;
    const SERVER_SENT: bool = true;
    /// State, method, what led there, modes in which the SYN makes a new connection.
    type Row = (&'static str, Method, &'static [(bool, Kind)], &'static [i64]);
    let table: [Row; 6] = [
        ("TIME_WAIT", Method::Nat, &[(CLIENT_SENT, Syn), (CLIENT_SENT, Fin)], &[1, 2, 3]),
        ("CLOSE", Method::Nat, &[(CLIENT_SENT, Syn), (SERVER_SENT, Rst)], &[1, 2, 3]),
        ("FIN_WAIT", Method::Dr, &[(CLIENT_SENT, Syn), (CLIENT_SENT, Ack), (CLIENT_SENT, Fin)], &[2, 3]),
        ("FIN_WAIT", Method::Nat, &[(CLIENT_SENT, Syn), (CLIENT_SENT, Ack), (SERVER_SENT, Fin)], &[]),
        ("SYN_RECV", Method::Nat, &[(CLIENT_SENT, Syn), (SERVER_SENT, SynAck)], &[]),
        ("ESTABLISHED", Method::Dr, &[(CLIENT_SENT, Syn), (CLIENT_SENT, Ack)], &[]),
    ];
    for (state, method, before, renewing) in table {
        for mode in 0..4 {
            let (mut rules, ..) = rules(if method == Method::Dr { "TCP, DR " } else { "TCP, NAT" });
            rules.sysctl.push(("conn_reuse_mode", mode));
            let mut topo = Topo::new(&rules);
            let end = (CLIENT, 20_000);
            let send = |topo: &mut Topo, from_server, kind| {
                let (port, frame) = build(Packet { from_server, kind }, end, method);
                assert_eq!(topo.deliver(port, &frame).len(), 1, "{state} {mode}: {kind:?}");
            };
            for (from_server, kind) in before {
                send(&mut topo, *from_server, *kind);
            }
            assert_eq!(topo.conn(Proto::Tcp, end).map(|conn| conn.state).as_deref(), Some(state));
            send(&mut topo, CLIENT_SENT, Syn);
            let made = topo.service_figures(&rules.services[0]).conns;
            assert_eq!(made, 1 + u64::from(renewing.contains(&mode)), "{state} {method:?} mode {mode}");
            assert_eq!(topo.figures().conns, 1, "{state} {method:?} mode {mode}: the old one is gone");
        }
    }
}

/// Plays every sequence on its own connection and looks at the connection after every packet.
fn play(table: &Table, played: &[Vec<Packet>]) -> Result<(), String> {
    let (rules, method, proto) = rules(table.title);
    let mut topo = Topo::new(&rules);
    for (sequence, client_port) in played.iter().zip(20_000..) {
        let client = (CLIENT, client_port);
        for at in 0..sequence.len() {
            let (port, frame) = build(sequence[at], client, method);
            topo.deliver(port, &frame);
            let expected = table.follow(&sequence[..=at]).map(|(state, secs)| (state.to_owned(), secs));
            let found = topo.conn(proto, client).map(|conn| (conn.state, conn.remaining_secs));
            if found != expected {
                return Err(format!("{:?}: expected {expected:?}, found {found:?}", &sequence[..=at]));
            }
        }
    }
    let found = topo.counts(SERVER);
    if found != table.totals {
        return Err(format!("active and inactive: expected {:?}, found {found:?}", table.totals));
    }
    Ok(())
}

/// The service and knobs a table was recorded with.
fn rules(title: &str) -> (Rules, Method, Proto) {
    let method = if title.contains(", DR ") { Method::Dr } else { Method::Nat };
    let proto = if title.starts_with("UDP") { Proto::Udp } else { Proto::Tcp };
    let server_port = if method == Method::Dr { VIP_PORT } else { SERVER_PORT };
    let service = Service::new(proto, VIP, VIP_PORT, "rr").server(Server::new(SERVER, server_port, method));
    let mut rules = Rules::test_network().service(service);
    for knob in ["sloppy_tcp", "secure_tcp"] {
        if let Some((_, value)) = title.split_once(&format!("{knob}=")) {
            rules.sysctl.push((knob, value.parse().expect("a number")));
        }
    }
    (rules, method, proto)
}

fn build(packet: Packet, client: (std::net::Ipv4Addr, u16), method: Method) -> (usize, Vec<u8>) {
    let virtual_end = (VIP, VIP_PORT);
    let server_end = if method == Method::Dr { virtual_end } else { (SERVER, SERVER_PORT) };
    let (from, to) = if packet.from_server { (server_end, client) } else { (client, virtual_end) };
    let built = match packet.kind {
        Kind::Udp => packets::udp(from, to, b"x"),
        Kind::Syn => packets::tcp(from, to, flags::SYN),
        Kind::SynAck => packets::tcp(from, to, flags::SYN | flags::ACK),
        Kind::Ack => packets::tcp(from, to, flags::ACK),
        Kind::Data => packets::tcp(from, to, flags::PSH | flags::ACK).payload(b"x"),
        Kind::Fin => packets::tcp(from, to, flags::FIN | flags::ACK),
        Kind::Rst => packets::tcp(from, to, flags::RST),
    };
    if packet.from_server { (1, built.from_server().bytes()) } else { (0, built.bytes()) }
}

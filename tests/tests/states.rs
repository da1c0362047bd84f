//! TCP and UDP states through the whole worker: every packet sequence that was recorded from kernel IPVS.

use std::fmt::Write as _;

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

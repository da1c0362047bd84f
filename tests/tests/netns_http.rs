//! Web and UDP requests of real programs through NAT: who answers, and what the statistics say of it.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::thread;

use control::api::rows::CounterFields;
use tests::netns::capture::{Capture, Packet, total};
use tests::netns::daemon::{Daemon, STATISTICS_SETTLE, configuration, service};
use tests::netns::peers::{Nginx, ask_udp, start_udp_echo};
use tests::netns::{CLIENT, Net, Topology, VIP};

const HTTP_REQUESTS: usize = 20;
const UDP_REQUESTS: usize = 10;

#[test]
fn netns_requests_alternate_and_statistics_equal_the_wire() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let _web = [Nginx::start(&net, 1), Nginx::start(&net, 2)];
    start_udp_echo(&net.server(1), 7007, "rs1");
    start_udp_echo(&net.server(2), 7007, "rs2");
    let weighted = |port: u16| [1, 2].map(|number| (format!("{}:{port}", net.server_address(number)), 1));
    let services = service(&format!("tcp://{VIP}:80"), "rr", "nat", &weighted(8080))
        + &service(&format!("udp://{VIP}:7"), "rr", "nat", &weighted(7007));
    let weir = Daemon::start(&net, &configuration(&net, &services));

    let client = net.client();
    let wire = Capture::start(&net, &client, "eth0");
    let servers = [1, 2].map(|number| Capture::start(&net, &net.server(number), "eth0"));
    let url = format!("http://{VIP}/");
    let web: Vec<String> = (0..HTTP_REQUESTS)
        .map(|_| client.output("curl", &["-sS", "--max-time", "5", &url]).trim().to_owned())
        .collect();
    let udp: Vec<String> = client.run(|| {
        (0..UDP_REQUESTS)
            .map(|_| ask_udp(&format!("{VIP}:7"), "who").expect("a server answers"))
            .map(|answer| answer.split(':').next().unwrap_or_default().to_owned())
            .collect()
    });
    assert_alternating(&web);
    assert_alternating(&udp);

    thread::sleep(STATISTICS_SETTLE);
    let wire = wire.stop();
    let servers = servers.map(Capture::stop);
    for (name, protocol, port, server_port) in [("tcp", 6, 80, 8080), ("udp", 17, 7, 7007)] {
        let (whole, dests) = weir.counters(&format!("{name}:{VIP}:{port}"));
        assert_eq!(whole, on_the_wire(&wire, protocol, port), "{name} service against the client's wire");
        for (number, packets) in servers.iter().enumerate() {
            let address = format!("{}:{server_port}", net.server_address(number + 1));
            let (_, counters) = dests.iter().find(|(dest, _)| *dest == address).expect("both are listed");
            assert_eq!(
                *counters,
                on_the_wire(packets, protocol, server_port),
                "{address} against its own wire"
            );
        }
    }
    for packet in servers.iter().flatten() {
        assert!(packet.src.to_string() != VIP && packet.dst.to_string() != VIP, "{packet:?}");
        assert!(packet.src.to_string() != CLIENT || packet.ttl == 63, "{packet:?}");
    }
    assert_eq!(weir.drops(), []);
    assert!(weir.stop().status.success());
}

fn assert_alternating(names: &[String]) {
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    let servers: BTreeSet<&str> = names.iter().map(String::as_str).collect();
    assert_eq!(servers, BTreeSet::from(["rs1", "rs2"]));
}

/// What the counters must say of the packets to and from one L4 port.
fn on_the_wire(packets: &[Packet], protocol: u8, port: u16) -> CounterFields {
    let requests = || packets.iter().filter(|packet| packet.protocol == protocol && packet.dst_port == port);
    let replies = packets.iter().filter(|packet| packet.protocol == protocol && packet.src_port == port);
    let clients: BTreeSet<u16> = requests().map(|packet| packet.src_port).collect();
    let ((in_packets_total, in_bytes_total), (out_packets_total, out_bytes_total)) =
        (total(requests()), total(replies));
    CounterFields {
        connections_total: clients.len() as u64,
        in_packets_total,
        out_packets_total,
        in_bytes_total,
        out_bytes_total,
    }
}

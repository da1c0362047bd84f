//! Direct routing end to end: servers hold the service's address themselves and answer the client directly.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::thread;

use tests::netns::capture::{Capture, total};
use tests::netns::daemon::{Daemon, STATISTICS_SETTLE, configuration, service};
use tests::netns::peers::Nginx;
use tests::netns::{CLIENT, Net, Topology, VIP};

const REQUESTS: usize = 10;

#[test]
fn netns_direct_routing_carries_requests_and_never_sees_replies() {
    let Some(net) = Net::up(Topology::Dr) else { return };
    let _web = [Nginx::start(&net, 1), Nginx::start(&net, 2)];
    let dests = [1, 2].map(|number| (format!("{}:8080", net.server_address(number)), 1));
    let services = service(&format!("tcp://{VIP}:8080"), "rr", "dr", &dests);
    let weir = Daemon::start(&net, &configuration(&net, &services));

    let client = net.client();
    let wire = Capture::start(&net, &client, "eth0");
    let servers = [1, 2].map(|number| Capture::start(&net, &net.server(number), "eth0"));
    let url = format!("http://{VIP}:8080/");
    let names: Vec<String> = (0..REQUESTS)
        .map(|_| client.output("curl", &["-sS", "--max-time", "5", &url]).trim().to_owned())
        .collect();
    assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    assert_eq!(names.iter().map(String::as_str).collect::<BTreeSet<_>>(), BTreeSet::from(["rs1", "rs2"]));

    thread::sleep(STATISTICS_SETTLE);
    let wire = wire.stop();
    let requests = total(wire.iter().filter(|packet| packet.dst.to_string() == VIP));
    let (counters, _) = weir.counters(&format!("tcp:{VIP}:8080"));
    assert_eq!(counters.connections_total, REQUESTS as u64);
    assert_eq!((counters.in_packets_total, counters.in_bytes_total), requests);
    assert_eq!((counters.out_packets_total, counters.out_bytes_total), (0, 0), "replies bypass the balancer");

    let at_servers: Vec<_> = servers.map(Capture::stop).concat();
    let requests: Vec<_> = at_servers.iter().filter(|packet| packet.src.to_string() == CLIENT).collect();
    assert!(!requests.is_empty());
    for packet in requests {
        assert_eq!(
            (packet.dst.to_string().as_str(), packet.dst_port, packet.ttl),
            (VIP, 8080, 63),
            "{packet:?}"
        );
    }
    assert!(wire.iter().filter(|packet| packet.src.to_string() == VIP).all(|packet| packet.ttl == 64));
    // On a common network everybody hears the others' ARP requests; nothing else is dropped.
    let drops = weir.drops();
    assert!(drops.iter().all(|(reason, _)| reason == "arp_ignored"), "{drops:?}");
    assert!(weir.stop().status.success());
}

//! The test network itself, without a balancer: what the other end-to-end tests take for granted.
#![forbid(unsafe_code)]

use std::time::Duration;

use tests::netns::capture::Capture;
use tests::netns::peers::{LineClient, Nginx, ask_udp, start_line_server, start_udp_echo};
use tests::netns::{CLIENT, Net, Topology, VIP};

#[test]
fn netns_hosts_are_joined_as_drawn_and_the_balancer_kernel_is_silent() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let lb = net.lb();
    let lan = Capture::start(&net, &lb, "lan");
    assert_eq!(lb.output("cat", &["/proc/sys/net/ipv4/ip_forward"]).trim(), "0");
    net.client().command("ping").args(["-c1", "-W1", VIP]).output().expect("ip runs");
    net.client().command("ping").args(["-c1", "-W1", "10.0.0.11"]).output().expect("ip runs");

    let server = net.server_address(1);
    start_udp_echo(&net.server(1), 7007, "rs1");
    start_line_server(&net.server(1), 7000, "rs1");
    let nginx = Nginx::start(&net, 1);
    std::fs::write(nginx.files.join("greeting"), "hello").expect("a directory of our own");

    let neighbour = net.server(2);
    let wire = Capture::start(&net, &neighbour, "eth0");
    let answer = neighbour.run(|| ask_udp(&format!("{server}:7007"), "who"));
    assert_eq!(answer.expect("rs1 answers"), "rs1: who");
    let mut lines = LineClient::connect(&neighbour, &format!("{server}:7000")).expect("rs1 listens");
    assert_eq!(lines.ask("who", Duration::from_secs(2)).expect("rs1 answers"), "rs1");
    assert_eq!(neighbour.output("curl", &["-sS", &format!("http://{server}:8080/")]), "rs1\n");
    assert_eq!(neighbour.output("curl", &["-sS", &format!("http://{server}:8080/files/greeting")]), "hello");

    let packets = wire.stop();
    let asked: Vec<_> = packets.iter().filter(|packet| packet.dst_port == 7007).collect();
    assert_eq!(asked.len(), 1, "{packets:?}");
    assert_eq!((asked[0].protocol, asked[0].ttl, asked[0].length), (17, 64, 20 + 8 + 3));
    assert!(packets.iter().any(|packet| packet.src_port == 7000 && packet.protocol == 6));
    let strayed: Vec<_> = lan.stop().into_iter().filter(|packet| packet.src.to_string() == CLIENT).collect();
    assert!(strayed.is_empty(), "the kernel forwarded: {strayed:?}");
}

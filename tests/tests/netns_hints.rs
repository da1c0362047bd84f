//! The classic mistakes of a first start, made on purpose: the daemon names each of them with a remedy.
#![forbid(unsafe_code)]

use std::time::Duration;

use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::peers::Nginx;
use tests::netns::{Net, Topology, VIP, wait_for};

#[test]
fn netns_mistakes_of_a_first_start_are_named() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let _web = [Nginx::start(&net, 1), Nginx::start(&net, 2)];
    let [rs1, rs2] = [1, 2].map(|number| (format!("{}:8080", net.server_address(number)), 1));
    let services = service(&format!("tcp://{VIP}:80"), "rr", "nat", std::slice::from_ref(&rs1))
        + &service(&format!("tcp://{VIP}:81"), "rr", "nat", &[rs2])
        + &service(&format!("tcp://{VIP}:82"), "rr", "nat", &[("10.0.0.13:8080".to_owned(), 1)]);
    let with_gateway = configuration(&net, &services).replace(
        "addresses = [\"192.0.2.1/24\"]",
        "addresses = [\"192.0.2.1/24\"]\ngateway = [\"192.0.2.254\"]",
    );
    let weir = Daemon::start(&net, &with_gateway);
    let client = net.client();
    let fetch = |port: u16| {
        let url = format!("http://{VIP}:{port}/");
        client.command("curl").args(["-sS", "--max-time", "1", &url]).output().expect("ip runs")
    };
    assert!(fetch(80).status.success(), "all is well before the mistakes");

    net.server(2).output("ip", &["route", "delete", "default"]);
    client.output("ethtool", &["-K", "eth0", "tx", "on"]);
    fetch(80);
    client.output("ethtool", &["-K", "eth0", "tx", "off"]);

    // (what the hint says, what it recommends)
    let expected = [
        ("gateway 192.0.2.254 on port wan does not answer ARP", "gateway"),
        ("server 10.0.0.13 does not answer ARP", "destination"),
        ("10.0.0.12:8080 of service", "ip route"),
        ("checksum", "ethtool -K"),
    ];
    wait_for("every mistake is named", Duration::from_secs(60), || {
        // A silent server is only told from a quiet one by traffic that goes on.
        fetch(81);
        fetch(82);
        let warnings = weir.status().warnings;
        let named = |(seen, remedy): &(&str, &str)| {
            warnings.iter().any(|warning| warning.seen.contains(seen) && warning.remedy.contains(remedy))
        };
        let missing: Vec<_> = expected.iter().filter(|hint| !named(hint)).collect();
        eprintln!("not yet named: {missing:?}");
        missing.is_empty().then_some(())
    });
    let log = weir.log();
    for (seen, remedy) in expected {
        assert!(log.lines().any(|line| line.contains(seen) && line.contains(remedy)), "{seen}: {log}");
    }
    assert!(weir.stop().status.success());
}

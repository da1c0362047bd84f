//! Two workers behind one address: real clients through a port with a queue for each and a port that has only one.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;

use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::peers::{Nginx, ask_udp, start_udp_echo};
use tests::netns::{Net, Topology, VIP, text_of};

const HTTP_REQUESTS: usize = 24;
const UDP_REQUESTS: usize = 40;

#[test]
fn netns_two_workers_forward_as_one() {
    let cpus: Vec<usize> = dpdk_sys::allowed_cpus().expect("this process has CPUs").iter().take(2).collect();
    let &[first, second] = &cpus[..] else {
        eprintln!("skipped: two workers need two CPUs");
        return;
    };
    let Some(net) = Net::up(Topology::Nat) else { return };
    let _web = [Nginx::start(&net, 1), Nginx::start(&net, 2)];
    start_udp_echo(&net.server(1), 7007, "rs1");
    start_udp_echo(&net.server(2), 7007, "rs2");
    let servers = |port: u16| [1, 2].map(|number| (format!("{}:{port}", net.server_address(number)), 1));
    let services = service(&format!("tcp://{VIP}:80"), "rr", "nat", &servers(8080))
        + &service(&format!("udp://{VIP}:7"), "rr", "nat", &servers(7007));
    // One client, so its ports must choose the worker; one turn for both, so that servers alternate.
    let workers = format!(
        "[workers]\ncpus = \"{first},{second}\"\nsteer = \"client-port\"\nsched_scope = \"global\"\n"
    );
    let configuration = configuration(&net, &services)
        .replace("[workers]\n", &workers)
        .replace("iface=wan,", "iface=wan,qpairs=2,");
    let weir = Daemon::start(&net, &configuration);

    let client = net.client();
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
    for names in [&web, &udp] {
        assert!(names.windows(2).all(|pair| pair[0] != pair[1]), "{names:?}");
    }

    // Each worker has connections of its own, and every connection is listed once.
    let conns = text_of(&weir.ask(&["conns"]).output().expect("weir runs"));
    let listed: Vec<&str> = conns.lines().filter(|line| line.starts_with("UDP")).collect();
    let clients: BTreeSet<&str> = listed.iter().filter_map(|line| line.split_whitespace().nth(3)).collect();
    assert_eq!((listed.len(), clients.len()), (UDP_REQUESTS, UDP_REQUESTS), "{conns}");
    let status = weir.status();
    assert_eq!(status.workers.iter().map(|worker| worker.cpu).collect::<Vec<_>>(), cpus);
    for worker in &status.workers {
        assert!(worker.connections > 0 && worker.tx_packets_total > 0, "{worker:?}");
    }
    // The servers' side has one queue: what is the second worker's came to the first.
    let handed = status.workers[1].handed_in_total;
    assert!(handed > 0 && status.workers[0].handed_out_total == handed, "{:?}", status.workers);
    let text = text_of(&weir.ask(&["workers"]).output().expect("weir runs"));
    // The exit status, the titles, and a line for each.
    assert!(text.contains("CYCLES/PACKET") && text.trim_end().lines().count() == 4, "{text}");

    assert_eq!(weir.drops(), []);
    let ended = weir.stop();
    assert!(ended.status.success() && ended.log.contains("every mbuf came back"), "{}", ended.log);
}

//! A TCP stream through NAT beside the same stream through DPDK's testpmd, which only moves frames.
//!
//! Three runs of ten seconds each, taking turns on the same ports, so that what else the machine does falls
//! on both. The window is smaller than any queue on the way (a veth's backlog holds 1000 frames): whatever is
//! retransmitted was lost by somebody's fault. A minute and more: it runs with `WEIR_SOAK=1` (`make soak`).
#![forbid(unsafe_code)]

use std::fmt;
use std::io::Write;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use serde_json::Value;
use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::{Net, Process, Topology, VIP, wait_for};

const ROUNDS: usize = 3;
const SECONDS: &str = "10";
const WINDOW: &str = "512K";
const PORT: u16 = 5201;
/// Retransmissions that the balancer may cause beyond testpmd's, over all rounds.
const ALLOWED: u64 = 10;

/// What iperf3 says of one run.
#[derive(Debug)]
struct Run {
    retransmits: u64,
    mbit_per_second: u64,
    /// Frames that never reached the balancer's links.
    lost_before: u64,
    /// Frames that left it and were thrown away by the next link.
    lost_after: u64,
}

impl fmt::Display for Run {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Run { retransmits, mbit_per_second, lost_before, lost_after } = self;
        write!(
            out,
            "{mbit_per_second} Mbit/s, {retransmits} retransmissions, lost before it {lost_before}, after it {lost_after}"
        )
    }
}

#[test]
fn netns_a_stream_loses_no_more_than_through_testpmd() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        eprintln!("SKIPPED: takes a minute and more, WEIR_SOAK is not set");
        return;
    }
    let Some(net) = Net::up(Topology::Nat) else { return };
    // Through testpmd there is one network only: the client gets an address in the servers'.
    net.client().output("ip", &["address", "add", "10.0.0.10/24", "dev", "eth0"]);
    let mut server = net.server(1).command("iperf3");
    let _server =
        Process::start("iperf3", server.args(["-s", "-p", &PORT.to_string()]).stdout(Stdio::null()));

    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        let run = through_weir(&net);
        println!("round {round}: weir    {run}");
        ours.push(run);
        let run = through_testpmd(&net);
        println!("round {round}: testpmd {run}");
        theirs.push(run);
    }
    let sum = |runs: &[Run]| runs.iter().map(|run| run.retransmits).sum::<u64>();
    assert!(sum(&ours) <= sum(&theirs) + ALLOWED, "retransmissions: weir {ours:?}, testpmd {theirs:?}");
}

fn through_weir(net: &Net) -> Run {
    let dest = (format!("{}:{PORT}", net.server_address(1)), 1);
    let services = service(&format!("tcp://{VIP}:{PORT}"), "rr", "nat", &[dest]);
    let weir = Daemon::start(net, &configuration(net, &services));
    // Frames that the kernel delivered to the links and the packet sockets had no room for.
    let delivered =
        || ["wan", "lan"].map(|device| net.lb().link_figure(device, "rx_packets")).iter().sum::<u64>();
    let received = || weir.status().ports.iter().map(|port| port.rx_packets_total).sum::<u64>();
    let before = delivered() - received();
    let run = stream(net, VIP);
    thread::sleep(Duration::from_millis(200));
    println!("         frames lost in the packet sockets: {}", delivered() - received() - before);
    assert_eq!(weir.drops(), []);
    assert!(weir.stop().status.success());
    run
}

fn through_testpmd(net: &Net) -> Run {
    let mut command = net.lb().command("dpdk-testpmd");
    command.args(["--no-huge", "-m", "512", "--no-shconf", "--no-pci", "--no-telemetry", "-l", "0,1"]);
    command.args(["--vdev", "net_af_packet0,iface=wan,framecnt=4096"]);
    command.args(["--vdev", "net_af_packet1,iface=lan,framecnt=4096"]);
    command.args(["--", "--forward-mode=io", "--total-num-mbufs=16384", "-i", "--auto-start"]);
    command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null());
    let mut testpmd = command.spawn().expect("ip runs");
    let mut typed = testpmd.stdin.take().expect("stdin is a pipe");
    wait_for("testpmd forwards", Duration::from_secs(20), || {
        let ping = net.client().command("ping").args(["-c1", "-W1", "10.0.0.11"]).output().expect("ip runs");
        ping.status.success().then_some(())
    });
    let run = stream(net, &net.server_address(1));
    typed.write_all(b"quit\n").expect("testpmd reads its commands");
    testpmd.wait().expect("testpmd can be waited for");
    run
}

/// One stream from the client, and what the links on its way threw away meanwhile.
fn stream(net: &Net, target: &str) -> Run {
    let lost = || {
        let before =
            net.client().link_figure("eth0", "tx_dropped") + net.switch().link_figure("lb", "tx_dropped");
        let after =
            ["wan", "lan"].map(|device| net.lb().link_figure(device, "tx_dropped")).iter().sum::<u64>();
        (before, after)
    };
    let (before, after) = lost();
    let port = PORT.to_string();
    let output =
        net.client().output("iperf3", &["-c", target, "-p", &port, "-t", SECONDS, "-w", WINDOW, "-J"]);
    let report: Value = serde_json::from_str(&output).expect("iperf3 -J prints JSON");
    let bits_per_second =
        report["end"]["sum_received"]["bits_per_second"].as_f64().expect("receiver measures");
    Run {
        retransmits: report["end"]["sum_sent"]["retransmits"]
            .as_u64()
            .expect("sender counts retransmissions"),
        mbit_per_second: (bits_per_second / 1e6) as u64,
        lost_before: lost().0 - before,
        lost_after: lost().1 - after,
    }
}

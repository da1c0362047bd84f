//! `weir-testpmd` against recordings of DPDK's own testpmd 22.11 (`tests/data/testpmd`), through a pipe and through a
//! terminal: the same lines for the same commands, with numbers masked. And its `lb` mode with dpdk-testpmd as peer.
//!
//! A recording's own command line is used, but for memory: normal pages, so that no huge pages are needed. The EAL's lines,
//! which tell of memory and of the machine, are left out of the comparison.
#![forbid(unsafe_code)]

mod testpmd;

use std::path::Path;
use std::time::Duration;

use testpmd::{End, Program, Recording, figure, masked, words};

const OURS: &str = env!("CARGO_BIN_EXE_weir-testpmd");
const THEIRS: &str = "/usr/bin/dpdk-testpmd";

/// Recordings with a prompt.
const TYPED: [&str; 4] =
    ["01-null-io-basic", "04-multiqueue-2core", "05-port-topologies", "06-topology-loop"];

#[test]
fn eal_testpmd_recordings_through_a_pipe() {
    TYPED.iter().for_each(|name| replay(name, End::Pipe));
}

#[test]
fn eal_testpmd_recordings_through_a_terminal() {
    TYPED.iter().for_each(|name| replay(name, End::Terminal));
}

#[test]
fn eal_testpmd_without_a_prompt() {
    replay("08-noninteractive-enter", End::Pipe);
    for end in [End::Pipe, End::Terminal] {
        let recording = Recording::read("07-stats-period-autostart");
        let mut program = Program::start(OURS, &recording.words(), end);
        program.until("Tx-pps:.*Tx-pps:.*Tx-pps:.*Tx-pps:.*####\n");
        program.interrupt();
        let (status, said) = program.finish();
        assert_eq!(status, Some(0), "{said}");
        // How often the figures are shown depends on the second: the first, the last and what is around them.
        let parts = |text: &str| {
            let parts: Vec<_> = masked(text).split("\x1b[N").map(str::to_owned).collect();
            (parts[0].clone(), parts[2].clone(), parts[parts.len() - 1].clone())
        };
        assert_eq!(parts(&said), parts(&recording.said));
    }
}

/// Both sides of the recorded memif pair are ours.
#[test]
fn eal_testpmd_recordings_of_a_memif_pair() {
    let socket = socket();
    let recordings = ["20a-memif-macswap-server", "20b-memif-flowgen-client"].map(Recording::read);
    let mut programs = recordings.each_ref().map(|recording| {
        let words: Vec<_> = recording.words().iter().map(|w| w.replace("oracle-memif", &socket)).collect();
        let mut program = Program::start(OURS, &words, End::Pipe);
        program.until("testpmd> ");
        program
    });
    for (recording, program) in recordings.iter().zip(&mut programs) {
        program.play_while(&recording.typed, |line| line != "stop");
    }
    // The recorded generator stopped when its peer was gone.
    for (recording, mut program) in recordings.iter().zip(programs) {
        let rest: Vec<_> = recording.typed.iter().skip_while(|line| *line != "stop").cloned().collect();
        program.play(&rest);
        let (status, said) = program.finish();
        assert_eq!(status, Some(0), "{said}");
        assert_same(&recording.name, &said.replace(&socket, "oracle-memif"), &recording.said);
        assert!(figure(&said, "RX-packets:").is_some(), "{said}");
    }
}

/// dpdk-testpmd's flowgen sends to a service on `lb` over memif and gets back what `lb` sends to its server: itself.
#[test]
fn eal_testpmd_lb_with_dpdk_testpmd_as_its_peer() {
    if !Path::new(THEIRS).exists() {
        eprintln!("SKIPPED: there is no {THEIRS}");
        return;
    }
    let socket = socket();
    let folder = tempfile::tempdir().expect("a folder for the configuration");
    let config = folder.path().join("lb.toml");
    std::fs::write(&config, LB).expect("the folder is ours");
    let common = format!("--no-pci --no-telemetry --no-huge -m 128 --file-prefix {socket}");
    let mut lb = Program::start(
        OURS,
        &words(&format!(
            "--lcores 0@0,1@0 {common} --vdev=net_memif0,role=server,id=0,mac=00:01:02:03:04:01,socket={socket} -- -i \
             --total-num-mbufs=16384 --forward-mode=lb --lb-config={}",
            config.display()
        )),
        End::Pipe,
    );
    lb.play(&["start".into()]);

    let mut peer = Program::start(
        THEIRS,
        &words(&format!(
            "--lcores 0@1,1@1 {common}-peer --vdev=net_memif0,role=client,id=0,mac=00:01:02:03:04:00,socket={socket} \
             -- -i --total-num-mbufs=16384 --forward-mode=flowgen --flowgen-flows=1"
        )),
        End::Terminal,
    );
    peer.play(&["start".into()]);
    peer.wait(Duration::from_secs(2));
    peer.play(&["show port stats all".into(), "stop".into()]);
    peer.until("Done.");
    let shown = peer.said().split("NIC statistics").nth(1).expect("its figures").to_owned();
    let count = |text: &str, name: &str| figure(text, name).unwrap_or_else(|| panic!("{name}: {text}"));
    let (received, sent) = (count(&shown, "RX-packets:"), count(&shown, "TX-packets:"));
    assert!(received > 1_000 && sent >= received, "peer sent {sent}, received {received}: {}", peer.said());

    lb.play(&["stop".into(), "quit".into()]);
    let (status, said) = lb.finish();
    assert_eq!(status, Some(0), "{said}");
    assert_eq!((count(&said, "Connections:"), count(&said, "Created:")), (1, 1), "{said}");
    // All that lb received it sent on, or says why not.
    let forward = said.split("Accumulated").nth(1).expect("it was stopped");
    let (rx, tx) = (count(forward, "RX-total:"), count(forward, "TX-packets:"));
    assert!(rx >= received && tx + count(forward, "Dropped:") >= rx, "{said}");
    peer.play(&["quit".into()]);
    assert_eq!(peer.finish().0, Some(0));
}

/// One service for flowgen's one flow; its server is the same machine.
const LB: &str = r#"
[connections]
max = 4096
[[port]]
name = "one"
device = "net_memif0"
addresses = ["10.254.255.254/16"]
[[neighbour]]
address = "10.254.0.7"
mac = "00:01:02:03:04:00"
port = "one"
[[service]]
address = "udp://10.253.0.0:1001"
scheduler = "rr"
announce = false
[[service.destination]]
address = "10.254.0.7:1001"
method = "nat"
"#;

/// lbgen's connections on two cores, over two queues of one memif, to lb on two cores: packets of flows that another core
/// owns cross a ring. Twice, so that rings and queues are seen to come back.
#[test]
fn eal_testpmd_lb_and_lbgen_on_two_cores() {
    let socket = socket();
    let start = |role: &str, mode: &str| {
        let memif = format!("--vdev=net_memif0,role={role},id=0,socket={socket}");
        let eal = format!("--no-pci --no-telemetry --no-huge -m 128 --file-prefix {socket}-{role} {memif}");
        let own = "-i --total-num-mbufs=16384 --nb-cores=2 --rxq=2 --txq=2";
        let line = format!("--lcores 0@0,1@0,2@1 {eal} -- {own} --forward-mode={mode}");
        let mut program = Program::start(OURS, &words(&line), End::Pipe);
        program.until("testpmd> ");
        program
    };
    let mut lb = start("server", "lb --lb-conns=4096");
    let mut peers = start("client", "lbgen --flows=256");
    for round in 0..2 {
        lb.play(&["start".into()]);
        peers.play(&["start".into()]);
        peers.wait(Duration::from_secs(3));
        peers.play(&["stop".into()]);
        peers.until("Done.");
        lb.play(&["stop".into()]);
        lb.until("Done.");
        let sum = |text: &str, name: &str| -> u64 {
            let last = text.rsplit_once("Accumulated").expect("it stopped").1;
            last.split(name)
                .skip(1)
                .filter_map(|behind| behind.split_whitespace().next()?.parse::<u64>().ok())
                .sum()
        };
        assert_eq!(sum(lb.said(), "Created:"), 256, "round {round}: {}", lb.said());
        let opened = sum(peers.said(), "Opened:");
        assert!((1..=256).contains(&opened), "round {round}: {opened} {}{}", peers.said(), lb.said());
    }
    for mut program in [peers, lb] {
        program.play(&["quit".into()]);
        assert_eq!(program.finish().0, Some(0));
    }
}

/// What is not honoured is named, on the command line and at the prompt.
#[test]
fn eal_testpmd_refuses_by_name() {
    let eal = "--lcores 0@0,1@0 --no-pci --no-telemetry --no-huge -m 64 --no-shconf --vdev=net_null0 --";
    for (own, why) in [
        (
            "-i --noisy-lkup-memory=4",
            "--noisy-lkup-memory: an option of testpmd that weir-testpmd does not honour",
        ),
        ("--nosuch", "--nosuch"),
        ("-i --tx-first", "--tx-first cannot be used on interactive mode."),
    ] {
        let (status, said) = Program::start(OURS, &words(&format!("{eal} {own}")), End::Pipe).finish();
        assert_eq!(status, Some(1), "{said}");
        assert!(said.contains(why) && said.contains("EAL: Error - exiting with code: 1"), "{said}");
    }
    let own = "-i --total-num-mbufs=4096 --rxq=2 --txq=2";
    let mut program = Program::start(OURS, &words(&format!("{eal} {own}")), End::Pipe);
    let typed = ["flow list 0", "set fwd csum", "foo", "port stop 9", "set fwd lb", "start", "quit"];
    program.play(&typed.map(str::to_owned));
    let (status, said) = program.finish();
    assert_eq!(status, Some(0), "{said}");
    for why in [
        "flow: a command of testpmd that weir-testpmd does not honour",
        "Bad arguments",
        "Command not found",
        "Invalid port 9",
        "lb: each core needs its own queue of every port",
    ] {
        assert!(said.contains(why), "{why}: {said}");
    }
}

fn replay(name: &str, end: End) {
    let recording = Recording::read(name);
    let mut program = Program::start(OURS, &recording.words(), end);
    program.play(&recording.typed);
    let (status, said) = program.finish();
    assert_eq!(status, Some(0), "{name}: {said}");
    assert_same(name, &said, &recording.said);
}

fn socket() -> String {
    format!("weir-test-{}", std::process::id())
}

fn assert_same(name: &str, ours: &str, recorded: &str) {
    let (ours, recorded) = (masked(ours), masked(recorded));
    let different = ours.lines().zip(recorded.lines()).enumerate().find(|(_, (ours, theirs))| ours != theirs);
    if let Some((number, (line, theirs))) = different {
        panic!("{name}, line {}:\n ours: {line}\n recorded: {theirs}\n{ours}", number + 1);
    }
    assert_eq!(ours.lines().count(), recorded.lines().count(), "{name}: lines\n{ours}");
}

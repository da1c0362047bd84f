//! Debian's ipvsadm under `weir exec`, and `weiradm`: both are given the same random commands, right and wrong ones, and
//! print the same, end the same and leave the same behind. Left out is what differs on purpose: marks from 2^31 (ipvsadm
//! prints them signed), comments in restored lines (it takes them for commands), `-h` and `--version`.
#![forbid(unsafe_code)]

mod common;

use std::cell::Cell;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use proptest::test_runner::{Config, TestRunner};

use common::Site;

const IPVSADM: &str = "/usr/sbin/ipvsadm";
/// Cases, each of up to [`LENGTH`] commands: a few seconds, or minutes with `WEIR_SOAK`.
const CASES: u32 = 6;
const SOAK_CASES: u32 = 200;
const LENGTH: usize = 60;

/// A command and the lines it reads.
type Step = (Vec<String>, String);

#[test]
fn eal_weiradm_is_ipvsadm() {
    if !Path::new(IPVSADM).exists() {
        assert!(std::env::var_os("CI").is_none(), "ipvsadm is not installed");
        return println!("skipped: ipvsadm is not installed");
    }
    // Nobody waits for a command to become allowed.
    let site = Site::start("write_rate = 1000000\nwrite_burst = 1000000\n", "");
    let cases = if std::env::var_os("WEIR_SOAK").is_some() { SOAK_CASES } else { CASES };
    let config = Config { cases, failure_persistence: None, max_shrink_iters: 200, ..Config::default() };
    let (done, all) = (Cell::new(0), Cell::new(0));
    let outcome = TestRunner::new(config).run(&vec(step(), 1..LENGTH), |steps| {
        let theirs = run_all(&site, ipvsadm, &steps);
        let ours = run_all(&site, weiradm, &steps);
        for ((step, theirs), ours) in steps.iter().zip(&theirs).zip(&ours) {
            prop_assert_eq!(ours, theirs, "{:?}", step);
        }
        prop_assert_eq!(&ours[steps.len()..], &theirs[steps.len()..], "what is left behind");
        all.set(all.get() + steps.len());
        done.set(done.get() + ours[..steps.len()].iter().filter(|ending| ending.0 == Some(0)).count());
        Ok(())
    });
    if let Err(error) = outcome {
        panic!("{error}");
    }
    println!("{} of {} commands were carried out", done.get(), all.get());
    assert!(done.get() > all.get() / 10, "{} of {}", done.get(), all.get());
    assert!(site.status().is_object());
    site.stop();
}

/// Exit status, output, errors.
type Ending = (Option<i32>, String, String);

/// Every step in a daemon without services, then what was left behind.
fn run_all(site: &Site, program: impl Fn() -> Command, steps: &[Step]) -> Vec<Ending> {
    let run = |(arguments, input): &Step| {
        let mut command = program();
        command.args(arguments).env("WEIR_SOCKET", site.socket());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        // Each tells its user to try its own help.
        let text = |bytes| String::from_utf8(bytes).unwrap().replace(env!("CARGO_BIN_EXE_weiradm"), IPVSADM);
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let words = |line: &str| (line.split(' ').map(str::to_owned).collect(), String::new());
    for line in ["-C", "--set 900 120 300", "--stop-daemon master", "--stop-daemon backup"] {
        run(&words(line));
    }
    let mut endings: Vec<_> = steps.iter().map(run).collect();
    endings
        .extend(["-S -n", "-L -n --thresholds", "-L --timeout", "-L --daemon"].map(|line| run(&words(line))));
    endings
}

fn ipvsadm() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["exec", "--", IPVSADM]);
    command
}

fn weiradm() -> Command {
    Command::new(env!("CARGO_BIN_EXE_weiradm"))
}

fn step() -> impl Strategy<Value = Step> {
    let lines = vec(command().prop_map(|words| words.join(" ") + "\n"), 0..8);
    prop_oneof![
        20 => command().prop_map(|words| (words, String::new())),
        1 => lines.prop_map(|lines| (vec!["-R".to_owned()], lines.concat())),
    ]
}

/// A command line that is right more often than not; now and then its words are in another order, or one is missing.
fn command() -> impl Strategy<Value = Vec<String>> {
    let service_options = options(SERVICE_OPTIONS, 3);
    let dest_options = options(DEST_OPTIONS, 4);
    let list_options = options(LIST_OPTIONS, 3);
    let daemon_options = options(DAEMON_OPTIONS, 3);
    let name = || service();
    let dest = || endpoint().prop_map(|endpoint| vec!["-r".to_owned(), endpoint]);
    let right = prop_oneof![
        4 => joined(words(&["-A"]), (name(), words(&["-s rr", "-s wlc", "-p 120", ""]))),
        6 => (words(&["-a"]), name(), dest(), words(&["-m", "-g -w 3", "-i", ""]))
            .prop_map(|(command, name, dest, options)| [command, name, dest, options].concat()),
        6 => joined(words(&["-A", "-A", "--add-service", "-E", "--edit-service"]), (name(), service_options.clone())),
        6 => (words(&["-a", "-a", "--add-server", "-e", "--edit-server"]), name(), dest(), dest_options)
            .prop_map(|(command, name, dest, options)| [command, name, dest, options].concat()),
        1 => joined(words(&["-D", "--delete-service", "-Z", "-L", "-S"]), (name(), Just(Vec::new()))),
        1 => joined(words(&["-d", "--delete-server"]), (name(), dest())),
        5 => joined(words(&["-L -n", "-l -n", "--list --numeric"]), (list_options, service_options)),
        1 => words(&["-C", "-Z", "-S -n", "--save -n", "-L -n", "", "--set 1 2", "--set 0 0 7", "--set 60 x 1"]),
        1 => joined(words(&["--start-daemon master", "--start-daemon backup", "--start-daemon x"]), (
            daemon_options, Just(Vec::new()))),
        1 => words(&["--stop-daemon master", "--stop-daemon backup", "--stop-daemon x", "-Q", "--nope", "-AD", "-nL", "--lis"]),
    ];
    (right, 0usize..20, any::<prop::sample::Index>(), any::<prop::sample::Index>()).prop_map(
        |(mut words, damage, one, other)| {
            let Some(last) = words.len().checked_sub(1) else { return words };
            let (one, other) = (one.index(last + 1), other.index(last + 1));
            match damage {
                0 => words.swap(one, other),
                1 => drop(words.remove(one)),
                _ => {}
            }
            words
        },
    )
}

const SERVICE_OPTIONS: &[&str] = &[
    "-s rr",
    "-s wrr",
    "-s lc",
    "--scheduler sh",
    "-s mh",
    "-s none",
    "-s nope",
    "-p",
    "-p 120",
    "--persistent=60",
    "-p0",
    "-p x",
    "-M 255.255.255.0",
    "-M 255.0.255.0",
    "-M 64",
    "-M 129",
    "--pe sip",
    "--pe nope",
    "-o",
    "--ops",
    "-b sh-port",
    "-b sh-fallback,sh-port",
    "-b mh-port",
    "-b flag-1",
    "--sched-flags flag-2,,flag-3",
    "-b nope",
    "-b ''",
];
const DEST_OPTIONS: &[&str] = &[
    "-m",
    "-g",
    "-i",
    "--masquerading",
    "--gatewaying",
    "--ipip",
    "-w 0",
    "-w 7",
    "--weight=65536",
    "-w 2147483648",
    "-w -1",
    "-w x",
    "-x 100",
    "-y 50",
    "--u-threshold 4294967296",
    "--l-threshold=x",
    "--tun-type ipip",
    "--tun-type gue",
    "--tun-type gre",
    "--tun-type nope",
    "--tun-port 6080",
    "--tun-port 0",
    "--tun-nocsum",
    "--tun-csum",
    "--tun-remcsum",
];
const LIST_OPTIONS: &[&str] = &[
    "-c",
    "--stats",
    "--rate",
    "--exact",
    "--timeout",
    "--daemon",
    "--thresholds",
    "--persistent-conn",
    "--sort",
    "--nosort",
    "--tun-info",
    "-6",
    "-t 192.0.2.100:80",
    "-f 7",
];
const DAEMON_OPTIONS: &[&str] = &[
    "--mcast-interface eth0",
    "--mcast-interface averyveryverylongname",
    "--syncid 7",
    "--syncid 256",
    "--syncid x",
    "--sync-maxlen 1400",
    "--sync-maxlen 1",
    "--mcast-group 224.0.0.81",
    "--mcast-group 1.2.3.4",
    "--mcast-group ff02::81",
    "--mcast-port 8848",
    "--mcast-port 65536",
    "--mcast-ttl 3",
    "--mcast-ttl 0",
];

/// The words of one of these texts; `''` is the empty word.
fn words(texts: &'static [&'static str]) -> impl Strategy<Value = Vec<String>> + Clone {
    select(texts).prop_map(|text| text.split_ascii_whitespace().map(|w| w.replace("''", "")).collect())
}

fn options(texts: &'static [&'static str], most: usize) -> impl Strategy<Value = Vec<String>> + Clone {
    prop_oneof![Just(Vec::new()), vec(words(texts), 1..most).prop_map(|options| options.concat())]
}

fn joined(
    command: impl Strategy<Value = Vec<String>>,
    rest: (impl Strategy<Value = Vec<String>>, impl Strategy<Value = Vec<String>>),
) -> impl Strategy<Value = Vec<String>> {
    (command, rest.0, rest.1).prop_map(|(command, first, second)| [command, first, second].concat())
}

fn service() -> impl Strategy<Value = Vec<String>> {
    let kinds = words(&["-t", "-t", "--tcp-service", "-u", "--udp-service", "--sctp-service"]);
    prop_oneof![
        6 => (kinds, endpoint()).prop_map(|(kind, at)| [kind, vec![at]].concat()),
        1 => words(&["-f 7", "-f 1 -6", "--fwmark-service 2147483647", "-f 0", "-f x", "-f 4294967296", "-f -1x"]),
    ]
}

fn endpoint() -> impl Strategy<Value = String> {
    const HOSTS: &[&str] =
        &["192.0.2.100", "192.0.2.100", "192.0.2.100", "10.1.2.3", "0.0.0.0", "[2001:db8::1]"];
    const ODD: &[&str] = &[
        "255.255.255.255",
        "1.2.3",
        "300.1.1.1",
        "[2001:db8::2",
        "",
        "010.1.1.1",
        "224.0.0.1",
        "2001:db8::5",
    ];
    const PORTS: &[&str] = &[":80", ":80", ":80", ":443", ":0", ""];
    const ODD_PORTS: &[&str] = &[":65536", ":-1", ":", ":80x", ":08", ":http"];
    let host = prop_oneof![12 => select(HOSTS), 1 => select(ODD)];
    let port = prop_oneof![12 => select(PORTS), 1 => select(ODD_PORTS)];
    (host, port).prop_map(|(host, port)| format!("{host}{port}"))
}

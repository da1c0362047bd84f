//! Rates of real traffic, and the estimators' knobs, on a running daemon.
//!
//! The sender notes when each datagram left. From these times follows, for each phase that an estimator's period
//! may have, what it must show at any moment; whatever is shown has to be that of one phase from start to end.
//! Short in the suite; with `WEIR_SOAK=1` a minute and more: 30 s at 1000 datagrams a second, a step to 5000, silence.
#![forbid(unsafe_code)]

use std::fs;
use std::net::UdpSocket;
use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use dataplane::est::filter::{PACKETS, packets_shown, step};
use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::{Host, Net, Topology, VIP, text_of, wait_for};

const PORT: u16 = 5300;
/// Datagrams a second, and for how many seconds.
const SHORT: [(u32, u64); 3] = [(1000, 4), (5000, 2), (0, 2)];
const LONG: [(u32, u64); 3] = [(1000, 30), (5000, 20), (0, 30)];
const PERIOD: Duration = Duration::from_secs(2);
/// Phases that are tried: one for each row of an estimator thread.
const PHASES: u32 = 50;
/// A read may meet the pass before or after it: a datagram is on its way, a thread wakes late on a busy machine.
const SLACK: Duration = Duration::from_millis(100);
/// What a pass that is late by a quarter of a second reads wrong, and rounding: share of the highest rate.
const TOLERANCE: (u64, u64) = (3, 100);

/// One reading: begun and ended when, packets a second of service, destination and box.
struct Reading {
    begun: Instant,
    ended: Instant,
    shown: [u64; 3],
}

#[test]
fn netns_rates_are_those_of_the_senders_own_times() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let phases = if std::env::var_os("WEIR_SOAK").is_some() { LONG } else { SHORT };
    let address = format!("{VIP}:{PORT}");
    let dest = format!("{}:{PORT}", net.server_address(1));
    // Somebody has to be there, or the server answers with errors.
    let _sink = net.server(1).run(|| UdpSocket::bind(("0.0.0.0", PORT)).expect("the port is free"));
    let services = service(&format!("udp://{address}"), "rr", "nat", &[(dest.clone(), 1)]);
    let weir = Daemon::start(&net, &configuration(&net, &services));

    let (sent, readings) = thread::scope(|scope| {
        let client = net.client();
        let sender = scope.spawn(move || send(&client, &address, &phases));
        let mut readings = Vec::new();
        let mut next = Instant::now() + Duration::from_secs(1);
        while !sender.is_finished() {
            thread::sleep(next.saturating_duration_since(Instant::now()));
            next += Duration::from_secs(1);
            readings.push(read(&weir, &dest));
        }
        (sender.join().expect("the sender ends well"), readings)
    });

    let total: u64 = phases.iter().map(|(pps, seconds)| u64::from(*pps) * seconds).sum();
    assert_eq!(sent.len() as u64, total);
    let highest = phases.iter().map(|(pps, _)| u64::from(*pps)).max().expect("some phases");
    for (object, name) in ["service", "destination", "box"].iter().enumerate() {
        let fits = |phase| misfit(&sent, &readings, object, PERIOD * phase / PHASES, highest);
        let best = (0..PHASES).map(fits).min_by_key(|misfit| misfit.0).expect("some phases");
        println!("{name}: {}", best.1);
        assert!(best.0 <= highest * TOLERANCE.0 / TOLERANCE.1 + 1, "{name} off by {}: {}", best.0, best.1);
    }
    assert!(weir.stop().status.success());
}

/// Sends to `address` and returns when each datagram left.
fn send(client: &Host, address: &str, phases: &[(u32, u64)]) -> Vec<Instant> {
    client.run(|| {
        let socket = UdpSocket::bind("0.0.0.0:0").expect("a free port");
        socket.connect(address).expect("a route");
        let (mut sent, mut from) = (Vec::new(), Instant::now());
        for (pps, seconds) in phases {
            for i in 0..u64::from(*pps) * seconds {
                let due = from + Duration::from_secs(1) * i as u32 / *pps;
                thread::sleep(due.saturating_duration_since(Instant::now()));
                sent.push(Instant::now());
                // The first ones may be refused while nobody knows the neighbour.
                let _ = socket.send(b"0123456789");
            }
            from += Duration::from_secs(*seconds);
            thread::sleep(from.saturating_duration_since(Instant::now()));
        }
        sent
    })
}

/// What is shown now: of service and destination as ipvsadm prints it, of the box as `weir rates` has it.
fn read(weir: &Daemon, dest: &str) -> Reading {
    let begun = Instant::now();
    let listing = weir.weiradm("-L -n --rate --exact");
    let in_pps = |name: &str| -> u64 {
        let line = listing.lines().find(|line| line.contains(name)).unwrap_or_else(|| panic!("{listing}"));
        line.split_whitespace().rev().nth(3).expect("five figures").parse().expect("a figure")
    };
    let rates: serde_json::Value =
        serde_json::from_str(&said(weir, &["rates", "--json", "--top", "1"])).expect("JSON");
    let all = &rates["rates"][0];
    assert!(all["service"].is_null(), "{rates}");
    let shown = [in_pps(VIP), in_pps(dest), all["in_packets_per_second"].as_u64().expect("a figure")];
    Reading { begun, ended: Instant::now(), shown }
}

/// How far the worst reading of an object is from what an estimator of that phase shows, and the readings.
fn misfit(
    sent: &[Instant],
    readings: &[Reading],
    object: usize,
    phase: Duration,
    highest: u64,
) -> (u64, String) {
    let start = sent[0] - PERIOD + phase;
    // What is shown from each pass on.
    let (mut passes, mut rate, mut counted) = (vec![(start, 0)], 0, 0);
    let end = readings.last().expect("a reading").ended + SLACK;
    while passes.last().expect("the start").0 < end {
        let now = passes.last().expect("the start").0 + PERIOD;
        let sum = sent.partition_point(|at| *at <= now) as u64;
        rate = step(rate, counted, sum, PACKETS[0]);
        counted = sum;
        passes.push((now, packets_shown(rate)));
    }
    let shown_at = |at: Instant| passes.iter().rev().find(|(pass, _)| *pass <= at).map_or(0, |(_, pps)| *pps);
    let off = |reading: &Reading| {
        let shown = reading.shown[object];
        let possible = [shown_at(reading.begun - SLACK), shown_at(reading.ended + SLACK)];
        possible.iter().map(|expected| expected.abs_diff(shown)).min().unwrap_or(highest)
    };
    let worst = readings.iter().map(off).max().unwrap_or(highest);
    let shown: Vec<_> = readings.iter().map(|reading| reading.shown[object]).collect();
    (
        worst,
        format!(
            "phase {phase:?}, off by {worst} of {shown:?}, passes {:?}",
            Vec::from_iter(passes.iter().map(|p| p.1))
        ),
    )
}

/// The sequence recorded with a 6.12 kernel, knob by knob: threads come and go, errors have its numbers.
/// A niceness is given to the running thread: the kernel starts another.
#[test]
fn netns_knobs_act_as_the_kernels() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let dest = format!("{}:{PORT}", net.server_address(1));
    let services = service(&format!("udp://{VIP}:{PORT}"), "rr", "nat", &[(dest, 1)]);
    let weir = Daemon::start(&net, &configuration(&net, &services));
    let line_after = |from: usize, start: &str| {
        wait_for(start, Duration::from_secs(10), || weir.log()[from..].contains(start).then_some(()));
    };
    let set = |knob: &str| {
        let output = weir.ask(&["sysctl", knob]).output().expect("weir runs");
        (output.status.success(), text_of(&output))
    };
    let must = |knob: &str| {
        let (done, text) = set(knob);
        assert!(done, "{knob}: {text}");
    };
    let threads = |count: usize| {
        wait_for(&format!("{count} threads"), Duration::from_secs(2), || {
            let found = estimator_threads(&weir);
            (found.len() == count).then_some(found)
        })
    };

    line_after(0, " starting estimator thread 0...");
    line_after(0, " calc: chain_max=");
    line_after(0, " using max ");
    line_after(0, " tick time: ");
    threads(1);
    must("run_estimation=0");
    threads(0);
    assert!(weir.log().contains(" stopping estimator thread 0..."), "{}", weir.log());
    let mark = weir.log().len();
    must("run_estimation=1");
    threads(1);
    line_after(mark, " starting estimator thread 0...");

    must("est_nice=5");
    let (_, task) = threads(1).remove(0);
    let stat = fs::read_to_string(task.join("stat")).expect("it runs");
    // Niceness is field 19 of proc_pid_stat(5): the 17th after the name.
    assert_eq!(stat.rsplit(')').next().and_then(|rest| rest.split_whitespace().nth(16)), Some("5"), "{stat}");
    let (done, text) = set("est_nice=30");
    assert!(!done && text.contains("Invalid argument"), "{text}");

    let cpu = said(&weir, &["sysctl", "est_cpulist"]);
    let cpu =
        cpu.trim().rsplit(' ').next().expect("a list").split(['-', ',']).next().expect("a CPU").to_owned();
    let mark = weir.log().len();
    must(&format!("est_cpulist={cpu}"));
    line_after(mark, " using max ");
    let status = fs::read_to_string(threads(1)[0].1.join("status")).expect("it runs");
    assert!(status.contains(&format!("Cpus_allowed_list:\t{cpu}\n")), "{status}");
    let (done, text) = set("est_cpulist=8000");
    assert!(!done && text.contains("Numerical result out of range"), "{text}");
    let (done, text) = set("est_cpulist=x");
    assert!(!done && text.contains("Invalid argument"), "{text}");
    assert_eq!(said(&weir, &["sysctl", "est_cpulist"]).trim(), format!("net.ipv4.vs.est_cpulist = {cpu}"));

    must("est_cpulist=");
    threads(0);
    assert_eq!(said(&weir, &["sysctl", "est_cpulist"]).trim_end(), "net.ipv4.vs.est_cpulist =");
    assert!(said(&weir, &["est"]).contains("stopped: est_cpulist is empty"));
    weir.weiradm("-C");
    let mark = weir.log().len();
    must(&format!("est_cpulist={cpu}"));
    threads(1);
    line_after(mark, " calc: chain_max=");
    let ended = weir.stop();
    assert!(
        ended.status.success() && ended.log.contains(" stop unused estimator thread 0..."),
        "{}",
        ended.log
    );
}

fn said(weir: &Daemon, args: &[&str]) -> String {
    let output = weir.ask(args).output().expect("weir runs");
    assert!(output.status.success(), "weir {args:?}: {}", text_of(&output));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Estimator threads of the daemon by name, with their directories in /proc.
fn estimator_threads(weir: &Daemon) -> Vec<(String, PathBuf)> {
    let tasks = fs::read_dir(format!("/proc/{}/task", weir.id())).expect("the daemon runs");
    let named = tasks.flatten().filter_map(|task| {
        let name = fs::read_to_string(task.path().join("comm")).ok()?.trim().to_owned();
        name.starts_with("weir-e:0:").then(|| (name, task.path()))
    });
    named.collect()
}

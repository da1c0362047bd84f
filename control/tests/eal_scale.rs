//! A hundred thousand services with a destination each: restored and listed with `weiradm` and with unmodified ipvsadm
//! through the preloaded library, and what that costs control; then a start with all of them, and what our own listings
//! take. Minutes, so behind WEIR_SOAK; 1/50 of it otherwise.
//! Times are CPU times of the processes, since other things run on the machine.
#![forbid(unsafe_code)]

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use common::Site;

/// Services of the large run and of the one that it is compared with.
const MANY: usize = 100_000;
const FEW: usize = 1_000;
/// Without WEIR_SOAK.
const SOME: usize = 2_000;
/// CPU time of a service may grow so much from few to many.
const GROWTH_MAX: f64 = 1.5;
/// CPU time of weiradm in that of ipvsadm.
const SHARE_MAX: f64 = 1.0 / 3.0;
const IPVSADM: &str = "/usr/sbin/ipvsadm";

#[test]
fn eal_scale_a_hundred_thousand_services() {
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    let (few, many) = if soak { (FEW, MANY) } else { (SOME / 2, SOME) };
    let site = Site::start("log = \"warn\"", "[connections]\nmax = 4096\n");
    let own = |site: &Site, services| measure(site, "weiradm", &[env!("CARGO_BIN_EXE_weiradm")], services);
    let boot = control(&site);
    let small = own(&site, few);
    let large = own(&site, many);
    for (what, small, large) in [
        ("weiradm", small.client_ns_per_service(), large.client_ns_per_service()),
        ("control", small.control_ns_per_service(), large.control_ns_per_service()),
    ] {
        println!("{what}: {:.2} times the CPU time of a service at {many} as at {few}", large / small);
        assert!(!soak || large / small < GROWTH_MAX, "{what}");
    }
    let site = restart(site, many);
    let replay = control(&site).saturating_sub(boot);
    println!("control: {replay:?} of CPU time to take up {many} services at a start");
    assert!(!soak || replay < large.control, "more than to make them over the socket, and to list them");
    look(&site, many);
    run(&site, &[env!("CARGO_BIN_EXE_weiradm")], &["-C"], None);
    if !Path::new(IPVSADM).exists() {
        println!("no {IPVSADM} on this machine: nothing to compare with");
        return;
    }
    let through = [env!("CARGO_BIN_EXE_weir"), "exec", "--", IPVSADM];
    let theirs = measure(&site, "ipvsadm", &through, many);
    let share = large.client.as_secs_f64() / theirs.client.as_secs_f64();
    println!(
        "weiradm takes {share:.3} of the CPU time of ipvsadm, control {:.3}",
        large.control.as_secs_f64() / theirs.control.as_secs_f64()
    );
    assert!(!soak || share <= SHARE_MAX, "{share}");
    site.stop();
}

struct Cost {
    services: usize,
    client: Duration,
    control: Duration,
}

impl Cost {
    fn client_ns_per_service(&self) -> f64 {
        self.client.as_nanos() as f64 / self.services as f64
    }

    fn control_ns_per_service(&self) -> f64 {
        self.control.as_nanos() as f64 / self.services as f64
    }
}

/// Restores, lists and clears; small tables several times, since CPU times are counted in ticks.
fn measure(site: &Site, name: &str, program: &[&str], services: usize) -> Cost {
    let file = saved(services);
    let rounds = (10_000 / services).max(1);
    let begun = (children(), control(site));
    let (mut restoring, mut listing) = (Duration::ZERO, Duration::ZERO);
    for _ in 0..rounds {
        let start = Instant::now();
        run(site, program, &["-R"], Some(file.path()));
        restoring += start.elapsed();
        let start = Instant::now();
        let listed = run(site, program, &["-L", "-n"], None);
        listing += start.elapsed();
        assert_eq!(listed.lines().count(), 3 + 2 * services);
        run(site, program, &["-C"], None);
    }
    let rounds = rounds as u32;
    let cost = Cost {
        services,
        client: (children() - begun.0) / rounds,
        control: (control(site) - begun.1) / rounds,
    };
    println!(
        "{name}, {services} services: restored in {:?}, listed in {:?}; CPU time of the program {:?}, of control {:?}",
        restoring / rounds,
        listing / rounds,
        cost.client,
        cost.control
    );
    cost
}

/// A file that restores so many services with a destination each.
fn saved(services: usize) -> tempfile::NamedTempFile {
    let mut lines = String::new();
    for n in 0..services {
        let address = std::net::Ipv4Addr::from(0x0a14_0000 + n as u32);
        let _ = write!(lines, "-A -t {address}:80 -s rr\n-a -t {address}:80 -r 10.9.0.11:8080 -m -w 1\n");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    fs::write(file.path(), lines).unwrap();
    file
}

/// Restores so many services, stops the daemon and starts it with them.
fn restart(site: Site, services: usize) -> Site {
    run(&site, &[env!("CARGO_BIN_EXE_weiradm")], &["-R"], Some(saved(services).path()));
    let dir = site.stop();
    let start = Instant::now();
    let site = Site::start_in(dir);
    println!("a start with {services} services in the journal answers after {:?}", start.elapsed());
    site
}

/// `weir list` and `weir status` of so many services.
fn look(site: &Site, services: usize) {
    let weir = env!("CARGO_BIN_EXE_weir");
    let start = Instant::now();
    let listed = run(site, &[weir], &["list", "--json"], None);
    let listing = start.elapsed();
    assert_eq!(listed.matches("\"10.9.0.11:8080\"").count(), services);
    let start = Instant::now();
    let status = run(site, &[weir], &["status"], None);
    println!("weir list of {services} services in {listing:?}, weir status in {:?}", start.elapsed());
    assert!(status.contains(&format!("{services}")), "{status}");
}

fn run(site: &Site, program: &[&str], arguments: &[&str], input: Option<&Path>) -> String {
    let mut command = Command::new(program[0]);
    command.args(&program[1..]).args(arguments).env("WEIR_SOCKET", site.socket());
    command.stdin(input.map_or_else(Stdio::null, |path| fs::File::open(path).unwrap().into()));
    let output = command.output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty(), "{arguments:?}: {output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// CPU time of this process's children that have ended, as waited for: fields 16 and 17 of /proc/self/stat, 10 ms each.
fn children() -> Duration {
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let after_name = stat.rsplit_once(')').unwrap().1;
    let ticks: u64 = after_name.split_whitespace().skip(13).take(2).map(|n| n.parse::<u64>().unwrap()).sum();
    Duration::from_millis(ticks * 10)
}

/// CPU time of the daemon's control thread.
fn control(site: &Site) -> Duration {
    let pid = site.status()["daemon"]["pid"].as_u64().unwrap();
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|task| task.unwrap().path());
    let is_control =
        |task: &PathBuf| fs::read_to_string(task.join("comm")).is_ok_and(|name| name == "weir-c\n");
    let task = { tasks }.find(is_control).unwrap();
    let schedstat = fs::read_to_string(task.join("schedstat")).unwrap();
    Duration::from_nanos(schedstat.split_whitespace().next().unwrap().parse().unwrap())
}

//! `weiradm`, and Debian's ipvsadm as it is under our preloaded library, against a running daemon on null ports: the
//! recorded runs of ipvsadm that a live table can hold, those against a kernel. For `weiradm` also what a reload leaves of it, what is accepted and not forwarded, and who may do what.
#![forbid(unsafe_code)]

#[path = "weiradm_common/differences.rs"]
mod differences;
#[path = "weiradm_common/go.rs"]
mod go;
#[path = "weiradm_common/kernel.rs"]
mod kernel;
#[path = "weiradm_common/preloaded.rs"]
mod preloaded;
#[path = "weiradm_common/program.rs"]
mod program;

use std::fmt::Write as _;
use std::fs;
use std::io::{Read as _, Write as _};
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use control::ipvs::reply::Reply;
use control::ipvs::request::{self, Call};
use control::ipvs::{ServiceKey, ServiceOptions};
use control::weiradm::{SocketTransport, Transport as _};
use differences::{Differences, sections};
use preloaded::Preloaded;
use program::{Outcome, ipvsadm_over, words};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Recorded runs.
const SAMPLES: usize = 162;

/// Recorded runs against a kernel, without the two of another user (who may do what is ours to say) and
/// [`OTHER_MACHINE`].
const KERNEL_RUNS: usize = 295;
/// Those with unmodified programs: files of the kernel too.
const KERNEL_RUNS_PRELOADED: usize = 300;
/// The kernel's machine has no interface `eth0`, which a sync daemon is on unless told otherwise; we have a port.
/// The last has a row for CPU 0, where our worker need not be.
const OTHER_MACHINE: &[&str] = &["24.14", "24.16", "29.28"];

/// Recorded runs that need what no command can put into a running daemon.
const NOT_LIVE: &[(&[&str], &str)] = &[
    (
        &["006", "026", "027", "029", "030", "032", "035", "036"],
        "counters, rates and connection counts of traffic; null ports have none",
    ),
    (&["019", "020", "021"], "methods and protocols that ipvsadm has no option for"),
    (&["044", "045", "046", "047"], "connections; null ports make none"),
    (&["191", "192", "194", "195", "196", "197"], "a server that refuses a good command"),
    (&["199", "200"], "a server of another version or table size"),
];

/// Recorded runs whose counters may stay as they are: they are zero when the run ends.
const ENDS_AT_ZERO: &[&str] = &["085", "086"];

#[test]
fn eal_weiradm_on_a_running_daemon() {
    let mut site = Site::start();
    samples(&site, "ipvsadm/");
    let compared = kernel::repeat(&mut Live(&site), "kernel/");
    println!("recorded runs against kernel 6.12 on a running daemon: {compared} equal");
    assert_eq!(compared, KERNEL_RUNS);
    site.preloaded = Preloaded::new(&site.socket());
    if site.preloaded.is_some() {
        samples(&site, "shim/ipvsadm/");
        let compared = kernel::repeat(&mut Live(&site), "shim/kernel/");
        println!("with unmodified programs: {compared} equal");
        assert_eq!(compared, KERNEL_RUNS_PRELOADED);
        site.preloaded = None;
    }
    site.clear();
    reload_keeps_what_was_set(&site);
    site.clear();
    the_unbuilt_is_listed_and_named(&site);
    site.clear();
    one_datagram_is_one_publication(&site);
    site.clear();
    go::clients(&site.socket(), |arguments| site.must(arguments));
    site.clear();
    two_thousand_services(&site);
    others_may_read(&site);
    site.stop();
}

fn samples(site: &Site, prefix: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ipvsadm");
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with("wire-"));
    files.sort();
    assert_eq!(files.len(), SAMPLES);
    let not_live: Vec<&str> = NOT_LIVE.iter().flat_map(|(numbers, _)| *numbers).copied().collect();
    let mut differences = Differences::of(prefix);
    let (mut run, mut failures) = (0, Vec::new());
    for path in &files {
        let name = path.file_stem().unwrap().to_str().unwrap();
        let text = fs::read_to_string(path).unwrap();
        if not_live.contains(&&name[..3]) {
            // What differs on purpose differs here too, where the table can be fed.
            differences.apply(name, "stdout", &mut sections(&text).remove("stdout").unwrap_or_default());
            continue;
        }
        run += 1;
        site.clear();
        failures.extend(sample(site, name, &text, &mut differences).err());
    }
    assert!(failures.is_empty(), "{} samples differ:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(run + not_live.len(), SAMPLES);
    differences.all_used();
    println!(
        "recorded runs of ipvsadm on a running daemon: {run} equal, {} need another server",
        not_live.len()
    );
    for (numbers, reason) in NOT_LIVE {
        println!("  {}: {reason}", numbers.join(" "));
    }
}

fn sample(site: &Site, name: &str, text: &str, differences: &mut Differences) -> Result<(), String> {
    let mut parts = sections(text);
    let mut part = |section: &str| {
        let mut recorded = parts.remove(section).unwrap_or_default();
        differences.apply(name, section, &mut recorded);
        recorded
    };
    let before = site.ipvsadm("-R", &part("state before"));
    let fed = part("fed");
    let fed = fed.lines().filter(|line| *line != "timeouts 900 120 300").count();
    if before.exit != 0 || (fed > 0 && !ENDS_AT_ZERO.contains(&&name[..3])) {
        return Err(format!("{name}: {fed} lines to feed, state before: {before:?}"));
    }
    let command = text.lines().find_map(|line| line.strip_prefix("command: ipvsadm")).ok_or("no command")?;
    let outcome = site.ipvsadm(command, &part("stdin"));
    let recorded = Outcome {
        stdout: part("stdout"),
        stderr: part("stderr"),
        exit: part("exit").trim().parse().unwrap(),
    };
    let mut pairs = vec![("outcome", outcome, recorded)];
    if let Some(command) = text.lines().find_map(|line| line.strip_prefix("--- state after (ipvsadm ")) {
        let after = site.ipvsadm(command.trim_end_matches(')'), "");
        let recorded = Outcome { stdout: part("state after"), stderr: String::new(), exit: after.exit };
        pairs.push(("state after", after, recorded));
    }
    match pairs.into_iter().find(|(_, ours, recorded)| ours != recorded) {
        None => Ok(()),
        Some((what, ours, recorded)) => {
            Err(format!("{name}: {what}\n    ours {ours:?}\nrecorded {recorded:?}"))
        }
    }
}

struct Live<'a>(&'a Site);

impl kernel::Player for Live<'_> {
    fn begin(&mut self) {
        self.0.clear();
    }

    fn not_compared(&self) -> &[&str] {
        OTHER_MACHINE
    }

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome {
        self.0.ipvsadm(arguments, input)
    }

    fn ipvsadm_without_rights(&mut self, _: &str) -> Option<Outcome> {
        None
    }

    fn cat(&mut self, path: &str) -> Option<Outcome> {
        self.0.preloaded.as_ref().map(|program| program.run("cat", path, ""))
    }
}

fn reload_keeps_what_was_set(site: &Site) {
    let file = |a: u32, b: u32| {
        format!(
            "[[service]]\naddress = \"tcp://192.0.2.100:80\"\nscheduler = \"rr\"\n\
             [[service.destination]]\naddress = \"10.9.0.11:8080\"\nweight = {a}\n\
             [[service.destination]]\naddress = \"10.9.0.12:8080\"\nweight = {b}\n"
        )
    };
    site.reload(&file(1, 1));
    site.must("-e -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 7");
    site.must("-a -t 192.0.2.100:80 -r 10.9.0.13:8080 -m -w 5");
    site.must("-A -t 192.0.2.100:443 -s wlc");
    site.reload(&file(1, 9));
    let saved = "-A -t 192.0.2.100:80 -s rr\n\
        -a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 7\n\
        -a -t 192.0.2.100:80 -r 10.9.0.12:8080 -m -w 9\n\
        -a -t 192.0.2.100:80 -r 10.9.0.13:8080 -m -w 5\n\
        -A -t 192.0.2.100:443 -s wlc\n";
    assert_eq!(site.must("-S -n"), saved);
    assert!(
        site.log().contains("command=\"-e -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 7\""),
        "{}",
        site.log()
    );
    site.must("-D -t 192.0.2.100:80");
    site.reload(&file(3, 9));
    assert_eq!(site.must("-S -n"), "-A -t 192.0.2.100:443 -s wlc\n");
    assert!(site.log().contains("deleted over the control socket"), "{}", site.log());
    site.reload("");
}

fn the_unbuilt_is_listed_and_named(site: &Site) {
    site.must("-A -t 192.0.2.100:80 -s sh -p 120");
    site.must("-a -t 192.0.2.100:80 -r 10.9.0.11 -m");
    site.must("-A -f 7 -6 -s mh -b mh-port");
    site.must("-A -u 192.0.2.100:53 -s rr");
    site.must("-a -u 192.0.2.100:53 -r 10.9.0.12 -i");
    site.must("--start-daemon master --mcast-interface eth0");
    let warnings = site.status()["warnings"].to_string();
    for seen in [
        "accepted, not forwarded: persistence: tcp:192.0.2.100:80",
        "accepted, not forwarded: services by firewall mark: fwmark6:7",
        "accepted, not forwarded: forwarding methods other than NAT and direct routing: 10.9.0.12:53 of udp:192.0.2.100:53",
        "accepted, not forwarded: the sync daemon: Master on eth0",
    ] {
        assert!(warnings.contains(seen), "{seen}: {warnings}");
    }
    let listing = site.weir(&["list"]);
    assert_eq!(listing, site.must("-L -n --nosort"));
    assert_eq!(site.log().matches("persistence: accepted, not forwarded").count(), 1, "{}", site.log());
    site.must("--stop-daemon master");
}

fn one_datagram_is_one_publication(site: &Site) {
    let generation = || site.status()["daemon"]["generation"].as_u64().unwrap();
    let mut transport = SocketTransport::connect(&site.socket()).unwrap();
    let service = |n: u8| ServiceKey::Address { protocol: 6, address: [192, 0, 2, n].into(), port: 80 };
    let options = ServiceOptions {
        scheduler: "rr".to_owned(),
        engine: None,
        flags: 0,
        timeout_seconds: 0,
        netmask: u32::MAX,
    };
    let call = |n: u8| Call::service(request::Command::NewService, &service(n), &options).encode(n.into());
    let before = generation();
    transport.send(&(1..=32).flat_map(call).collect::<Vec<u8>>()).unwrap();
    for n in 1..=32 {
        assert_eq!(Reply::split(&transport.receive().unwrap()), [(n, Reply::Ack)]);
    }
    assert_eq!(generation(), before + 1);
    assert_eq!(site.must("-S -n").lines().count(), 32);
}

fn two_thousand_services(site: &Site) {
    let mut lines = String::new();
    for n in 0..2000 {
        let service = format!("10.{}.{}.1:80", n / 250, n % 250);
        let _ = write!(lines, "-A -t {service} -s rr\n-a -t {service} -r 10.9.0.11:8080 -m -w 1\n");
    }
    let begun = Instant::now();
    assert_eq!(site.ipvsadm("-R", &lines), done(""));
    println!("restored 2000 services with a destination each in {} ms", begun.elapsed().as_millis());
    let begun = Instant::now();
    assert_eq!(site.must("-S -n"), lines);
    println!("saved them in {} ms", begun.elapsed().as_millis());
    assert_eq!(site.status()["tables"].to_string().matches("\"used\":2000").count(), 2);
}

/// A group that is named for it may read, and change nothing.
fn others_may_read(site: &Site) {
    if !rustix::process::geteuid().is_root() {
        println!("not root: no other user to try");
        return;
    }
    for (path, mode) in [(site.dir.path(), 0o755), (&site.socket(), 0o666)] {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
    }
    let program = site.dir.path().join("weiradm");
    fs::copy(env!("CARGO_BIN_EXE_weiradm"), &program).unwrap();
    let as_nobody = |arguments: &str| {
        let mut command = Command::new(&program);
        command.args(words(arguments)).env("WEIR_SOCKET", site.socket()).uid(65534).gid(65534);
        let output = command.output().unwrap();
        (output.status.code(), String::from_utf8(output.stderr).unwrap())
    };
    assert_eq!(as_nobody("-L -n"), (Some(0), String::new()));
    assert_eq!(as_nobody("-C"), (Some(255), "Permission denied (you must be root)\n".to_owned()));
}

fn done(stdout: &str) -> Outcome {
    Outcome { stdout: stdout.to_owned(), stderr: String::new(), exit: 0 }
}

/// A running daemon in a directory of its own; killed if the test leaves it.
struct Site {
    dir: tempfile::TempDir,
    child: Child,
    /// Debian's ipvsadm is run, not ours.
    preloaded: Option<Preloaded>,
}

impl Site {
    fn start() -> Site {
        let dir = tempfile::tempdir().unwrap();
        fs::write(dir.path().join("weir.toml"), config(dir.path(), "")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--config"]).arg(dir.path().join("weir.toml"));
        command.stdin(Stdio::null()).stdout(Stdio::null());
        let child = command.stderr(fs::File::create(dir.path().join("weir.log")).unwrap()).spawn().unwrap();
        let site = Site { dir, child, preloaded: None };
        site.wait_for("the daemon listens", || SocketTransport::connect(&site.socket()).is_ok());
        site
    }

    /// An empty table with the kernel's timeouts and no sync daemon.
    fn clear(&self) {
        self.must("-C");
        self.must("--set 900 120 300");
        for state in ["master", "backup"] {
            self.ipvsadm(&format!("--stop-daemon {state}"), "");
        }
    }

    fn ipvsadm(&self, arguments: &str, input: &str) -> Outcome {
        if let Some(program) = &self.preloaded {
            return program.run("ipvsadm", arguments, input);
        }
        let socket = self.socket();
        ipvsadm_over(|| SocketTransport::connect(&socket), &words(arguments), &mut input.as_bytes())
    }

    /// Runs what must succeed without a word; its output.
    fn must(&self, arguments: &str) -> String {
        let outcome = self.ipvsadm(arguments, "");
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, ""), "{arguments}");
        outcome.stdout
    }

    fn weir(&self, arguments: &[&str]) -> String {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(arguments).env("WEIR_SOCKET", self.socket()).output().unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    fn status(&self) -> Value {
        serde_json::from_str(&self.weir(&["status", "--json"])).unwrap()
    }

    /// Replaces the services of the file and waits until that is in force.
    fn reload(&self, services: &str) {
        let revision = || self.status()["daemon"]["revision"].as_u64().unwrap();
        let before = revision();
        let file = self.dir.path().join("weir.toml");
        fs::File::create(file).unwrap().write_all(config(self.dir.path(), services).as_bytes()).unwrap();
        kill_process(Pid::from_child(&self.child), Signal::HUP).unwrap();
        self.wait_for("the reload is in force", || revision() > before);
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/weir.sock")
    }

    fn log(&self) -> String {
        let mut text = String::new();
        fs::File::open(self.dir.path().join("weir.log")).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    fn stop(mut self) {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.log());
        let log = self.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Ports have the names of the recorded server's interfaces.
fn config(dir: &Path, services: &str) -> String {
    format!(
        "[daemon]\nsocket = \"{dir}/run/weir.sock\"\nstate_dir = \"{dir}/state\"\nlog = \"info\"\n\
         read_groups = [\"65534\"]\n[eal]\npages = \"normal\"\nmemory_mb = 96\n[workers]\nmode = \"shared\"\n[connections]\nmax = 4096\n\
         [[port]]\nname = \"eth0\"\ndevice = \"net_null0,no-rx=1\"\naddresses = [\"192.0.2.1/24\"]\n\
         [[port]]\nname = \"eth1\"\ndevice = \"net_null1,no-rx=1\"\naddresses = [\"10.9.0.254/24\"]\n{services}",
        dir = dir.display()
    )
}

//! The daemon as a process: start, answers, reload, refusals, stop. Ports are `net_null`, memory is ordinary pages,
//! so it runs on any machine. Each daemon is a process of its own, as DPDK starts once in a process.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Read;
use std::path::PathBuf;
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A directory with a configuration, and the daemons of one test.
struct Site {
    dir: tempfile::TempDir,
}

/// A running daemon; killed if the test leaves it.
struct Daemon {
    child: Child,
    log: PathBuf,
}

const SERVICE: &str = r#"
[[service]]
address = "tcp://192.0.2.100:80"
scheduler = "rr"
  [[service.destination]]
  address = "10.0.0.11:8080"
  [[service.destination]]
  address = "10.0.0.12:8080"
  weight = 3
"#;

impl Site {
    fn new() -> Site {
        Site { dir: tempfile::tempdir().unwrap() }
    }

    /// A configuration with two ports, a small table and these services.
    fn config(&self, services: &str) -> String {
        format!(
            "[daemon]\nsocket = \"{dir}/run/weir.sock\"\nstate_dir = \"{dir}/state\"\nlog = \"info\"\n\
             [eal]\npages = \"normal\"\nmemory_mb = 96\n[workers]\nmode = \"shared\"\n[connections]\nmax = 4096\n\
             [[port]]\nname = \"wan\"\ndevice = \"net_null0,no-rx=1\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[port]]\nname = \"lan\"\ndevice = \"net_null1,no-rx=1\"\naddresses = [\"10.0.0.254/24\"]\n{services}",
            dir = self.dir.path().display()
        )
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Starts a daemon with this configuration.
    fn launch(&self, name: &str, config: &str) -> Daemon {
        let (file, log) = (self.path(&format!("{name}.toml")), self.path(&format!("{name}.log")));
        fs::write(&file, config).unwrap();
        let stderr = fs::File::create(&log).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--config"]).arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(stderr);
        Daemon { child: command.spawn().unwrap(), log }
    }

    /// Starts a daemon and waits until it answers.
    fn start(&self, config: &str) -> Daemon {
        let mut daemon = self.launch("weir", config);
        wait_for("the daemon answers", || {
            if let Some(status) = daemon.child.try_wait().unwrap() {
                panic!("ended at its start with {status}: {}", daemon.log());
            }
            self.ask(&["status"]).status.success()
        });
        daemon
    }

    fn ask(&self, args: &[&str]) -> Output {
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .args(args)
            .env("WEIR_SOCKET", self.path("run/weir.sock"))
            .stdin(Stdio::null())
            .output()
            .unwrap()
    }

    fn text(&self, args: &[&str]) -> String {
        let output = self.ask(args);
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    fn json(&self, args: &[&str]) -> Value {
        serde_json::from_str(&self.text(&[args, &["--json"]].concat())).unwrap()
    }
}

impl Daemon {
    fn log(&self) -> String {
        let mut text = String::new();
        fs::File::open(&self.log).unwrap().read_to_string(&mut text).unwrap();
        text
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end; exit status and log.
    fn ended(mut self) -> (ExitStatus, String) {
        let mut status = None;
        wait_for("the daemon ends", || {
            status = self.child.try_wait().unwrap();
            status.is_some()
        });
        (status.unwrap(), self.log())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let begun = Instant::now();
    while !is_so() {
        assert!(begun.elapsed() < Duration::from_secs(20), "waited in vain until {what}");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// DPDK's run-time folders of our daemons.
fn runtime_dirs(pid: u32) -> bool {
    fs::exists(format!("/var/run/dpdk/weir-{pid}")).unwrap()
}

#[test]
fn eal_a_daemon_answers_reloads_and_stops_in_order() {
    let site = Site::new();
    let daemon = site.start(&site.config(SERVICE));
    let pid = daemon.child.id();

    let listing = site.text(&["list"]);
    let expected = "IP Virtual Server version 1.2.1 (size=4096)\n\
        Prot LocalAddress:Port Scheduler Flags\n  \
        -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n\
        TCP  192.0.2.100:80 rr\n  \
        -> 10.0.0.11:8080               Masq    1      0          0         \n  \
        -> 10.0.0.12:8080               Masq    3      0          0         \n";
    assert_eq!(listing, expected);
    assert!(site.text(&["list", "--stats"]).contains("TCP  192.0.2.100:80                      0        0"));

    let status = site.json(&["status"]);
    assert_eq!(status["daemon"]["pid"], pid);
    assert_eq!(status["daemon"]["pages"], "normal");
    let names: Vec<_> = status["ports"].as_array().unwrap().iter().map(|port| &port["port"]).collect();
    assert_eq!(names, ["wan", "lan"]);
    assert_eq!(status["workers"][0]["mode"], "shared");
    assert_eq!(status["workers"][0]["alive"], true);
    assert!(site.text(&["status"]).contains("net_null1"));

    assert_eq!(site.json(&["drops"])["drops"], Value::Array(vec![]));
    let all = site.json(&["drops", "--all"]);
    assert!(all["drops"].as_array().unwrap().iter().any(|row| row["reason"] == "no_dest"));
    assert_eq!(site.json(&["conns"])["connections"], Value::Array(vec![]));
    assert_eq!(site.ask(&["conns", "--state", "OPEN"]).status.code(), Some(2));

    // Threads are named, the worker is on its own CPU list.
    let comm = |tid: &str| fs::read_to_string(format!("/proc/{pid}/task/{tid}/comm")).unwrap();
    let tids: Vec<_> =
        fs::read_dir(format!("/proc/{pid}/task")).unwrap().map(|e| e.unwrap().file_name()).collect();
    let comms: Vec<_> = tids.iter().map(|tid| comm(tid.to_str().unwrap())).collect();
    assert!(comms.contains(&"weir-c\n".into()) && comms.contains(&"weir-w:0\n".into()), "{comms:?}");

    // A second daemon on the socket is told so and leaves the first alone.
    let (status, log) = site.launch("second", &site.config("")).ended();
    assert_eq!(status.code(), Some(3), "{log}");
    assert!(log.contains("two daemons on one socket"), "{log}");

    // Reload: what differs is applied, a file with errors changes nothing.
    let edited = SERVICE.replace("weight = 3", "weight = 5").replace("10.0.0.11", "10.0.0.13");
    fs::write(site.path("weir.toml"), site.config(&edited)).unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the reload is in force", || site.json(&["status"])["daemon"]["revision"] == 1);
    let listing = site.text(&["list"]);
    assert!(listing.contains("-> 10.0.0.12:8080               Masq    5 "), "{listing}");
    assert!(listing.contains("-> 10.0.0.13:8080 ") && !listing.contains("10.0.0.11"), "{listing}");
    fs::write(site.path("weir.toml"), "[[service]]\naddres = 1\n").unwrap();
    daemon.signal(Signal::HUP);
    wait_for("the refusal is logged", || daemon.log().contains("addres"));
    assert_eq!(site.text(&["list"]), listing);
    assert_eq!(site.json(&["status"])["daemon"]["revision"], 1);

    // A watcher that is connected when the stop comes is told that the daemon is gone, and does not delay it.
    let mut watcher = Command::new(env!("CARGO_BIN_EXE_weir"));
    watcher.args(["status", "--watch", "1"]).env("WEIR_SOCKET", site.path("run/weir.sock"));
    let watcher = watcher.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    std::thread::sleep(Duration::from_millis(300));
    daemon.signal(Signal::TERM);
    let (status, log) = daemon.ended();
    assert_eq!(watcher.wait_with_output().unwrap().status.code(), Some(3));
    assert_eq!(status.code(), Some(0), "{log}");
    assert!(log.contains("every mbuf came back"), "{log}");
    assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
    assert!(log.contains("service=tcp:192.0.2.100:80 dest=10.0.0.13:8080"), "{log}");
    assert!(!site.path("run").exists(), "socket and directory are gone");
    assert!(!runtime_dirs(pid));
    assert_eq!(site.ask(&["list"]).status.code(), Some(3));
}

#[test]
fn eal_starts_that_fail_say_why_and_leave_nothing() {
    let site = Site::new();
    let good = site.config(SERVICE);
    let cases = [
        ("unknown key", good.replace("scheduler", "schedular"), 2, "schedular"),
        ("bad log filter", good.replace("log = \"info\"", "log = \"a=b=c\""), 2, "daemon.log"),
        ("no such driver", good.replace("net_null1", "net_nil1"), 3, "port lan"),
        (
            "no such interface",
            good.replace("net_null1,no-rx=1", "net_af_packet1,iface=nosuchif0"),
            3,
            "nosuchif0",
        ),
        ("no such CPU", good.replace("[workers]", "[workers]\ncpus = \"1000\""), 3, "CPU 1000"),
        ("demanded hugepages", good.replace("memory_mb = 96", "memory_mb = 1000000"), 3, "hugepages"),
    ];
    for (name, config, exit, says) in cases {
        let config =
            if name == "demanded hugepages" { config.replace("\"normal\"", "\"huge\"") } else { config };
        let daemon = site.launch("vain", &config);
        let pid = daemon.child.id();
        let (status, log) = daemon.ended();
        assert_eq!(status.code(), Some(exit), "{name}: {log}");
        assert!(log.contains(says), "{name}: {log}");
        assert!(log.contains("weir: ") && !log.contains("panicked"), "{name}: {log}");
        assert!(!site.path("run").exists() && !runtime_dirs(pid), "{name} left something");
    }
}

/// A full disk behind stderr: lines are lost, and nothing ends otherwise than it would.
#[test]
fn eal_what_nobody_can_read_changes_nothing() {
    let full = || fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let weir = || Command::new(env!("CARGO_BIN_EXE_weir"));
    let status = weir().args(["check", "/nonexistent.toml"]).stderr(full()).status().unwrap();
    assert_eq!(status.code(), Some(2));

    let site = Site::new();
    let file = site.path("full.toml");
    fs::write(&file, site.config(SERVICE)).unwrap();
    let mut child = weir().args(["run", "--config"]).arg(&file).stderr(full()).spawn().unwrap();
    let (begun, socket) = (Instant::now(), site.path("run/weir.sock"));
    let answers = || weir().arg("status").env("WEIR_SOCKET", &socket).output().unwrap().status.success();
    while !answers() {
        assert!(begun.elapsed() < Duration::from_secs(20), "no daemon answers");
        std::thread::sleep(Duration::from_millis(20));
    }
    kill_process(Pid::from_child(&child), Signal::TERM).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

//! The daemon under test: started in the balancer's namespace, configured by file, asked over its socket.

use std::fs::{self, File};
use std::io;
use std::os::unix::net::UnixDatagram;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use control::api::rows::{
    CounterFields, DaemonRow, DestRow, DropRow, PortRow, ServiceRow, TableRow, WarningRow, WorkerRow,
};
use control::weiradm::{self, Console, SocketTransport, SystemNames};
use rustix::process::Signal;
use serde::Deserialize;
use serde::de::DeserializeOwned;

use super::{Net, Process, Topology, text_of, wait_for};

/// Totals are exact two seconds after the last packet; this much later they are read.
pub const STATISTICS_SETTLE: Duration = Duration::from_millis(2100);

/// The program to test: `WEIR_BIN`, else the last built `weir` of this workspace.
pub fn binary() -> PathBuf {
    if let Some(path) = std::env::var_os("WEIR_BIN") {
        return path.into();
    }
    let target = std::env::var_os("CARGO_TARGET_DIR")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../target"), PathBuf::from);
    let built = |path: &PathBuf| -> Option<SystemTime> { path.metadata().ok()?.modified().ok() };
    ["release/weir", "debug/weir"]
        .map(|name| target.join(name))
        .into_iter()
        .filter(|path| path.exists())
        .max_by_key(built)
        .expect("no weir to test: run `cargo build --release -p control` (`make test` does)")
}

/// A service with its destinations, as a piece of configuration. `destinations`: address with port, weight.
pub fn service(address: &str, scheduler: &str, method: &str, destinations: &[(String, u32)]) -> String {
    let mut text =
        format!("[[service]]\naddress = \"{address}\"\nscheduler = \"{scheduler}\"\nannounce = true\n");
    for (address, weight) in destinations {
        text.push_str(&format!(
            "[[service.destination]]\naddress = \"{address}\"\nmethod = \"{method}\"\nweight = {weight}\n"
        ));
    }
    text
}

/// A whole configuration for the balancer of `net`: its ports, private paths, and `services`.
pub fn configuration(net: &Net, services: &str) -> String {
    let dir = net.dir().display();
    let port = |number: usize, name: &str, address: &str| {
        format!(
            "[[port]]\nname = \"{name}\"\ndevice = \"net_af_packet{number},iface={name},framecnt=4096\"\n\
             addresses = [\"{address}\"]\n"
        )
    };
    let mut text = format!(
        "[daemon]\nsocket = \"{dir}/weir.sock\"\nstate_dir = \"{dir}/state\"\n\
         [eal]\npages = \"normal\"\n[workers]\nmode = \"shared\"\n[connections]\nmax = 65536\n"
    );
    text.push_str(&port(0, "wan", "192.0.2.1/24"));
    if net.topology == Topology::Nat {
        text.push_str(&port(1, "lan", "10.0.0.254/24"));
    }
    text.push_str(services);
    text
}

/// A running daemon.
#[derive(Debug)]
pub struct Daemon {
    process: Process,
    config: PathBuf,
    log: PathBuf,
    socket: PathBuf,
    manager: UnixDatagram,
}

/// What `weir status --json` prints, as far as tests read it.
#[derive(Clone, Debug, Deserialize)]
pub struct Status {
    /// The process.
    pub daemon: DaemonRow,
    /// Its ports, in configuration order.
    pub ports: Vec<PortRow>,
    /// Its workers.
    pub workers: Vec<WorkerRow>,
    /// Its tables.
    pub tables: Vec<TableRow>,
    /// What an operator should know.
    pub warnings: Vec<WarningRow>,
}

/// A service in `weir list --json`.
#[derive(Clone, Debug, Deserialize)]
pub struct Service {
    /// The service itself.
    #[serde(flatten)]
    pub row: ServiceRow,
    /// Its destinations, newest first.
    pub destinations: Vec<DestRow>,
}

#[derive(Deserialize)]
struct Listing {
    services: Vec<Service>,
}

#[derive(Deserialize)]
struct Drops {
    drops: Vec<DropRow>,
}

/// How a daemon ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Its log.
    pub log: String,
    /// What it told its service manager since that was read last.
    pub notified: Vec<String>,
}

impl Daemon {
    /// Starts it with a configuration text and waits until it answers.
    ///
    /// # Panics
    /// When it ends or stays silent instead, with its log.
    pub fn start(net: &Net, configuration: &str) -> Daemon {
        let mut daemon = Daemon::launch(net, "weir", configuration);
        wait_for("the daemon answers", Duration::from_secs(20), || {
            if let Some(status) = daemon.process.ended() {
                panic!("the daemon ended at its start with {status}:\n{}", daemon.log());
            }
            daemon.ask(&["status"]).output().is_ok_and(|output| output.status.success()).then_some(())
        });
        daemon
    }

    /// Starts one that is expected to fail, and waits for that. `name` keeps its files apart.
    pub fn start_in_vain(net: &Net, name: &str, configuration: &str) -> Ended {
        Daemon::launch(net, name, configuration).wait()
    }

    fn launch(net: &Net, name: &str, configuration: &str) -> Daemon {
        let config = net.dir().join(format!("{name}.toml"));
        let log = net.dir().join(format!("{name}.log"));
        fs::write(&config, configuration).expect("a directory of our own");
        let mut command = net.lb().command(binary());
        command.arg("run").arg("--config").arg(&config).stdout(Stdio::null());
        command.stderr(File::create(&log).expect("a directory of our own"));
        let notify = net.dir().join(format!("{name}.notify"));
        // One of the same name may have left its file.
        let _ = fs::remove_file(&notify);
        let manager = UnixDatagram::bind(&notify).expect("a name of our own");
        manager.set_nonblocking(true).expect("a socket can be polled");
        let process = Process::start("weir", command.env("NOTIFY_SOCKET", &notify));
        Daemon { process, config, log, socket: net.dir().join("weir.sock"), manager }
    }

    /// Process id.
    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Gives it another configuration and waits until that is in force.
    pub fn reload(&self, configuration: &str) {
        let before = self.status().daemon.revision;
        fs::write(&self.config, configuration).expect("a directory of our own");
        self.process.signal(Signal::HUP);
        wait_for("the reload is in force", Duration::from_secs(5), || {
            (self.status().daemon.revision > before).then_some(())
        });
    }

    /// Gives it a configuration that it must refuse, and waits until the log says `word`.
    pub fn reload_in_vain(&self, configuration: &str, word: &str) {
        let before = self.status().daemon.revision;
        fs::write(&self.config, configuration).expect("a directory of our own");
        self.process.signal(Signal::HUP);
        wait_for("the log says why", Duration::from_secs(5), || self.log().contains(word).then_some(()));
        assert_eq!(self.status().daemon.revision, before, "a refused configuration changes nothing");
    }

    /// What it told its service manager since the last call, one line each.
    pub fn notified(&self) -> Vec<String> {
        let mut message = [0; 4096];
        let mut lines = Vec::new();
        while let Ok(length) = self.manager.recv(&mut message) {
            lines.extend(String::from_utf8_lossy(&message[..length]).lines().map(str::to_owned));
        }
        lines
    }

    /// Ends it with SIGTERM.
    pub fn stop(self) -> Ended {
        self.process.signal(Signal::TERM);
        self.wait()
    }

    fn wait(mut self) -> Ended {
        let status = self.process.wait(Duration::from_secs(15));
        Ended { status, log: self.log(), notified: self.notified() }
    }

    /// Services with their destinations.
    pub fn list(&self) -> Vec<Service> {
        self.json::<Listing>(&["list"]).services
    }

    /// Counters of one service, and of its destinations in the order of the listing.
    pub fn counters(&self, service: &str) -> (CounterFields, Vec<(String, CounterFields)>) {
        let services = self.list();
        let found = services
            .iter()
            .find(|found| found.row.service == service)
            .unwrap_or_else(|| panic!("no service {service} in {services:?}"));
        let destinations = found.destinations.iter().map(|dest| (dest.dest.to_string(), dest.counters));
        (found.row.counters, destinations.collect())
    }

    /// Its own figures and those of its ports.
    pub fn status(&self) -> Status {
        self.json(&["status"])
    }

    /// Drop reasons that have counted anything: name, packets.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let rows = self.json::<Drops>(&["drops"]).drops;
        rows.into_iter().filter(|row| row.drops_total > 0).map(|row| (row.reason, row.drops_total)).collect()
    }

    /// Packets dropped for one reason.
    pub fn drops_of(&self, reason: &str) -> u64 {
        self.drops().into_iter().find(|(name, _)| name == reason).map_or(0, |(_, packets)| packets)
    }

    /// An operator's command to this daemon.
    pub fn ask(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).arg("--socket").arg(&self.socket).stdin(Stdio::null());
        command
    }

    /// Runs `weiradm`, which must succeed without a word of complaint; its output.
    pub fn weiradm(&self, arguments: &str) -> String {
        let words: Vec<String> = arguments.split_whitespace().map(str::to_owned).collect();
        let (mut output, mut errors) = (Vec::new(), Vec::new());
        let mut console = Console { input: &mut io::empty(), output: &mut output, errors: &mut errors };
        let connect = || SocketTransport::connect(&self.socket);
        let status = weiradm::run("weiradm", &words, &SystemNames, &mut console, connect);
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).expect("weiradm prints text");
        assert_eq!(
            (status.expect("memory can be written to"), text(errors).as_str()),
            (0, ""),
            "{arguments}"
        );
        text(output)
    }

    fn json<T: DeserializeOwned>(&self, args: &[&str]) -> T {
        let output = self.ask(args).arg("--json").output().expect("weir runs");
        assert!(output.status.success(), "weir {args:?}: {}\n{}", text_of(&output), self.log());
        serde_json::from_slice(&output.stdout)
            .unwrap_or_else(|error| panic!("weir {args:?} --json: {error}: {}", text_of(&output)))
    }
}

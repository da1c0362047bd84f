//! The daemon under test: started in the balancer's namespace, configured by file, asked over its socket.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus, Stdio};
use std::time::{Duration, SystemTime};

use control::api::rows::{
    CounterFields, DaemonRow, DestRow, DropRow, ListRow, PortRow, ServiceRow, StatusRow,
};
use rustix::process::Signal;
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
}

/// How a daemon ended.
#[derive(Debug)]
pub struct Ended {
    /// Exit status.
    pub status: ExitStatus,
    /// Its log.
    pub log: String,
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
        let process = Process::start("weir", &mut command);
        Daemon { process, config, log, socket: net.dir().join("weir.sock") }
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
        let before = self.status().0.revision;
        fs::write(&self.config, configuration).expect("a directory of our own");
        self.process.signal(Signal::HUP);
        wait_for("the reload is in force", Duration::from_secs(5), || {
            (self.status().0.revision > before).then_some(())
        });
    }

    /// Ends it with SIGTERM.
    pub fn stop(self) -> Ended {
        self.process.signal(Signal::TERM);
        self.wait()
    }

    fn wait(mut self) -> Ended {
        let status = self.process.wait(Duration::from_secs(15));
        Ended { status, log: self.log() }
    }

    /// Services with their destinations.
    pub fn list(&self) -> Vec<(ServiceRow, Vec<DestRow>)> {
        let mut services: Vec<(ServiceRow, Vec<DestRow>)> = Vec::new();
        for row in self.rows::<ListRow>(&["list", "--stats", "--json"]) {
            match row {
                ListRow::Head(_) => {}
                ListRow::Service(service) => services.push((service, Vec::new())),
                ListRow::Dest(dest) => services.last_mut().expect("a service comes first").1.push(dest),
            }
        }
        services
    }

    /// Counters of one service and of its destinations, these by address.
    pub fn counters(&self, service: &str) -> (CounterFields, Vec<(String, CounterFields)>) {
        let services = self.list();
        let (row, dests) = services
            .iter()
            .find(|(row, _)| row.service == service)
            .unwrap_or_else(|| panic!("no service {service} in {services:?}"));
        (row.counters, dests.iter().map(|dest| (dest.dest.to_string(), dest.counters)).collect())
    }

    /// Its own figures and those of its ports.
    pub fn status(&self) -> (DaemonRow, Vec<PortRow>) {
        let rows = self.rows::<StatusRow>(&["status", "--json"]);
        let daemon = rows.iter().find_map(|row| match row {
            StatusRow::Daemon(daemon) => Some(daemon.clone()),
            _ => None,
        });
        let ports = rows.into_iter().filter_map(|row| match row {
            StatusRow::Port(port) => Some(port),
            _ => None,
        });
        (daemon.expect("status begins with the daemon"), ports.collect())
    }

    /// Drop reasons that have counted anything: name, packets.
    pub fn drops(&self) -> Vec<(String, u64)> {
        let rows = self.rows::<DropRow>(&["drops", "--json"]);
        rows.into_iter().filter(|row| row.drops_total > 0).map(|row| (row.reason, row.drops_total)).collect()
    }

    /// An operator's command to this daemon.
    pub fn ask(&self, args: &[&str]) -> Command {
        let mut command = Command::new(binary());
        command.args(args).arg("--socket").arg(&self.socket).stdin(Stdio::null());
        command
    }

    fn rows<T: DeserializeOwned>(&self, args: &[&str]) -> Vec<T> {
        let output = self.ask(args).output().expect("weir runs");
        assert!(output.status.success(), "weir {args:?}: {}\n{}", text_of(&output), self.log());
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!("weir {args:?} printed no array of rows: {error}: {}", text_of(&output))
        })
    }
}

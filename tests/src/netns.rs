//! Test networks in network namespaces: hosts, processes in them, and what crossed the wires.
//!
//! Model: `demo/net.sh` lays the cables (it draws both topologies); a [`Net`] is one such network with a
//! private directory, a [`Host`] one namespace of it. Programs run in a host as child processes, Rust code
//! runs in a host on a thread of its own: a socket stays in the namespace it was made in. Everything ends
//! with the `Net`: processes, namespaces, files; a `Net` whose process was killed is removed by the next one.
//!
//! The balancer runs in `lb` ([`daemon`]), and beside it perhaps [`keepalived`]; servers and clients are [`peers`] and
//! [`load`], [`capture`] reads the wires.

pub mod capture;
pub mod daemon;
pub mod keepalived;
pub mod load;
pub mod peers;

use std::fs::File;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, geteuid, kill_process};
use rustix::thread::{LinkNameSpaceType, move_into_link_name_space};

/// Address of the service, in the client's own network and answered for by the balancer.
pub const VIP: &str = "192.0.2.100";
/// Address of the client.
pub const CLIENT: &str = "192.0.2.10";

/// How balancer, client and servers are joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topology {
    /// The balancer stands between the client's network and the servers'.
    Nat,
    /// All on one network; servers answer the client directly.
    Dr,
}

/// One network, removed when dropped. Only one exists at a time in a process.
pub struct Net {
    prefix: String,
    topology: Topology,
    dir: tempfile::TempDir,
    _alone: MutexGuard<'static, ()>,
}

impl Net {
    /// Makes the network. Without root it prints why the test is skipped and returns `None`; where nothing
    /// may be skipped (environment variable `CI=true`) it panics instead.
    pub fn up(topology: Topology) -> Option<Net> {
        static ALONE: Mutex<()> = Mutex::new(());
        if !geteuid().is_root() {
            let reason = "network namespaces need root";
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "nothing may be skipped here, and {reason}"
            );
            eprintln!("SKIPPED: {reason}");
            return None;
        }
        let alone = ALONE.lock().unwrap_or_else(PoisonError::into_inner);
        let prefix = format!("weir-{}", std::process::id());
        net_sh(&["sweep"]);
        net_sh(&["down", &prefix]);
        let dir = tempfile::Builder::new().prefix("weir-").tempdir().expect("a temporary directory");
        let net = Net { prefix, topology, dir, _alone: alone };
        net_sh(&["up", &net.prefix, if topology == Topology::Nat { "nat" } else { "dr" }]);
        Some(net)
    }

    /// Host of the clients.
    pub fn client(&self) -> Host {
        self.host("client")
    }

    /// Host of the balancer.
    pub fn lb(&self) -> Host {
        self.host("lb")
    }

    /// Host of the switch: a bridge whose port towards a host has that host's name.
    pub fn switch(&self) -> Host {
        self.host("switch")
    }

    /// Host of server 1 or 2.
    pub fn server(&self, number: usize) -> Host {
        self.host(&format!("rs{number}"))
    }

    /// Address of server 1 or 2.
    pub fn server_address(&self, number: usize) -> String {
        let network = if self.topology == Topology::Nat { "10.0.0" } else { "192.0.2" };
        format!("{network}.{}", 10 + number)
    }

    /// Directory for sockets, logs and captures.
    pub fn dir(&self) -> &Path {
        self.dir.path()
    }

    fn host(&self, name: &str) -> Host {
        Host { namespace: format!("{}-{name}", self.prefix) }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        net_sh(&["down", &self.prefix]);
    }
}

/// One namespace of a [`Net`].
#[derive(Clone, Debug)]
pub struct Host {
    namespace: String,
}

impl Host {
    /// Runs `work` on a thread inside the namespace and returns what it returned. Sockets made there stay
    /// there, and so do threads started from it.
    pub fn run<T: Send>(&self, work: impl FnOnce() -> T + Send) -> T {
        let entry = || {
            let namespace = File::open(self.path()).expect("the namespace exists while its Net does");
            move_into_link_name_space(namespace.as_fd(), Some(LinkNameSpaceType::Network))
                .expect("root may enter a network namespace");
            work()
        };
        match thread::scope(|scope| scope.spawn(entry).join()) {
            Ok(value) => value,
            Err(panic) => std::panic::resume_unwind(panic),
        }
    }

    /// A command that will run inside the namespace, with the process id of the program itself.
    pub fn command(&self, program: impl AsRef<std::ffi::OsStr>) -> Command {
        let mut command = Command::new("ip");
        command.args(["netns", "exec", &self.namespace]).arg(program).stdin(Stdio::null());
        command
    }

    /// Runs a program to its end, which must be a success; returns its standard output.
    pub fn output(&self, program: &str, args: &[&str]) -> String {
        let output = self.command(program).args(args).output().expect("ip runs");
        assert!(output.status.success(), "{program} {args:?} failed: {}", text_of(&output));
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    /// A figure of one of its links as its kernel counts it, by the name in `/sys/class/net/*/statistics`.
    pub fn link_figure(&self, device: &str, name: &str) -> u64 {
        let file = format!("/sys/class/net/{device}/statistics/{name}");
        self.output("cat", &[&file]).trim().parse().expect("a statistics file holds a number")
    }

    fn path(&self) -> PathBuf {
        Path::new("/run/netns").join(&self.namespace)
    }
}

/// A child process that is killed when dropped.
#[derive(Debug)]
pub struct Process {
    child: Child,
    name: String,
}

impl Process {
    /// Starts a command; `name` is for messages.
    pub fn start(name: &str, command: &mut Command) -> Process {
        let child = command.spawn().unwrap_or_else(|error| panic!("{name} does not start: {error}"));
        Process { child, name: name.to_owned() }
    }

    /// Its process id.
    pub fn id(&self) -> u32 {
        self.child.id()
    }

    /// Its exit status once it has ended.
    pub fn ended(&mut self) -> Option<ExitStatus> {
        self.child.try_wait().expect("a child can be waited for")
    }

    /// Sends a signal.
    pub fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("a child that was not waited for exists");
    }

    /// Waits for the end.
    ///
    /// # Panics
    /// When it has not ended in time.
    pub fn wait(&mut self, limit: Duration) -> ExitStatus {
        let name = self.name.clone();
        wait_for(&format!("{name} ends"), limit, || self.ended())
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended by itself: then there is nothing to kill, and wait only collects it.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Calls `probe` every 20 ms until it yields a value.
///
/// # Panics
/// After `limit`, naming what was waited for.
pub fn wait_for<T>(what: &str, limit: Duration, mut probe: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(value) = probe() {
            return value;
        }
        assert!(start.elapsed() < limit, "not within {limit:?}: {what}");
        thread::sleep(Duration::from_millis(20));
    }
}

/// Both outputs of a program, for messages.
pub fn text_of(output: &Output) -> String {
    format!(
        "{}\n{}{}",
        output.status,
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    )
}

fn net_sh(args: &[&str]) {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("demo/net.sh");
    let output = Command::new(script).args(args).stdin(Stdio::null()).output().expect("net.sh runs");
    assert!(output.status.success(), "net.sh {args:?}: {}", text_of(&output));
}

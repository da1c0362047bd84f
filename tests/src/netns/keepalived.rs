//! keepalived as the distribution has it, in the balancer's host under `weir exec`.
//!
//! Its health checks go through the kernel, which therefore has an address of its own on the balancer's link towards the
//! servers; packets between that address and the servers are the kernel's, not the balancer's.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use rustix::process::Signal;

use super::daemon::binary;
use super::{Net, Process, wait_for};

/// Address of the balancer's kernel in the servers' network.
pub const CHECKER: &str = "10.0.0.253";
const PROGRAM: &str = "/usr/sbin/keepalived";

/// A running keepalived.
#[derive(Debug)]
pub struct Keepalived {
    process: Process,
    config: PathBuf,
    log: PathBuf,
    checker: PathBuf,
}

impl Keepalived {
    /// Whether it is installed. Says so if not; where nothing may be skipped (environment variable `CI=true`) it
    /// panics instead.
    pub fn is_installed() -> bool {
        let installed = Path::new(PROGRAM).exists();
        if !installed {
            let reason = "keepalived is not installed";
            assert!(
                std::env::var("CI").as_deref() != Ok("true"),
                "nothing may be skipped here, and {reason}"
            );
            eprintln!("SKIPPED: {reason}");
        }
        installed
    }

    /// Gives the balancer's kernel its address, starts keepalived, and waits until it has sent its services.
    pub fn start(net: &Net, configuration: &str) -> Keepalived {
        let lb = net.lb();
        lb.output("ip", &["address", "replace", &format!("{CHECKER}/24"), "dev", "lan"]);
        let file = |suffix: &str| net.dir().join(format!("keepalived{suffix}"));
        let (config, log, checker) = (file(".conf"), file(".log"), file("-checkers.pid"));
        fs::write(&config, configuration).expect("a directory of our own");
        let mut command = lb.command(binary());
        command.arg("exec").arg("--socket").arg(net.dir().join("weir.sock")).arg("--").arg(PROGRAM);
        command.args(["--dont-fork", "--log-console", "--log-detail", "--no-syslog", "-f"]).arg(&config);
        command.arg("-p").arg(file(".pid")).arg("-c").arg(&checker).arg("-r").arg(file("-vrrp.pid"));
        command.stdout(Stdio::null()).stderr(File::create(&log).expect("a directory of our own"));
        let process = Process::start("keepalived", &mut command);
        let keepalived = Keepalived { process, config, log, checker };
        keepalived.await_log("Startup complete");
        keepalived
    }

    /// Waits until its log has the word.
    pub fn await_log(&self, word: &str) {
        let what = format!("keepalived logs {word:?}");
        wait_for(&what, Duration::from_secs(10), || self.log().contains(word).then_some(()));
    }

    /// Gives it another configuration.
    pub fn reload(&self, configuration: &str) {
        fs::write(&self.config, configuration).expect("a directory of our own");
        self.process.signal(Signal::HUP);
    }

    /// Everything it logged so far.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }

    /// Processor time of its checker so far, in ticks of 10 ms.
    pub fn checker_ticks(&self) -> u64 {
        let pid = fs::read_to_string(&self.checker).expect("a checker runs");
        let stat = fs::read_to_string(format!("/proc/{}/stat", pid.trim())).expect("a checker runs");
        // proc(5): fields 14 and 15 are user and system time; field 2, in brackets, may hold blanks.
        let fields = stat.rsplit(')').next().unwrap_or_default().split_whitespace().skip(11).take(2);
        fields.map(|field| field.parse::<u64>().expect("a number of ticks")).sum()
    }

    /// Ends it with SIGTERM, as a service manager does, and returns its log.
    pub fn stop(mut self) -> String {
        self.process.signal(Signal::TERM);
        let status = self.process.wait(Duration::from_secs(10));
        assert!(status.success(), "keepalived ended with {status}:\n{}", self.log());
        self.log()
    }
}

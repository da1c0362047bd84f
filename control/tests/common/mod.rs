//! A running daemon on null ports in a directory of its own, for tests of what happens on its socket.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use control::api::client::Client;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// A running daemon; killed if the test leaves it.
pub struct Site {
    dir: tempfile::TempDir,
    child: Child,
}

impl Site {
    /// Starts a daemon with these lines in `[daemon]` and these tables besides, and waits until it answers.
    /// Everybody may reach into its directory.
    pub fn start(daemon: &str, tables: &str) -> Site {
        let dir = tempfile::tempdir().unwrap();
        fs::set_permissions(dir.path(), std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
        let file = dir.path().join("weir.toml");
        fs::write(&file, config(dir.path(), daemon, tables)).unwrap();
        Site::start_in(dir)
    }

    /// Starts a daemon anew in the directory that [`Site::stop`] left.
    pub fn start_in(dir: tempfile::TempDir) -> Site {
        let file = dir.path().join("weir.toml");
        let log = fs::File::create(dir.path().join("weir.log")).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--config"]).arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(log);
        let site = Site { dir, child: command.spawn().unwrap() };
        let begun = Instant::now();
        while Client::connect(&site.socket()).is_err() {
            assert!(begun.elapsed() < Duration::from_secs(20), "no daemon listens: {}", site.log());
            std::thread::sleep(Duration::from_millis(20));
        }
        site
    }

    /// Path of the control socket.
    pub fn socket(&self) -> PathBuf {
        self.dir.path().join("run/weir.sock")
    }

    /// What the daemon logged.
    pub fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("weir.log")).unwrap()
    }

    /// Runs one of our programs against the daemon.
    pub fn ask(&self, program: &str, arguments: &[&str]) -> Output {
        let mut command = Command::new(program);
        command.args(arguments).env("WEIR_SOCKET", self.socket()).stdin(Stdio::null());
        command.output().unwrap()
    }

    /// The daemon's status.
    pub fn status(&self) -> Value {
        let output = self.ask(env!("CARGO_BIN_EXE_weir"), &["status", "--json"]);
        assert!(output.status.success(), "{output:?}");
        serde_json::from_slice(&output.stdout).unwrap()
    }

    /// Stops the daemon, which has to end well; its directory.
    pub fn stop(mut self) -> tempfile::TempDir {
        kill_process(Pid::from_child(&self.child), Signal::TERM).unwrap();
        assert_eq!(self.child.wait().unwrap().code(), Some(0), "{}", self.log());
        let log = self.log();
        assert!(!log.contains("ERROR") && !log.contains("panicked"), "{log}");
        std::mem::replace(&mut self.dir, tempfile::tempdir().unwrap())
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn config(dir: &Path, daemon: &str, tables: &str) -> String {
    format!(
        "[daemon]\nsocket = \"{dir}/run/weir.sock\"\nstate_dir = \"{dir}/state\"\n{daemon}\n\
         [eal]\npages = \"normal\"\nmemory_mb = 96\n[workers]\nmode = \"shared\"\n\
         [[port]]\nname = \"wan\"\ndevice = \"net_null0,no-rx=1\"\naddresses = [\"192.0.2.1/24\"]\n\
         [[port]]\nname = \"lan\"\ndevice = \"net_null1,no-rx=1\"\naddresses = [\"10.9.0.254/24\"]\n{tables}",
        dir = dir.display()
    )
}

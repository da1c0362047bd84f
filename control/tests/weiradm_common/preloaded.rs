//! Programs as they are, with our library preloaded by `weir exec`.

use std::ffi::OsString;
use std::io::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::program::Outcome;

/// Debian's ipvsadm 1.31.
const IPVSADM: &str = "/usr/sbin/ipvsadm";

/// Runs programs towards the server on one socket.
pub struct Preloaded {
    preload: OsString,
    socket: PathBuf,
}

impl Preloaded {
    /// What `weir exec` sets up; `None`, said aloud, where ipvsadm is not installed.
    pub fn new(socket: &Path) -> Option<Preloaded> {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["exec", "--", "printenv", "LD_PRELOAD"]).env_remove("LD_PRELOAD");
        let output = command.output().unwrap();
        assert!(output.status.success(), "{output:?}");
        let preload = String::from_utf8(output.stdout).unwrap().trim_end().into();
        if !Path::new(IPVSADM).exists() {
            assert!(std::env::var_os("CI").is_none(), "ipvsadm is not installed");
            println!("skipped: ipvsadm is not installed");
            return None;
        }
        Some(Preloaded { preload, socket: socket.to_owned() })
    }

    /// The program with its arguments and environment, to be started.
    pub fn command(&self, program: &str, arguments: &str) -> Command {
        let mut command = Command::new(if program == "ipvsadm" { IPVSADM } else { program });
        command.arg0(program).args(arguments.split_whitespace());
        command.env("LD_PRELOAD", &self.preload).env("WEIR_SOCKET", &self.socket);
        command
    }

    /// Runs the program with this input.
    pub fn run(&self, program: &str, arguments: &str, input: &str) -> Outcome {
        let mut command = self.command(program, arguments);
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        Outcome {
            stdout: text(output.stdout),
            stderr: text(output.stderr),
            exit: u8::try_from(output.status.code().unwrap_or(-1)).unwrap_or(u8::MAX),
        }
    }
}

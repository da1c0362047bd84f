//! Debian's ipvsadm, as it is, under `weir exec`: against a running daemon on null ports it does what `weiradm` does;
//! nothing of it reaches the kernel, also without a daemon; a daemon that dies is an error, not a wait.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};

const IPVSADM: &str = "/usr/sbin/ipvsadm";

/// Commands in this order, with what they read.
const COMMANDS: &[(&str, &str)] = &[
    ("-L -n", ""),
    ("-A -t 192.0.2.100:80 -s wrr", ""),
    ("-A -t 192.0.2.100:80 -s wrr", ""),
    ("-A -u 192.0.2.100:53 -s rr -p 120", ""),
    ("-A -f 7 -s mh -b mh-port", ""),
    ("-A -t [2001:db8::1]:443 -s wlc", ""),
    ("-a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 3", ""),
    ("-a -t 192.0.2.100:80 -r 10.9.0.12:8080 -m -x 100 -y 50", ""),
    ("-a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m", ""),
    ("-a -t 192.0.2.101:80 -r 10.9.0.11:8080 -m", ""),
    ("-a -u 192.0.2.100:53 -r 10.9.0.13 -g", ""),
    ("-a -t [2001:db8::1]:443 -r [2001:db8::2]:443 -i", ""),
    ("-e -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 9", ""),
    ("-E -t 192.0.2.100:80 -s rr", ""),
    ("-L -n", ""),
    ("-L -n --stats", ""),
    ("-L -n --stats --exact", ""),
    ("-L -n --rate", ""),
    ("-L -n --thresholds", ""),
    ("-L -n -t 192.0.2.100:80", ""),
    ("-L -n -t 192.0.2.101:80", ""),
    ("-S -n", ""),
    ("--set 600 60 30", ""),
    ("-L --timeout", ""),
    ("--start-daemon master --mcast-interface eth0 --syncid 5", ""),
    ("-L --daemon", ""),
    ("--stop-daemon master", ""),
    ("--stop-daemon master", ""),
    ("-d -t 192.0.2.100:80 -r 10.9.0.12:8080", ""),
    ("-d -t 192.0.2.100:80 -r 10.9.0.12:8080", ""),
    ("-D -f 7", ""),
    ("-Z", ""),
    ("-S -n", ""),
    ("-C", ""),
    ("-R", "-A -t 192.0.2.102:80 -s lc\n-a -t 192.0.2.102:80 -r 10.9.0.11:80 -m -w 1\n"),
    ("-A -t 192.0.2.103:80 -s nonesuch", ""),
    ("-S -n", ""),
    ("-C", ""),
    ("--set 900 120 300", ""),
    ("-L -n", ""),
];

#[test]
fn eal_exec_unmodified_ipvsadm_drives_the_daemon() {
    if !Path::new(IPVSADM).exists() {
        assert!(std::env::var_os("CI").is_none(), "ipvsadm is not installed");
        return println!("skipped: ipvsadm is not installed");
    }
    let mut site = Site::start();
    let run = |program: &str| -> Vec<_> {
        COMMANDS.iter().map(|(arguments, input)| (*arguments, site.run(program, arguments, input))).collect()
    };
    let (theirs, ours) = (run(IPVSADM), run("weiradm"));
    for (theirs, ours) in theirs.iter().zip(&ours) {
        assert_eq!(theirs, ours);
    }
    assert!(theirs.iter().filter(|(_, (exit, ..))| *exit == Some(0)).count() > 30, "{theirs:?}");

    let live = site.traced("-A -t 192.0.2.100:80 -s wrr");
    site.daemon.kill().unwrap();
    site.daemon.wait().unwrap();
    let (exit, _, errors) = site.run(IPVSADM, "-L -n", "");
    assert_eq!(exit, Some(2));
    assert!(errors.starts_with("Can't initialize ipvs: Protocol not available\n"), "{errors}");
    let down = site.traced("-L -n");
    for calls in [live, down].into_iter().flatten() {
        nothing_for_the_kernel(&calls);
    }
}

/// What `strace` saw: sends to the daemon or to nobody, none on a netlink socket; no old socket option;
/// no modprobe.
fn nothing_for_the_kernel(calls: &str) {
    assert!(calls.contains("NETLINK_GENERIC") && calls.contains("weir.sock"), "not traced: {calls}");
    for line in calls.lines() {
        let sends =
            ["sendto(", "sendmsg(", "sendmmsg(", "write(", "writev("].iter().any(|c| line.contains(c));
        assert!(!(sends && line.contains("<NETLINK:")), "{line}");
        assert!(!line.contains("SOL_IP,"), "{line}");
        assert!(!(line.contains("execve(") && line.contains("modprobe")), "{line}");
    }
}

#[test]
fn a_daemon_that_dies_in_an_exchange_is_an_error() {
    if !Path::new(IPVSADM).exists() {
        return println!("skipped: ipvsadm is not installed");
    }
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("weir.sock");
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(&path).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    // A program that asks nobody here would leave the next line waiting.
    set_socket_timeout(&listener, Timeout::Recv, Some(Duration::from_secs(10))).unwrap();
    let mut child = exec(&path, IPVSADM, "-L -n").spawn().unwrap();
    let peer = rustix::net::accept(&listener).unwrap();
    let (_, length) = rustix::net::recv(&peer, &mut [0_u8; 64][..], RecvFlags::empty()).unwrap();
    assert_eq!(length, 32, "the question for the family");
    drop((peer, listener));
    let begun = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().unwrap() {
            break status;
        }
        if begun.elapsed() > Duration::from_secs(10) {
            child.kill().unwrap();
            panic!("it waits for ever");
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(2));
}

#[test]
fn exec_ends_as_the_program_does() {
    let weir = |arguments: &[&str]| {
        let output = Command::new(env!("CARGO_BIN_EXE_weir")).args(arguments).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let (exit, out, _) =
        weir(&["exec", "--socket", "/x/y", "--", "sh", "-c", "echo $WEIR_SOCKET $LD_PRELOAD; exit 7"]);
    assert_eq!(exit, Some(7));
    assert!(out.starts_with("/x/y /") && out.ends_with("/libweir_ipvs.so\n"), "{out}");
    assert_eq!(weir(&["exec", "printf", "%s", "-n"]), (Some(0), "-n".to_owned(), String::new()));
    let (exit, _, errors) = weir(&["exec", "--", "no-such-program-anywhere"]);
    assert_eq!(
        (exit, errors.lines().next()),
        (Some(3), Some("weir: no-such-program-anywhere: no such program on the PATH"))
    );
    assert_eq!(weir(&["exec"]).0, Some(2));
}

/// A daemon in a directory of its own; killed if the test leaves it.
struct Site {
    dir: tempfile::TempDir,
    daemon: Child,
}

impl Site {
    fn start() -> Site {
        let dir = tempfile::tempdir().unwrap();
        let at = dir.path().display();
        let config = format!(
            "[daemon]\nsocket = \"{at}/run/weir.sock\"\nstate_dir = \"{at}/state\"\n\
             [eal]\npages = \"normal\"\nmemory_mb = 96\n[workers]\nmode = \"shared\"\n[connections]\nmax = 4096\n\
             [[port]]\nname = \"eth0\"\ndevice = \"net_null0,no-rx=1\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[port]]\nname = \"eth1\"\ndevice = \"net_null1,no-rx=1\"\naddresses = [\"10.9.0.254/24\"]\n"
        );
        fs::write(dir.path().join("weir.toml"), config).unwrap();
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command.args(["run", "--config"]).arg(dir.path().join("weir.toml")).stdout(Stdio::null());
        let log = fs::File::create(dir.path().join("weir.log")).unwrap();
        let site = Site { daemon: command.stderr(log).spawn().unwrap(), dir };
        let begun = Instant::now();
        while site.run("weiradm", "-L -n", "").0 != Some(0) {
            let log = fs::read_to_string(site.dir.path().join("weir.log")).unwrap();
            assert!(begun.elapsed() < Duration::from_secs(20), "the daemon does not listen: {log}");
            std::thread::sleep(Duration::from_millis(20));
        }
        site
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/weir.sock")
    }

    /// Exit status, output, errors of `weiradm`, or of a program under `weir exec`.
    fn run(&self, program: &str, arguments: &str, input: &str) -> (Option<i32>, String, String) {
        let mut command = match program {
            "weiradm" => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_weiradm"));
                command.args(arguments.split_whitespace()).env("WEIR_SOCKET", self.socket());
                command
            }
            program => exec(&self.socket(), program, arguments),
        };
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// System calls of ipvsadm and its children; `None` where nobody may trace.
    fn traced(&self, arguments: &str) -> Option<String> {
        let file = self.dir.path().join("calls");
        let plain = exec(&self.socket(), IPVSADM, arguments);
        let mut command = Command::new("strace");
        command.args(["-f", "-yy", "-e", "trace=network,write,writev,execve", "-o"]).arg(&file);
        command.arg(plain.get_program()).args(plain.get_args());
        command.env("WEIR_SOCKET", self.socket()).stdout(Stdio::null()).stderr(Stdio::null());
        let started = command.status().is_ok();
        let calls = fs::read_to_string(file).unwrap_or_default();
        if !started || !calls.contains("execve(") {
            assert!(std::env::var_os("CI").is_none(), "strace does not work here");
            println!("skipped: strace does not work here");
            return None;
        }
        Some(calls)
    }
}

impl Drop for Site {
    fn drop(&mut self) {
        let _ = self.daemon.kill();
        let _ = self.daemon.wait();
    }
}

/// The program under `weir exec`.
fn exec(socket: &Path, program: &str, arguments: &str) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
    command.args(["exec", "--", program]).args(arguments.split_whitespace()).env("WEIR_SOCKET", socket);
    command
}

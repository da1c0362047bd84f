//! Debian's programs, as they are, under `weir exec`, against a running daemon on null ports: ipvsadm does what `weiradm`
//! does, over netlink and over the old socket options; sysctl, cat and a shell use the kernel's files; nothing of it
//! reaches the kernel, also without a daemon; a daemon that dies is an error, not a wait.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SocketAddrUnix, SocketFlags, SocketType};
use serde_json::Value;

const IPVSADM: &str = "/usr/sbin/ipvsadm";
const SYSCTL: &str = "/usr/sbin/sysctl";

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

    the_old_options_do_the_same(&site);
    files_of_the_kernel_are_the_daemons(&site);
    let live = traced_programs(&site);
    site.daemon.kill().unwrap();
    site.daemon.wait().unwrap();
    let (exit, _, errors) = site.run(IPVSADM, "-L -n", "");
    assert_eq!(exit, Some(2));
    assert!(errors.starts_with("Can't initialize ipvs: Protocol not available\n"), "{errors}");
    let (exit, _, errors) = site.run("cat", "/proc/net/ip_vs", "");
    assert_eq!((exit, errors.as_str()), (Some(1), "cat: /proc/net/ip_vs: No such file or directory\n"));
    let down = traced_programs(&site);
    for calls in live.into_iter().chain(down) {
        nothing_for_the_kernel(&calls);
    }
}

/// Commands that the old options have words for.
const OLD_COMMANDS: &[&str] = &[
    "-L -n",
    "-A -t 192.0.2.100:80 -s wrr",
    "-A -t 192.0.2.100:80 -s wrr",
    "-A -u 192.0.2.100:53 -s rr -p 120",
    "-A -f 7 -s mh -b mh-port",
    "-a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 3",
    "-a -t 192.0.2.100:80 -r 10.9.0.12:8080 -m -x 100 -y 50",
    "-a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m",
    "-a -t 192.0.2.101:80 -r 10.9.0.11:8080 -m",
    "-a -f 7 -r 10.9.0.13 -g",
    "-e -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 9",
    "-e -t 192.0.2.100:80 -r 10.9.0.19:8080 -m -w 9",
    "-E -t 192.0.2.100:80 -s rr",
    "-L -n",
    "-L -n --stats",
    "-L -n --rate",
    "-L -n --thresholds",
    "-L -n -t 192.0.2.100:80",
    "-L -n -t 192.0.2.101:80",
    "-S -n",
    "--set 600 60 30",
    "-L --timeout",
    "-d -t 192.0.2.100:80 -r 10.9.0.12:8080",
    "-d -t 192.0.2.100:80 -r 10.9.0.12:8080",
    "-D -f 7",
    "-D -f 7",
    "-Z",
    "-A -t 192.0.2.103:80 -s nonesuch",
    "-S -n",
    "-C",
    "--set 900 120 300",
    "-L -n",
];

/// Without netlink ipvsadm goes by `getsockopt` and `setsockopt`, and ends the same.
fn the_old_options_do_the_same(site: &Site) {
    let run = |environment: &[(&str, &str)]| -> Vec<_> {
        let run = |arguments: &&'static str| (*arguments, site.run_with(IPVSADM, arguments, "", environment));
        OLD_COMMANDS.iter().map(run).collect()
    };
    let (netlink, options) = (run(&[]), run(&[("WEIR_NO_NETLINK", "1")]));
    for (netlink, options) in netlink.iter().zip(&options) {
        assert_eq!(netlink, options);
    }
    let failed = options.iter().filter(|(_, (exit, ..))| *exit != Some(0)).count();
    assert_eq!(failed, 8, "{options:?}");
}

/// Texts and knobs by their kernel names, read and written by programs that know of nothing else.
fn files_of_the_kernel_are_the_daemons(site: &Site) {
    site.run("weiradm", "-R", "-A -t 192.0.2.100:80 -s rr\n-a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 1\n");
    let weir = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        let output = command.args(arguments).env("WEIR_SOCKET", site.socket()).output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    for name in control::show::proc::NAMES {
        let ours = weir(&["proc", name]);
        assert_eq!((ours.0, &ours.2[..]), (Some(0), ""), "{name}");
        assert_eq!(site.run("cat", &format!("/proc/net/{name}"), ""), ours, "{name}");
    }
    let services = weir(&["proc", "ip_vs"]).1;
    let entry = "TCP  C0000264:0050 rr  \n  -> 0A09000B:1F90      Masq    1      0          0         \n";
    assert!(services.ends_with(entry), "{services}");

    let reads = |knob: &str| site.run("cat", &format!("/proc/sys/net/ipv4/vs/{knob}"), "").1;
    assert_eq!((reads("conn_reuse_mode"), reads("sync_threshold")), ("1\n".to_owned(), "3\t50\n".to_owned()));
    assert_eq!(weir(&["sysctl", "sloppy_tcp=1"]).1, "net.ipv4.vs.sloppy_tcp = 1\n");
    assert_eq!(reads("sloppy_tcp"), "1\n");
    if Path::new(SYSCTL).exists() {
        let set = |value: &str| site.run(SYSCTL, &format!("-w net.ipv4.vs.{value}"), "");
        assert_eq!(set("drop_packet=2").0, Some(0));
        assert_eq!(reads("drop_packet"), "1\n", "automatic, and there is memory");
        assert_eq!(set("drop_packet=3").0, Some(0));
        assert_eq!(reads("drop_packet"), "3\n");
        let (exit, _, errors) = set("drop_packet=4");
        assert!(exit != Some(0) && errors.contains("Invalid argument"), "{exit:?} {errors}");
        assert_eq!((set("est_cpulist=99999").0, set("nonesuch=1").0), (Some(1), Some(1)));
        assert_eq!(weir(&["sysctl", "drop_packet"]).1, "net.ipv4.vs.drop_packet = 3\n");
    } else {
        assert!(std::env::var_os("CI").is_none(), "sysctl is not installed");
    }
    // A shell's own write: nobody waits for the daemon.
    let mut shell = exec(&site.socket(), "sh", "-c");
    shell.arg("echo 3 > /proc/sys/net/ipv4/vs/secure_tcp");
    assert!(shell.status().unwrap().success());
    let begun = Instant::now();
    while reads("secure_tcp") != "3\n" {
        assert!(begun.elapsed() < Duration::from_secs(10), "the value does not arrive");
    }
    let refused = weir(&["sysctl", "net.ipv4.vs.secure_tcp=9"]);
    assert_eq!(
        (refused.0, refused.2.as_str()),
        (
            Some(1),
            "weir: the daemon refused: net.ipv4.vs.secure_tcp: \"9\" refused: Invalid argument (os error 22); expected an \
             integer from 0 to 3\n"
        )
    );
    assert_eq!(weir(&["sysctl", "nonesuch"]).0, Some(1));
    weir(&["sysctl", "conntrack=1"]);
    let status = weir(&["status"]).1;
    assert!(status.contains("sysctl.conntrack = 1"), "{status}");
    let all: Value = serde_json::from_str(&weir(&["sysctl", "--json"]).1).unwrap();
    let knobs = all["knobs"].as_array().unwrap();
    let drop_packet = knobs.iter().find(|knob| knob["name"] == "drop_packet").unwrap();
    assert_eq!((&drop_packet["value"], &drop_packet["in_effect"]), (&"3".into(), &true.into()));
    for knob in ["sloppy_tcp=0", "drop_packet=0", "secure_tcp=0", "conntrack=0"] {
        assert_eq!(weir(&["sysctl", knob]).0, Some(0));
    }
    site.run("weiradm", "-C", "");
}

/// System calls of programs that use each of the ways to IPVS.
fn traced_programs(site: &Site) -> Vec<String> {
    let no_netlink = [("WEIR_NO_NETLINK", "1")];
    [
        site.traced(IPVSADM, "-A -t 192.0.2.100:80 -s wrr", &[]),
        site.traced(IPVSADM, "-L -n", &no_netlink),
        site.traced(IPVSADM, "-A -t 192.0.2.101:80 -s wrr", &no_netlink),
        site.traced(IPVSADM, "-L -n -c", &[]),
        site.traced("cat", "/proc/net/ip_vs /proc/self/net/ip_vs_stats /proc/sys/net/ipv4/vs/conntrack", &[]),
        site.traced(SYSCTL, "-w net.ipv4.vs.conntrack=0", &[]),
    ]
    .into_iter()
    .flatten()
    .collect()
}

/// What `strace` saw: sends to the daemon or to nobody, none on a netlink socket; no old socket option; no file of the
/// kernel's IPVS; no modprobe.
fn nothing_for_the_kernel(calls: &str) {
    assert!(calls.contains("weir.sock"), "not traced: {calls}");
    for line in calls.lines() {
        let sends =
            ["sendto(", "sendmsg(", "sendmmsg(", "write(", "writev("].iter().any(|c| line.contains(c));
        assert!(!(sends && line.contains("<NETLINK:")), "{line}");
        assert!(!line.contains("SOL_IP,"), "{line}");
        let names = ["open(", "openat(", "openat2(", "access(", "faccessat", "stat(", "statx(", "fstatat("];
        let kernels = ["\"/proc/net/ip_vs", "/net/ip_vs", "/proc/sys/net/ipv4/vs/"];
        let named = names.iter().any(|c| line.contains(c)) && kernels.iter().any(|file| line.contains(file));
        assert!(!named, "{line}");
        assert!(!(line.contains("execve(") && line.contains("modprobe")), "{line}");
    }
}

#[test]
fn what_goes_to_the_kernel_would_be_seen() {
    for call in [
        "sendmsg(3<NETLINK:[GENERIC:77]>, {msg_name={sa_family=AF_NETLINK}}, 0) = 32",
        "setsockopt(4<RAW:[5]>, SOL_IP, 0x482, \"\\6\", 44) = 0",
        "openat(AT_FDCWD</>, \"/proc/net/ip_vs_conn\", O_RDONLY) = 3",
        "newfstatat(AT_FDCWD</>, \"/proc/sys/net/ipv4/vs/conntrack\", 0x7ff, 0) = 0",
        "execve(\"/sbin/modprobe\", [\"modprobe\", \"--\", \"ip_vs\"], 0x7f) = 0",
    ] {
        let seen = std::panic::catch_unwind(|| nothing_for_the_kernel(&format!("weir.sock\n{call}\n")));
        assert!(seen.is_err(), "{call}");
    }
    nothing_for_the_kernel(
        "connect(3, weir.sock)\nexecve(\"/bin/cat\", [\"cat\", \"/proc/net/ip_vs\"], 0) = 0\n",
    );
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
        self.run_with(program, arguments, input, &[])
    }

    /// The same with more in its environment.
    fn run_with(
        &self,
        program: &str,
        arguments: &str,
        input: &str,
        environment: &[(&str, &str)],
    ) -> (Option<i32>, String, String) {
        let mut command = match program {
            "weiradm" => {
                let mut command = Command::new(env!("CARGO_BIN_EXE_weiradm"));
                command.args(arguments.split_whitespace()).env("WEIR_SOCKET", self.socket());
                command
            }
            program => exec(&self.socket(), program, arguments),
        };
        command.envs(environment.iter().copied());
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
        let mut child = command.spawn().unwrap();
        // A program that reads nothing may be gone already.
        let _ = child.stdin.take().unwrap().write_all(input.as_bytes());
        let output = child.wait_with_output().unwrap();
        let text = |bytes| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// System calls of a program and its children; `None` where nobody may trace.
    fn traced(&self, program: &str, arguments: &str, environment: &[(&str, &str)]) -> Option<String> {
        let file = self.dir.path().join("calls");
        let plain = exec(&self.socket(), program, arguments);
        let mut command = Command::new("strace");
        command
            .args(["-f", "-yy", "-e", "trace=network,write,writev,pwrite64,execve,%file", "-o"])
            .arg(&file);
        command.arg(plain.get_program()).args(plain.get_args()).envs(environment.iter().copied());
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

//! What survives: a daemon on null ports is stopped, killed, started again, runs out of disk, and goes back to
//! earlier revisions. Files are taken whole or not at all.
#![forbid(unsafe_code)]

use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::mpsc;
use std::time::{Duration, Instant};

use control::api::codec::Incoming;
use control::ipvs::reply::Reply;
use control::ipvs::request::{Call, Command as Kernel};
use control::ipvs::{
    DestKey, DestOptions, MemoryStore, Method, Rights, Server, ServiceKey, ServiceOptions, Store, Timeouts,
    Tunnel,
};
use control::weiradm::{Client, SocketTransport, Transport};
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;

/// Rounds of the storm in an ordinary run, and when `WEIR_SOAK` is set.
const ROUNDS: usize = 10;
const ROUNDS_SOAK: usize = 100;
/// Datagrams that the storm sends ahead of their answers.
const AHEAD: usize = 16;

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

/// Commands whose effects the file has no form for, or this version does not forward.
const COMMANDS: &[&str] = &[
    "-E -t 192.0.2.100:80 -s wlc",
    "-e -t 192.0.2.100:80 -r 10.0.0.11:8080 -m -w 70 -x 90 -y 20",
    "-A -t 192.0.2.100:443 -s sh -p 100 -M 255.255.255.0 -b sh-port",
    "-a -t 192.0.2.100:443 -r 10.0.0.11:443 -i --tun-type gue --tun-port 6080 -w 2",
    "-A -f 7 -6 -s wrr",
    "-a -f 7 -6 -r [2001:db8::5]:0 -m -w 5",
    "-A -u 192.0.2.100:53 -s lc -o",
    "--set 800 0 200",
    "--start-daemon backup --mcast-interface wan --syncid 3",
];

struct Site {
    dir: tempfile::TempDir,
}

struct Daemon(Child);

impl Drop for Daemon {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

impl Daemon {
    fn end(mut self, signal: Signal) {
        kill_process(Pid::from_child(&self.0), signal).unwrap();
        let status = self.0.wait().unwrap();
        assert_eq!(status.success(), signal == Signal::TERM, "{status}");
    }
}

impl Site {
    fn new() -> Site {
        Site { dir: tempfile::tempdir().unwrap() }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn write(&self, name: &str, text: &str) -> String {
        fs::write(self.path(name), text).unwrap();
        self.path(name).display().to_string()
    }

    fn config(&self, services: &str) -> String {
        format!(
            "[daemon]\nsocket = \"{dir}/run/weir.sock\"\nstate_dir = \"{dir}/state\"\nlog = \"info\"\n\
             [eal]\npages = \"normal\"\nmemory_mb = 96\n[workers]\nmode = \"shared\"\n[connections]\nmax = 4096\n\
             [[port]]\nname = \"wan\"\ndevice = \"net_null0,no-rx=1\"\naddresses = [\"192.0.2.1/24\"]\n\
             [[port]]\nname = \"lan\"\ndevice = \"net_null1,no-rx=1\"\naddresses = [\"10.0.0.254/24\"]\n{services}",
            dir = self.dir.path().display()
        )
    }

    /// Starts a daemon with these services in the file and waits until it listens.
    fn start(&self, services: &str) -> Daemon {
        self.start_by(&mut Command::new(env!("CARGO_BIN_EXE_weir")), services)
    }

    fn start_by(&self, command: &mut Command, services: &str) -> Daemon {
        let file = self.write("weir.toml", &self.config(services));
        let log = fs::OpenOptions::new().create(true).append(true).open(self.path("weir.log")).unwrap();
        let command = command.args(["run", "--config", &file]).stdin(Stdio::null()).stdout(Stdio::null());
        let mut daemon = Daemon(command.stderr(log).spawn().unwrap());
        self.wait_for("the daemon listens", || {
            assert!(daemon.0.try_wait().unwrap().is_none(), "ended at its start: {}", self.log());
            SocketTransport::connect(&self.socket()).is_ok()
        });
        daemon
    }

    fn socket(&self) -> PathBuf {
        self.path("run/weir.sock")
    }

    fn log(&self) -> String {
        fs::read_to_string(self.path("weir.log")).unwrap()
    }

    fn wait_for(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let begun = Instant::now();
        while !is_so() {
            assert!(begun.elapsed() < Duration::from_secs(30), "waited in vain until {what}: {}", self.log());
            std::thread::sleep(Duration::from_millis(5));
        }
    }

    fn run(&self, program: &str, args: &[&str], input: &str) -> Output {
        let mut command = Command::new(program);
        command.args(args).env("WEIR_SOCKET", self.socket()).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(input.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    /// `weir` with these arguments: exit status, stdout, stderr.
    fn weir(&self, args: &[&str], input: &str) -> (i32, String, String) {
        told(self.run(env!("CARGO_BIN_EXE_weir"), args, input))
    }

    fn weiradm(&self, args: &[&str], input: &str) -> (i32, String, String) {
        told(self.run(env!("CARGO_BIN_EXE_weiradm"), args, input))
    }

    fn save(&self) -> String {
        let (status, text, errors) = self.weir(&["save"], "");
        assert_eq!((status, errors.as_str()), (0, ""));
        text
    }

    fn revision(&self) -> u64 {
        let (_, text, _) = self.weir(&["status", "--json"], "");
        serde_json::from_str::<Value>(&text).unwrap()["daemon"]["revision"].as_u64().unwrap()
    }
}

fn told(output: Output) -> (i32, String, String) {
    let text = |bytes| String::from_utf8(bytes).unwrap();
    (output.status.code().unwrap(), text(output.stdout), text(output.stderr))
}

#[test]
fn eal_what_was_set_survives_a_kill_and_a_stop() {
    let site = Site::new();
    let daemon = site.start(SERVICE);
    for command in COMMANDS {
        let args: Vec<_> = command.split(' ').collect();
        assert_eq!(site.weiradm(&args, ""), (0, String::new(), String::new()), "{command}");
    }
    assert_eq!(site.weir(&["sysctl", "conn_reuse_mode=0"], "").0, 0);
    let (saved, revision) = (site.save(), site.revision());
    assert_eq!(revision, COMMANDS.len() as u64 + 1);
    assert!(saved.contains("--set 800 120 200\n") && saved.contains("-w 70 -x 90 -y 20\n"), "{saved}");

    // A second daemon on the same directory is told so.
    let other = site.config("").replace("run/weir.sock", "run/other.sock");
    let other = site.write("other.toml", &other);
    let (status, _, errors) = site.weir(&["run", "--config", &other], "");
    assert!(status == 3 && errors.contains("another weir keeps its state there"), "{errors}");

    let mut daemon = daemon;
    for signal in [Signal::KILL, Signal::TERM] {
        daemon.end(signal);
        daemon = site.start(SERVICE);
        assert_eq!(site.save(), saved, "after {signal:?}");
        assert_eq!(site.revision(), revision);
    }
    daemon.end(Signal::KILL);

    // A line of the file that changed counts, the others do not; what the socket set stays.
    let daemon = site.start(&SERVICE.replace("weight = 3", "weight = 4"));
    let expected = saved.replace("-r 10.0.0.12:8080 -m -w 3", "-r 10.0.0.12:8080 -m -w 4");
    assert_ne!(expected, saved);
    assert_eq!(site.save(), expected);
    assert_eq!(site.revision(), revision + 1);
    assert_eq!(site.weir(&["sysctl", "conn_reuse_mode"], "").1.trim(), "net.ipv4.vs.conn_reuse_mode = 0");
    let (_, log, _) = site.weir(&["log", "--json"], "");
    let log: Value = serde_json::from_str(&log).unwrap();
    let what = |at: usize| log["revisions"][at]["what"].as_str().unwrap().to_owned();
    assert!(what(0).starts_with("start: "), "{log}");
    assert_eq!(what(1), "sysctl net.ipv4.vs.conn_reuse_mode=0");
    assert!(what(2).starts_with("--start-daemon backup --mcast-interface wan "), "{}", what(2));
    assert_eq!(log["revisions"][2]["program"], "weiradm");
    daemon.end(Signal::TERM);

    // A damaged end is cut and said.
    let mut bytes = fs::read(site.path("state/journal")).unwrap();
    let at = bytes.len() - 20;
    bytes[at] ^= 1;
    fs::write(site.path("state/journal"), bytes).unwrap();
    let daemon = site.start(SERVICE);
    assert_eq!(site.save(), saved);
    assert!(site.log().contains("cut at the last good record"), "{}", site.log());
    daemon.end(Signal::TERM);
}

#[test]
fn eal_a_file_is_taken_whole_or_not_at_all() {
    let site = Site::new();
    let daemon = site.start(SERVICE);
    let file = site.path("weir.toml").display().to_string();
    assert_eq!(site.weir(&["plan", &file], ""), (0, "nothing to change\n".into(), String::new()));

    // A configuration: asked, then made.
    let edited = site.write("edited.toml", &site.config(&SERVICE.replace("weight = 3", "weight = 5")));
    let change = "~ dest 10.0.0.12:8080 of tcp:192.0.2.100:80 weight 3 -> 5\n";
    for args in [&["plan", &edited][..], &["apply", "--dry-run", &edited]] {
        assert_eq!(site.weir(args, ""), (10, format!("{change}1 change, not made\n"), String::new()));
    }
    assert_eq!(site.revision(), 0);
    let made = format!("{change}revision 1 is in force\n");
    assert_eq!(site.weir(&["apply", &edited], ""), (0, made, String::new()));
    assert_eq!(site.weir(&["plan", &edited], "").0, 0);
    let bad = site.write("bad.toml", "[[service]]\naddres = 1\n");
    let (status, _, errors) = site.weir(&["apply", &bad], "");
    assert!(status == 2 && errors.contains("addres"), "{errors}");

    // What is saved is what is restored; in our form too.
    let saved = site.save();
    assert_eq!(site.weir(&["restore", "-", "--dry-run"], &saved).0, 0);
    let toml = site.write("saved.toml", &site.weir(&["save", "--toml"], "").1);
    assert_eq!(site.weir(&["plan", &toml], ""), (0, "nothing to change\n".into(), String::new()));

    // One line that is not understood, and one that is refused: named, and nothing has changed.
    let lines = |bad: &str| format!("# comment\n-A -t 192.0.2.7:80\n\n{bad}\n-A -t 192.0.2.8:80\n");
    let cases = [
        ("-a -t 192.0.2.7:80 -r nonsense:x -m", 2, "illegal real server address[:port] specified"),
        ("-q", 2, "-q is no command"),
        ("-L", 2, "-L is no change that can be made together with others"),
        ("-a -t 192.0.2.9:80 -r 10.0.0.1:80 -m", 1, "Service not defined"),
        ("-A -t 192.0.2.7:80", 1, "Service already exists"),
    ];
    for (bad, status, why) in cases {
        let name = site.write("bad.rules", &lines(bad));
        let (ended, out, errors) = site.weir(&["restore", &name], "");
        assert_eq!((ended, out.as_str()), (status, ""), "{errors}");
        assert!(errors.starts_with(&format!("weir: {name}:4: {why}\n  {bad}\n")), "{errors}");
        assert_eq!((site.save(), site.revision()), (saved.clone(), 1));
        let (ended, _, errors) = site.weiradm(&["-R", "--atomic"], &lines(bad));
        assert_eq!(ended, if status == 1 { 255 } else { ended }, "{errors}");
        assert!(ended != 0 && errors.starts_with(&format!("line 4: {bad}: {why}")), "{errors}");
        assert_eq!((site.save(), site.revision()), (saved.clone(), 1));
    }

    // Good lines: on top of what runs, or in place of it; one revision each, and back.
    assert_eq!(site.weiradm(&["-R", "--atomic"], &lines("--set 1 2 3")), (0, String::new(), String::new()));
    assert_eq!(site.revision(), 2);
    let both = site.save();
    assert!(both.contains("192.0.2.100:80") && both.contains("192.0.2.8:80") && both.contains("--set 1 2 3"));
    // What wrote nothing did not want everything gone.
    for nothing in ["", "# saved\n"] {
        let (status, _, errors) = site.weir(&["restore", "-"], nothing);
        assert_eq!((status, errors.contains("no command in it")), (2, true), "{errors}");
    }
    let (status, out, _) = site.weir(&["restore", "-"], "-A -t 192.0.2.8:80 -s rr\n");
    assert_eq!(status, 0);
    assert!(out.contains("~ service tcp:192.0.2.8:80 scheduler wlc -> rr\n"), "{out}");
    assert!(
        out.contains("- service tcp:192.0.2.100:80\n") && out.ends_with("revision 3 is in force\n"),
        "{out}"
    );
    assert_eq!(site.save(), "-A -t 192.0.2.8:80 -s rr\n--set 1 2 3\n");
    assert_eq!(site.weir(&["rollback", "2", "--dry-run"], "").0, 10);
    assert_eq!(site.weir(&["rollback", "2"], "").0, 0);
    assert_eq!((site.save(), site.revision()), (both, 4));
    assert_eq!(site.weir(&["rollback", "0"], "").0, 0);
    assert!(site.save().contains("-r 10.0.0.12:8080 -m -w 3\n") && site.save().contains("--set 900 120 300"));
    assert_eq!(site.weir(&["plan", &edited], "").0, 10, "the file of revision 0 is in force");
    let (status, _, errors) = site.weir(&["rollback", "77"], "");
    assert!(status == 1 && errors.contains("revision 77 is not kept"), "{errors}");
    let (_, log, _) = site.weir(&["log"], "");
    assert!(log.lines().nth(1).unwrap().contains("rollback to 0: "), "{log}");
    assert_eq!(log.lines().count(), 7, "{log}");
    daemon.end(Signal::TERM);
    assert!(!site.log().contains("ERROR"), "{}", site.log());
}

#[test]
fn eal_a_full_disk_refuses_changes_whole() {
    let site = Site::new();
    // Files may have 64 blocks of 512 bytes; a write beyond fails as on a full disk.
    let mut shell = Command::new("sh");
    shell.args([
        "-c",
        "trap '' XFSZ; ulimit -f 64; exec \"$0\" \"$@\" 2>/dev/null",
        env!("CARGO_BIN_EXE_weir"),
    ]);
    let daemon = site.start_by(&mut shell, SERVICE);
    let add = |number: usize| format!("-A -t 198.51.{}.{}:80 -s rr", number / 250, number % 250);
    let refused = (0..1000).find(|number| {
        let command = add(*number);
        let (status, _, errors) = site.weiradm(&command.split(' ').collect::<Vec<_>>(), "");
        assert!(status == 0 || (status == 255 && errors == "File too large\n"), "{status} {errors}");
        status != 0
    });
    let refused = refused.expect("the journal is full at some point");
    let (saved, revision) = (site.save(), site.revision());
    assert_eq!(revision, refused as u64);
    assert!(!saved.contains(&format!("{}\n", add(refused))));
    // Shorter records fit for a while.
    let set = ["--set", "1", "1", "1"];
    let sets = (0..1000).find(|_| site.weiradm(&set, "").0 != 0).expect("the rest is full at some point");
    let (saved, revision) = if sets > 0 { (site.save(), site.revision()) } else { (saved, revision) };
    // Whatever is refused leaves everything as it was.
    let file = site.path("weir.toml").display().to_string();
    fs::write(&file, site.config("")).unwrap();
    for (args, input) in [(&["apply", &file][..], ""), (&["restore", "-"], "-C\n")] {
        let (status, _, errors) = site.weir(args, input);
        assert!(status == 1 && errors.contains("cannot be written to the journal"), "{status} {errors}");
    }
    for command in ["-D -t 198.51.0.1:80", "-e -t 192.0.2.100:80 -r 10.0.0.12:8080 -m -w 9", "--set 1 1 1"] {
        assert_eq!(site.weiradm(&command.split(' ').collect::<Vec<_>>(), "").0, 255, "{command}");
    }
    assert_eq!((site.save(), site.revision()), (saved.clone(), revision));
    daemon.end(Signal::KILL);
    let daemon = site.start(SERVICE);
    assert_eq!((site.save(), site.revision()), (saved, revision));
    assert_eq!(site.weiradm(&["-C"], "").0, 0);
    daemon.end(Signal::TERM);
}

/// Everything of a store that a client can set, as text.
fn contents(
    services: impl Iterator<Item = (ServiceKey, ServiceOptions, Vec<(DestKey, DestOptions)>)>,
) -> String {
    services.map(|service| format!("{service:?}\n")).collect()
}

/// The storm's changes: a server in memory that is told the same tells what has to come of them.
struct Storm {
    random: u64,
    /// Datagrams that are known to be in force, and those of the round under way.
    history: Vec<Vec<u8>>,
}

impl Storm {
    fn next(&mut self, below: u64) -> u64 {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        self.random % below
    }

    fn call(&mut self) -> Call {
        let host = 1 + self.next(4) as u8;
        let key = ServiceKey::Address { protocol: 6, address: [198, 51, 100, host].into(), port: 80 };
        let options = ServiceOptions {
            scheduler: ["rr", "wlc", "sh"][self.next(3) as usize].to_owned(),
            engine: None,
            flags: 0,
            timeout_seconds: 0,
            netmask: u32::MAX,
        };
        let dest = DestKey { address: [10, 0, 0, 1 + self.next(4) as u8].into(), port: 8080 };
        let upper = self.next(3) as u32;
        let dest_options = DestOptions {
            method: [Method::MASQUERADE, Method::DIRECT_ROUTE, Method::TUNNEL][self.next(3) as usize],
            weight: self.next(1000) as i32,
            upper,
            lower: 0,
            tunnel: Tunnel::default(),
        };
        let of_dest = |command| Call::dest(command, (&key, &options), &dest, &dest_options);
        match self.next(20) {
            0..3 => Call::service(Kernel::NewService, &key, &options),
            3..5 => Call::service(Kernel::SetService, &key, &options),
            5 => Call::service(Kernel::DelService, &key, &options),
            6..11 => of_dest(Kernel::NewDest),
            11..16 => of_dest(Kernel::SetDest),
            16..18 => of_dest(Kernel::DelDest),
            18 => Call::set_timeouts(&Timeouts { tcp: 1 + self.next(900) as u32, tcp_fin: 0, udp: 0 }),
            _ if self.next(10) == 0 => Call::plain(Kernel::Flush),
            _ => of_dest(Kernel::SetDest),
        }
    }

    /// A datagram of some commands; their sequence numbers tell its place in the history.
    fn datagram(&mut self) -> Vec<u8> {
        let sequence = self.history.len() as u32;
        let count = 1 + self.next(8);
        (0..count).fold(Vec::new(), |mut datagram, _| {
            datagram.extend(self.call().encode(sequence));
            datagram.resize(datagram.len().next_multiple_of(4), 0);
            datagram
        })
    }

    /// Sends changes until the daemon is gone. How many datagrams are acknowledged, those of earlier rounds
    /// included; says `begun` at the first.
    fn blow(&mut self, socket: &Path, begun: &mpsc::Sender<()>) -> usize {
        let mut transport = SocketTransport::connect(socket).unwrap();
        let mut answered = self.history.len();
        let first = answered;
        loop {
            while self.history.len() < answered + AHEAD {
                let datagram = self.datagram();
                if transport.send(&datagram).is_err() {
                    return answered;
                }
                self.history.push(datagram);
            }
            let Ok(datagram) = transport.receive() else { return answered };
            for (sequence, reply) in Reply::split(&datagram) {
                assert!(matches!(reply, Reply::Ack | Reply::Refused(_)));
                answered = sequence as usize + 1;
            }
            if answered > first {
                let _ = begun.send(());
            }
        }
    }

    /// What the table holds after each number of datagrams from `from` on.
    fn expected(&self, from: usize) -> Vec<String> {
        let mut server = Server::new(MemoryStore::default());
        let mut after = Vec::new();
        for at in 0..=self.history.len() {
            if at >= from {
                let store = server.store();
                let timeouts = store.timeouts();
                let dests =
                    |key: &ServiceKey| store.dests(key).map(|dest| (dest.key, dest.options)).collect();
                let services = store.services().map(|s| (s.key, s.options.clone(), dests(&s.key)));
                after.push(contents(services) + &format!("{timeouts:?}"));
            }
            if let Some(datagram) = self.history.get(at) {
                for message in Incoming::split(datagram) {
                    server.answer(&message, Rights::Write).for_each(drop);
                }
            }
        }
        after
    }
}

fn listed(socket: &Path) -> String {
    let mut client = Client::new(SocketTransport::connect(socket).unwrap());
    let services = client.ask(Call::dump(Kernel::GetService)).unwrap();
    let services: Vec<_> = services.iter().filter_map(|object| object.service()).collect();
    let with_dests = services.into_iter().map(|service| {
        let dests = client.ask(Call::dests(&service.key)).unwrap();
        let dests = dests.iter().filter_map(|object| object.dest(service.key.family()));
        (service.key, service.options, dests.map(|dest| (dest.key, dest.options)).collect())
    });
    let services = contents(with_dests.collect::<Vec<_>>().into_iter());
    let timeouts = client.ask(Call::plain(Kernel::GetConfig)).unwrap();
    services + &format!("{:?}", timeouts[0].timeouts().unwrap())
}

#[test]
fn eal_a_kill_in_a_storm_loses_nothing_that_was_acknowledged() {
    let rounds = if std::env::var_os("WEIR_SOAK").is_some() { ROUNDS_SOAK } else { ROUNDS };
    let site = Site::new();
    let mut storm = Storm { random: 0x9e37_79b9_7f4a_7c15, history: Vec::new() };
    let (mut unacknowledged, mut in_force_unacknowledged, mut torn) = (0, 0, 0);
    let mut daemon = site.start("");
    for round in 0..rounds {
        let wait = Duration::from_micros(storm.next(30_000));
        let (begun, first) = mpsc::channel();
        let socket = site.socket();
        let acknowledged = std::thread::scope(|scope| {
            let blowing = scope.spawn(|| storm.blow(&socket, &begun));
            first.recv_timeout(Duration::from_secs(20)).unwrap();
            std::thread::sleep(wait);
            daemon.end(Signal::KILL);
            blowing.join().unwrap()
        });
        let expected = storm.expected(acknowledged);
        let cuts = site.log().matches("cut at the last good record").count();
        daemon = site.start("");
        let is = listed(&site.socket());
        let found = expected.iter().position(|state| *state == is);
        let more = found.unwrap_or_else(|| {
            panic!(
                "round {round}: after {acknowledged} acknowledged of {}:\n{is}\n\n{}",
                storm.history.len(),
                expected[0]
            )
        });
        unacknowledged += expected.len() - 1;
        in_force_unacknowledged += more;
        torn += site.log().matches("cut at the last good record").count() - cuts;
        storm.history.truncate(acknowledged + more);
    }
    println!(
        "{rounds} kills in {} datagrams of changes: every acknowledged one in force; of {unacknowledged} sent and not \
         acknowledged {in_force_unacknowledged} in force; {torn} torn records cut",
        storm.history.len()
    );
    daemon.end(Signal::TERM);
    assert!(!site.log().contains("ERROR") && !site.log().contains("panicked"));
}

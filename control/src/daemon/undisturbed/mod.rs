//! A worker is undisturbed while control works: 100 000 services restored and listed, a million connections listed,
//! clients that do not behave.
//!
//! Model: the whole daemon runs in this process, control on the first allowed CPU together with the real client
//! programs, its one worker alone on the last; only the worker's ports are made up ([`feed`]). With WEIR_SOAK, in
//! the release profile and on a machine that does nothing else, all of it is gated; otherwise a fiftieth of it
//! runs, and only what is listed is checked.
//! The hypervisor steals time from both CPUs, so the worker is compared with an empty loop that alternates with it.
//! What is lost while the thread did not run is printed, beside what the empty loop would have lost, and not gated.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, Sender, bounded};
use dpdk_sys::{Tid, allowed_cpus};
use rustix::process::{Signal, getpid, kill_process};

use self::report::Report;
use self::worker::{Task, Watched};
use crate::api::client::Client;

mod crowd;
mod feed;
mod late;
mod report;
mod worker;

/// What the worker forwards at most while control works, in the same while it does not: what is offered still fits.
const MAXIMUM_MIN: f64 = 0.8;
/// Gaps of the worker in those of the empty loop.
const GAPS_MAX: f64 = 1.2;
/// Gaps per second that the two may differ by besides: both counts are small and come from other guests.
const GAPS_ALLOWED: f64 = 2.0;
/// A million connections are listed in this.
const LISTED_IN: Duration = Duration::from_secs(3);
/// How often what fails is watched.
const ATTEMPTS: usize = 3;
/// Watched at least so long in a soak.
const WATCHED: Duration = Duration::from_secs(8);

/// Between two looks when control has nothing to do.
const PAUSE: Duration = Duration::from_millis(200);

/// Bytes that are copied at once: more than the caches of a CPU of one's own hold.
const COPIED: usize = 16 << 20;

struct Size {
    soak: bool,
    services: usize,
    flows: u32,
    slices: usize,
}

impl Size {
    fn of_run() -> Size {
        match std::env::var_os("WEIR_SOAK") {
            Some(_) => Size { soak: true, services: 100_000, flows: 1_000_000, slices: 40 },
            None => Size { soak: false, services: 1_000, flows: 20_000, slices: 3 },
        }
    }
}

#[test]
fn eal_worker_is_undisturbed_by_services_and_listings() {
    let allowed = allowed_cpus().unwrap();
    let (first, last) = (allowed.iter().next().unwrap(), allowed.iter().next_back().unwrap());
    if first == last {
        eprintln!("SKIPPED: one CPU, a worker cannot be alone");
        return;
    }
    let size = Size::of_run();
    Tid::current().set_affinity(&[first].into_iter().collect()).unwrap();
    let site = Site::new(last, size.flows);
    let (tasks, inbox) = bounded(1);
    let (outbox, reports) = bounded(1);
    let watched = Watched { flows: size.flows, tasks: inbox, reports: outbox };
    let (file, valid) = (site.file(), config::parse(&site.text, "weir.toml").unwrap());
    // The daemon takes itself to the CPUs that are not the worker's: all are allowed to it.
    let daemon = std::thread::spawn(move || {
        Tid::current().set_affinity(&allowed).unwrap();
        super::serve(&file, &valid, &watched).map_err(|failure| failure.to_string())
    });
    let begun = Instant::now();
    while Client::connect(&site.socket()).is_err() {
        assert!(begun.elapsed() < Duration::from_secs(60) && !daemon.is_finished(), "no daemon listens");
        std::thread::sleep(Duration::from_millis(20));
    }
    Run { site: &site, size, tasks, reports, printed: RefCell::default(), faults: RefCell::default() }.all();
    kill_process(getpid(), Signal::TERM).unwrap();
    daemon.join().unwrap().unwrap();
}

struct Run<'a> {
    site: &'a Site,
    size: Size,
    tasks: Sender<Task>,
    reports: Receiver<Report>,
    /// Listings that are not checked yet.
    printed: RefCell<Vec<Printed>>,
    /// Gates that failed, told together at the end.
    faults: RefCell<Vec<String>>,
}

impl Run<'_> {
    fn all(&self) {
        self.ask(Task::Connect);
        let maximum = self.ask(Task::Maximum(self.size.slices)).maximum;
        println!("worker: at most {:.2} million packets a second", maximum / 1e6);
        self.gate("nothing", || std::thread::sleep(PAUSE));

        // What the machine's two CPUs take from each other, without Weir.
        self.watch("an empty loop on control's CPU", true, || busy(|| ()));
        let (from, mut to) = (vec![1_u8; COPIED], vec![0_u8; COPIED]);
        let to = RefCell::new(&mut to);
        self.watch("memory copied on control's CPU", true, || {
            busy(|| to.borrow_mut().copy_from_slice(&from))
        });

        let [additions, removals] = self.site.services(self.size.services);
        self.gate("services restored and listed", || self.services(&additions, &removals));
        self.check_services();

        let weiradm = program("weiradm");
        self.site.run(&[&weiradm, "-R"], Some(&additions));
        self.gate("clients that do not behave", || crowd::attack(&self.site.socket()));
        self.site.run(&[&weiradm, "-R"], Some(&removals));

        // The time of a listing is taken without the empty loop, which does not answer control.
        let weir = program("weir");
        let listings: [&[&str]; 2] = [&[&weiradm, "-L", "-n", "-c"], &[&weir, "conns"]];
        for listing in listings {
            self.watch("connections listed, by the clock", false, || {
                let took = self.list(listing);
                if took >= LISTED_IN {
                    self.fault(format!("connections listed in {took:?}"));
                }
            });
            self.gate("connections listed", || {
                self.list(listing);
            });
            self.check_connections();
        }
        let faults = self.faults.borrow();
        assert!(!self.size.soak || faults.is_empty(), "{faults:#?}");
    }

    fn ask(&self, task: Task) -> Report {
        self.tasks.send(task).unwrap();
        self.reports.recv().unwrap()
    }

    /// Watches the worker while `work` is done on control's CPU, again and again for a time.
    fn watch(&self, what: &str, alternate: bool, work: impl Fn()) -> Report {
        let enough = Arc::new(AtomicBool::new(false));
        self.tasks.send(Task::Watch { alternate, enough: Arc::clone(&enough) }).unwrap();
        let begun = Instant::now();
        work();
        while alternate && self.size.soak && begun.elapsed() < WATCHED {
            work();
        }
        enough.store(true, Ordering::Relaxed);
        let report = self.reports.recv().unwrap();
        println!("{what}: at most {:.2} million packets a second", report.maximum / 1e6);
        println!("  worker     {}", report.loaded);
        if alternate {
            println!("  empty loop {}", report.empty);
        }
        report
    }

    /// The gates. Other guests slow this machine down and take its CPUs, and that is seen while control does nothing too;
    /// what control does to the worker it does every time. So what fails is watched again, up to [`ATTEMPTS`] times, all
    /// of which are printed; it fails if none was good.
    fn gate(&self, what: &str, work: impl Fn()) {
        let mut faults = Vec::new();
        for attempt in 1..=if self.size.soak { ATTEMPTS } else { 1 } {
            let maximum = self.ask(Task::Maximum(self.size.slices)).maximum;
            faults = judge(what, &self.watch(what, true, &work), maximum);
            if faults.is_empty() {
                return;
            }
            println!("  attempt {attempt}: {faults:?}");
        }
        self.faults.borrow_mut().extend(faults);
    }

    fn fault(&self, fault: String) {
        self.faults.borrow_mut().push(fault);
    }

    fn services(&self, additions: &Path, removals: &Path) {
        let weiradm = program("weiradm");
        let begun = Instant::now();
        self.site.run(&[&weiradm, "-R"], Some(additions));
        let restored = begun.elapsed();
        let listing = self.site.run(&[&weiradm, "-L", "-n"], None);
        let listed = begun.elapsed() - restored;
        println!("{} services restored in {restored:?}, listed in {listed:?}", self.size.services);
        self.site.run(&[&weiradm, "-R"], Some(removals));
        self.printed.borrow_mut().push(listing);
    }

    /// Each service and its destination, the fed service and its destination, the head, in every listing so far.
    fn check_services(&self) {
        for listing in self.printed.take() {
            assert_eq!(listing.text().lines().count(), 3 + 2 * (self.size.services + 1));
        }
    }

    /// Lists all connections; how long the program ran.
    fn list(&self, program: &[&str]) -> Duration {
        let begun = Instant::now();
        let listing = self.site.run(program, None);
        let took = begun.elapsed();
        println!("connections listed in {took:?} by {}", program[1..].join(" "));
        self.printed.borrow_mut().push(listing);
        took
    }

    /// Each flow has to be once in every listing so far.
    fn check_connections(&self) {
        for listing in self.printed.take() {
            let text = listing.text();
            let clients: Vec<&str> = text.lines().skip(2).filter_map(client).collect();
            let unique: HashSet<&str> = clients.iter().copied().collect();
            let flows = self.size.flows as usize;
            assert_eq!((clients.len(), unique.len()), (flows, flows));
        }
    }
}

/// What was not as it should be; `idle`: what the worker forwarded at most before.
fn judge(what: &str, Report { loaded, empty, maximum }: &Report, idle: f64) -> Vec<String> {
    let mut faults = Vec::new();
    if loaded.time.is_zero() || empty.time.is_zero() {
        faults.push(format!("{what}: the worker was never alone on its CPU"));
    }
    if loaded.own_dropped >= 1.0 {
        faults.push(format!("{what}: {:.0} packets lost while the worker ran", loaded.own_dropped));
    }
    if *maximum < MAXIMUM_MIN * idle {
        faults.push(format!("{what}: {maximum:.0} packets a second at most, {idle:.0} without"));
    }
    let (gaps, allowed) = (loaded.gaps_per_second(), GAPS_MAX * empty.gaps_per_second() + GAPS_ALLOWED);
    if gaps > allowed {
        faults.push(format!("{what}: {gaps:.1} gaps over 100 us a second, {allowed:.1} allowed"));
    }
    faults
}

/// Does this again and again for a while.
fn busy(work: impl Fn()) {
    let begun = Instant::now();
    while begun.elapsed() < PAUSE {
        work();
        std::hint::black_box(());
    }
}

/// The endpoint of a client in a line of the listing.
fn client(line: &str) -> Option<&str> {
    line.split_whitespace().nth(3)
}

/// A program of ours, built beside the tests.
fn program(name: &str) -> String {
    let tests = std::env::current_exe().unwrap();
    let path = tests.ancestors().nth(2).unwrap().join(name);
    assert!(path.exists(), "{} is missing: cargo build -p control", path.display());
    path.to_str().unwrap().to_owned()
}

/// Directory of the daemon, and its configuration.
struct Site {
    dir: tempfile::TempDir,
    text: String,
}

impl Site {
    fn new(cpu: usize, flows: u32) -> Site {
        let dir = tempfile::tempdir().unwrap();
        let text = config(dir.path(), cpu, flows);
        fs::write(dir.path().join("weir.toml"), &text).unwrap();
        Site { dir, text }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("weir.toml")
    }

    fn socket(&self) -> PathBuf {
        self.dir.path().join("run/weir.sock")
    }

    /// Files for `weiradm -R` that add services with a destination each, and remove them.
    fn services(&self, count: usize) -> [PathBuf; 2] {
        let (mut additions, mut removals) = (String::new(), String::new());
        for n in 0..count {
            let address = Ipv4Addr::from(0x0a14_0000 + n as u32);
            let _ =
                write!(additions, "-A -t {address}:80 -s rr\n-a -t {address}:80 -r 10.0.0.11:80 -g -w 1\n");
            let _ = writeln!(removals, "-D -t {address}:80");
        }
        [("additions", additions), ("removals", removals)].map(|(name, lines)| {
            let path = self.dir.path().join(name);
            fs::write(&path, lines).unwrap();
            path
        })
    }

    /// What a client program prints, in a file as a shell would take it. It is read when the worker is not watched:
    /// this process is the worker's too.
    fn run(&self, program: &[&str], input: Option<&Path>) -> Printed {
        let printed = tempfile::NamedTempFile::new_in(self.dir.path()).unwrap();
        let mut command = Command::new(program[0]);
        let stdout = printed.as_file().try_clone().unwrap();
        command.args(&program[1..]).env("WEIR_SOCKET", self.socket()).stdout(stdout);
        command.stdin(input.map_or_else(Stdio::null, |path| File::open(path).unwrap().into()));
        let status = command.status().unwrap();
        assert!(status.success(), "{program:?}: {status}");
        Printed(printed)
    }
}

/// What a program printed.
struct Printed(tempfile::NamedTempFile);

impl Printed {
    fn text(&self) -> String {
        fs::read_to_string(self.0.path()).unwrap()
    }
}

fn config(dir: &Path, cpu: usize, flows: u32) -> String {
    let (address, port) = feed::SERVICE;
    let mac = feed::MAC.map(|byte| format!("{byte:02x}")).join(":");
    format!(
        r#"
[daemon]
socket = "{dir}/run/weir.sock"
state_dir = "{dir}/state"
[eal]
pages = "normal"
memory_mb = 96
[workers]
cpus = "{cpu}"
mode = "exclusive"
nice = -20
[connections]
max = {max}
[[port]]
name = "wan"
device = "net_null0,no-rx=1"
mac = "{mac}"
addresses = ["192.0.2.1/24"]
[[port]]
name = "lan"
device = "net_null1,no-rx=1"
addresses = ["10.0.0.254/24"]
[[neighbour]]
address = "10.0.0.11"
mac = "02:00:00:00:01:00"
port = "lan"
[[service]]
address = "tcp://{service}:{port}"
scheduler = "rr"
announce = false
[[service.destination]]
address = "10.0.0.11:{port}"
method = "dr"
"#,
        dir = dir.display(),
        max = flows + flows / 4,
        service = Ipv4Addr::from(address),
    )
}

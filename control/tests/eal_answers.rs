//! How long control does not answer: a client asks for the timeouts a thousand times a second while another restores and
//! lists 100 000 services, and while the journal is compacted. With WEIR_SOAK; a fiftieth of it otherwise.
#![forbid(unsafe_code)]

mod common;

use std::fmt::Write as _;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::Site;
use control::ipvs::request::{Call, Command as Kernel};
use control::weiradm::{Client, SocketTransport};

/// Between two questions.
const EVERY: Duration = Duration::from_millis(1);
/// What a compaction may keep a question waiting.
const COMPACTION_MAX: Duration = Duration::from_millis(50);
/// A compaction begins some seconds after the last change.
const PATIENCE: Duration = Duration::from_secs(60);

#[test]
fn eal_answers_while_control_works() {
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    let services = if soak { 100_000 } else { 2_000 };
    let site = Site::start("log = \"debug\"", "[connections]\nmax = 4096\n");
    let (weir, weiradm) = (env!("CARGO_BIN_EXE_weir"), env!("CARGO_BIN_EXE_weiradm"));
    let files = [1, 2].map(|weight| saved(services, weight));
    let names = files.each_ref().map(|file| file.path().to_str().unwrap());
    asked(&site, "nothing", || std::thread::sleep(Duration::from_secs(1)));
    let compacted = || site.log().matches(" compacted ").count();
    // Enough lines for a compaction: 64 commands make one.
    for _ in 1..100_000 / services {
        run(&site, weiradm, &["-R"], Some(files[0].path()));
        run(&site, weiradm, &["-C"], None);
    }
    let before = compacted();
    asked(&site, "weiradm -R", || run(&site, weiradm, &["-R"], Some(files[0].path())));
    let bytes = journal_bytes(&site);
    let waited = asked(&site, "compaction of the journal", || {
        let begun = Instant::now();
        while compacted() == before {
            assert!(begun.elapsed() < PATIENCE, "not compacted: {} bytes", journal_bytes(&site));
            std::thread::sleep(Duration::from_millis(20));
        }
    });
    println!("the journal had {bytes} bytes, and has {}", journal_bytes(&site));
    assert!(!soak || waited < COMPACTION_MAX, "{waited:?}");
    asked(&site, "weiradm -L -n", || run(&site, weiradm, &["-L", "-n"], None));
    asked(&site, "weir list", || run(&site, weir, &["list", "--json"], None));
    asked(&site, "weir save", || run(&site, weir, &["save"], None));
    asked(&site, "weir restore of what there is", || run(&site, weir, &["restore", names[0]], None));
    asked(&site, "weir restore with other weights", || run(&site, weir, &["restore", names[1]], None));
    site.stop();
}

fn journal_bytes(site: &Site) -> u64 {
    site.status()["daemon"]["journal_bytes"].as_u64().unwrap()
}

/// Runs `work` while a client asks every millisecond; the longest that it waited.
fn asked(site: &Site, what: &str, work: impl FnOnce()) -> Duration {
    let mut client = Client::new(SocketTransport::connect(&site.socket()).unwrap());
    let over = AtomicBool::new(false);
    let mut waited: Vec<Duration> = std::thread::scope(|scope| {
        let asking = scope.spawn(|| {
            let mut waited = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                client.ask(Call::plain(Kernel::GetConfig)).unwrap();
                waited.push(begun.elapsed());
                std::thread::sleep(EVERY.saturating_sub(begun.elapsed()));
            }
            waited
        });
        work();
        over.store(true, Ordering::Relaxed);
        asking.join().unwrap()
    });
    waited.sort();
    let share = |of: f64| waited[((waited.len() - 1) as f64 * of) as usize];
    let longest = share(1.0);
    println!(
        "{what}: {} questions, median {:?}, 99 % {:?}, longest {longest:?}",
        waited.len(),
        share(0.5),
        share(0.99)
    );
    longest
}

/// A file that restores so many services with a destination each.
fn saved(services: usize, weight: u32) -> tempfile::NamedTempFile {
    let mut lines = String::new();
    for n in 0..services {
        let address = std::net::Ipv4Addr::from(0x0a14_0000 + n as u32);
        let _ =
            write!(lines, "-A -t {address}:80 -s rr\n-a -t {address}:80 -r 10.9.0.11:8080 -m -w {weight}\n");
    }
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), lines).unwrap();
    file
}

fn run(site: &Site, program: &str, arguments: &[&str], input: Option<&Path>) {
    let mut command = Command::new(program);
    command.args(arguments).env("WEIR_SOCKET", site.socket()).stdout(Stdio::null());
    command.stdin(input.map_or_else(Stdio::null, |path| std::fs::File::open(path).unwrap().into()));
    let status = command.status().unwrap();
    assert!(status.success(), "{arguments:?}: {status}");
}

//! Every recorded run of ipvsadm (`data/ipvsadm`), repeated with `weiradm` and with Debian's ipvsadm as it is under our
//! preloaded library: output, messages, exit status, requests on the wire, and the state it leaves. What differs on
//! purpose stands in `data/differences.txt`.

#[path = "weiradm_common/differences.rs"]
mod differences;
#[path = "weiradm_common/feed.rs"]
mod feed;
#[path = "weiradm_common/preloaded.rs"]
mod preloaded;
#[path = "weiradm_common/served.rs"]
mod served;
mod weiradm_common;

use std::cell::RefCell;
use std::fs;
use std::path::Path;
use std::rc::Rc;

use differences::{Differences, sections};
use feed::{INTERFACES, feed};
use preloaded::Preloaded;
use served::Served;
use weiradm_common::{Outcome, World, ipvsadm, program, words};

/// How many samples there are; the recording of keepalived is no run of ipvsadm.
const SAMPLES: usize = 162;

#[test]
fn every_sample_ends_as_recorded() {
    every_sample(&mut InProcess(World::new(INTERFACES)), "ipvsadm/");
}

#[test]
fn every_sample_ends_as_recorded_with_unmodified_ipvsadm() {
    let dir = tempfile::tempdir().unwrap();
    let server = Served::start(&dir.path().join("weir.sock"), World::with(INTERFACES));
    let Some(program) = Preloaded::new(server.path()) else { return };
    every_sample(&mut Preload { server, program }, "shim/ipvsadm/");
}

/// A program, and the world that it is for.
trait Subject {
    fn begin(&mut self);

    fn world(&mut self, change: &mut dyn FnMut(&mut World));

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome;
}

/// `weiradm`, in this process.
struct InProcess(Rc<RefCell<World>>);

impl Subject for InProcess {
    fn begin(&mut self) {
        self.0 = World::new(INTERFACES);
    }

    fn world(&mut self, change: &mut dyn FnMut(&mut World)) {
        change(&mut self.0.borrow_mut());
    }

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome {
        ipvsadm(&self.0, &words(arguments), input)
    }
}

/// Debian's ipvsadm.
struct Preload {
    server: Served,
    program: Preloaded,
}

impl Subject for Preload {
    fn begin(&mut self) {
        *self.server.world() = World::with(INTERFACES);
    }

    fn world(&mut self, change: &mut dyn FnMut(&mut World)) {
        change(&mut self.server.world());
    }

    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome {
        self.program.run("ipvsadm", arguments, input)
    }
}

fn every_sample(subject: &mut dyn Subject, prefix: &str) {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ipvsadm");
    let mut files: Vec<_> = fs::read_dir(&directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.retain(|path| !path.file_name().unwrap().to_string_lossy().starts_with("wire-"));
    files.sort();
    assert_eq!(files.len(), SAMPLES);
    let mut differences = Differences::of(prefix);
    let failures: Vec<String> = files
        .iter()
        .filter_map(|path| {
            let name = path.file_stem().unwrap().to_str().unwrap();
            run(subject, name, &fs::read_to_string(path).unwrap(), &mut differences).err()
        })
        .collect();
    assert!(failures.is_empty(), "{} samples differ:\n{}", failures.len(), failures.join("\n"));
    differences.all_used();
}

fn run(
    subject: &mut dyn Subject,
    name: &str,
    text: &str,
    differences: &mut Differences,
) -> Result<(), String> {
    let mut parts = sections(text);
    let mut part = |section: &str| {
        let mut recorded = parts.remove(section).unwrap_or_default();
        differences.apply(name, section, &mut recorded);
        recorded
    };
    subject.begin();
    let before = subject.ipvsadm("-R", &part("state before"));
    if before.exit != 0 {
        return Err(format!("{name}: state before: {before:?}"));
    }
    let fed = part("fed");
    subject.world(&mut |world| {
        feed(world, &fed);
        world.requests.clear();
    });

    let command = text.lines().find_map(|line| line.strip_prefix("command: ipvsadm")).ok_or("no command")?;
    let outcome = subject.ipvsadm(command, &part("stdin"));
    let expected = Outcome {
        stdout: part("stdout"),
        stderr: part("stderr"),
        exit: part("exit").trim().parse().unwrap(),
    };
    same(name, "outcome", &outcome, &expected)?;
    let recorded = part("wire requests");
    let recorded = recorded.lines().map(|line| line.split_once(' ').unwrap().1.to_owned()).collect();
    let mut requests = Vec::new();
    subject.world(&mut |world| requests = std::mem::take(&mut world.requests));
    same(name, "requests", &requests, &recorded)?;

    let head = text.lines().find_map(|line| line.strip_prefix("--- state after (ipvsadm "));
    if let Some(command) = head {
        subject.world(&mut |world| world.failing.clear());
        let after = subject.ipvsadm(command.trim_end_matches(')'), "");
        same(name, "state after", &after.stdout, &part("state after"))?;
    }
    Ok(())
}

fn same<T: PartialEq + std::fmt::Debug>(
    name: &str,
    what: &str,
    ours: &T,
    recorded: &T,
) -> Result<(), String> {
    if ours == recorded {
        return Ok(());
    }
    Err(format!("{name}: {what}\n    ours {ours:?}\nrecorded {recorded:?}"))
}

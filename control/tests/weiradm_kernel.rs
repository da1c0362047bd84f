//! Every recorded run of ipvsadm against kernel 6.12 (`data/kernel/control-plane.json`), repeated with `weiradm`:
//! output, messages and exit status. What differs on purpose stands in `data/differences.txt`.

#[path = "weiradm_common/differences.rs"]
mod differences;
mod weiradm_common;

use std::cell::RefCell;
use std::rc::Rc;

use control::ipvs::Rights;
use differences::Differences;
use serde::Deserialize;
use weiradm_common::{Outcome, World, ipvsadm, words};

/// Interfaces of the recorded machine, with their MTU.
const INTERFACES: &[(&str, u32)] = &[("lo", 65536)];
/// How many commands were recorded.
const COMMANDS: usize = 308;
/// What a difference says of a command that is not ours to run.
const NOT_OURS: &str = "not run";

#[derive(Deserialize)]
struct Recording {
    results: Vec<Recorded>,
}

#[derive(Deserialize)]
struct Recorded {
    case: String,
    cmd: String,
    stdout: String,
    stderr: String,
    exit: u8,
}

#[test]
fn every_command_ends_as_with_the_kernel() {
    let recording: Recording = serde_json::from_str(include_str!("data/kernel/control-plane.json")).unwrap();
    assert_eq!(recording.results.len(), COMMANDS);
    let mut differences = Differences::of("kernel/");
    let (mut case, mut number, mut world) = (String::new(), 0, World::new(INTERFACES));
    let mut failures = Vec::new();
    for mut recorded in recording.results {
        if recorded.case != case {
            (number, world) = (0, World::new(INTERFACES));
            case.clone_from(&recorded.case);
        }
        number += 1;
        let name = format!("{case}.{number}");
        let mut exit = format!("{}\n", recorded.exit);
        let mut run_as = String::new();
        differences.apply(&name, "stdout", &mut recorded.stdout);
        differences.apply(&name, "stderr", &mut recorded.stderr);
        differences.apply(&name, "exit", &mut exit);
        differences.apply(&name, NOT_OURS, &mut run_as);
        if !run_as.is_empty() {
            continue;
        }
        let expected =
            Outcome { stdout: recorded.stdout, stderr: recorded.stderr, exit: exit.trim().parse().unwrap() };
        match run(&world, &recorded.cmd) {
            Some(outcome) if outcome == expected => {}
            outcome => failures
                .push(format!("{name}: {}\n    ours {outcome:?}\nrecorded {expected:?}", recorded.cmd)),
        }
    }
    assert!(failures.is_empty(), "{} commands differ:\n{}", failures.len(), failures.join("\n"));
    differences.all_used();
}

/// Runs a recorded shell command; `None` when it is of no known form.
fn run(world: &Rc<RefCell<World>>, command: &str) -> Option<Outcome> {
    if let Some(arguments) = command.strip_prefix("setpriv --reuid 65534 --clear-groups ipvsadm") {
        world.borrow_mut().rights = Rights::None;
        return Some(ipvsadm(world, &words(arguments), ""));
    }
    if let Some(rest) = command.strip_prefix("printf -- '") {
        let input = rest.strip_suffix("' | ipvsadm -R")?.replace("\\n", "\n");
        return Some(ipvsadm(world, &words("-R"), &input));
    }
    Some(ipvsadm(world, &words(command.strip_prefix("ipvsadm")?), ""))
}

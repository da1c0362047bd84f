//! The recorded runs of ipvsadm against kernel 6.12, and how to repeat them on any server.

use serde::Deserialize;

use crate::differences::Differences;
use crate::program::Outcome;

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

/// Something to run commands on.
pub trait Player {
    /// Makes it empty: another case begins.
    fn begin(&mut self);

    /// Names of commands that end otherwise here for a reason of the machine; they are run and not compared.
    fn not_compared(&self) -> &[&str];

    /// Runs `ipvsadm` with these arguments and this input.
    fn ipvsadm(&mut self, arguments: &str, input: &str) -> Outcome;

    /// The same without any right; `None` when there is no way to.
    fn ipvsadm_without_rights(&mut self, arguments: &str) -> Option<Outcome>;

    /// Prints a file of the kernel's; `None` when there is no way to.
    fn cat(&mut self, _path: &str) -> Option<Outcome> {
        None
    }
}

/// Repeats every command and compares what it prints and how it ends; how many were compared. What differs on purpose
/// stands in the list under this prefix.
pub fn repeat(player: &mut dyn Player, prefix: &str) -> usize {
    let recording: Recording =
        serde_json::from_str(include_str!("../data/kernel/control-plane.json")).unwrap();
    assert_eq!(recording.results.len(), COMMANDS);
    let mut differences = Differences::of(prefix);
    let (mut case, mut number, mut compared) = (String::new(), 0, 0);
    let mut failures = Vec::new();
    for mut recorded in recording.results {
        if recorded.case != case {
            number = 0;
            player.begin();
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
        let Some(outcome) = run(player, &recorded.cmd) else { continue };
        if player.not_compared().contains(&name.as_str()) {
            continue;
        }
        compared += 1;
        if outcome != expected {
            failures.push(format!("{name}: {}\n    ours {outcome:?}\nrecorded {expected:?}", recorded.cmd));
        }
    }
    assert!(failures.is_empty(), "{} commands differ:\n{}", failures.len(), failures.join("\n"));
    differences.all_used();
    compared
}

/// Runs a recorded shell command; `None` when there is no way to.
fn run(player: &mut dyn Player, command: &str) -> Option<Outcome> {
    if let Some(arguments) = command.strip_prefix("setpriv --reuid 65534 --clear-groups ipvsadm") {
        return player.ipvsadm_without_rights(arguments);
    }
    if let Some(path) = command.strip_prefix("cat ") {
        return player.cat(path);
    }
    if let Some(rest) = command.strip_prefix("printf -- '") {
        let input = rest.strip_suffix("' | ipvsadm -R").expect(command).replace("\\n", "\n");
        return Some(player.ipvsadm("-R", &input));
    }
    Some(player.ipvsadm(command.strip_prefix("ipvsadm").expect(command), ""))
}

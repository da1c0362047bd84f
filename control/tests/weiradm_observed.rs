//! What ipvsadm 1.31 (Debian 12) does that the recordings do not show: observed with the real program, 12 000 random
//! commands beside ours, against the server of this crate. One row for each kind of difference that was met.

mod weiradm_common;

use weiradm_common::{World, ipvsadm, words};

/// Arguments, input, exit status, standard error, and how the saved table ends.
#[rustfmt::skip]
const OBSERVED: &[(&str, &str, u8, &str, &str)] = &[
    ("--set", "", 2, "--set option requires 3 timeout values\n", ""),
    ("--set -3 1 2", "", 255, "-3: unknown option\n", ""),
    ("--set -e", "", 2, "invalid option `-e'\n", ""),
    ("-C --set", "", 2, "invalid option `--set'\n", ""),
    ("- -L -n", "", 2, "unexpected argument -\n", ""),
    ("-L --numeric=1", "", 255, "--numeric=1: option does not take an argument\n", ""),
    // In a restore, words that are not understood do not end the run; nor does a refusal.
    ("-R", "-A -t 10.0.0.1:80 -q\n-D -f 9\n-A -f 7\n", 0, "-q: unknown option\nNo such service\n", "-A -f 7 -s wlc\n"),
    // Wrong usage does, and a listing that fails, and help, and version.
    ("-R", "-A -f 7 -w 1\n-A -f 7\n", 2, "Illegal 'weight' option with the 'add-service' command\n", ""),
    ("-R", "-L -f 9\n-A -f 7\n", 1, "No such service\n", ""),
    ("-R", "-v\n-A -f 7\n", 0, "", ""),
    ("-R", "-S -n\n-A -f 7\n", 0, "", "-A -f 7 -s wlc\n"),
    // Names longer than the kernel takes are cut, and weights read as decimal.
    ("-A -t 10.1:80 -s 01234567890123456789", "", 255, "Scheduler or persistence engine not found\n", ""),
    ("-R", "-A -t 10.1:80\n-a -t 10.1:80 -r 10.2 -m -w 070\n", 0, "", "-a -t 10.0.0.1:80 -r 10.0.0.2:80 -m -w 70\n"),
    // An IPv4 address in brackets loses its port.
    ("-A -t [10.0.0.1]:80 -p60", "", 0, "", "-A -t 10.0.0.1:0 -s wlc -p 60\n"),
    ("-A -u 10.0.0.1:53 -b flag-1,,flag-3", "", 0, "", "-A -u 10.0.0.1:53 -s wlc -b flag-1,flag-3\n"),
];

#[test]
fn every_observed_command_ends_as_ipvsadm_ended_it() {
    for (arguments, input, exit, stderr, saved) in OBSERVED {
        let world = World::new(&[("eth0", 1500)]);
        let outcome = ipvsadm(&world, &words(arguments), input);
        assert_eq!((outcome.exit, outcome.stderr.as_str()), (*exit, *stderr), "{arguments} {input}");
        let table = ipvsadm(&world, &words("-S -n"), "").stdout;
        assert!(
            table.ends_with(saved) && (!saved.is_empty() || table.is_empty()),
            "{arguments} {input}: {table}"
        );
    }
}

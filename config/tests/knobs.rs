//! Every knob as kernel 6.12 had it: defaults, values taken and refused, and what it read afterwards.

use config::knobs::{Cpus, Knob, KnobError, Tunables};

/// Knobs whose default depends on the kernel's machine, and what holds here.
const OTHER_DEFAULT: [(&str, &str); 1] = [("sync_qlen_max", "16384")];
/// A switch reads 1 here whatever number turned it on.
const SWITCH: &str = "run_estimation";
/// Knobs of newer kernels, and of schedulers that were not loaded.
const NOT_RECORDED: [&str; 4] = ["conn_lfactor", "lblc_expiration", "lblcr_expiration", "svc_lfactor"];

fn one_cpu() -> Cpus {
    Cpus { count: 1, allowed: vec![0], preset: vec![0] }
}

fn defaults() -> Tunables {
    Tunables::of(&config::Valid::empty())
}

#[test]
fn every_knob_behaves_as_recorded() {
    let recording = include_str!("data/kernel-sysctl.txt");
    let (cpus, mut running, mut recorded) = (one_cpu(), defaults(), Vec::new());
    let mut written = 0;
    for line in recording.lines() {
        if let Some((name, value)) =
            line.strip_prefix(config::knobs::PREFIX).and_then(|l| l.split_once(" = "))
        {
            let other = OTHER_DEFAULT.iter().find(|(knob, _)| *knob == name);
            let expected = other.map_or(value, |(_, ours)| ours);
            assert_eq!(running.text(Knob::find(name).unwrap(), &cpus), expected, "{line}");
            recorded.push(name);
        } else if let Some((name, rest)) = line.split_once(": write ") {
            let (value, rest) = rest.split_once(" -> exit ").unwrap();
            let (said, reads) = rest.rsplit_once(", reads ").unwrap();
            let expected = match said {
                "0" => Ok(()),
                said if said.ends_with("Invalid argument") => Err(KnobError::Invalid),
                said if said.ends_with("result out of range") => Err(KnobError::Range),
                said => panic!("{said}"),
            };
            let knob = Knob::find(name).unwrap();
            assert_eq!(running.set(knob, value, &cpus), expected, "{line}");
            let reads = if name == SWITCH && reads != "0" { "1" } else { reads };
            assert_eq!(running.text(knob, &cpus).replace('\t', " "), reads, "{line}");
            written += 1;
        }
    }
    assert_eq!(written, 29 * 6);
    let ours: Vec<_> = Knob::all().iter().map(|knob| knob.key.name).collect();
    let rest: Vec<_> = ours.into_iter().filter(|name| !recorded.contains(name)).collect();
    assert_eq!(rest, NOT_RECORDED);
}

#[test]
fn lists_of_cpus_are_read_as_the_kernel_reads_them() {
    let cpus = Cpus { count: 16, allowed: (0..16).filter(|cpu| *cpu != 5).collect(), preset: vec![3] };
    let knob = Knob::find("net.ipv4.vs.est_cpulist").unwrap();
    let mut running = defaults();
    assert_eq!(running.text(knob, &cpus), "3");
    for (text, expected) in [
        ("2", Ok("2")),
        ("0-7\n", Ok("0-4,6-7")),
        ("all", Ok("0-4,6-15")),
        ("12-N", Ok("12-15")),
        ("0,1-N:1/2", Ok("0-1,3,7,9,11,13,15")),
        ("0-7:2/4 9", Ok("0-1,4,9")),
        ("5", Ok("")),
        ("", Ok("")),
        ("16", Err(KnobError::Range)),
        ("1-99", Err(KnobError::Range)),
        ("99999999999", Err(KnobError::Overflow)),
        ("3-1", Err(KnobError::Invalid)),
        ("1:1/2", Err(KnobError::Invalid)),
        ("0-3:3/2", Err(KnobError::Invalid)),
        ("0-3:1/0", Err(KnobError::Invalid)),
        ("-1", Err(KnobError::Invalid)),
        ("1-", Err(KnobError::Invalid)),
        ("a", Err(KnobError::Invalid)),
    ] {
        let before = running.clone();
        assert_eq!(running.set(knob, text, &cpus), expected.map(drop), "{text}");
        match expected {
            Ok(reads) => assert_eq!(running.text(knob, &cpus), reads, "{text}"),
            Err(_) => assert_eq!(running, before, "{text}"),
        }
    }
}

#[test]
fn numbers_are_read_as_the_kernel_reads_them() {
    let knob = Knob::find("conntrack").unwrap();
    let mut running = defaults();
    for (text, reads) in
        [("0x10\n", "16"), (" 010", "8"), ("-0x1", "-1"), ("2147483647", "2147483647"), ("0", "0")]
    {
        running.set(knob, text, &one_cpu()).unwrap();
        assert_eq!(running.text(knob, &one_cpu()), reads, "{text}");
    }
    for text in ["", "-", "+1", "--1", "1 2", "2147483648", "0x", "9", "08"] {
        let expected = if text == "9" { Ok(()) } else { Err(KnobError::Invalid) };
        assert_eq!(running.set(knob, text, &one_cpu()), expected, "{text}");
    }
    assert_eq!(Knob::find("nonesuch").unwrap_err(), KnobError::Unknown);
}

#[test]
fn a_file_changes_only_what_its_own_line_changed() {
    let parse = |text: &str| Tunables::of(&config::parse(text, "f").unwrap());
    let (old, new) =
        (parse("[sysctl]\nsloppy_tcp = 1"), parse("[sysctl]\nsloppy_tcp = 2\n[estimators]\nest_nice = 3"));
    let mut running = old.clone();
    running.set(Knob::find("drop_packet").unwrap(), "3", &one_cpu()).unwrap();
    running.set(Knob::find("sloppy_tcp").unwrap(), "7", &one_cpu()).unwrap();
    running.edit_knobs(&old.knobs, &new.knobs);
    running.edit_estimators(&old.estimators, &new.estimators);
    let read = |name| running.text(Knob::find(name).unwrap(), &one_cpu());
    assert_eq!(["drop_packet", "sloppy_tcp", "est_nice"].map(read), ["3", "2", "3"]);
}

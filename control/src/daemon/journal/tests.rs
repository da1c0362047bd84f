//! What is written is what is read, whatever becomes of the file's end.

use proptest::prelude::*;
use proptest::sample::select;

use super::*;
use crate::daemon::table::{DestEntry, Entry, Head as ServiceHead, Op, Table};
use crate::ipvs::{
    Daemon, DaemonState, DestKey, DestOptions, Family, Method, ServiceKey, ServiceOptions, Tunnel,
};

fn key(number: u8) -> ServiceKey {
    match number {
        0 => ServiceKey::Mark { family: Family::V6, mark: u32::MAX },
        1 => ServiceKey::Address { protocol: 132, address: "2001:db8::1".parse().unwrap(), port: 0 },
        n => ServiceKey::Address { protocol: 6, address: [192, 0, 2, n].into(), port: 80 },
    }
}

fn service(number: u8, scheduler: &str, flags: u32) -> Op {
    let options = ServiceOptions {
        scheduler: scheduler.to_owned(),
        engine: (flags == 1).then(|| "sip".to_owned()),
        flags,
        timeout_seconds: 300,
        netmask: u32::MAX << 8,
    };
    let announce = [None, Some(true), Some(false)][usize::from(number % 3)];
    let unmatched = [None, Some(config::Unmatched::Drop)][usize::from(number % 2)];
    Op::Service(ServiceHead::of(&Entry { key: key(number), options, announce, unmatched, dests: Vec::new() }))
}

fn dest_key(number: u8) -> DestKey {
    DestKey { address: [10, 0, 0, number].into(), port: 8080 }
}

fn dest(number: u8, weight: i32) -> DestEntry {
    let tunnel = Tunnel { kind: 1, port: 6080, flags: 2 };
    let options = DestOptions { method: Method(number % 5), weight, upper: 9, lower: 3, tunnel };
    DestEntry { key: dest_key(number), options }
}

fn ops() -> impl Strategy<Value = Op> {
    let daemon = Daemon {
        state: DaemonState::Backup,
        interface: "eth\"0\n".to_owned(),
        sync_id: 7,
        max_bytes: 1472,
        group: "ff02::81".parse().unwrap(),
        port: 8848,
        ttl: 1,
    };
    prop_oneof![
        6 => (0..5_u8, select(vec!["rr", "sh"]), select(vec![0, 1, 4])).prop_map(|(n, s, f)| service(n, s, f)),
        8 => (0..5_u8, 0..5_u8, 0..100).prop_map(|(s, d, weight)| Op::Dest(key(s), dest(d, weight))),
        3 => (0..5_u8, 0..5_u8).prop_map(|(s, d)| Op::NoDest(key(s), dest_key(d))),
        2 => (0..5_u8).prop_map(|n| Op::NoService(key(n))),
        1 => Just(Op::Clear),
        1 => any::<[u32; 11]>().prop_map(Op::Timeouts),
        1 => (0..2_usize).prop_map(move |n| Op::Daemons(vec![daemon.clone(); n])),
        1 => select(vec![config::Unmatched::Reset, config::Unmatched::Drop])
            .prop_map(|policy| Op::Defaults { policy, silent: vec!["192.0.2.3".parse().unwrap()] }),
    ]
}

fn record(revision: u64, ops: Vec<Op>) -> Record {
    Record {
        revision,
        unix_ms: 1_700_000_000_000 + revision,
        author: Author { uid: 1000, pid: 42, program: "weiradm".to_owned() },
        what: format!("what \"{revision}\"\n"),
        ops,
        file: revision.is_multiple_of(3).then(|| format!("# file {revision}\n")),
    }
}

#[track_caller]
fn assert_same(a: &State, b: &State) {
    assert_eq!((a.revision, &a.file), (b.revision, &b.file));
    assert!(a.table.entries().eq(b.table.entries()), "{:?} {:?}", a.table, b.table);
    assert_eq!(a.table.difference(&b.table), []);
}

/// A journal with these revisions after revision 0, and every state on the way.
fn written(dir: &Path, revisions: &[Vec<Op>]) -> (Journal, Vec<State>) {
    let (mut journal, none) = open(dir);
    assert!(none.is_none());
    let mut state = State::default();
    journal.begin(&state, &record(0, Vec::new())).unwrap();
    let mut states = vec![state.clone()];
    for (revision, ops) in (1..).zip(revisions) {
        let record = record(revision, ops.clone());
        journal.append(&record).unwrap();
        state.take(&record);
        states.push(state.clone());
    }
    (journal, states)
}

/// Goes on until the compaction under way is over.
fn end_compaction(journal: &mut Journal) {
    while journal.compaction.is_some() {
        journal.tick(false).unwrap();
    }
    assert!(!journal.dir.join(NEW_FILE).exists());
}

fn other_version() -> String {
    line(&Head { weir_journal: VERSION + 1 })
}

/// Opens it. A process that another test has just started holds a copy of the lock until it is another program.
fn open(dir: &Path) -> (Journal, Option<State>) {
    for _ in 0..1000 {
        match Journal::open(dir) {
            Err(failure) if failure.why.contains("another weir") => {
                std::thread::sleep(std::time::Duration::from_millis(1));
            }
            opened => return opened.unwrap(),
        }
    }
    panic!("{} stays locked", dir.display())
}

fn reopened(dir: &Path) -> Option<State> {
    open(dir).1
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(32))]

    #[test]
    fn a_replay_makes_the_table_and_every_kept_revision(
        revisions in prop::collection::vec(prop::collection::vec(ops(), 0..4), 0..150),
        meanwhile in prop::collection::vec(prop::collection::vec(ops(), 0..4), 0..20),
    ) {
        let dir = tempfile::tempdir().unwrap();
        let (mut journal, mut states) = written(dir.path(), &revisions);
        for compacted in [false, true] {
            if compacted {
                journal.start_compaction().unwrap();
                for ops in &meanwhile {
                    let mut state = states.last().unwrap().clone();
                    let record = record(state.revision + 1, ops.clone());
                    journal.append(&record).unwrap();
                    state.take(&record);
                    states.push(state);
                    journal.append(&self::record(states.len() as u64, vec![Op::Clear])).unwrap();
                    journal.take_back(&self::record(states.len() as u64, vec![Op::Clear]));
                }
                end_compaction(&mut journal);
                assert!(journal.records <= KEPT + meanwhile.len());
            }
            let last = states.last().unwrap();
            let history = journal.history().unwrap();
            assert_eq!(history.len(), states.len().min(KEPT));
            assert_eq!(history.last().unwrap().what, record(last.revision, Vec::new()).what);
            for state in &states {
                match journal.state_at(state.revision).unwrap() {
                    Some(kept) => assert_same(&kept, state),
                    None => assert!(state.revision + (KEPT as u64) <= last.revision),
                }
            }
        }
        let last = states.last().unwrap();
        let next = record(last.revision + 1, vec![service(4, "rr", 0)]);
        journal.append(&next).unwrap();
        journal.append(&record(last.revision + 2, vec![Op::Clear])).unwrap();
        journal.take_back(&record(last.revision + 2, vec![Op::Clear]));
        let mut expected = last.clone();
        expected.take(&next);
        drop(journal);
        assert_same(&reopened(dir.path()).unwrap(), &expected);
    }

    #[test]
    fn the_difference_between_two_tables_makes_the_one_of_the_other(
        (a, b) in (prop::collection::vec(ops(), 0..40), prop::collection::vec(ops(), 0..40))
    ) {
        let table = |ops: &[Op]| {
            let mut table = Table::default();
            ops.iter().for_each(|op| table.take(op));
            table
        };
        let (from, to) = (table(&a), table(&b));
        let mut made = from.clone();
        from.difference(&to).iter().for_each(|op| made.take(op));
        assert_eq!(made.difference(&to), []);
        assert_eq!(to.difference(&made), []);
    }
}

/// A journal of some records of every kind: its bytes, where each record ends, the states.
fn sample(dir: &Path) -> (Vec<u8>, Vec<usize>, Vec<State>) {
    let revisions = [
        vec![service(2, "rr", 0), Op::Dest(key(2), dest(1, 1))],
        vec![service(0, "sh", 1), Op::Dest(key(2), dest(2, 7))],
        vec![Op::NoDest(key(2), dest_key(1)), Op::Timeouts([5; 11])],
        vec![Op::Clear],
    ];
    let (journal, states) = written(dir, &revisions);
    drop(journal);
    let bytes = fs::read(dir.join(FILE)).unwrap();
    let ends: Vec<_> = bytes.iter().enumerate().filter(|(_, b)| **b == b'\n').map(|(at, _)| at + 1).collect();
    // The first line is the head.
    (bytes, ends[1..].to_vec(), states)
}

#[test]
fn a_journal_cut_at_any_byte_holds_the_whole_records_before() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, ends, states) = sample(dir.path());
    for length in 0..=bytes.len() {
        fs::write(dir.path().join(FILE), &bytes[..length]).unwrap();
        let whole = ends.iter().filter(|end| **end <= length).count();
        let (mut journal, state) = open(dir.path());
        match state {
            None => assert_eq!(whole, 0, "cut at {length}"),
            Some(state) => {
                assert_same(&state, &states[whole - 1]);
                // It goes on from there.
                let next = record(state.revision + 1, vec![service(3, "rr", 0)]);
                journal.append(&next).unwrap();
                let mut expected = state;
                expected.take(&next);
                drop(journal);
                assert_same(&reopened(dir.path()).unwrap(), &expected);
            }
        }
    }
}

#[test]
fn a_flipped_bit_anywhere_ends_the_journal_before_its_record() {
    let dir = tempfile::tempdir().unwrap();
    let (mut bytes, ends, states) = sample(dir.path());
    for at in 0..bytes.len() {
        for bit in 0..8 {
            bytes[at] ^= 1 << bit;
            let whole = ends.iter().filter(|end| **end <= at).count();
            match read(&bytes) {
                Reading::Nothing => assert_eq!(whole, 0, "byte {at} bit {bit}"),
                Reading::Version(_) => panic!("byte {at} bit {bit}: taken for another version"),
                Reading::Records { records, good_bytes } => {
                    assert_eq!((records.len(), good_bytes), (whole, ends[whole - 1]), "byte {at} bit {bit}");
                    let mut state = State::default();
                    records.iter().for_each(|record| state.take(record));
                    assert_same(&state, &states[whole - 1]);
                }
            }
            bytes[at] ^= 1 << bit;
        }
    }
}

#[test]
fn what_cannot_be_used_is_moved_away_or_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _, _) = sample(dir.path());
    let mut damaged = bytes.clone();
    damaged[12] ^= 1;
    fs::write(dir.path().join(FILE), &damaged).unwrap();
    assert!(reopened(dir.path()).is_none());
    assert_eq!(fs::read(dir.path().join(DAMAGED_FILE)).unwrap(), damaged);

    fs::write(dir.path().join(FILE), other_version()).unwrap();
    let failure = Journal::open(dir.path()).unwrap_err();
    assert_eq!(failure.exit, crate::failure::Exit::Environment);
    assert!(failure.why.contains("version 2"), "{failure}");
    assert_eq!(fs::read_to_string(dir.path().join(FILE)).unwrap(), other_version());
}

#[test]
fn a_new_file_that_was_not_finished_counts_for_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let (bytes, _, states) = sample(dir.path());
    let elsewhere = tempfile::tempdir().unwrap();
    drop(written(elsewhere.path(), &[vec![service(3, "rr", 0)], vec![Op::Clear]]));
    let new = fs::read(elsewhere.path().join(FILE)).unwrap();
    for length in 0..=new.len() {
        fs::write(dir.path().join(NEW_FILE), &new[..length]).unwrap();
        assert_same(&reopened(dir.path()).unwrap(), states.last().unwrap());
        assert!(!dir.path().join(NEW_FILE).exists(), "left over");
        assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), bytes);
    }
}

#[test]
fn a_compaction_that_fails_leaves_the_journal_and_is_tried_again_later() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = written(dir.path(), &vec![vec![service(3, "rr", 0)]; 70]);
    let before = fs::read(dir.path().join(FILE)).unwrap();
    // No file can be made there.
    fs::create_dir(dir.path().join(NEW_FILE)).unwrap();
    journal.records += SURPLUS_RECORDS;
    journal.tick(true).unwrap();
    let failed = std::iter::repeat_with(|| journal.tick(true)).find(Result::is_err);
    assert!(failed.is_some() && journal.compaction.is_none());
    assert_eq!(fs::read(dir.path().join(FILE)).unwrap(), before);
    fs::remove_dir(dir.path().join(NEW_FILE)).unwrap();
    for _ in 1..RETRY_TICKS {
        journal.tick(true).unwrap();
        assert!(journal.compaction.is_none(), "tried again at once");
    }
    journal.tick(true).unwrap();
    assert!(journal.compaction.is_some());
    end_compaction(&mut journal);
    assert!(fs::read(dir.path().join(FILE)).unwrap().len() < before.len());
}

/// Names the directory to the process that is killed.
const KILLED_DIR: &str = "WEIR_TEST_JOURNAL_DIR";

/// What this revision changes.
fn nth(revision: u64) -> Record {
    let number = (revision % 250) as u8;
    record(revision, vec![service(number, "rr", 0), Op::Dest(key(number), dest(1, revision as i32))])
}

/// Not a test by itself: what the next one kills. Says which revisions are written.
#[test]
fn writes_and_compacts_until_it_is_killed() {
    let Some(dir) = std::env::var_os(KILLED_DIR) else { return };
    let (mut journal, state) = open(dir.as_ref());
    let mut revision = state.map_or(0, |state| state.revision);
    if revision == 0 {
        journal.begin(&State::default(), &record(0, Vec::new())).unwrap();
    }
    loop {
        revision += 1;
        journal.append(&nth(revision)).unwrap();
        println!("\nwritten {revision}");
        journal.tick(false).unwrap();
        if journal.records > 2 * KEPT && journal.compaction.is_none() {
            journal.start_compaction().unwrap();
            println!("\ncompacting");
        }
    }
}

#[test]
fn a_kill_in_a_compaction_loses_nothing_that_was_written() {
    use std::io::BufRead;

    let rounds = if std::env::var_os("WEIR_SOAK").is_some() { 1000 } else { 50 };
    let dir = tempfile::tempdir().unwrap();
    let mut expected = State::default();
    let mut unfinished = 0;
    for round in 0..rounds {
        let mut command = std::process::Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "daemon::journal::tests::writes_and_compacts_until_it_is_killed"]);
        command.arg("--nocapture").env(KILLED_DIR, dir.path()).stdout(std::process::Stdio::piped());
        let mut child = command.spawn().unwrap();
        let mut lines = io::BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        let number = |line: String| line.strip_prefix("written ")?.parse::<u64>().ok();
        let begun = lines.by_ref().take_while(|line| line != "compacting");
        let first = begun.filter_map(number).last().unwrap_or_default();
        let reading = std::thread::spawn(move || lines.filter_map(number).last());
        // Every other kill waits a little until there is a new file; that every state of one is taken up, another test shows.
        let begun = std::time::Instant::now();
        let new = dir.path().join(NEW_FILE);
        while round % 2 == 0 && !new.exists() && begun.elapsed().as_millis() < 10 {}
        std::thread::sleep(std::time::Duration::from_micros(round * 797 % 4_000 * (round % 2)));
        child.kill().unwrap();
        child.wait().unwrap();
        let last = reading.join().unwrap().unwrap_or(first);
        unfinished += usize::from(dir.path().join(NEW_FILE).exists());
        let state = reopened(dir.path()).unwrap();
        assert!((last..=last + 1).contains(&state.revision), "{} after {last}", state.revision);
        (expected.revision + 1..=state.revision).for_each(|revision| expected.take(&nth(revision)));
        assert_same(&state, &expected);
    }
    println!("{rounds} kills, {unfinished} with an unfinished file, {} revisions", expected.revision);
}

#[test]
fn a_directory_is_one_daemons() {
    let dir = tempfile::tempdir().unwrap();
    let first = Journal::open(dir.path()).unwrap();
    let failure = Journal::open(dir.path()).unwrap_err();
    assert_eq!(failure.exit, crate::failure::Exit::Environment);
    assert!(failure.why.contains("another weir"), "{failure}");
    drop(first);
    open(dir.path());
    let failure = Journal::open(&dir.path().join(FILE)).unwrap_err();
    assert!(failure.hint.unwrap().contains("state_dir"));
}

#[test]
fn a_compaction_is_worth_it_by_records_or_bytes_and_waits_for_a_pause() {
    let dir = tempfile::tempdir().unwrap();
    let (mut journal, _) = written(dir.path(), &[]);
    journal.records = KEPT + SURPLUS_RECORDS + 1;
    assert!(journal.is_to_compact(true) && !journal.is_to_compact(false));
    journal.records = KEPT + SURPLUS_RECORDS * SURPLUS_URGENT as usize + 1;
    assert!(journal.is_to_compact(false));
    journal.records = KEPT + 1;
    assert!(!journal.is_to_compact(true));
    journal.bytes += SURPLUS_BYTES + 1;
    assert!(journal.is_to_compact(true) && !journal.is_to_compact(false));
    journal.records = KEPT;
    assert!(!journal.is_to_compact(true), "every revision is kept");
}

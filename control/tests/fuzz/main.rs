//! Fuzzing without instruments: inputs near the recorded ones, and what came to something new is kept and mutated
//! further. Each target runs over its recorded inputs and what earlier runs kept (`data/fuzz`), then over mutations:
//! a fixed number of them as a rule, ten minutes with WEIR_SOAK (or WEIR_FUZZ_SECONDS). WEIR_FUZZ_KEEP writes what a
//! run kept back to `data/fuzz`. The same seed gives the same inputs.
#![forbid(unsafe_code)]

mod mutate;
mod seeds;
mod targets;
#[path = "../weiradm_common/mod.rs"]
mod weiradm_common;
/// The preloaded library's reading of messages. The library itself must not be in this process.
#[path = "../../shim/src/wire.rs"]
mod wire;

use std::collections::HashSet;
use std::fmt::Write as _;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::PathBuf;
use std::time::{Duration, Instant};

use mutate::{Rng, mutate};
use targets::{Files, Lines, Replies, Requests, Target};

/// Mutations of a run that is not timed.
const MUTATIONS: u64 = 20_000;
/// Time of a soak, for each target.
const SOAK: Duration = Duration::from_secs(600);
/// Inputs kept in a run; what is written back are the shortest of them.
const KEPT_MAX: usize = 4096;
const WRITTEN_MAX: usize = 150;
const WRITTEN_BYTES_MAX: usize = 600;
const SEED: u64 = 0x5eed_0001;

/// Error numbers that a request may be refused with: EPERM, ENOENT, ESRCH, ENOMEM, EEXIST, ENODEV, EINVAL, ERANGE,
/// EMSGSIZE, EOPNOTSUPP, EAFNOSUPPORT.
const ERRNOS: [i32; 11] = [1, 2, 3, 12, 17, 19, 22, 34, 90, 95, 97];

#[test]
fn requests() {
    let mut target = Requests::new();
    fuzz("requests", &mut target, seeds::requests(), &[]);
    for errno in ERRNOS {
        assert!(target.errnos.contains(&errno), "no request was refused with {errno}: {:?}", target.errnos);
    }
}

#[test]
fn replies() {
    fuzz("replies", &mut Replies, seeds::replies(), &[]);
}

#[test]
fn lines() {
    let lines = seeds::lines();
    let words = seeds::words_of(&lines);
    fuzz("lines", &mut Lines, lines, &words);
}

#[test]
fn files() {
    let files = seeds::files();
    let words = seeds::words_of(&files);
    fuzz("files", &mut Files, files, &words);
}

fn fuzz(name: &str, target: &mut dyn Target, seeds: Vec<Vec<u8>>, words: &[Vec<u8>]) {
    let limit = limit();
    let begun = Instant::now();
    let (mut kept, mut seen) = (Vec::new(), HashSet::new());
    let recorded = seeds.len();
    for seed in seeds.into_iter().chain(read(name)) {
        if seen.insert(run(name, target, &seed)) {
            kept.push(seed);
        }
    }
    let known = kept.len();
    let mut rng = Rng::new(SEED);
    let mut mutations = 0;
    while limit.map_or(mutations < MUTATIONS, |limit| begun.elapsed() < limit) {
        let input = mutate(&kept[rng.below(kept.len())], &kept, words, &mut rng);
        mutations += 1;
        if seen.insert(run(name, target, &input)) && kept.len() < KEPT_MAX {
            kept.push(input);
        }
    }
    println!(
        "{name}: {recorded} recorded inputs, {mutations} mutations in {} s, {known} outcomes known, {} found",
        begun.elapsed().as_secs(),
        seen.len() - known
    );
    if std::env::var_os("WEIR_FUZZ_KEEP").is_some() {
        write(name, kept.split_off(known));
    }
}

/// Runs one input; a fault names it, in the form of a line for `data/fuzz`.
fn run(name: &str, target: &mut dyn Target, input: &[u8]) -> u64 {
    catch_unwind(AssertUnwindSafe(|| target.run(input))).unwrap_or_else(|fault| {
        println!("{name}: the input that did it:\n{}", hex(input));
        std::panic::resume_unwind(fault)
    })
}

fn limit() -> Option<Duration> {
    let seconds = std::env::var("WEIR_FUZZ_SECONDS").ok().and_then(|text| text.parse().ok());
    seconds.map(Duration::from_secs).or_else(|| std::env::var_os("WEIR_SOAK").map(|_| SOAK))
}

fn file(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/data/fuzz").join(format!("{name}.txt"))
}

fn read(name: &str) -> Vec<Vec<u8>> {
    let text = std::fs::read_to_string(file(name)).unwrap_or_default();
    text.lines().filter(|line| !line.starts_with('#')).map(seeds::bytes).collect()
}

fn write(name: &str, found: Vec<Vec<u8>>) {
    let mut all: Vec<_> =
        read(name).into_iter().chain(found).filter(|i| i.len() <= WRITTEN_BYTES_MAX).collect();
    all.sort_by_key(Vec::len);
    all.truncate(WRITTEN_MAX);
    let mut text =
        format!("# Inputs for the fuzz target {name} that came to something new, kept by a run of it.\n");
    all.iter().for_each(|input| {
        let _ = writeln!(text, "{}", hex(input));
    });
    std::fs::create_dir_all(file(name).parent().unwrap()).unwrap();
    std::fs::write(file(name), text).unwrap();
}

fn hex(input: &[u8]) -> String {
    input.iter().fold(String::new(), |mut text, byte| {
        let _ = write!(text, "{byte:02x}");
        text
    })
}

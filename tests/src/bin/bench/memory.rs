//! `mem.per_conn`: what a connection takes of the machine's memory.
//!
//! Two processes, one with a worker sized for a million connections and filled with as many, one with ten million; each
//! says what of it is resident, huge pages included. What does not grow with connections falls out of the difference.

use std::process::Command;

use crate::Bench;
use crate::feed::{Frames, L4, Pattern};
use crate::plain::PlainFeed;
use crate::report::Row;
use crate::subject::{Rules, Subject};

/// Connections of the two processes.
const FEW: u32 = 1_000_000;
const MANY: u32 = 10_000_000;
/// What a connection may take, bytes.
const LIMIT: f64 = 128.0;
/// Nanoseconds since start at which everything happens: no connection ends while others are made.
const NOW: u64 = 1_000_000_000;

/// The row.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    const ID: &str = "mem.per_conn";
    if !bench.wants(ID) {
        return Ok(());
    }
    let (few, many) = (resident(FEW)?, resident(MANY)?);
    let value = (many - few) * 1024.0 / f64::from(MANY - FEW);
    bench.push(Row {
        value,
        unit: "bytes",
        reference: format!("the limit; {:.0} MiB with 1m, {:.0} MiB with 10m", few / 1024.0, many / 1024.0),
        reference_value: Some(LIMIT),
        ratio: Some(value / LIMIT),
        ..Row::new(ID)
    });
    Ok(())
}

/// KiB of a process with so many connections.
fn resident(conns: u32) -> Result<f64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new(program).args(["--memory", &conns.to_string()]).output();
    let output = output.map_err(|e| format!("a process with {conns} connections: {e}"))?;
    let text = String::from_utf8_lossy(&output.stdout);
    text.trim().parse().map_err(|_| {
        format!("a process with {conns} connections: {}", String::from_utf8_lossy(&output.stderr).trim())
    })
}

/// That process: fills its table, prints its KiB.
pub fn run_filled(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let conns = args.next().and_then(|n| n.parse::<u32>().ok()).ok_or("--memory CONNECTIONS")?;
    let mut feed = PlainFeed::new(Frames::new(L4::Tcp, conns));
    let mut subject = Subject::new(Rules { conns: conns as usize, ..Rules::of("nat", L4::Tcp) }, NOW)?;
    feed.frames.start(Pattern::Syn);
    subject.run_packets(&mut feed, u64::from(conns), || NOW);
    if subject.conns() != conns as usize {
        return Err(format!("{} of {conns} connections made; {}", subject.conns(), subject.drops()));
    }
    let status =
        std::fs::read_to_string("/proc/self/status").map_err(|e| format!("/proc/self/status: {e}"))?;
    let kib = |name: &str| -> Option<u64> {
        status.lines().find_map(|line| line.strip_prefix(name))?.split_whitespace().next()?.parse().ok()
    };
    let (Some(rss), Some(huge)) = (kib("VmRSS:"), kib("HugetlbPages:")) else {
        return Err("/proc/self/status shows no VmRSS or no HugetlbPages".into());
    };
    println!("{}", rss + huge);
    Ok(())
}

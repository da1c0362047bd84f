//! Rows about the price of timers: what a poll costs at its worst, and what a million connections that end do to the
//! time of a burst.
//!
//! `timer.worst` counts instructions of every single poll by callgrind while a hundred thousand connections end at
//! once; the work of a poll is bounded, so more of them would only take more polls. `timer.p999` takes the time of every
//! poll with a full burst of a thousand established flows while a million others end, beside the same without them.

use std::process::Command;
use std::time::Duration;

use dataplane::io::Io;

use crate::Bench;
use crate::feed::{Frames, L4, Pattern};
use crate::plain::PlainFeed;
use crate::report::{Row, median};
use crate::subject::{Rules, Subject};

/// Connections of `timer.worst` that end at once.
const ENDING: u64 = 100_000;
/// Flows that go on.
const FLOWS: u32 = 1_000;
/// Polls of `timer.worst` before and during the end of the connections.
const POLLS: usize = 1_000;
/// Connections of `timer.p999` that end.
const IDLE: u64 = 1_000_000;
/// They live so long, seconds.
const IDLE_S: u32 = 2;

/// Both rows.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    if bench.wants("timer.worst") {
        match worst() {
            Ok((worst, usual)) => bench.push(Row {
                value: worst,
                unit: "instructions",
                reference: "callgrind: the median poll of the same burst, no timer due".into(),
                reference_value: Some(usual),
                ratio: Some(worst / usual),
                ..Row::new("timer.worst")
            }),
            Err(why) => eprintln!("bench: timer.worst left out: {why}"),
        }
    }
    if bench.wants("timer.p999") {
        p999(bench)?;
    }
    Ok(())
}

/// Most instructions of a poll while connections end, and the median before.
fn worst() -> Result<(f64, f64), String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let out = std::env::temp_dir().join(format!("weir-bench-{}.callgrind", std::process::id()));
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--combine-dumps=yes", "--dump-after=*counted_poll*"])
        .arg(format!("--callgrind-out-file={}", out.display()))
        .arg(program)
        .arg("--worst")
        .output()
        .map_err(|e| format!("valgrind does not start ({e}); make setup installs it"))?;
    let text = std::fs::read_to_string(&out);
    let _ = std::fs::remove_file(&out);
    if !output.status.success() {
        return Err(format!("valgrind ended with {}", output.status));
    }
    let text = text.map_err(|e| format!("{}: {e}", out.display()))?;
    // One part a poll, in order; the first holds the set-up too.
    let parts: Vec<f64> = text
        .lines()
        .filter_map(|line| line.strip_prefix("totals:"))
        .filter_map(|n| n.trim().parse().ok())
        .collect();
    let [first, second] = [parts.get(1..POLLS), parts.get(POLLS..2 * POLLS)];
    let (Some(before), Some(during)) = (first, second) else {
        return Err(format!("callgrind wrote {} parts of {}", parts.len(), 2 * POLLS));
    };
    let worst = during.iter().copied().fold(0.0, f64::max);
    Ok((worst, median(&mut before.to_vec()).0))
}

/// The counted program.
pub fn run_worst() -> Result<(), String> {
    let mut now = 1_000_000_000;
    let mut feed = PlainFeed::new(Frames::new(L4::Tcp, FLOWS));
    let rules = Rules { conns: 200_000, synrecv: IDLE_S, ..Rules::of("nat", L4::Tcp) };
    let mut subject = Subject::new(rules, now)?;
    establish(&mut subject, &mut feed, &mut || now);
    // Flows beyond the thousand: they stay half open.
    feed.frames.start_at(Pattern::Syn, u64::from(FLOWS));
    subject.run_packets(&mut feed, ENDING, || now);
    feed.frames.start(Pattern::BothWays);
    for _ in 0..POLLS {
        counted_poll(&mut subject, &mut feed, now);
    }
    now += u64::from(IDLE_S + 1) * 1_000_000_000;
    for _ in 0..POLLS {
        counted_poll(&mut subject, &mut feed, now);
    }
    Ok(())
}

/// One poll, with a name of its own for callgrind.
#[inline(never)]
fn counted_poll<I: Io>(subject: &mut Subject<I::Buf>, io: &mut I, now_ns: u64)
where
    I::Buf: dataplane::io::PacketBuf,
{
    subject.worker.poll(now_ns, io);
}

fn p999(bench: &mut Bench<'_>) -> Result<(), String> {
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds.min(5) {
        with.push(burst_p999(bench, IDLE)?);
        without.push(burst_p999(bench, 0)?);
    }
    let ((value, spread), (none, _)) = (median(&mut with), median(&mut without));
    bench.push(Row {
        value,
        unit: "ns/burst",
        reference: "p99.9 of a burst's poll: a million connections ending, and none".into(),
        reference_value: Some(none),
        ratio: Some(value / none),
        spread,
        ..Row::new("timer.p999")
    });
    Ok(())
}

/// 99.9th percentile of a poll with a burst over three seconds, in which `idle` connections end; nanoseconds.
fn burst_p999(bench: &Bench<'_>, idle: u64) -> Result<f64, String> {
    let clock = bench.clock;
    let rules = Rules { conns: 2_000_000, synrecv: IDLE_S, ..Rules::of("nat", L4::Tcp) };
    let mut subject = Subject::new(rules, clock.now_ns())?;
    let mut feed = bench.feed(L4::Tcp, FLOWS);
    establish(&mut subject, &mut feed, &mut || clock.now_ns());
    feed.frames.start_at(Pattern::Syn, u64::from(FLOWS));
    subject.run_packets(&mut feed, idle, || clock.now_ns());
    feed.frames.start(Pattern::BothWays);
    let mut polls = Vec::with_capacity(8 << 20);
    let (mut at, end) = (clock.now_ns(), clock.now_ns() + Duration::from_secs(3).as_nanos() as u64);
    while at < end && polls.len() < polls.capacity() {
        subject.worker.poll(at, &mut feed);
        let after = clock.now_ns();
        polls.push((after - at) as u32);
        at = after;
    }
    if idle > 0 && subject.conns() > FLOWS as usize {
        return Err(format!("timer.p999: {} connections have not ended", subject.conns()));
    }
    let rank = polls.len() - 1 - polls.len() / 1000;
    let (_, p999, _) = polls.select_nth_unstable(rank);
    Ok(f64::from(*p999))
}

/// Handshakes of the flows that go on.
fn establish<I: Io + crate::feed::Feeds>(
    subject: &mut Subject<I::Buf>,
    feed: &mut I,
    now: &mut impl FnMut() -> u64,
) where
    I::Buf: dataplane::io::PacketBuf,
{
    let whole = u64::from(FLOWS).next_multiple_of(32);
    for pattern in [Pattern::Syn, Pattern::SynAck, Pattern::Requests] {
        feed.frames().start(pattern);
        subject.run_packets(feed, whole, &mut *now);
    }
}

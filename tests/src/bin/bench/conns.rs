//! Rows about connections that come and go: made without end, whole lives at a million live, allocations, memory of a
//! packet path.

use std::time::Instant;

use crate::feed::{L4, Pattern};
use crate::report::Row;
use crate::subject::{Rules, Subject};
use crate::{Bench, check, pass};

/// Virtual time between two new connections, nanoseconds: a million a second.
const NEW_NS: u64 = 1_000;
/// Connections of `conn.churn` that are established at any time.
const ESTABLISHED: u32 = 500_000;
/// Virtual time of a group of 32 connections in `conn.churn`, nanoseconds: with a second of TIME_WAIT, half a million
/// connections are in that state.
const GROUP_NS: u64 = 64_000;
/// Polls that a group of `conn.churn` takes: its six bursts come to ports 0, 1; 0; 0, 1; 0.
const GROUP_POLLS: u64 = 4;
/// Packets in the life of a `conn.churn` connection.
const LIFE: u64 = 6;

/// All of them.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    new(bench)?;
    churn(bench)?;
    allocations(bench)
}

/// New connections without end: each packet a SYN of a new flow, old ones expiring as fast.
fn new(bench: &mut Bench<'_>) -> Result<(), String> {
    let rules = Rules { conns: 2_000_000, synrecv: 1, ..Rules::of("nat", L4::Tcp) };
    endless(bench, "conn.new", rules, Pattern::Syn, 32 * NEW_NS, 2_500_000)
}

/// Whole lives at a million live connections: handshake, one teardown from each side, expiry of TIME_WAIT.
fn churn(bench: &mut Bench<'_>) -> Result<(), String> {
    let rules = Rules { conns: 2_000_000, timewait: 1, ..Rules::of("nat", L4::Tcp) };
    let pattern = Pattern::Lives { established: ESTABLISHED };
    // Until as many have been through TIME_WAIT as are in it at any time.
    let filled = LIFE * 3 * u64::from(ESTABLISHED);
    endless(bench, "conn.churn", rules, pattern, GROUP_NS / GROUP_POLLS, filled)
}

fn endless(
    bench: &mut Bench<'_>,
    id: &'static str,
    rules: Rules,
    pattern: Pattern,
    poll_ns: u64,
    setup: u64,
) -> Result<(), String> {
    const PACKETS: u64 = 1_000_000;
    if !bench.wants(id) {
        return Ok(());
    }
    let mut now = 1_000_000_000;
    let mut subject = Subject::new(rules, now)?;
    let mut feed = bench.feed(L4::Tcp, 1 << 24);
    let mut alone = bench.feed(L4::Tcp, 1 << 24);
    feed.frames.start(pattern);
    alone.frames.start(pattern);
    let mut tick = || {
        now += poll_ns;
        now
    };
    subject.run_packets(&mut feed, setup, &mut tick);
    let (mut net, mut reference) = (Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        reference.extend(bench.reference()?);
        let idle = pass(&mut alone, bench.span, |_| {});
        let from = Instant::now();
        subject.run_packets(&mut feed, PACKETS, &mut tick);
        net.push(from.elapsed().as_nanos() as f64 / PACKETS as f64 - idle);
    }
    check(id, &subject, &feed)?;
    if !(900_000..=1_200_000).contains(&subject.conns()) {
        return Err(format!("{id}: {} connections live, not about a million", subject.conns()));
    }
    bench.row(id, net, reference);
    Ok(())
}

/// Allocations of a poll, a packet: of established connections, and of connections that are made and end.
fn allocations(bench: &mut Bench<'_>) -> Result<(), String> {
    const ID: &str = "alloc.per_packet";
    const PACKETS: u64 = 1_000_000;
    if !bench.wants(ID) {
        return Ok(());
    }
    let clock = bench.clock;
    let (mut subject, mut feed) = bench.established("nat", L4::Tcp, 1_000)?;
    feed.frames.start(Pattern::BothWays);
    // The feed keeps frames for the checker at first; those are its own.
    subject.run_packets(&mut feed, PACKETS, || clock.now_ns());
    let known = allocation_counter::measure(|| subject.run_packets(&mut feed, PACKETS, || clock.now_ns()));

    let rules = Rules { conns: 200_000, synrecv: 1, ..Rules::of("nat", L4::Tcp) };
    let mut now = 1_000_000_000;
    let mut subject = Subject::new(rules, now)?;
    feed.frames.start(Pattern::Syn);
    let made = allocation_counter::measure(|| {
        subject.run_packets(&mut feed, PACKETS, || {
            now += 32 * 10_000;
            now
        });
    });
    let allocations = (known.count_total + made.count_total) as f64;
    bench.push(Row {
        value: allocations / (2 * PACKETS) as f64,
        unit: "allocations",
        reference: "none at all".into(),
        reference_value: Some(0.0),
        ..Row::new(ID)
    });
    Ok(())
}

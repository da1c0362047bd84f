//! What the stages of the path cost, each on top of the one before, over the feed: parse, probe (hash and look-up),
//! and the rest (decide, forward, send) as the difference to the whole worker.

use dataplane::io::{Burst, Io};
use dataplane::limits::BURST;
use dataplane::pipeline::parse::{Meta, parse};
use dataplane::pipeline::probe::Probes;
use dataplane::wire::ethernet::Mac;
use std::hint::black_box;
use std::time::Instant;

use crate::feed::{L4, MACS, Pattern};
use crate::report::{Row, median};
use crate::{Bench, pass};

/// Rows `stage.*.1k` and `stage.*.1m`.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    for (size, flows) in [("1k", 1_000), ("1m", 1_000_000)] {
        let id = |stage: &str| format!("stage.{stage}.{size}");
        if !["parse", "probe", "rest"].iter().any(|s| bench.wants(&id(s))) {
            continue;
        }
        let (mut subject, mut feed) = bench.established("nat", L4::Tcp, flows)?;
        feed.frames.start(Pattern::BothWays);
        let (mut parsed, mut probed, mut rest) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..bench.rounds {
            let idle = pass(&mut feed, bench.span, |_| {});
            let parse_only = staged(bench, &mut feed, |_, metas| {
                black_box(metas);
            });
            let parse_probe = staged(bench, &mut feed, |i, metas| {
                let conns = subject.worker.conns();
                let probes = Probes::of(conns, metas);
                for (i, meta) in metas.iter().enumerate() {
                    black_box(probes.look_up(conns, i, meta));
                }
                black_box(i);
            });
            let whole = subject.sample(&mut feed, &bench.clock, bench.span);
            parsed.push(parse_only - idle);
            probed.push(parse_probe - parse_only);
            rest.push(whole - parse_probe);
        }
        for (stage, mut samples) in [("parse", parsed), ("probe", probed), ("rest", rest)] {
            let (value, spread) = median(&mut samples);
            bench.push(Row {
                value,
                unit: "ns/packet",
                reference: "information".into(),
                spread,
                ..Row::new(id(stage))
            });
        }
    }
    Ok(())
}

/// Parses bursts and hands them to `work`; nanoseconds a packet.
fn staged(bench: &Bench<'_>, feed: &mut crate::feed::Feed<'_>, mut work: impl FnMut(usize, &[Meta])) -> f64 {
    let mut burst = Burst::new();
    let (from, mut packets) = (Instant::now(), 0u64);
    while from.elapsed() < bench.span {
        for _ in 0..256 {
            for (port, mac) in MACS.into_iter().enumerate() {
                feed.rx(port as u8, &mut burst);
                if burst.is_empty() {
                    continue;
                }
                let mut metas = [Meta::NONE; BURST];
                for (meta, mbuf) in metas.iter_mut().zip(burst.iter()) {
                    *meta = parse(mbuf, Mac(mac));
                }
                packets += burst.len() as u64;
                work(port, &metas[..burst.len()]);
                feed.tx(0, &mut burst);
            }
        }
    }
    from.elapsed().as_nanos() as f64 / packets as f64
}

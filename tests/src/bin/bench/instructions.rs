//! Instructions a packet by callgrind: repeatable where time is not. This program runs itself under valgrind with
//! two packet counts; the difference is free of set-up. The feed's own instructions are subtracted.

use std::process::Command;

use dataplane::io::Burst;

use crate::Bench;
use crate::feed::{Frames, L4, Pattern};
use crate::plain::PlainFeed;
use crate::report::Row;
use crate::subject::{Rules, Subject};

/// Flows of the counted runs: instruction counts hardly depend on it, valgrind's patience does.
const FLOWS: u32 = 1_000;
/// Counted rows and the method, or protocol, or pattern that makes them.
const COUNTED: [(&str, &str); 4] =
    [("path.nat4", "nat"), ("path.dr4", "dr"), ("path.nat4udp", "udp"), ("conn.new", "new")];
/// Packets of the short run, and of the long one.
const PACKETS: [u64; 2] = [20_000, 120_000];

/// Rows `instructions.*`.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    for (id, method) in COUNTED {
        let id = format!("instructions.{id}");
        if !bench.wants(&id) {
            continue;
        }
        let value = match (per_packet(method, true), per_packet(method, false)) {
            (Ok(with), Ok(without)) => with - without,
            (Err(why), _) | (_, Err(why)) => {
                eprintln!("bench: {id} left out: {why}");
                continue;
            }
        };
        bench.push(Row {
            value,
            unit: "instructions",
            reference: "callgrind, feed subtracted".into(),
            ..Row::new(id)
        });
    }
    Ok(())
}

fn per_packet(method: &str, with_subject: bool) -> Result<f64, String> {
    let [short, long] = PACKETS.map(|packets| count(method, with_subject, packets));
    Ok((long? - short?) as f64 / (PACKETS[1] - PACKETS[0]) as f64)
}

fn count(method: &str, with_subject: bool, packets: u64) -> Result<u64, String> {
    let program = std::env::current_exe().map_err(|e| e.to_string())?;
    let output = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(program)
        .args(["--count", method, if with_subject { "subject" } else { "feed" }, &packets.to_string()])
        .output()
        .map_err(|e| format!("valgrind does not start ({e}); make setup installs it"))?;
    let text = String::from_utf8_lossy(&output.stderr);
    let refs =
        text.lines().find_map(|l| l.split_once("Collected :")).and_then(|(_, n)| n.trim().parse().ok());
    refs.filter(|_| output.status.success()).ok_or_else(|| {
        format!("valgrind ended with {}: {}", output.status, text.lines().last().unwrap_or_default())
    })
}

/// The counted program: `METHOD subject|feed PACKETS`.
pub fn run_counted(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(method), Some(what), Some(packets)) = (args.next(), args.next(), args.next()) else {
        return Err("--count METHOD subject|feed PACKETS".into());
    };
    let packets: u64 = packets.parse().map_err(|_| "PACKETS is a number".to_string())?;
    let (method, l4, pattern, flows): (&'static str, _, _, _) = match method.as_str() {
        "nat" => ("nat", L4::Tcp, Pattern::BothWays, FLOWS),
        "dr" => ("dr", L4::Tcp, Pattern::Requests, FLOWS),
        "udp" => ("nat", L4::Udp, Pattern::BothWays, FLOWS),
        _ => ("nat", L4::Tcp, Pattern::Syn, 1 << 20),
    };
    let mut feed = PlainFeed::new(Frames::new(l4, flows));
    let mut now = 1_000_000_000;
    let mut tick = || {
        now += 1_000;
        now
    };
    if what == "subject" {
        let rules = Rules { conns: 200_000, ..Rules::of(method, l4) };
        let mut subject = Subject::new(rules, tick())?;
        if pattern != Pattern::Syn {
            let whole = u64::from(flows).next_multiple_of(32);
            for setup in [Pattern::Syn, Pattern::SynAck].iter().take(if method == "nat" { 2 } else { 1 }) {
                feed.frames.start(*setup);
                subject.run_packets(&mut feed, whole, &mut tick);
            }
        }
        feed.frames.start(pattern);
        subject.run_packets(&mut feed, packets, &mut tick);
    } else {
        feed.frames.start(pattern);
        let (mut burst, mut done) = (Burst::new(), 0);
        while done < packets {
            done += feed.pass(&mut burst) as u64;
        }
    }
    Ok(())
}

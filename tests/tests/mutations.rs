//! Ten million frames, most of them spoiled, through the whole worker under changing rules and faults: nothing panics,
//! no packet is lost or counted twice, what leaves is correct, and every reason to drop a packet is met.

use std::fmt::Write as _;
use std::time::{Duration, Instant};

use dataplane::counters::WorkerFigures;
use dataplane::io::CsumStatus;
use dataplane::io::mem::Arrival;
use dataplane::verdict::DropReason;
use tests::case::{Out, hexdump};
use tests::check::{self, Body, L4};
use tests::mutate::mutations::MUTATIONS;
use tests::mutate::scenario::{SCENARIOS, Scenario};
use tests::mutate::{Rng, Source};
use tests::packets::BROADCAST;
use tests::topo::Topo;

/// Frames of all scenarios together: about 20 s.
const FRAMES: usize = 10_000_000;

/// Frames injected before the worker runs: more than one burst of its own.
const BURST: usize = 63;

/// Buffers in the pool of a [`Topo`].
const POOL: usize = 512;

/// How often each reason that can be met must be met.
const EACH_REASON: u64 = 1000;

/// Reasons that frames in memory cannot be dropped for.
const NOT_HERE: [(DropReason, &str); 2] = [
    (DropReason::WrongOwner, "one worker owns everything; the tests of several have it"),
    (DropReason::RingFull, "one worker has no rings; the tests of several have it"),
];

/// One of so many frames comes in several buffers, and one of so many with a bad checksum by the port's word.
const ODD_ARRIVALS: usize = 64;

/// Identifications of the frames that are judged one by one; all others stay below.
const JUDGED: u16 = 0xff00;

#[test]
fn mutated_traffic() {
    let mut source = Source::new(0x5eed_0001);
    let mut total = Outcome::default();
    let started = Instant::now();
    println!("{:<32} {:>9} {:>9} {:>9} {:>8}", "scenario", "frames", "table", "forwarded", "judged");
    for scenario in SCENARIOS {
        let outcome = run(scenario, FRAMES * scenario.share / 16, &mut source);
        let Outcome { figures, judged } = outcome;
        println!(
            "{:<32} {:>9} {:>8.1}% {:>8.1}% {:>8}",
            scenario.name,
            figures.rx,
            percent(reached_table(&figures), figures.rx),
            percent(forwarded(&figures), figures.rx),
            judged
        );
        total.figures += figures;
        total.judged += judged;
    }
    let figures = &total.figures;
    println!("{} frames a second", (figures.rx as f64 / started.elapsed().as_secs_f64()) as u64);
    print_counts(figures, &source);

    assert!(figures.rx >= FRAMES as u64);
    assert!(total.judged > figures.rx / 80, "{} frames judged", total.judged);
    assert!(percent(reached_table(figures), figures.rx) >= 30.0);
    assert!(percent(forwarded(figures), figures.rx) >= 10.0);
    for reason in DropReason::ALL {
        let (count, not_here) = (figures.drops_for(*reason), NOT_HERE.iter().any(|(r, _)| r == reason));
        assert!(count >= EACH_REASON || not_here, "{} only {count} times", reason.name());
        assert!(count == 0 || !not_here, "{} is possible after all", reason.name());
    }
}

#[derive(Default)]
struct Outcome {
    figures: WorkerFigures,
    judged: u64,
}

fn run(scenario: &Scenario, frames: usize, source: &mut Source) -> Outcome {
    let mut topo = Topo::new(&(scenario.rules)());
    let mut rng = Rng::new(0x5eed_0002);
    let (mut judged, mut id) = (0_u64, 0_u16);
    let start = topo.figures();
    while topo.figures().rx - start.rx < frames as u64 {
        for _ in 0..BURST {
            id = (id + 1) % JUDGED;
            let (port, frame) = source.next_frame(id);
            if !topo.io.inject_with(port, frame, arrival(&mut rng)) {
                break;
            }
        }
        (scenario.disturb)(&mut topo, &mut rng);
        topo.advance(step(&mut rng));
        topo.io.set_pool(POOL);
        conserved(scenario, &topo);
        topo.io.discard_sent();
        judged += u64::from(judge_one(scenario, &mut topo, source, JUDGED | judged as u16 & 0xff));
    }
    wind_down(scenario, &mut topo);
    Outcome { figures: topo.figures(), judged }
}

/// What the port says of a frame.
fn arrival(rng: &mut Rng) -> Arrival {
    match rng.below(ODD_ARRIVALS) {
        0 => Arrival { contiguous: false, ..Arrival::default() },
        1 => Arrival { ip_csum: CsumStatus::Bad, ..Arrival::default() },
        _ => Arrival::default(),
    }
}

/// Mostly what a burst takes on the wire, at times what a connection lasts.
fn step(rng: &mut Rng) -> Duration {
    match rng.below(1000) {
        0 => Duration::from_secs(rng.below(100) as u64),
        1..20 => Duration::from_millis(rng.below(2000) as u64),
        _ => Duration::from_micros(1 + rng.below(500) as u64),
    }
}

#[track_caller]
fn conserved(scenario: &Scenario, topo: &Topo) {
    let figures = topo.figures();
    assert_eq!(figures.unaccounted(), 0, "{}: packets lost or counted twice: {figures:?}", scenario.name);
}

/// With everything working again, the worker comes to rest and holds nothing.
fn wind_down(scenario: &Scenario, topo: &mut Topo) {
    topo.io.tx_room.fill(usize::MAX);
    for _ in 0..10 {
        topo.advance(Duration::from_secs(1));
        topo.io.discard_sent();
    }
    conserved(scenario, topo);
    let figures = topo.figures();
    assert_eq!((figures.queued, figures.parked), (0, 0), "{}", scenario.name);
    assert_eq!(topo.io.live(), 0, "{}: every buffer is back in the pool", scenario.name);
}

/// Sends one frame alone and holds what comes out against the independent decoder. False if no buffer was free.
fn judge_one(scenario: &Scenario, topo: &mut Topo, source: &mut Source, id: u16) -> bool {
    let (port, frame) = source.next_frame(id);
    let frame = frame.to_vec();
    if !topo.io.inject(port, &frame) {
        return false;
    }
    topo.advance(Duration::from_nanos(1));
    conserved(scenario, topo);
    let right = check::decode(&frame).is_ok_and(|decoded| decoded.is_valid());
    for out in topo.sent() {
        if let Err(why) = judge(topo, &out, right, id) {
            panic!(
                "{}: {why}\nin on port {port}:\n{}out on port {}:\n{}",
                scenario.name,
                hexdump(&frame),
                out.port,
                hexdump(&out.frame)
            );
        }
    }
    true
}

/// What is wrong with an emitted frame. `right` says whether the frame that went in was correct in every length and
/// checksum, `id` is that one's identification; others may leave too, which had waited.
fn judge(topo: &Topo, out: &Out, right: bool, id: u16) -> Result<(), &'static str> {
    let port = &topo.rules().ports[out.port];
    let frame = &out.frame[..];
    if frame.len() < 34 || frame[6..12] != port.mac {
        return Err("short or not from the port's MAC address");
    }
    if frame[12..14] == [8, 6] {
        return check::decode(frame).map(drop).map_err(|_| "bad ARP");
    }
    if frame[..6] == BROADCAST || frame[0] & 1 != 0 {
        return Err("IPv4 to a group MAC address");
    }
    let packet = &frame[14..];
    let total_len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    if total_len > usize::from(port.mtu) {
        return Err("longer than the port's MTU");
    }
    if total_len != packet.len() {
        return Err("bytes behind the packet");
    }
    let own_id = u16::from_be_bytes([packet[4], packet[5]]);
    match check::decode(frame) {
        Ok(decoded) if decoded.ip().check != check::Check::Valid => Err("wrong IPv4 checksum"),
        Ok(decoded) if own_id == id && right && !decoded.is_valid() => Err("a right checksum became wrong"),
        Ok(decoded) => match (&decoded.body, decoded.is_valid()) {
            (Body::Ip(ip), valid) if ip.protocol == 1 => judge_icmp(&ip.l4, valid),
            _ => Ok(()),
        },
        Err(_) if own_id == id && right => Err("right lengths became wrong"),
        Err(_) => Ok(()),
    }
}

/// Every ICMP message that leaves is of our own making.
fn judge_icmp(l4: &L4, valid: bool) -> Result<(), &'static str> {
    let L4::Icmp { kind, payload, .. } = l4 else { return Err("cut ICMP") };
    let header_len = payload.first().map_or(0, |byte| usize::from(byte & 0x0f) * 4);
    match kind {
        _ if !valid => Err("wrong ICMP checksum"),
        0 => Ok(()),
        3 | 11 if payload.len() < 20 => Err("an ICMP error about nothing"),
        3 | 11 if payload[9] == 1 && matches!(payload.get(header_len), Some(3 | 4 | 5 | 11 | 12) | None) => {
            Err("an ICMP error about an ICMP error")
        }
        3 | 11 => Ok(()),
        _ => Err("an ICMP message that we never make"),
    }
}

/// Received packets of TCP or UDP that were looked up, at least: those dropped before that, and those that could
/// have been of other protocols, are left out.
fn reached_table(figures: &WorkerFigures) -> u64 {
    use DropReason::*;
    let before = [
        L2NotOurs,
        Ethertype,
        L3Malformed,
        IpCsum,
        IpOpt,
        FragUnmatched,
        L4Short,
        Transit,
        UnmatchedDrop,
        IcmpIgnored,
        IcmpLimited,
        ArpIgnored,
    ];
    figures.rx - figures.consumed - before.iter().map(|reason| figures.drops_for(*reason)).sum::<u64>()
}

/// Packets forwarded, at least: those sent that the worker did not make itself.
fn forwarded(figures: &WorkerFigures) -> u64 {
    figures.tx.saturating_sub(figures.generated)
}

fn percent(part: u64, whole: u64) -> f64 {
    100.0 * part as f64 / whole as f64
}

fn print_counts(figures: &WorkerFigures, source: &Source) {
    let mut out = format!("\n{:<26} {:>9}\n{:<26} {:>9}\n", "mutation", "frames", "none", source.untouched);
    for (mutation, done) in MUTATIONS.iter().zip(&source.done) {
        let _ = writeln!(out, "{:<26} {done:>9}", mutation.name);
    }
    let _ = writeln!(out, "\n{:<26} {:>9}", "outcome", "packets");
    for (name, count) in [
        ("received", figures.rx),
        ("generated", figures.generated),
        ("sent", figures.tx),
        ("consumed", figures.consumed),
        ("connections created", figures.created),
        ("connections expired", figures.expired),
        ("not generated, pool empty", figures.mbuf_nomem),
    ] {
        let _ = writeln!(out, "{name:<26} {count:>9}");
    }
    for reason in DropReason::ALL {
        let why_not = NOT_HERE.iter().find(|(r, _)| r == reason).map_or("", |(_, why)| why);
        let _ = writeln!(out, "drop {:<21} {:>9} {why_not}", reason.name(), figures.drops_for(*reason));
    }
    println!("{out}");
}

//! The state machine against the table in kernel notation and against a recorded kernel.

use crate::conn::record::Direction;
use crate::conn::state::{
    Row, Timeouts, UDP_NORMAL, UNKNOWN_SECS, tcp, tcp_flag, tcp_is_active, tcp_name, tcp_next, udp_name,
};
use crate::conn::ticks_of_secs;

/// Both tables side by side, new state by event and old state: plain, then secure.
const TABLES: &str = "\
INPUT  syn  SR ES ES SR SR SR SR SR SR SR SR | SR ES ES SR SR SR SR SR SR SR SA
INPUT  fin  CL CW SS TW TW TW CL CW LA LI TW | CL CW SS TW TW TW CL CW LA LI SA
INPUT  ack  ES ES SS ES FW TW CL CW CL LI ES | ES ES SS SR FW TW CL CW CL LI SA
INPUT  rst  CL CL CL SR CL CL CL CL LA LI SR | CL CL CL SR CL CL CL CL LA LI CL
OUTPUT syn  SS ES SS SR SS SS SS SS SS LI SR | SS ES SS SA SS SS SS SS SS LI SA
OUTPUT fin  TW FW SS TW FW TW CL TW LA LI TW | TW FW SS TW FW TW CL TW LA LI TW
OUTPUT ack  ES ES SS ES FW TW CL CW LA ES ES | ES ES SS ES FW TW CL CW LA ES ES
OUTPUT rst  CL CL SS CL CL TW CL CL CL CL CL | CL CL SS CL CL TW CL CL CL CL CL
INONLY syn  SR ES ES SR SR SR SR SR SR SR SR | SA ES ES SR SA SA SA SA SA SA SA
INONLY fin  CL FW SS TW FW TW CL CW LA LI TW | CL FW SS TW FW TW CL CW LA LI TW
INONLY ack  ES ES SS ES FW TW CL CW CL LI ES | ES ES SS ES FW TW CL CW CL LI ES
INONLY rst  CL CL CL SR CL CL CL CL LA LI CL | CL CL CL SR CL CL CL CL LA LI CL";

const ABBREVIATIONS: [&str; tcp::STATES] = ["NO", "ES", "SS", "SR", "FW", "TW", "CL", "CW", "LA", "LI", "SA"];

#[test]
fn every_cell_of_both_tables() {
    let mut cells = 0;
    for line in TABLES.lines() {
        let (plain, secure) = line.split_once('|').unwrap();
        let mut words = plain.split_whitespace();
        let row = match words.next().unwrap() {
            "INPUT" => Row::Input,
            "OUTPUT" => Row::Output,
            "INONLY" => Row::InputOnly,
            other => panic!("row {other}"),
        };
        let flags = match words.next().unwrap() {
            "syn" => tcp_flag::SYN,
            "fin" => tcp_flag::FIN,
            "ack" => tcp_flag::ACK,
            "rst" => tcp_flag::RST,
            other => panic!("event {other}"),
        };
        for (secure, news) in [(false, words), (true, secure.split_whitespace())] {
            for (state, new) in (0..).zip(news) {
                let got = tcp_next(secure, row, state, flags);
                assert_eq!(ABBREVIATIONS[got as usize], new, "{line}: state {state}, secure {secure}");
                cells += 1;
            }
        }
    }
    assert_eq!(cells, 24 * tcp::STATES);
}

#[test]
fn the_first_of_rst_syn_fin_ack_is_the_event() {
    for flags in 0..=255u8 {
        for row in [Row::Input, Row::Output, Row::InputOnly] {
            for state in 0..tcp::STATES as u8 {
                let event = [tcp_flag::RST, tcp_flag::SYN, tcp_flag::FIN, tcp_flag::ACK]
                    .into_iter()
                    .find(|event| flags & event != 0);
                let expected = event.map_or(tcp::CLOSE, |event| tcp_next(false, row, state, event));
                assert_eq!(tcp_next(false, row, state, flags), expected);
            }
            for state in tcp::STATES as u8..=255 {
                assert!(usize::from(tcp_next(true, row, state, flags)) < tcp::STATES);
            }
        }
    }
}

/// Who sends (I and O: client and server seen, X: the client where only it is seen), what, and the
/// state after it; `*` = active.
#[test]
fn whole_lives() {
    for (secure, life) in [
        // NAT: the client closes; the server closes; refused.
        (false, "I S SR*, O S SR*, I A ES*, I F CW, O A CW, O F TW, I A TW"),
        (false, "I S SR*, O S SR*, I A ES*, O F FW, I A FW, I F TW, O A TW"),
        (false, "I S SR*, O R CL"),
        // Direct routing: no TIME_WAIT; without the handshake's ACK; a SYN starts anew.
        (false, "X S SR*, X A ES*, X F FW, X A FW, X S SR*"),
        (false, "X S SR*, X A ES*, X R CL"),
        (false, "X S SR*, X F TW"),
        (false, "X S SR*, X R SR*"),
        // Sloppy: the first packet seen is from the middle.
        (false, "X A ES*"),
        (false, "I S SR*, I A ES*, I S ES*"),
        (true, "I S SR*, O S SA*, I A SA*, O A ES*"),
        (true, "X S SA*, X A ES*"),
    ] {
        let mut state = tcp::NONE;
        for step in life.split(", ") {
            let words: Vec<&str> = step.split(' ').collect();
            let row = match words[0] {
                "I" => Row::of(Direction::Request, false),
                "O" => Row::of(Direction::Reply, true),
                _ => Row::of(Direction::Request, true),
            };
            state = tcp_next(secure, row, state, flags_of(words[1]));
            let star = if tcp_is_active(state) { "*" } else { "" };
            assert_eq!(format!("{}{star}", ABBREVIATIONS[state as usize]), words[2], "{life}: {step}");
        }
    }
}

fn flags_of(packet: &str) -> u8 {
    match packet {
        "S" => tcp_flag::SYN,
        "SA" => tcp_flag::SYN | tcp_flag::ACK,
        "A" | "P" => tcp_flag::ACK,
        "F" => tcp_flag::FIN | tcp_flag::ACK,
        "R" => tcp_flag::RST,
        "RA" => tcp_flag::RST | tcp_flag::ACK,
        other => panic!("packet {other}"),
    }
}

/// Every transition that the recorded kernel made, with the timeout it then had.
#[test]
fn a_recorded_kernel_makes_the_same_steps() {
    const RECORDING: &str = include_str!("../../../../tests/data/kernel/states.txt");
    let timeouts = Timeouts::default();
    let mut steps = 0;
    let mut part = "";
    for line in RECORDING.lines() {
        if let Some(title) = line.strip_prefix("=== ") {
            part = title;
        }
        let words: Vec<&str> = line.split_whitespace().collect();
        let [old, packet, "->", outcome, _times] = words[..] else { continue };
        // No connection before nor after: a question of admission, not of states.
        if outcome.starts_with('-') {
            continue;
        }
        let (from_client, what) =
            packet.strip_prefix('c').map_or_else(|| (false, &packet[1..]), |what| (true, what));
        let got = if part.starts_with("UDP") {
            assert!(["-", udp_name(UDP_NORMAL)].contains(&old));
            assert_eq!(timeouts.udp(), ticks_of_secs(timeouts.udp_secs()));
            format!("{}:{}", udp_name(UDP_NORMAL), timeouts.udp_secs())
        } else {
            let direction = if from_client { Direction::Request } else { Direction::Reply };
            let row = Row::of(direction, part.contains("DR"));
            let old = if old == "-" { tcp::NONE } else { state_named(old) };
            let new = tcp_next(part.contains("secure_tcp=3"), row, old, flags_of(what));
            assert_eq!(timeouts.tcp(new), ticks_of_secs(timeouts.tcp_secs(new)));
            format!("{}:{}", tcp_name(new), timeouts.tcp_secs(new))
        };
        assert_eq!(got, outcome, "{part}: {line}");
        steps += 1;
    }
    assert_eq!(steps, 230, "transitions compared");
}

fn state_named(name: &str) -> u8 {
    (0..tcp::STATES as u8).find(|&state| tcp_name(state) == name).unwrap()
}

#[test]
fn timeouts_can_be_set_one_by_one() {
    let mut timeouts = Timeouts::default();
    let secs: Vec<u32> = (0..tcp::STATES as u8).map(|state| timeouts.tcp_secs(state)).collect();
    assert_eq!(secs, [2, 900, 120, 60, 120, 120, 10, 60, 30, 120, 120]);

    timeouts.set_tcp(tcp::ESTABLISHED, 7);
    timeouts.set_udp(8);
    assert_eq!((timeouts.tcp_secs(tcp::ESTABLISHED), timeouts.udp_secs()), (7, 8));
    assert_eq!((timeouts.tcp(tcp::ESTABLISHED), timeouts.udp()), (ticks_of_secs(7), ticks_of_secs(8)));
    assert_eq!(timeouts.tcp_secs(tcp::FIN_WAIT), 120);

    // What does not exist neither panics nor lives long.
    timeouts.set_tcp(200, 9);
    assert_eq!(timeouts.tcp_secs(200), UNKNOWN_SECS);
    assert_eq!(timeouts.tcp(tcp::STATES as u8), ticks_of_secs(UNKNOWN_SECS));
    assert_eq!((tcp_name(200), udp_name(1)), ("ERR!", "ERR!"));
}

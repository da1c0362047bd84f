//! The table form of a packet test: description, packets in, packets out, counters moved.
//!
//! A test is a list of [`Case`]s and one call of [`run`]. Every case gets a fresh [`Subject`], feeds it each step's
//! frame, compares what came out byte for byte (IP identifications of generated packets may be masked), then the
//! counters. All failures are collected and printed together, each with the case's whole story.

use std::fmt::Write as _;

/// The system under test as a case sees it.
pub trait Subject {
    /// Puts one frame on a port, lets the worker run until it is idle, and returns what it sent.
    fn feed(&mut self, port: usize, frame: &[u8]) -> Vec<Out>;
    /// A counter by its name; `None` if there is none of that name.
    fn counter(&self, name: &str) -> Option<u64>;
    /// Everything that helps to understand a failure.
    fn dump(&self) -> String;
}

/// A frame on a port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Out {
    /// Index of the Ethernet port.
    pub port: usize,
    /// The frame.
    pub frame: Vec<u8>,
}

/// What may differ between expected and emitted frame.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Mask {
    /// Nothing.
    #[default]
    Exact,
    /// IPv4 identification, and with it the header check.
    IpId,
    /// As [`Mask::IpId`], and both MAC addresses.
    IpIdAndMacs,
}

/// One packet in, some packets out.
#[derive(Clone, Debug)]
pub struct Step {
    /// What happens, in the field's words.
    pub what: &'static str,
    /// Port it arrives on.
    pub port: usize,
    /// The frame.
    pub frame: Vec<u8>,
    /// Frames that must come out, in order.
    pub expect: Vec<Out>,
    /// What may differ in them.
    pub mask: Mask,
}

/// One row of a table.
#[derive(Clone, Debug)]
pub struct Case {
    /// The behaviour, as a sentence.
    pub what: &'static str,
    /// Packets in order.
    pub steps: Vec<Step>,
    /// Counters and by how much the whole case moves them.
    pub counters: Vec<(&'static str, u64)>,
}

/// Runs every case on a fresh subject. Panics at the end with every failure.
#[track_caller]
pub fn run<S: Subject>(cases: &[Case], mut fresh: impl FnMut(&Case) -> S) {
    let mut report = String::new();
    let mut failed = 0;
    for case in cases {
        let mut subject = fresh(case);
        if let Err(why) = run_one(case, &mut subject) {
            failed += 1;
            let _ = writeln!(report, "\n=== {}\n{why}\n--- state\n{}", case.what, subject.dump());
        }
    }
    assert!(failed == 0, "{failed} of {} cases failed{report}", cases.len());
}

/// Runs one case; the error tells what was expected and what came.
pub fn run_one(case: &Case, subject: &mut impl Subject) -> Result<(), String> {
    let counter = |subject: &_, name| {
        Subject::counter(subject, name).ok_or_else(|| format!("no counter is called {name}"))
    };
    let before: Vec<u64> =
        case.counters.iter().map(|(name, _)| counter(subject, name)).collect::<Result<_, _>>()?;
    for step in &case.steps {
        let sent = subject.feed(step.port, &step.frame);
        compare(&step.expect, &sent, step.mask).map_err(|why| {
            format!("step: {}\nin on port {}:\n{}{why}", step.what, step.port, hexdump(&step.frame))
        })?;
    }
    for ((name, delta), before) in case.counters.iter().zip(before) {
        let moved = counter(subject, name)? - before;
        if moved != *delta {
            return Err(format!("counter {name} moved by {moved}, expected {delta}"));
        }
    }
    Ok(())
}

/// Compares lists of frames under a mask; the error shows both.
pub fn compare(expected: &[Out], sent: &[Out], mask: Mask) -> Result<(), String> {
    let equal = expected.len() == sent.len()
        && expected
            .iter()
            .zip(sent)
            .all(|(e, s)| e.port == s.port && masked(&e.frame, mask) == masked(&s.frame, mask));
    if equal {
        return Ok(());
    }
    let list = |outs: &[Out]| {
        outs.iter().map(|out| format!("port {}:\n{}", out.port, hexdump(&out.frame))).collect::<String>()
    };
    Err(format!(
        "expected {} frames (mask {mask:?}):\n{}sent {} frames:\n{}",
        expected.len(),
        list(expected),
        sent.len(),
        list(sent)
    ))
}

/// The frame with what may differ set to zero. Padding behind the IPv4 packet is cut off.
pub fn masked(frame: &[u8], mask: Mask) -> Vec<u8> {
    let mut out = frame.to_vec();
    if mask == Mask::Exact {
        return out;
    }
    if mask == Mask::IpIdAndMacs && out.len() >= 12 {
        out[..12].fill(0);
    }
    if out.len() >= 34 && out[12..14] == [0x08, 0x00] {
        // The check is masked with the identification it covers; that it is right is for `check::valid` to say.
        out[18..20].fill(0);
        out[24..26].fill(0);
        let total = 14 + usize::from(u16::from_be_bytes([out[16], out[17]]));
        out.truncate(total.max(34));
    }
    out
}

/// Sixteen bytes a line, with offsets.
pub fn hexdump(bytes: &[u8]) -> String {
    let mut out = String::new();
    for (line, chunk) in bytes.chunks(16).enumerate() {
        let _ = write!(out, "  {:04x} ", line * 16);
        for byte in chunk {
            let _ = write!(out, " {byte:02x}");
        }
        out.push('\n');
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::packets;

    /// Sends everything back on the same port and counts it.
    struct Mirror(u64);

    impl Subject for Mirror {
        fn feed(&mut self, port: usize, frame: &[u8]) -> Vec<Out> {
            self.0 += 1;
            vec![Out { port, frame: frame.to_vec() }]
        }

        fn counter(&self, name: &str) -> Option<u64> {
            (name == "frames").then_some(self.0)
        }

        fn dump(&self) -> String {
            format!("{} frames", self.0)
        }
    }

    fn case(expect: Vec<u8>, mask: Mask, frames: u64) -> Case {
        let frame = packets::client_syn().bytes();
        let step = Step { what: "a SYN", port: 1, frame, expect: vec![Out { port: 1, frame: expect }], mask };
        Case { what: "mirrored", steps: vec![step], counters: vec![("frames", frames)] }
    }

    #[test]
    fn differences_are_seen_unless_masked() {
        let same = packets::client_syn();
        let other_id = same.clone().with(|p| p.ip.id = 9);
        let other_mac = other_id.clone().with(|p| p.ether.src = [6; 6]);
        let table = [
            (&same, Mask::Exact, 1, true),
            (&same, Mask::Exact, 2, false),
            (&other_id, Mask::Exact, 1, false),
            (&other_id, Mask::IpId, 1, true),
            (&other_mac, Mask::IpId, 1, false),
            (&other_mac, Mask::IpIdAndMacs, 1, true),
            (&same.clone().ttl(63), Mask::IpIdAndMacs, 1, false),
        ];
        for (at, (expect, mask, frames, good)) in table.into_iter().enumerate() {
            let outcome = run_one(&case(expect.bytes(), mask, frames), &mut Mirror(0));
            assert_eq!(outcome.is_ok(), good, "row {at}: {outcome:?}");
        }
    }

    #[test]
    fn missing_and_surplus_frames_are_seen() {
        let out = Out { port: 0, frame: packets::client_syn().bytes() };
        assert!(compare(&[], std::slice::from_ref(&out), Mask::IpId).is_err());
        assert!(compare(std::slice::from_ref(&out), &[], Mask::IpId).is_err());
        assert!(compare(&[Out { port: 1, ..out.clone() }], &[out], Mask::IpId).is_err());
    }

    #[test]
    #[should_panic(expected = "1 of 1 cases failed")]
    fn run_reports_failures() {
        run(&[case(Vec::new(), Mask::Exact, 1)], |_| Mirror(0));
    }
}

//! State and timer of a connection after every short sequence of packets.

use super::{cut, number};

/// One table: a kind of service and a setting, with every sequence tried.
#[derive(Clone, Debug)]
pub struct Table {
    /// Its heading.
    pub title: &'static str,
    /// Sequences of up to three packets and what they lead to.
    pub sequences: Vec<(Vec<Packet>, Outcome)>,
    /// State before, packet, state and timer after; from sequences of up to five packets.
    pub transitions: Vec<(Option<State>, Packet, Outcome)>,
    /// Active and inactive connections once every sequence had been played on its own connection.
    pub totals: (u32, u32),
}

/// State name as the kernel lists it, `SYN_RECV` for instance.
pub type State = &'static str;

/// State and idle time in seconds, or no connection.
pub type Outcome = Option<(State, u64)>;

/// One packet of a sequence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Packet {
    /// From the server to the client; else from the client to the virtual address.
    pub from_server: bool,
    /// What it is.
    pub kind: Kind,
}

/// Kinds of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Kind {
    Syn,
    SynAck,
    Ack,
    /// PSH+ACK with one byte.
    Data,
    /// FIN+ACK.
    Fin,
    Rst,
    Udp,
}

/// Every table of TCP and UDP.
pub fn tables() -> Vec<Table> {
    let text = include_str!("../../data/kernel/states.txt");
    text.split("\n=== ").skip(1).map(table).collect()
}

impl Table {
    /// The sequences that were played to the end, each on its own connection. The recording lists those of up to
    /// three packets; the longer ones follow from them: every first packet, then every packet tried, up to the
    /// length at which as many connections exist as were counted.
    pub fn played(&self) -> Vec<Vec<Packet>> {
        let of_length = |n| self.sequences.iter().map(|(s, _)| s).filter(move |s| s.len() == n);
        let mut alphabet: Vec<Packet> = of_length(2).map(|s| s[1]).collect();
        alphabet.sort_unstable();
        alphabet.dedup();
        let seen: usize = (self.totals.0 + self.totals.1) as usize;
        let mut played: Vec<Vec<Packet>> = of_length(1).cloned().collect();
        while played.iter().filter(|s| self.follow(s).is_some()).count() < seen {
            played = played
                .iter()
                .flat_map(|head| alphabet.iter().map(move |next| [head.as_slice(), &[*next]].concat()))
                .collect();
        }
        played
    }

    /// Where a sequence leads by the recorded transitions.
    pub fn follow(&self, sequence: &[Packet]) -> Outcome {
        sequence.iter().fold(None, |outcome: Outcome, packet| {
            let state = outcome.map(|(state, _)| state);
            self.transitions
                .iter()
                .find(|(from, by, _)| *from == state && by == packet)
                .map(|(_, _, to)| *to)
                .unwrap_or_else(|| panic!("{}: no transition from {state:?} by {packet:?}", self.title))
        })
    }
}

fn table(text: &'static str) -> Table {
    let (title, rest) = cut(text, "\n");
    let (_, rest) = cut(rest, "transitions seen:");
    let (_, rest) = cut(rest, "\n");
    let (transitions, rest) = cut(rest, "sequences of up to 3 packets:\n");
    let (sequences, rest) = cut(rest, "at the end:");

    let transitions = transitions.lines().map(|line| {
        let (from, to) = cut(line, "->");
        let (state, packet) = cut(from.trim(), " ");
        let state = Some(state).filter(|s| *s != "-");
        (state, self::packet(packet.trim()), outcome(cut(to, "[").0))
    });
    let sequences = sequences.lines().map(|line| {
        let (packets, end) = line.trim().rsplit_once(' ').unwrap_or_else(|| panic!("sequence {line:?}"));
        (packets.split_whitespace().map(packet).collect(), outcome(end))
    });
    let counts: Vec<&str> = rest.lines().next().unwrap_or_default().split_whitespace().collect();
    let [.., active, inactive] = counts[..] else { panic!("no totals in {rest:?}") };
    Table {
        title,
        transitions: transitions.collect(),
        sequences: sequences.collect(),
        totals: (number(active), number(inactive)),
    }
}

fn outcome(text: &'static str) -> Outcome {
    let (state, timer) = cut(text.trim(), ":");
    (state != "-").then(|| (state, number(timer)))
}

fn packet(text: &str) -> Packet {
    let kind = match &text[1..] {
        "S" => Kind::Syn,
        "SA" => Kind::SynAck,
        "A" => Kind::Ack,
        "P" => Kind::Data,
        "F" => Kind::Fin,
        "R" => Kind::Rst,
        "U" => Kind::Udp,
        _ => panic!("packet {text:?}"),
    };
    let from_server = match &text[..1] {
        "c" => false,
        "s" => true,
        _ => panic!("packet {text:?}"),
    };
    Packet { from_server, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The readers understand every line, and the recording agrees with itself: each listed sequence follows from
    /// the transitions, and the connections counted at the end are those that the played sequences leave.
    #[test]
    fn the_recording_is_consistent() {
        let all = tables();
        assert_eq!(all.len(), 6);
        for table in &all {
            for (sequence, outcome) in &table.sequences {
                assert_eq!(table.follow(sequence), *outcome, "{}: {sequence:?}", table.title);
            }
            let active = ["ESTABLISHED", "SYN_SENT", "SYN_RECV", "SYNACK"];
            let ends: Vec<State> =
                table.played().iter().filter_map(|s| table.follow(s)).map(|(state, _)| state).collect();
            let count = ends.iter().filter(|state| active.contains(state)).count() as u32;
            assert_eq!((count, ends.len() as u32 - count), table.totals, "{}", table.title);
        }
    }
}

//! Which server each new connection went to, under rr, wrr, lc and wlc.

use serde::Deserialize;

use super::{cut, number};

/// One recorded run: servers added in order, then steps.
#[derive(Clone, Debug, Deserialize)]
pub struct Sequence {
    /// Name of the scheduler.
    pub scheduler: String,
    /// `tcp` or `udp`.
    pub proto: String,
    /// What the run shows.
    pub name: String,
    /// Weight of r1, r2, ... in the order they were added.
    pub weights: Vec<u32>,
    /// Options of the service; empty throughout for these schedulers.
    pub options: String,
    /// Options of every server, thresholds for instance.
    pub server_options: String,
    steps: Vec<String>,
}

/// One step of a run. Servers are numbered from 1.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Step {
    /// New connections: the server of each, `None` if the packet was refused, then the counts.
    Picks(Vec<Option<usize>>, Vec<Counts>),
    /// A server is added at the head of the list.
    Add {
        /// Its number.
        server: usize,
        /// Its weight.
        weight: u32,
    },
    /// A server is removed.
    Delete {
        /// Its number.
        server: usize,
    },
    /// A server gets another weight.
    Edit {
        /// Its number.
        server: usize,
        /// Its new weight.
        weight: u32,
    },
    /// The clients close every connection to a server, then the counts.
    Close {
        /// Its number.
        server: usize,
        /// Counts afterwards.
        counts: Vec<Counts>,
    },
}

/// Connections of one server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Counts {
    /// Number of the server.
    pub server: usize,
    /// Active connections.
    pub active: u32,
    /// Inactive connections.
    pub inactive: u32,
}

/// Every recorded run.
pub fn sequences() -> Vec<Sequence> {
    #[derive(Deserialize)]
    struct File {
        results: Vec<Sequence>,
    }
    let text = include_str!("../../data/kernel/schedulers.json");
    let file: File = serde_json::from_str(text).expect("schedulers.json is what its reader expects");
    file.results
}

impl Sequence {
    /// Upper and lower threshold of every server; 0 for none.
    pub fn thresholds(&self) -> (u32, u32) {
        let words: Vec<&str> = self.server_options.split_whitespace().collect();
        match words[..] {
            [] => (0, 0),
            ["-x", upper, "-y", lower] => (number(upper), number(lower)),
            _ => panic!("server options {:?}", self.server_options),
        }
    }

    /// The steps, understood.
    pub fn steps(&self) -> Vec<Step> {
        self.steps.iter().map(|text| step(text)).collect()
    }
}

fn step(text: &str) -> Step {
    if let Some((count, rest)) = text.split_once(" picks: ") {
        let (picks, found) = cut(rest, "act/inact:");
        let picks: Vec<Option<usize>> = picks.trim().chars().map(pick).collect();
        assert_eq!(picks.len(), number::<usize>(count), "{text}");
        return Step::Picks(picks, counts(found));
    }
    let (word, rest) = cut(text, " ");
    match (word, rest.split_once(" -w ")) {
        ("add", Some((name, weight))) => Step::Add { server: server(name), weight: number(weight) },
        ("edit", Some((name, weight))) => Step::Edit { server: server(name), weight: number(weight) },
        ("del", None) => Step::Delete { server: server(rest) },
        ("close", None) => {
            let (head, found) = cut(rest, "act/inact:");
            Step::Close { server: server(cut(head, " ").0), counts: counts(found) }
        }
        _ => panic!("unknown step {text:?}"),
    }
}

fn pick(letter: char) -> Option<usize> {
    match letter {
        '-' => None,
        _ => Some(letter.to_digit(10).unwrap_or_else(|| panic!("pick {letter:?}")) as usize),
    }
}

fn server(name: &str) -> usize {
    number(name.trim().strip_prefix('r').unwrap_or_else(|| panic!("server {name:?}")))
}

/// Reads `r1 10/0 r2 3/4`.
fn counts(text: &str) -> Vec<Counts> {
    let words: Vec<&str> = text.split_whitespace().collect();
    words
        .chunks(2)
        .map(|pair| {
            let (active, inactive) = cut(pair[1], "/");
            Counts { server: server(pair[0]), active: number(active), inactive: number(inactive) }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_is_understood() {
        let all = sequences();
        assert_eq!(all.len(), 90);
        for run in &all {
            assert!(run.options.is_empty());
            run.thresholds();
            assert!(!run.steps().is_empty());
        }
    }
}

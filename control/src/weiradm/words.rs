//! Taking an argument vector apart as the option library of ipvsadm does (popt 1.19).
//!
//! Letters combine (`-Ln`), the value of a letter follows it, after `=` or not, or is the next word whatever
//! it looks like; a long name takes `=` or the next word. A word without `-` is left over and collected; `--`
//! leaves all the rest over. An error names the whole word it was found in.

use super::grammar::{self, Takes, Word};

/// Why a word is not understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Fault {
    Unknown,
    MissingValue,
    UnwantedValue,
}

impl Fault {
    /// The library's text.
    pub(super) fn text(self) -> &'static str {
        match self {
            Fault::Unknown => "unknown option",
            Fault::MissingValue => "missing argument",
            Fault::UnwantedValue => "option does not take an argument",
        }
    }
}

/// An argument vector being taken apart.
#[derive(Debug)]
pub(super) struct Words<'a> {
    arguments: &'a [String],
    next: usize,
    /// The rest of a word of letters.
    letters: &'a str,
    only_left_over: bool,
    left_over: Vec<&'a str>,
}

impl<'a> Words<'a> {
    /// Words of a command line without the program's name.
    pub(super) fn new(arguments: &'a [String]) -> Words<'a> {
        Words { arguments, next: 0, letters: "", only_left_over: false, left_over: Vec::new() }
    }

    /// The next option and its value; `None` at the end.
    pub(super) fn next_option(&mut self) -> Result<Option<(Word, Option<&'a str>)>, Fault> {
        while self.letters.is_empty() {
            let Some(argument) = self.take() else {
                return Ok(None);
            };
            if self.only_left_over || argument == "-" || !argument.starts_with('-') {
                self.left_over.push(argument);
            } else if argument == "--" {
                self.only_left_over = true;
            } else if let Some(long) = argument.strip_prefix("--") {
                return self.long(long).map(Some);
            } else {
                self.letters = &argument[1..];
            }
        }
        self.letter().map(Some)
    }

    /// The word that was taken last, whole.
    pub(super) fn current(&self) -> &'a str {
        self.next.checked_sub(1).and_then(|at| self.arguments.get(at)).map_or("", String::as_str)
    }

    /// What is left over, in order; to be asked at the end.
    pub(super) fn left_over(self) -> Vec<&'a str> {
        self.left_over
    }

    fn long(&mut self, text: &'a str) -> Result<(Word, Option<&'a str>), Fault> {
        let (name, glued) = match text.split_once('=') {
            Some((name, value)) => (name, Some(value)),
            None => (text, None),
        };
        let (takes, word) = grammar::by_name(name).ok_or(Fault::Unknown)?;
        if takes == Takes::Nothing && glued.is_some() {
            return Err(Fault::UnwantedValue);
        }
        Ok((word, self.value(takes, glued)?))
    }

    fn letter(&mut self) -> Result<(Word, Option<&'a str>), Fault> {
        let letters = std::mem::take(&mut self.letters);
        let mut rest = letters.chars();
        let (takes, word) = rest.next().and_then(grammar::by_letter).ok_or(Fault::Unknown)?;
        let rest = rest.as_str();
        let rest = rest.strip_prefix('=').unwrap_or(rest);
        if takes == Takes::Nothing {
            self.letters = rest;
            return Ok((word, None));
        }
        let glued = Some(rest).filter(|value| !value.is_empty());
        Ok((word, self.value(takes, glued)?))
    }

    fn value(&mut self, takes: Takes, glued: Option<&'a str>) -> Result<Option<&'a str>, Fault> {
        let next_is_option = self.arguments.get(self.next).is_none_or(|word| word.starts_with('-'));
        match takes {
            Takes::Nothing => Ok(None),
            _ if glued.is_some() => Ok(glued),
            Takes::ValueOrNothing if next_is_option => Ok(None),
            _ => self.take().map(Some).ok_or(Fault::MissingValue),
        }
    }

    fn take(&mut self) -> Option<&'a str> {
        let argument = self.arguments.get(self.next)?;
        self.next += 1;
        Some(argument)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every word as `MEANING=VALUE`, then what is left over in brackets, or the fault and the word it names.
    fn taken(line: &str) -> String {
        let arguments: Vec<String> = line.split(' ').map(str::to_owned).collect();
        let mut words = Words::new(&arguments);
        let mut out = Vec::new();
        loop {
            match words.next_option() {
                Ok(Some((word, value))) => out.push(match value {
                    Some(value) => format!("{word:?}={value}"),
                    None => format!("{word:?}"),
                }),
                Ok(None) => break,
                Err(fault) => {
                    out.push(format!("{fault:?} {}", words.current()));
                    break;
                }
            }
        }
        let left_over = words.left_over();
        if !left_over.is_empty() {
            out.push(format!("{left_over:?}"));
        }
        out.join(" ")
    }

    #[test]
    fn words_are_taken_apart_as_popt_does() {
        for (line, expected) in [
            ("-Ln", "Command(List) Numeric"),
            ("-nLx", "Numeric Command(List) MissingValue -nLx"),
            ("-t -A", "TcpService=-A"),
            ("-t10.0.0.1:80 -u=x", "TcpService=10.0.0.1:80 UdpService=x"),
            ("-p -s rr", "Persistent Scheduler=rr"),
            ("-p 120", "Persistent=120"),
            ("-p120", "Persistent=120"),
            ("-p=120 -p", "Persistent=120 Persistent"),
            ("--persistent=120 --persistent -n", "Persistent=120 Persistent Numeric"),
            ("--scheduler rr --scheduler=rr", "Scheduler=rr Scheduler=rr"),
            ("--sched rr", "Unknown --sched"),
            ("--numeric=1", "UnwantedValue --numeric=1"),
            ("a -n - b", "Numeric [\"a\", \"-\", \"b\"]"),
            ("-n -- -n --foo", "Numeric [\"-n\", \"--foo\"]"),
            ("-Lq", "Command(List) Unknown -Lq"),
            ("--set 1 2 -3", "Command(Set) Unknown -3 [\"1\", \"2\"]"),
            ("-w", "MissingValue -w"),
            ("-nä", "Numeric Unknown -nä"),
        ] {
            assert_eq!(taken(line), expected, "{line}");
        }
    }
}

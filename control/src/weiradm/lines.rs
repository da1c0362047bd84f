//! A file of command lines as one transaction: read whole, each line a change, or the first that is none.

use std::io::{self, BufRead, BufReader, Read};

use rustix::io::Errno;

use super::grammar::Command;
use super::names::Names;
use super::order::{Stop, Wanted};
use super::parse::parse;
use super::run::change;
use super::{status, text};

/// Word that is dropped wherever it stands: saved files may have the program's name in each line.
const DROPPED: &str = "ipvsadm";
/// A line that begins so is a comment.
const COMMENT: char = '#';

/// Every line of a file that is a command, as messages to the server.
#[derive(Debug, Default)]
pub struct Lines {
    lines: Vec<Line>,
    content: Vec<u8>,
}

#[derive(Debug)]
struct Line {
    number: u32,
    text: String,
    command: Command,
}

/// The first line that is no change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadLine {
    /// Its number, from 1.
    pub number: u32,
    /// The line.
    pub text: String,
    /// What is wrong, without a line end.
    pub why: String,
    /// ipvsadm's exit status for it.
    pub status: u8,
}

impl Lines {
    /// Reads to the end; comments and empty lines are passed over.
    ///
    /// # Errors
    /// The input cannot be read; inside, the first line that is no change.
    pub fn read(
        input: &mut dyn Read,
        program: &str,
        names: &dyn Names,
    ) -> io::Result<Result<Lines, BadLine>> {
        let mut input = BufReader::new(input);
        let mut all = Lines::default();
        let mut bytes = Vec::new();
        for number in 1.. {
            bytes.clear();
            if input.read_until(b'\n', &mut bytes)? == 0 {
                break;
            }
            let text = String::from_utf8_lossy(&bytes);
            let Some(words) = words_of_line(&text) else { continue };
            if let Err(Stop { status, text: why, .. }) = all.add(number, &text, &words, program, names) {
                let (text, why) = (text.trim().to_owned(), why.trim_end().to_owned());
                return Ok(Err(BadLine { number, text, why, status }));
            }
        }
        Ok(Ok(all))
    }

    /// The messages, one for each line, with its number as their sequence number.
    pub fn take_content(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.content)
    }

    /// The line that the server refused, in the words of ipvsadm.
    pub fn refused(&self, number: u32, errno: i32) -> BadLine {
        let line = self.lines.iter().find(|line| line.number == number);
        let errno = Errno::from_raw_os_error(errno);
        BadLine {
            number,
            text: line.map(|line| line.text.clone()).unwrap_or_default(),
            why: text::error(line.map(|line| line.command), errno),
            status: status::REFUSED,
        }
    }

    fn add(
        &mut self,
        number: u32,
        text: &str,
        words: &[String],
        program: &str,
        names: &dyn Names,
    ) -> Result<(), Stop> {
        let no_change = |what: &str| {
            let text = format!("{what} is no change that can be made together with others");
            Stop { status: status::USAGE, text, goes_on: false }
        };
        let order = match parse(program, words, names) {
            Ok(Wanted::Do(order)) => order,
            Ok(Wanted::Help | Wanted::Version) => return Err(no_change(&words[0])),
            Err(stop) if stop == Stop::try_help(program) => {
                return Err(Stop { text: format!("{} is no command", words[0]), ..stop });
            }
            Err(stop) => return Err(stop),
        };
        let call = change(&order).filter(|_| order.command != Command::Zero);
        let call = call.ok_or_else(|| no_change(&words[0]))?;
        self.lines.push(Line { number, text: text.trim().to_owned(), command: order.command });
        self.content.extend(call.encode(number));
        // Messages are aligned in a datagram, and so they are here.
        self.content.resize(self.content.len().next_multiple_of(4), 0);
        Ok(())
    }
}

/// The words of a line; none of a comment and of an empty line.
pub(super) fn words_of_line(text: &str) -> Option<Vec<String>> {
    if text.starts_with(COMMENT) {
        return None;
    }
    let words = text.split_ascii_whitespace().filter(|word| *word != DROPPED);
    Some(words.map(str::to_owned).collect::<Vec<_>>()).filter(|words| !words.is_empty())
}

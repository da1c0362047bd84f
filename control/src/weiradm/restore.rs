//! Restoring: every line of the input is a command line.
//!
//! Lines that change something are sent ahead of the answers to earlier ones, as long as more input is at
//! hand; messages and the exit status are those of one line after the other. A refusal is printed and the
//! next line runs, and so it is with words that are not understood. Wrong usage, a listing that fails, help and
//! version end the run, and earlier lines stay applied.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader};

use super::client::{AHEAD_LOW, AHEAD_MAX, Ticket};
use super::grammar::Command;
use super::lines::{BadLine, Lines as Whole, words_of_line};
use super::order::{Stop, Wanted};
use super::run::{Console, Session, change, refused};
use super::status;
use super::transport::Transport;
use crate::api::codec::{Transaction, TransactionKind};
use crate::api::rows::TransactionRow;

/// Bytes of input that are read at once.
const INPUT_BYTES: usize = 64 * 1024;

/// Runs the lines of the input; the exit status is that of the last.
pub(super) fn restore<T: Transport>(
    session: &mut Session<'_, T>,
    console: &mut Console<'_>,
) -> io::Result<u8> {
    let Console { input, output, errors } = console;
    let console = &mut Console { input: &mut io::empty(), output: *output, errors: *errors };
    let mut input = BufReader::with_capacity(INPUT_BYTES, input);
    let mut lines = Lines { waiting: VecDeque::new(), status: status::DONE };
    let mut line = Vec::new();
    loop {
        line.clear();
        if input.read_until(b'\n', &mut line)? == 0 {
            lines.take_all(session, console)?;
            return Ok(lines.status);
        }
        let text = String::from_utf8_lossy(&line);
        let Some(words) = words_of_line(&text) else { continue };
        let more_at_hand = !input.buffer().is_empty();
        if let Some(status) = lines.run(session, &words, more_at_hand, console)? {
            return Ok(status);
        }
    }
}

/// Makes all lines of the input one change, or none.
pub(super) fn restore_whole<T: Transport>(
    session: &mut Session<'_, T>,
    console: &mut Console<'_>,
) -> io::Result<u8> {
    let refused = |bad: BadLine, console: &mut Console<'_>| {
        writeln!(console.errors, "line {}: {}: {}; nothing was changed", bad.number, bad.text, bad.why)?;
        Ok(bad.status)
    };
    let mut lines = match Whole::read(console.input, session.program(), session.names())? {
        Ok(lines) => lines,
        Err(bad) => return refused(bad, console),
    };
    let transaction = Transaction {
        kind: TransactionKind::Lines,
        name: "standard input".to_owned(),
        dry_run: false,
        content: lines.take_content(),
    };
    match session.client().transport().transact(transaction) {
        Ok(rows) => match rows[..] {
            [TransactionRow::Refused { line, errno }] => refused(lines.refused(line, errno), console),
            _ => Ok(status::DONE),
        },
        Err(failure) => {
            writeln!(console.errors, "{}", failure.why)?;
            Ok(status::REFUSED)
        }
    }
}

/// Lines whose answers are awaited, and the status of the last whose answer is known.
struct Lines {
    waiting: VecDeque<(Command, Ticket)>,
    status: u8,
}

impl Lines {
    /// Runs a line; a status when it ends the restore.
    fn run<T: Transport>(
        &mut self,
        session: &mut Session<'_, T>,
        words: &[String],
        more_at_hand: bool,
        console: &mut Console<'_>,
    ) -> io::Result<Option<u8>> {
        let wanted = match session.read(words) {
            Ok(Wanted::Do(order)) if order.command == Command::Restore => {
                Err(Stop::try_help(session.program()))
            }
            other => other,
        };
        let call = match &wanted {
            Ok(Wanted::Do(order)) => change(order).map(|call| (order.command, call)),
            _ => None,
        };
        if let Some((command, call)) = call {
            match session.client().send(call) {
                Ok(ticket) => self.waiting.push_back((command, ticket)),
                Err(errno) => {
                    self.take_all(session, console)?;
                    self.status = refused(command, errno, console)?;
                }
            }
            if !more_at_hand {
                self.take_all(session, console)?;
            } else if self.waiting.len() >= AHEAD_MAX {
                while self.waiting.len() > AHEAD_LOW {
                    self.take(session, console)?;
                }
            }
            return Ok(None);
        }
        self.take_all(session, console)?;
        match wanted {
            Ok(wanted) => {
                self.status = session.carry_out(&wanted, console)?;
                let told = matches!(wanted, Wanted::Help | Wanted::Version);
                Ok((told || self.status != status::DONE).then_some(self.status))
            }
            Err(stop) => {
                writeln!(console.errors, "{}", stop.text)?;
                self.status = stop.status;
                Ok((!stop.goes_on).then_some(stop.status))
            }
        }
    }

    fn take_all<T: Transport>(
        &mut self,
        session: &mut Session<'_, T>,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        while !self.waiting.is_empty() {
            self.take(session, console)?;
        }
        Ok(())
    }

    /// Takes the answer of the oldest line that waits.
    fn take<T: Transport>(
        &mut self,
        session: &mut Session<'_, T>,
        console: &mut Console<'_>,
    ) -> io::Result<()> {
        if let Some((command, ticket)) = self.waiting.pop_front() {
            self.status = match session.client().finish(ticket) {
                Ok(_) => status::DONE,
                Err(errno) => refused(command, errno, console)?,
            };
        }
        Ok(())
    }
}

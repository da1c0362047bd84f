//! The prompt: lines typed or piped in, signals, and the end of both.
//!
//! On a terminal the program echoes and edits itself, as testpmd does, so that what is typed ahead appears where it is
//! read: backspace, Ctrl-U, Ctrl-C and Ctrl-D, and the arrow keys for lines typed before. From a pipe each line is
//! echoed behind the prompt. The terminal is as it was before once this is dropped.

use std::collections::VecDeque;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustix::io::Errno;
use rustix::stdio::stdin;
use rustix::termios::{LocalModes, OptionalActions, Termios, isatty, tcgetattr, tcsetattr};
use signal_hook::consts::{SIGINT, SIGTERM};

use crate::output::print;

/// What came in.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Event {
    /// A line, without its end.
    Line(String),
    /// No more input.
    End,
    /// SIGINT or SIGTERM, or Ctrl-C on a terminal.
    Interrupted,
    /// Nothing in the time given.
    Nothing,
}

/// The prompt's text.
pub const PROMPT: &str = "testpmd> ";

/// Standard input and signals.
pub struct Input {
    signals: OwnedFd,
    saved: Option<Termios>,
    ended: bool,
    bytes: VecDeque<u8>,
    editor: Editor,
}

impl Input {
    /// Takes SIGINT and SIGTERM over; with `edit` a terminal is edited by us.
    pub fn open(edit: bool) -> std::io::Result<Input> {
        let (signals, sender) = UnixStream::pair()?;
        signals.set_nonblocking(true)?;
        signal_hook::low_level::pipe::register(SIGINT, sender.try_clone()?)?;
        signal_hook::low_level::pipe::register(SIGTERM, sender)?;
        let saved = if edit && isatty(stdin()) { Some(unedited()?) } else { None };
        Ok(Input {
            signals: signals.into(),
            saved,
            ended: false,
            bytes: VecDeque::new(),
            editor: Editor::default(),
        })
    }

    /// Types lines as if they came first.
    pub fn push(&mut self, text: &str) {
        self.bytes.extend(text.bytes());
    }

    /// Shows the prompt and waits for a line.
    pub fn prompt(&mut self) -> Event {
        print(PROMPT);
        self.next(None, true)
    }

    /// Waits for a line at most for `limit`, without a prompt and an echo.
    pub fn wait(&mut self, limit: Option<Duration>) -> Event {
        self.next(limit, false)
    }

    fn next(&mut self, limit: Option<Duration>, echo: bool) -> Event {
        loop {
            while let Some(byte) = self.bytes.pop_front() {
                let (shown, event) = self.editor.take(byte);
                if echo {
                    print(&shown);
                }
                if let Some(event) = event {
                    return event;
                }
            }
            if self.ended {
                return Event::End;
            }
            match self.read(limit) {
                Ok(true) => {}
                Ok(false) => return Event::Nothing,
                Err(event) => return event,
            }
        }
    }

    /// Reads what there is. `Ok(false)`: the time is over.
    fn read(&mut self, limit: Option<Duration>) -> Result<bool, Event> {
        let input = stdin();
        let mut fds = [PollFd::new(&self.signals, PollFlags::IN), PollFd::new(&input, PollFlags::IN)];
        let limit = limit
            .map(|limit| Timespec { tv_sec: limit.as_secs() as i64, tv_nsec: limit.subsec_nanos().into() });
        match poll(&mut fds, limit.as_ref()) {
            Ok(0) => return Ok(false),
            Ok(_) => {}
            Err(Errno::INTR) => return Ok(true),
            Err(_) => return Err(Event::End),
        }
        if !fds[0].revents().is_empty() {
            let mut told = [0; 16];
            let _ = rustix::io::read(&self.signals, &mut told);
            return Err(Event::Interrupted);
        }
        let mut bytes = [0; 1024];
        match rustix::io::read(input.as_fd(), &mut bytes) {
            Ok(0) | Err(_) => {
                // A last line without its end counts.
                self.ended = true;
                self.bytes.extend((!self.editor.line.is_empty()).then_some(b'\n'));
            }
            Ok(n) => self.bytes.extend(&bytes[..n]),
        }
        Ok(true)
    }
}

impl Drop for Input {
    fn drop(&mut self) {
        if let Some(saved) = &self.saved {
            let _ = tcsetattr(stdin(), OptionalActions::Now, saved);
        }
    }
}

/// Turns line editing and echo of the terminal off; returns what was.
fn unedited() -> rustix::io::Result<Termios> {
    let saved = tcgetattr(stdin())?;
    let mut raw = saved.clone();
    raw.local_modes &= !(LocalModes::ICANON | LocalModes::ECHO | LocalModes::ISIG);
    tcsetattr(stdin(), OptionalActions::Now, &raw)?;
    Ok(saved)
}

/// Lines remembered for the arrow keys.
const REMEMBERED: usize = 64;
/// Takes the cursor one back and clears to the end of the line.
const RUB_OUT: &str = "\x08\x1b[0K";

/// The line being typed.
#[derive(Debug, Default)]
struct Editor {
    line: Vec<u8>,
    escape: Vec<u8>,
    past: VecDeque<Vec<u8>>,
    /// Lines back in `past`; 0 for the new one.
    back: usize,
}

impl Editor {
    /// Takes a byte; what is to be shown for it, and what it completes.
    fn take(&mut self, byte: u8) -> (String, Option<Event>) {
        if !self.escape.is_empty() || byte == 0x1b {
            self.escape.push(byte);
            return (self.escaped(), None);
        }
        match byte {
            b'\n' | b'\r' => {
                let line = std::mem::take(&mut self.line);
                if !line.is_empty() && self.past.front() != Some(&line) {
                    self.past.push_front(line.clone());
                    self.past.truncate(REMEMBERED);
                }
                self.back = 0;
                let text = String::from_utf8_lossy(&line).into_owned();
                ("\r\n".to_owned(), Some(Event::Line(text)))
            }
            0x7f | 0x08 if self.line.pop().is_some() => (RUB_OUT.to_owned(), None),
            // Ctrl-U
            0x15 => (RUB_OUT.repeat(std::mem::take(&mut self.line).len()), None),
            // Ctrl-C, Ctrl-D
            0x03 => (String::new(), Some(Event::Interrupted)),
            0x04 if self.line.is_empty() => (String::new(), Some(Event::End)),
            b' '..=b'~' => {
                self.line.push(byte);
                (char::from(byte).to_string(), None)
            }
            _ => (String::new(), None),
        }
    }

    /// A key that sends several bytes: up and down go through past lines, others are passed over.
    fn escaped(&mut self) -> String {
        let to = match self.escape.as_slice() {
            [0x1b] | [0x1b, b'['] => return String::new(),
            [0x1b, b'[', b'A'] => (self.back + 1).min(self.past.len()),
            [0x1b, b'[', b'B'] => self.back.saturating_sub(1),
            [.., last] if last.is_ascii_digit() || *last == b';' => return String::new(),
            _ => self.back,
        };
        self.escape.clear();
        if to == self.back {
            return String::new();
        }
        self.back = to;
        let shown = RUB_OUT.repeat(self.line.len());
        self.line = to.checked_sub(1).and_then(|at| self.past.get(at)).cloned().unwrap_or_default();
        shown + &String::from_utf8_lossy(&self.line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn type_in(editor: &mut Editor, keys: &str) -> (String, Vec<Event>) {
        let taken = keys.bytes().map(|byte| editor.take(byte));
        let (shown, events): (Vec<_>, Vec<_>) = taken.unzip();
        (shown.concat(), events.into_iter().flatten().collect())
    }

    #[test]
    fn keys_make_lines() {
        let line = |text: &str| Event::Line(text.to_owned());
        let mut editor = Editor::default();
        for (keys, shown, events) in [
            ("stop\n", "stop\r\n", vec![line("stop")]),
            ("stpp\x7f\x7fop\n", "stpp\x08\x1b[0K\x08\x1b[0Kop\r\n", vec![line("stop")]),
            ("\x7fquit\x15\n", "quit\x08\x1b[0K\x08\x1b[0K\x08\x1b[0K\x08\x1b[0K\r\n", vec![line("")]),
            ("start\r", "start\r\n", vec![line("start")]),
            ("\x1b[A\n", "start\r\n", vec![line("start")]),
            (
                "\x1b[A\x1b[A\n",
                "start\x08\x1b[0K\x08\x1b[0K\x08\x1b[0K\x08\x1b[0K\x08\x1b[0Kstop\r\n",
                vec![line("stop")],
            ),
            (
                "\x1b[A\x1b[B\x1b[1;5Cx\n",
                "stop\x08\x1b[0K\x08\x1b[0K\x08\x1b[0K\x08\x1b[0Kx\r\n",
                vec![line("x")],
            ),
            ("a\x03", "a", vec![Event::Interrupted]),
            ("\x04", "", vec![]),
            ("\x7f\x04", "\x08\x1b[0K", vec![Event::End]),
        ] {
            assert_eq!(type_in(&mut editor, keys), (shown.to_owned(), events), "{keys:?}");
        }
    }
}

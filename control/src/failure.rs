//! How a command ends: exit status, and the error text of the form `weir: WHAT: WHY` with a hint below.

use std::any::Any;
use std::fmt;
use std::io::{self, Write};
use std::process::ExitCode;

/// Prints a line or several to stderr. That nobody can read them is no reason to end in another way.
pub fn tell(text: impl fmt::Display) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Exit status of a program of ours.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Exit {
    /// Done, or stopped on request.
    Done = 0,
    /// The daemon said no, or failed while running.
    Failed = 1,
    /// Usage or configuration.
    Usage = 2,
    /// The environment: no daemon, no privilege, no device.
    Environment = 3,
    /// A dry run found differences.
    Differences = 10,
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        ExitCode::from(exit as u8)
    }
}

/// Why a command did not do what it was asked for. Displays as the text for stderr, without the last newline.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    /// Exit status.
    pub exit: Exit,
    /// What was being done, or the object that it is about.
    pub what: String,
    /// Why it failed.
    pub why: String,
    /// What to do about it; may have several lines.
    pub hint: Option<String>,
}

impl Failure {
    /// Usage or configuration, exit status 2.
    pub fn usage(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(Exit::Usage, what, why)
    }

    /// The environment lacks something, exit status 3.
    pub fn environment(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(Exit::Environment, what, why)
    }

    /// Failure while running, exit status 1.
    pub fn run(what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure::new(Exit::Failed, what, why)
    }

    /// The same with a hint.
    #[must_use]
    pub fn hint(mut self, hint: impl Into<String>) -> Failure {
        self.hint = Some(hint.into());
        self
    }

    fn new(exit: Exit, what: impl Into<String>, why: impl fmt::Display) -> Failure {
        Failure { exit, what: what.into(), why: why.to_string(), hint: None }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "weir: {}: {}", self.what, self.why)?;
        for line in self.hint.iter().flat_map(|hint| hint.lines()) {
            write!(f, "\n  {line}")?;
        }
        Ok(())
    }
}

/// Text of a caught panic.
pub fn panic_text(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_text_has_the_hint_indented_below() {
        let failure =
            Failure::environment("/run/weir/weir.sock", "no daemon listens there").hint("start\none");
        assert_eq!(failure.to_string(), "weir: /run/weir/weir.sock: no daemon listens there\n  start\n  one");
        assert_eq!(failure.exit as u8, 3);
    }

    #[test]
    fn a_panic_has_its_text() {
        let caught = std::panic::catch_unwind(|| std::panic::panic_any("why")).unwrap_err();
        assert_eq!(panic_text(&*caught), "why");
        let caught = std::panic::catch_unwind(|| std::panic::panic_any(format!("why {}", 2))).unwrap_err();
        assert_eq!(panic_text(&*caught), "why 2");
    }
}

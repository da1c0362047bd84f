//! Standard output and error, in the order they are written: what people and scripts read on one terminal.

use std::io::{Write, stderr, stdout};

/// Writes to standard output at once. A reader that went away is no error of ours.
pub fn print(text: &str) {
    let mut out = stdout().lock();
    let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
}

/// Writes to standard error, after what was printed before.
pub fn complain(text: &str) {
    let _ = stdout().flush();
    let _ = stderr().lock().write_all(text.as_bytes());
}

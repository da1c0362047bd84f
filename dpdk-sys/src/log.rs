//! DPDK's own log lines as `tracing` events of target `weir::eal`.
//!
//! DPDK writes to a stdio stream from any thread, a line in one piece or in several. The stream is
//! ours: bytes are gathered until a newline and each full line becomes one event. A driver in
//! distress can log on every poll, so at most [`LINES_PER_SECOND`] lines pass in a second; the
//! first line of a later second is preceded by the number held back.

use std::panic::catch_unwind;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::raw;

/// Lines that pass in one second. Start-up with a dozen ports logs about 50; a port polled while
/// stopped logs a stack dump of 20 lines millions of times a second.
const LINES_PER_SECOND: u32 = 200;

/// A line longer than this is passed on in parts of this many bytes, so that a stream without
/// newlines cannot grow the buffer.
const LINE_MAX_BYTES: usize = 4096;

/// Sends DPDK's log here, for the rest of the process. Called before `rte_eal_init`, which logs.
pub(crate) fn install() {
    // SAFETY: I8; `on_write` does not unwind. The stream is never closed, so DPDK may keep it.
    unsafe {
        let stream = raw::shim_log_stream(Some(on_write));
        // Without memory for a stream, or with one that is refused, DPDK goes on to stderr.
        if !stream.is_null() {
            raw::rte_openlog_stream(stream);
        }
    }
}

static LINES: Mutex<Lines> = Mutex::new(Lines::new());

unsafe extern "C" fn on_write(bytes: *const core::ffi::c_char, count: usize) {
    // SAFETY: stdio hands out `count` readable bytes for the length of this call.
    let bytes = unsafe { std::slice::from_raw_parts(bytes.cast::<u8>(), count) };
    // SAFETY: I1; reads a thread-local of the log library, which is why we are called.
    let level = unsafe { raw::rte_log_cur_msg_loglevel() };
    // A panic in a subscriber must not unwind into C (I8); the line is lost, DPDK goes on.
    let _ = catch_unwind(|| {
        let ready = LINES.lock().unwrap_or_else(PoisonError::into_inner).push(bytes, Instant::now());
        for line in ready {
            emit(level, &line);
        }
    });
}

/// DPDK's ERR and worse say that something did not work, but the caller learns of what is fatal by
/// a return value: here they are warnings. Its warnings tell of circumstances (no telemetry
/// directory, one NUMA node), the rest is chatter.
fn emit(level: i32, line: &str) {
    match level as u32 {
        ..=raw::RTE_LOG_ERR => tracing::warn!(target: "weir::eal", "{line}"),
        raw::RTE_LOG_WARNING => tracing::info!(target: "weir::eal", "{line}"),
        _ => tracing::debug!(target: "weir::eal", "{line}"),
    }
}

/// Gathers pieces into lines and limits their rate.
struct Lines {
    partial: Vec<u8>,
    second: Option<Instant>,
    passed: u32,
    held_back: u32,
}

impl Lines {
    const fn new() -> Self {
        Lines { partial: Vec::new(), second: None, passed: 0, held_back: 0 }
    }

    /// Takes the next bytes and returns the lines that are complete and may pass.
    fn push(&mut self, bytes: &[u8], now: Instant) -> Vec<String> {
        let mut ready = Vec::new();
        for &byte in bytes {
            if byte != b'\n' {
                self.partial.push(byte);
            }
            if byte == b'\n' || self.partial.len() == LINE_MAX_BYTES {
                self.finish_line(now, &mut ready);
            }
        }
        ready
    }

    fn finish_line(&mut self, now: Instant, ready: &mut Vec<String>) {
        let line = String::from_utf8_lossy(&self.partial).trim_end().to_owned();
        self.partial.clear();
        if line.is_empty() {
            return;
        }
        if self.second.is_none_or(|start| now.duration_since(start) >= Duration::from_secs(1)) {
            if self.held_back > 0 {
                ready.push(format!("{} lines held back", self.held_back));
            }
            (self.second, self.passed, self.held_back) = (Some(now), 0, 0);
        }
        if self.passed < LINES_PER_SECOND {
            self.passed += 1;
            ready.push(line);
        } else {
            self.held_back += 1;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_become_lines() {
        let (mut lines, now) = (Lines::new(), Instant::now());
        assert_eq!(lines.push(b"EAL: one", now), Vec::<String>::new());
        assert_eq!(lines.push(b" line\n\nEAL: two\nEAL:", now), ["EAL: one line", "EAL: two"]);
        assert_eq!(lines.push(b" three\r\n", now), ["EAL: three"]);
    }

    #[test]
    fn endless_line_is_cut() {
        let (mut lines, now) = (Lines::new(), Instant::now());
        let ready = lines.push(&[b'x'; LINE_MAX_BYTES + 1], now);
        assert_eq!(ready.iter().map(String::len).collect::<Vec<_>>(), [LINE_MAX_BYTES]);
    }

    #[test]
    fn flood_is_held_back_and_counted() {
        let (mut lines, start) = (Lines::new(), Instant::now());
        let flood: u32 = (0..LINES_PER_SECOND + 7).map(|_| lines.push(b"x\n", start).len() as u32).sum();
        assert_eq!(flood, LINES_PER_SECOND);
        let later = start + Duration::from_secs(1);
        assert_eq!(lines.push(b"calm\n", later), ["7 lines held back", "calm"]);
    }
}

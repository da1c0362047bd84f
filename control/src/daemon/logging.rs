//! The daemon's log: `tracing` events to stderr, filtered by `[daemon] log`.
//!
//! Under systemd the journal adds the time itself, so no time is printed when stderr is the journal. Colour
//! only on a terminal and never with `NO_COLOR`.

use std::io::{self, IsTerminal};

use tracing_subscriber::EnvFilter;

use crate::failure::Failure;

/// Sets the process's log up; once.
///
/// # Errors
/// The filter is none: exit status 2.
pub fn install(filter: &str) -> Result<(), Failure> {
    let filter = EnvFilter::try_new(filter).map_err(|error| {
        Failure::usage("daemon.log", format!("`{filter}` is no filter: {error}"))
            .hint("a filter is a level, or levels by target: \"info\", \"warn,weir::port=debug\"")
    })?;
    let colour =
        io::stderr().is_terminal() && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
    // A line that cannot be written is lost: its error would go to stderr too, and end the daemon.
    let log = tracing_subscriber::fmt().with_env_filter(filter).with_ansi(colour).with_writer(io::stderr);
    let log = log.log_internal_errors(false);
    if stderr_is_the_journal() {
        log.without_time().init();
    } else {
        log.init();
    }
    Ok(())
}

/// systemd names the journal's stream by device and inode (sd_journal(3), `JOURNAL_STREAM`).
fn stderr_is_the_journal() -> bool {
    let Ok(stream) = std::env::var("JOURNAL_STREAM") else { return false };
    rustix::fs::fstat(io::stderr()).is_ok_and(|stat| stream == format!("{}:{}", stat.st_dev, stat.st_ino))
}

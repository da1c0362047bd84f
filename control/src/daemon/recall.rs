//! What a start begins with: the journal's state with the changes of the file since, or the file alone.

use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use config::Valid;
use tracing::{info, warn};

use super::journal::{Author, Journal, Record, State};
use super::table::{Merged, Table};
use crate::counted::counted;
use crate::failure::Failure;

/// What is known before anything is started.
pub struct Recalled {
    /// The journal, open.
    pub journal: Journal,
    /// Everything that was asked for, and is to be in force.
    pub table: Table,
    /// What is to be written once it is; `None` when the journal has it.
    record: Option<Record>,
    /// Revision of the journal; `None` when there was none.
    revision: Option<u64>,
}

/// Opens the journal and works out what is to be in force. Nothing is written yet.
///
/// # Errors
/// As [`Journal::open`].
pub fn recall(valid: &Valid, config_path: &Path) -> Result<Recalled, Failure> {
    let (journal, state) = Journal::open(valid.daemon().state_dir.as_ref())?;
    let file = valid.to_toml();
    let shown = config_path.display();
    let words = |revision, what, merged: &Merged| Record {
        revision,
        unix_ms: unix_ms(),
        author: ourselves(),
        what,
        ops: merged.ops.clone(),
        file: Some(file.clone()),
    };
    let Some(State { revision, table, file: last }) = state else {
        let merged = Table::default().merge(&config::plan(&Valid::empty(), valid));
        let record = words(0, format!("start from {shown}"), &merged);
        return Ok(Recalled { journal, table: merged.table, record: Some(record), revision: None });
    };
    let (services, destinations) = table.sizes();
    info!(target: "weir::journal", revision, services, destinations, "taken up where it was left");
    let merged = table.merge(&config::plan(&last_applied(last.as_deref()), valid));
    for change in &merged.left_out {
        warn!(target: "weir::config", %change, "left out: deleted over the control socket since");
    }
    let same = merged.ops.is_empty() && last.as_deref() == Some(file.as_str());
    let what = format!("start: {shown} has changed: {} of the table", counted(merged.ops.len(), "change"));
    let record = (!same).then(|| words(revision + 1, what, &merged));
    Ok(Recalled { journal, table: merged.table, record, revision: Some(revision) })
}

impl Recalled {
    /// Writes down what the start changed; the journal, and the revision in force.
    ///
    /// # Errors
    /// The journal cannot be written: exit status 3.
    pub fn settle(mut self) -> Result<(Journal, u64), Failure> {
        let written = match (&self.record, self.revision) {
            (Some(record), None) => {
                let state = State { revision: 0, table: self.table, file: record.file.clone() };
                self.journal.begin(&state, record)
            }
            (Some(record), Some(_)) => self.journal.append(record),
            (None, _) => Ok(()),
        };
        written.map_err(|error| {
            Failure::environment("the journal cannot be written", error)
                .hint("make room, or set another `state_dir` in [daemon]")
        })?;
        let revision = self.record.map(|record| record.revision).or(self.revision).unwrap_or(0);
        Ok((self.journal, revision))
    }
}

/// The file as last applied. One that this version does not accept counts as none: every line has changed then.
pub fn last_applied(text: Option<&str>) -> Valid {
    let Some(text) = text else { return Valid::empty() };
    config::parse(text, "journal").unwrap_or_else(|errors| {
        warn!(
            target: "weir::journal",
            "the file as last applied is not accepted any more, every line of the new one counts:\n{errors}"
        );
        Valid::empty()
    })
}

/// The daemon as author of a change.
pub fn ourselves() -> Author {
    Author {
        uid: rustix::process::geteuid().as_raw(),
        pid: rustix::process::getpid().as_raw_pid(),
        program: "weir".to_owned(),
    }
}

/// Milliseconds since 1970; 0 when the clock is before that.
pub fn unix_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_millis() as u64)
}

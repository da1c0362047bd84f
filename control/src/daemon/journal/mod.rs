//! The journal: what was changed, written before it is acknowledged, and taken up again at the next start.
//!
//! Model: one file of lines in the state directory. The first record is a whole state, each further one a revision
//! with its ops. One publication is one `write`, so that a killed process leaves whole records and at most one
//! torn line at the end, which the next start cuts. The kernel keeps what was written; `fsync` is for a
//! compaction and the stop, so a power cut may lose the last seconds. A compaction folds all but the last
//! [`KEPT`] revisions into the first record, in a new file that takes the old one's name; a thread of its own makes it
//! ([`compaction`]).
//!
//! A lock on the directory keeps a second daemon out. Control thread only; each call blocks for its disk I/O.

mod compaction;
mod record;

use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::os::unix::fs::{DirBuilderExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FlockOperation;
use rustix::io::Errno;
use tracing::{debug, error, warn};

use self::compaction::{Compaction, Made};
pub use self::record::{Author, Record, State};
use self::record::{Head, Reading, VERSION, line, read};
use crate::failure::Failure;

/// Revisions that stay for `log` and `rollback`.
pub const KEPT: usize = 64;
/// A compaction is worth it when so many records are no longer kept, or the file has so many more bytes than
/// its last compaction left: a start reads 8 MiB in well under a second.
const SURPLUS_RECORDS: usize = 1024;
const SURPLUS_BYTES: u64 = 8 << 20;
/// So many times that, and it is not waited for a pause.
const SURPLUS_URGENT: u64 = 16;
/// Ticks between a compaction that failed and the next.
const RETRY_TICKS: u32 = 60;
/// Name of the file.
const FILE: &str = "journal";
/// Name of the file while it is made.
const NEW_FILE: &str = "journal.new";
/// Name of a file that cannot be used, moved out of the way.
const DAMAGED_FILE: &str = "journal.damaged";
/// What was cut off, for whoever wants to look.
const CUT_FILE: &str = "journal.cut";

/// An open journal.
#[derive(Debug)]
pub struct Journal {
    /// A compaction under way. The first field: it ends before the lock is given up.
    compaction: Option<Compaction>,
    dir: PathBuf,
    /// Locked as long as this lives.
    lock: File,
    file: File,
    /// Bytes of good records.
    bytes: u64,
    /// Bytes that the last compaction left.
    compact_bytes: u64,
    records: usize,
    /// An error left the end of the file in doubt: nothing more is written.
    broken: bool,
    /// Ticks until a compaction is tried again after one that failed.
    retry_ticks: u32,
}

impl Journal {
    /// Takes the directory, making it if needed, and reads what is there.
    ///
    /// A damaged end is cut off; a journal without one good record is moved out of the way. Both are logged.
    ///
    /// # Errors
    /// Another daemon has the directory, it cannot be used, or the journal is of another version: exit status 3.
    pub fn open(dir: &Path) -> Result<(Journal, Option<State>), Failure> {
        let shown = dir.display().to_string();
        let unusable = |error: io::Error| {
            Failure::environment(format!("state directory {shown}"), error)
                .hint("give it to this user, or set another one as `state_dir` in [daemon]")
        };
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir).map_err(unusable)?;
        let lock = File::open(dir).map_err(unusable)?;
        match rustix::fs::flock(&lock, FlockOperation::NonBlockingLockExclusive) {
            Ok(()) => {}
            Err(Errno::AGAIN) => {
                return Err(Failure::environment(
                    format!("state directory {shown}"),
                    "another weir keeps its state there",
                )
                .hint("stop it first, or give this one another `state_dir` in [daemon]"));
            }
            Err(error) => return Err(unusable(error.into())),
        }
        let mut file = open_file(&dir.join(FILE)).map_err(unusable)?;
        let mut content = Vec::new();
        file.read_to_end(&mut content).map_err(unusable)?;
        let (records, good) = match read(&content) {
            Reading::Records { records, good_bytes } => (records, good_bytes),
            Reading::Version(version) => {
                return Err(Failure::environment(
                    format!("{shown}/{FILE}"),
                    format!("written by a weir whose journal has version {version}, this one has {VERSION}"),
                )
                .hint("run that version, or move the file away to start from the configuration file alone"));
            }
            Reading::Nothing if content.is_empty() => (Vec::new(), 0),
            Reading::Nothing => {
                error!(
                    target: "weir::journal", file = %dir.join(DAMAGED_FILE).display(), bytes = content.len(),
                    "the journal is damaged from its beginning: moved away, starting from the configuration file"
                );
                fs::rename(dir.join(FILE), dir.join(DAMAGED_FILE)).map_err(unusable)?;
                file = open_file(&dir.join(FILE)).map_err(unusable)?;
                (Vec::new(), 0)
            }
        };
        if !records.is_empty() && good < content.len() {
            cut(dir, &file, &content, good).map_err(unusable)?;
        }
        let mut state = State::default();
        records.iter().for_each(|record| state.take(record));
        let journal = Journal {
            compaction: None,
            dir: dir.to_owned(),
            lock,
            file,
            bytes: good as u64,
            compact_bytes: good as u64,
            records: records.len(),
            broken: false,
            retry_ticks: 0,
        };
        // A compaction was killed; the old file is whole.
        let _ = fs::remove_file(dir.join(NEW_FILE));
        Ok((journal, (!records.is_empty()).then_some(state)))
    }

    /// Begins anew with this state, whatever was there.
    ///
    /// # Errors
    /// The disk's; what was there stays.
    pub fn begin(&mut self, state: &State, words: &Record) -> io::Result<()> {
        self.replace(&[state.as_record(words)])
    }

    /// Writes a revision; it is in the journal when this returns.
    ///
    /// # Errors
    /// The disk's; the journal is as it was.
    pub fn append(&mut self, record: &Record) -> io::Result<()> {
        if self.broken {
            return Err(io::Error::other("the journal could not be repaired after an error"));
        }
        let line = line(record);
        if let Err(error) = self.file.write_all(line.as_bytes()) {
            self.end_at(self.bytes);
            return Err(error);
        }
        self.bytes += line.len() as u64;
        self.records += 1;
        Ok(())
    }

    /// Takes back the record that was appended last, as nothing came of it; before the next tick, so no compaction has it.
    pub fn take_back(&mut self, record: &Record) {
        let before = self.bytes - line(record).len() as u64;
        self.end_at(before);
        self.bytes = before;
        self.records -= 1;
    }

    /// The revisions that can be gone back to, the oldest first.
    ///
    /// # Errors
    /// The disk's.
    pub fn history(&self) -> io::Result<Vec<Record>> {
        let mut records = self.read()?;
        records.drain(..records.len().saturating_sub(KEPT));
        Ok(records)
    }

    /// What was in force at a revision; `None` when it is not kept.
    ///
    /// # Errors
    /// The disk's.
    pub fn state_at(&self, revision: u64) -> io::Result<Option<State>> {
        let records = self.read()?;
        let kept = &records[records.len().saturating_sub(KEPT)..];
        if !kept.iter().any(|record| record.revision == revision) {
            return Ok(None);
        }
        let mut state = State::default();
        records.iter().take_while(|record| record.revision <= revision).for_each(|record| state.take(record));
        Ok(Some(state))
    }

    /// Whether a compaction is worth it; `idle`: nothing was changed of late.
    fn is_to_compact(&self, idle: bool) -> bool {
        let times = if idle { 1 } else { SURPLUS_URGENT };
        let surplus_bytes = self.bytes.saturating_sub(self.compact_bytes);
        let worth = self.records > KEPT + SURPLUS_RECORDS * times as usize
            || surplus_bytes > times * SURPLUS_BYTES.max(self.compact_bytes);
        worth && self.records > KEPT && !self.broken
    }

    /// Once a second: starts a compaction if it is worth it, ends one whose file is made. Blocks for milliseconds.
    /// `idle`: nothing was changed of late.
    ///
    /// # Errors
    /// The compaction has failed; the journal is as it was.
    pub fn tick(&mut self, idle: bool) -> io::Result<()> {
        if let Some(compaction) = &mut self.compaction {
            let ready = compaction.ready(self.bytes);
            if let Ok(None) = ready {
                return Ok(());
            }
            let ended = ready.and_then(|made| made.map_or(Ok(()), |made| self.take_over(made)));
            self.compaction = None;
            return ended.inspect_err(|_| self.retry_ticks = RETRY_TICKS);
        }
        self.retry_ticks = self.retry_ticks.saturating_sub(1);
        if self.retry_ticks == 0 && self.is_to_compact(idle) { self.start_compaction() } else { Ok(()) }
    }

    fn start_compaction(&mut self) -> io::Result<()> {
        self.compaction = Some(Compaction::start(&self.dir, self.bytes, self.records)?);
        Ok(())
    }

    /// Goes on with the new file, which holds everything that this one does.
    fn take_over(&mut self, made: Made) -> io::Result<()> {
        fs::rename(self.dir.join(NEW_FILE), self.dir.join(FILE))?;
        let before = self.compaction.as_ref().map_or(self.records, |compaction| compaction.records_before);
        let (records, bytes) = (self.records, self.bytes);
        self.records = made.records + (self.records - before);
        (self.file, self.bytes, self.compact_bytes) = (made.file, made.bytes, made.bytes);
        self.broken = false;
        compaction::sync_names(&self.dir);
        debug!(
            target: "weir::journal", records_before = records, records = self.records, bytes_before = bytes,
            bytes = self.bytes, "compacted"
        );
        Ok(())
    }

    /// Everything that was written is on disk when this returns.
    ///
    /// # Errors
    /// The disk's.
    pub fn sync(&self) -> io::Result<()> {
        self.file.sync_all()
    }

    /// Bytes of the file.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    fn read(&self) -> io::Result<Vec<Record>> {
        let mut content = Vec::new();
        // A description of its own: the place of `file` is where the next record goes.
        File::open(self.dir.join(FILE))?.take(self.bytes).read_to_end(&mut content)?;
        match read(&content) {
            Reading::Records { records, good_bytes } if good_bytes as u64 == self.bytes => Ok(records),
            _ => Err(io::Error::new(io::ErrorKind::InvalidData, "the journal was changed by somebody else")),
        }
    }

    /// Puts these records in place of the file's, all or nothing.
    fn replace(&mut self, records: &[Record]) -> io::Result<()> {
        self.compaction = None;
        let (path, new_path) = (self.dir.join(FILE), self.dir.join(NEW_FILE));
        let made = (|| -> io::Result<(File, u64)> {
            let mut content = line(&Head { weir_journal: VERSION });
            records.iter().for_each(|record| content.push_str(&line(record)));
            let mut file = open_file(&new_path)?;
            file.set_len(0)?;
            file.write_all(content.as_bytes())?;
            file.sync_all()?;
            fs::rename(&new_path, &path)?;
            Ok((file, content.len() as u64))
        })();
        let (file, bytes) = made.inspect_err(|_| drop(fs::remove_file(&new_path)))?;
        (self.file, self.bytes, self.compact_bytes) = (file, bytes, bytes);
        (self.records, self.broken) = (records.len(), false);
        // The new name is there already; only a power cut would notice.
        if let Err(error) = self.lock.sync_all() {
            warn!(target: "weir::journal", %error, "the state directory is not on disk");
        }
        Ok(())
    }

    /// Cuts the file to so many bytes.
    fn end_at(&mut self, bytes: u64) {
        let cut = self.file.set_len(bytes).and_then(|()| self.file.seek(SeekFrom::Start(bytes)));
        if let Err(error) = cut {
            self.broken = true;
            error!(
                target: "weir::journal", %error,
                "the journal's end is in doubt: every change is refused until a restart"
            );
        }
    }
}

fn open_file(path: &Path) -> io::Result<File> {
    OpenOptions::new().read(true).write(true).create(true).truncate(false).mode(0o600).open(path)
}

/// Cuts a damaged end off, and keeps it beside.
fn cut(dir: &Path, file: &File, content: &[u8], good: usize) -> io::Result<()> {
    let kept = fs::write(dir.join(CUT_FILE), &content[good..]);
    warn!(
        target: "weir::journal", file = %dir.join(FILE).display(), good_bytes = good, cut_bytes = content.len() - good,
        kept = kept.is_ok(), "the journal's end is damaged: cut at the last good record"
    );
    file.set_len(good as u64)?;
    (&mut &*file).seek(SeekFrom::Start(good as u64)).map(drop)
}

#[cfg(test)]
mod tests;

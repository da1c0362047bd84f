//! A compaction beside control: a thread of its own makes the new file while control goes on with the old one.
//!
//! Model: the thread reads what the old file held when it was started, folds it, writes the new file `journal.new` and
//! syncs it. What control appends meanwhile goes to the old file; later it is copied behind, by the thread again as long
//! as it is much ([`TAIL_BYTES`]), the rest by control, which then gives the new file the old one's name. Until
//! that moment the old file is the journal, whatever the new one holds; a start removes a new one that is left over.

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{Builder, JoinHandle};

use dpdk_sys::Tid;
use tracing::warn;

use super::record::{Head, Reading, State, VERSION, line, read};
use super::{FILE, KEPT, NEW_FILE, open_file};

/// What control copies itself, at most.
const TAIL_BYTES: u64 = 1 << 20;
/// The thread gives way to control.
const NICE: i32 = 19;

/// A compaction under way. Control thread only.
#[derive(Debug)]
pub(super) struct Compaction {
    dir: PathBuf,
    thread: Option<JoinHandle<io::Result<Made>>>,
    /// Tells the thread that nobody wants the file any more.
    abandoned: Arc<AtomicBool>,
    /// Records of the old file when it began.
    pub records_before: usize,
}

/// The new file as far as it is made.
#[derive(Debug)]
pub(super) struct Made {
    /// At its end.
    pub file: File,
    /// Bytes of it.
    pub bytes: u64,
    /// Bytes of the old file that are in it.
    pub old_bytes: u64,
    /// Records folded and kept.
    pub records: usize,
}

impl Compaction {
    /// Starts on a journal of so many good bytes.
    ///
    /// # Errors
    /// There is no thread to be had.
    pub fn start(dir: &Path, bytes: u64, records_before: usize) -> io::Result<Compaction> {
        let abandoned = Arc::default();
        let mut compaction = Compaction { dir: dir.to_owned(), thread: None, abandoned, records_before };
        compaction.spawn(move |dir, abandoned| fold(dir, bytes, abandoned))?;
        Ok(compaction)
    }

    fn spawn(
        &mut self,
        work: impl FnOnce(&Path, &AtomicBool) -> io::Result<Made> + Send + 'static,
    ) -> io::Result<()> {
        let (dir, abandoned) = (self.dir.clone(), Arc::clone(&self.abandoned));
        self.thread = Some(Builder::new().name("weir-j".to_owned()).spawn(move || {
            // Refused, it costs control some of its time.
            let _ = Tid::current().set_nice(NICE);
            work(&dir, &abandoned)
        })?);
        Ok(())
    }

    /// The new file, holding the old one's first `bytes` bytes, when it is ready; `None` while the thread is at it.
    /// Blocks for a copy of [`TAIL_BYTES`] at most.
    ///
    /// # Errors
    /// The disk's; the compaction is over.
    pub fn ready(&mut self, bytes: u64) -> io::Result<Option<Made>> {
        if self.thread.as_ref().is_some_and(|thread| !thread.is_finished()) {
            return Ok(None);
        }
        let Some(thread) = self.thread.take() else { return Err(io::Error::other("it has failed before")) };
        let made = thread.join().map_err(|_| io::Error::other("its thread has panicked"))??;
        if bytes.saturating_sub(made.old_bytes) > TAIL_BYTES {
            self.spawn(move |dir, _| {
                let made = made.with(dir, bytes)?;
                made.file.sync_all()?;
                Ok(made)
            })?;
            return Ok(None);
        }
        made.with(&self.dir, bytes).map(Some)
    }
}

impl Drop for Compaction {
    /// Waits for the thread: the directory is not given up before.
    fn drop(&mut self) {
        self.abandoned.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
        // After a compaction that went well there is none.
        let _ = fs::remove_file(self.dir.join(NEW_FILE));
    }
}

impl Made {
    /// With what the old file holds up to so many bytes.
    fn with(mut self, dir: &Path, bytes: u64) -> io::Result<Made> {
        let more = bytes.checked_sub(self.old_bytes);
        let more = more.ok_or_else(|| io::Error::other("records that were folded have been taken back"))?;
        let mut old = File::open(dir.join(FILE))?;
        old.seek(SeekFrom::Start(self.old_bytes))?;
        if io::copy(&mut old.take(more), &mut self.file)? != more {
            return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the journal is shorter than it was"));
        }
        (self.bytes, self.old_bytes) = (self.bytes + more, bytes);
        Ok(self)
    }
}

/// Makes the new file of the first bytes of the old one: all but the last [`KEPT`] revisions folded into one record.
fn fold(dir: &Path, old_bytes: u64, abandoned: &AtomicBool) -> io::Result<Made> {
    let wanted = || match abandoned.load(Ordering::Relaxed) {
        true => Err(io::Error::other("abandoned")),
        false => Ok(()),
    };
    let mut content = Vec::new();
    File::open(dir.join(FILE))?.take(old_bytes).read_to_end(&mut content)?;
    wanted()?;
    let records = match read(&content) {
        Reading::Records { records, good_bytes } if good_bytes as u64 == old_bytes => records,
        _ => {
            return Err(io::Error::new(
                io::ErrorKind::InvalidData,
                "the journal was changed by somebody else",
            ));
        }
    };
    drop(content);
    wanted()?;
    let (folded, kept) = records.split_at((records.len() + 1).saturating_sub(KEPT).max(1));
    let mut state = State::default();
    folded.iter().for_each(|record| state.take(record));
    wanted()?;
    let mut content = line(&Head { weir_journal: VERSION });
    content.push_str(&line(&state.as_record(&folded[folded.len() - 1])));
    kept.iter().for_each(|record| content.push_str(&line(record)));
    wanted()?;
    let mut file = open_file(&dir.join(NEW_FILE))?;
    file.set_len(0)?;
    file.write_all(content.as_bytes())?;
    file.sync_all()?;
    Ok(Made { file, bytes: content.len() as u64, old_bytes, records: 1 + kept.len() })
}

/// Puts the directory's names on disk, on a thread of its own.
pub(super) fn sync_names(dir: &Path) {
    let of = dir.to_owned();
    let sync = move || {
        if let Err(error) = File::open(of).and_then(|dir| dir.sync_all()) {
            warn!(target: "weir::journal", %error, "the state directory is not on disk");
        }
    };
    if let Err(error) = Builder::new().name("weir-j".to_owned()).spawn(sync) {
        warn!(target: "weir::journal", %error, "the state directory may not be on disk");
    }
}

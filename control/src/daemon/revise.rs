//! Revisions: each change of what runs is written to the journal, whole or not at all.
//!
//! Model: a plan (a reload, `apply`, `restore`, `rollback`) is worked out on a copy of the table; then the journal
//! has it, then the registry, then the workers. Commands of the socket are executed first, since each depends
//! on the one before, and written as one record before they are published or acknowledged; if they cannot be
//! written, what runs goes back to what the journal says and they are refused.

use std::time::Instant;

use config::{Change, Plan, Valid};
use rustix::io::Errno;
use tracing::field::display;
use tracing::{debug, error, info, warn};

use super::journal::{Author, Record};
use super::recall::{last_applied, ourselves, unix_ms};
use super::state::Daemon;
use super::table::{Merged, Op, Running, Table};
use super::whole::{RefusedChange, apply_whole};
use crate::api::codec::{Incoming, Refusal, Transaction, TransactionKind};
use crate::api::handler::Peer;
use crate::api::rows::{LogRow, TransactionRow};
use crate::counted::counted;
use crate::ipvs::{self, DestKey, Server, ServiceKey};

/// Commands named in the words of a revision; the first ones tell the story.
const NAMED_MAX: usize = 3;
/// Changes logged one by one; a larger plan is summed up.
const LOGGED_MAX: usize = 200;

/// A change that was worked out and waits to be made.
struct Staged {
    merged: Merged,
    /// The file that is in force with it, if it is another one.
    file: Option<Valid>,
    /// Its changes, a line each.
    lines: Vec<Line>,
}

/// One change for people, with what it is about.
struct Line {
    service: Option<ServiceKey>,
    dest: Option<DestKey>,
    text: String,
}

impl Daemon<'_> {
    /// Reads the configuration file again and applies what differs. A file with errors changes nothing.
    pub fn reload(&mut self) {
        let valid = match crate::check::load(&self.config_path) {
            Ok(valid) => valid,
            Err(error) => {
                warn!(target: "weir::config", "the configuration is kept, the file is refused:\n{error}");
                return;
            }
        };
        let plan = config::plan(&self.valid, &valid);
        for setting in &plan.restart_needed {
            warn!(target: "weir::config", setting, "a change that waits for a restart");
        }
        if plan.changes.is_empty() {
            info!(target: "weir::config", "nothing to change");
            return;
        }
        let staged = self.stage_plan(&plan);
        let what =
            format!("reload of {}: {}", self.config_path.display(), counted(staged.lines.len(), "change"));
        if let Err(refusal) = self.commit(staged, ourselves(), what) {
            warn!(target: "weir::config", "the configuration is kept: {}", refusal.text);
            return;
        }
        for setting in self.not_forwarded() {
            warn!(target: "weir::config", setting, "accepted, not in effect in this version");
        }
    }

    /// A transaction of the socket: what it changes, and, unless it is a dry run, that it is in force.
    ///
    /// # Errors
    /// It is refused whole.
    pub(super) fn transact(
        &mut self,
        transaction: &Transaction,
        peer: Peer,
    ) -> Result<Vec<TransactionRow>, Refusal> {
        let name = &transaction.name;
        let (staged, mut rows, what) = match transaction.kind {
            TransactionKind::Configuration => {
                let text = std::str::from_utf8(&transaction.content)
                    .map_err(|_| Refusal::new(Errno::INVAL, format!("{name} is not UTF-8")))?;
                let valid = config::parse(text, name)
                    .map_err(|errors| Refusal::new(Errno::INVAL, errors.to_string()))?;
                let plan = config::plan(&self.valid, &valid);
                let restart = plan.restart_needed.iter().cloned();
                let mut rows: Vec<_> = restart.map(|setting| TransactionRow::Restart { setting }).collect();
                let staged = self.stage_plan(&plan);
                let left_out = staged.merged.left_out.iter().map(ToString::to_string);
                rows.extend(left_out.map(|change| TransactionRow::LeftOut { change }));
                (staged, rows, format!("apply {name}"))
            }
            TransactionKind::Restore | TransactionKind::Lines => {
                let replace = transaction.kind == TransactionKind::Restore;
                let target = match self.try_lines(&transaction.content, replace) {
                    Ok(target) => target,
                    Err((line, errno)) => {
                        info!(target: "weir::plan", uid = peer.uid, pid = peer.pid, name, line, %errno, "refused whole");
                        return Ok(vec![TransactionRow::Refused { line, errno: errno.raw_os_error() }]);
                    }
                };
                let staged = self.stage_ops(self.table.difference(&target), Vec::new(), None);
                let word = if replace { "restore" } else { "lines of" };
                (staged, Vec::new(), format!("{word} {name}"))
            }
        };
        let changed = self.finish(staged, transaction.dry_run, author(peer), what)?;
        rows.extend(changed);
        Ok(rows)
    }

    /// Goes back to what was in force at a revision: table and file.
    ///
    /// # Errors
    /// It is not kept, or cannot be in force now.
    pub(super) fn rollback(
        &mut self,
        revision: u64,
        dry_run: bool,
        peer: Peer,
    ) -> Result<Vec<TransactionRow>, Refusal> {
        let unread = |error: std::io::Error| Refusal::new(errno_of(&error), format!("the journal: {error}"));
        let state = self.journal.state_at(revision).map_err(unread)?.ok_or_else(|| {
            Refusal::new(
                Errno::NOENT,
                format!("revision {revision} is not kept; `weir log` lists those that are"),
            )
        })?;
        // The file is taken up as far as it can be while running: what needs a restart stays.
        let then = last_applied(state.file.as_deref());
        let plan = config::plan(&self.valid, &then);
        let settings: Vec<_> = plan.changes.into_iter().filter(is_setting).collect();
        let ops = self.table.difference(&state.table);
        let restart = plan.restart_needed.into_iter();
        let mut rows: Vec<_> = restart.map(|setting| TransactionRow::Restart { setting }).collect();
        let staged = self.stage_ops(ops, settings, Some(plan.in_force));
        rows.extend(self.finish(staged, dry_run, author(peer), format!("rollback to {revision}"))?);
        Ok(rows)
    }

    /// The revisions that are kept, the newest first.
    ///
    /// # Errors
    /// The journal cannot be read.
    pub(super) fn history(&self) -> Result<Vec<LogRow>, Refusal> {
        let records = self
            .journal
            .history()
            .map_err(|error| Refusal::new(errno_of(&error), format!("the journal: {error}")))?;
        let row = |record: Record| LogRow {
            revision: record.revision,
            unix_ms: record.unix_ms,
            uid: record.author.uid,
            pid: record.author.pid,
            program: record.author.program,
            what: record.what,
        };
        Ok(records.into_iter().rev().map(row).collect())
    }

    /// Lets `commands` change what runs. Everything they change is written down, published together, and in force
    /// when this returns, before any of it is acknowledged. If it cannot be written, what runs goes back to what it
    /// was, and `commands` are called once more on a table that refuses every change with the disk's error.
    pub(super) fn change<R>(
        &mut self,
        peer: Peer,
        commands: impl for<'r> Fn(Running<'r>) -> (Running<'r>, R),
    ) -> R {
        self.set_time();
        let (Running { changes, done, ops, .. }, result) = commands(self.running());
        if !ops.is_empty()
            && let Err(error) = self.write_down(ops, None, author(peer), words(&done))
        {
            warn!(target: "weir::journal", uid = peer.uid, %error, "commands refused: they cannot be written down");
            self.back_to_journal();
            return commands(self.running().refusing(errno_of(&error))).1;
        }
        for command in &done {
            info!(target: "weir::plan", uid = peer.uid, pid = peer.pid, command, "changed over the control socket");
        }
        if !changes.is_empty() {
            self.put_in_force(&changes);
        }
        result
    }

    fn stage_plan(&self, plan: &Plan) -> Staged {
        let merged = self.table.merge(plan);
        let mut lines: Vec<_> = plan.changes.iter().filter(|c| is_setting(c)).map(setting).collect();
        lines.extend(described(&self.table, &merged.ops));
        Staged { merged, file: Some(plan.in_force.clone()), lines }
    }

    fn stage_ops(&self, ops: Vec<Op>, settings: Vec<Change>, file: Option<Valid>) -> Staged {
        let mut lines: Vec<_> = settings.iter().map(setting).collect();
        lines.extend(described(&self.table, &ops));
        let mut merged = self.table.stage(ops);
        merged.changes.splice(0..0, settings);
        Staged { merged, file, lines }
    }

    /// What the table is after these commands, or the number of the first that is refused, and why.
    fn try_lines(&mut self, content: &[u8], replace: bool) -> Result<Table, (u32, Errno)> {
        let messages = Incoming::split(content);
        let mut target = self.table.clone();
        if replace {
            target.take(&Op::Clear);
            // Lines that speak of daemons say which there are; others leave them.
            if messages.iter().any(ipvs::starts_daemon) {
                target.take(&Op::Daemons(Vec::new()));
            }
        }
        let table_size = self.table_size();
        let trial = Running::new(&mut target, &mut self.registry, &self.valid, table_size).on_trial();
        let mut server = Server::new(trial);
        for message in &messages {
            server.try_change(message).map_err(|errno| (message.header.sequence_number, errno))?;
        }
        if replace {
            target.keep_unsaid(&self.table);
        }
        Ok(target)
    }

    /// Makes a staged change unless it is a dry run or changes nothing; the rows that say so.
    fn finish(
        &mut self,
        staged: Staged,
        dry_run: bool,
        author: Author,
        what: String,
    ) -> Result<Vec<TransactionRow>, Refusal> {
        let changes = staged.lines.len() as u64;
        let mut rows: Vec<_> =
            staged.lines.iter().map(|line| TransactionRow::Change { text: line.text.clone() }).collect();
        let applied = !dry_run && changes > 0;
        if applied {
            self.commit(staged, author, format!("{what}: {}", counted(changes as usize, "change")))?;
        }
        rows.push(TransactionRow::End { revision: self.revision, changes, applied });
        Ok(rows)
    }

    /// Makes a staged change: journal, registry, workers. Refused, nothing has changed.
    fn commit(&mut self, staged: Staged, author: Author, what: String) -> Result<(), Refusal> {
        let begun = Instant::now();
        let Staged { merged, file, lines } = staged;
        self.set_time();
        self.estimation.check(&merged.table.tunables.estimators).map_err(|errno| {
            Refusal::new(
                errno,
                "estimators.est_sched is real time and est_cpulist has a worker's CPU; nothing was changed",
            )
        })?;
        let file = file.filter(|file| *file != self.valid);
        let text = file.as_ref().map(Valid::to_toml);
        let record = self.write_down(merged.ops, text, author, what).map_err(|error| {
            let dir = &self.valid.daemon().state_dir;
            Refusal::new(
                errno_of(&error),
                format!("it cannot be written to the journal in {dir}: {error}; nothing was changed"),
            )
        })?;
        if let Err(RefusedChange { change, error }) = apply_whole(&mut self.registry, &merged.changes) {
            self.journal.take_back(&record);
            self.revision -= 1;
            return Err(Refusal::new(Errno::NOMEM, format!("{change}: {error}; nothing was changed")));
        }
        for change in &merged.left_out {
            warn!(target: "weir::config", %change, "left out: deleted over the control socket since");
        }
        self.table = merged.table;
        self.table.warn_of_all();
        if let Some(file) = file {
            self.valid = file;
        }
        self.put_in_force(&merged.changes);
        for Line { service, dest, text } in &lines {
            let (service, dest) = (service.as_ref().map(display), dest.as_ref().map(display));
            if lines.len() > LOGGED_MAX {
                debug!(target: "weir::plan", service, dest, change = text, "changed");
            } else {
                info!(target: "weir::plan", service, dest, change = text, "changed");
            }
        }
        info!(
            target: "weir::plan", revision = self.revision, changes = lines.len(), what = record.what,
            elapsed_us = begun.elapsed().as_micros() as u64, "configuration in force"
        );
        Ok(())
    }

    /// Writes the next revision; the revision counts once this returns.
    fn write_down(
        &mut self,
        ops: Vec<Op>,
        file: Option<String>,
        author: Author,
        what: String,
    ) -> std::io::Result<Record> {
        let revision = self.revision + 1;
        let record = Record { revision, unix_ms: unix_ms(), author, what, ops, file };
        self.journal.append(&record)?;
        self.revision = revision;
        self.idle_ticks = 0;
        Ok(record)
    }

    /// Takes back what was executed and could not be written.
    fn back_to_journal(&mut self) {
        let state = match self.journal.state_at(self.revision) {
            Ok(Some(state)) => state,
            Ok(None) => return error!(target: "weir::journal", "the journal lacks the revision in force"),
            Err(error) => {
                return error!(
                    target: "weir::journal", %error,
                    "the journal cannot be read: what was refused is in force until a restart"
                );
            }
        };
        let back = self.table.stage(self.table.difference(&state.table));
        if let Err(RefusedChange { change, error }) = apply_whole(&mut self.registry, &back.changes) {
            return error!(target: "weir::journal", %change, %error, "what was refused cannot be taken back");
        }
        self.table = state.table;
    }
}

/// Lines of these ops on this table.
fn described(table: &Table, ops: &[Op]) -> Vec<Line> {
    let mut table = table.clone();
    let mut line = |op: &Op| {
        let text = table.describe(op);
        table.take(op);
        let (service, dest) = op.object();
        Some(Line { service, dest, text: text? })
    };
    ops.iter().filter_map(&mut line).collect()
}

fn setting(change: &Change) -> Line {
    Line { service: None, dest: None, text: change.to_string() }
}

/// Whether a change is of the whole, not of a service, and not of the table.
pub(super) fn is_setting(change: &Change) -> bool {
    matches!(change, Change::SetNetwork { .. } | Change::SetPolicy { .. })
}

fn author(peer: Peer) -> Author {
    let program = std::fs::read_to_string(format!("/proc/{}/comm", peer.pid)).unwrap_or_default();
    Author { uid: peer.uid, pid: peer.pid, program: program.trim_end().to_owned() }
}

/// Commands in a line: the first ones, and how many more.
fn words(done: &[String]) -> String {
    let mut words = done[..done.len().min(NAMED_MAX)].join("; ");
    if done.len() > NAMED_MAX {
        words.push_str(&format!("; and {} more", done.len() - NAMED_MAX));
    }
    words
}

fn errno_of(error: &std::io::Error) -> Errno {
    Errno::from_io_error(error).unwrap_or(Errno::IO)
}

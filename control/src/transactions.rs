//! The commands that change what runs by a file, whole or not at all, and those about the revisions that come of it.
//!
//! A file is read and checked here, so that its mistakes are shown without a daemon; then its content goes to the
//! daemon, which works out what differs from what runs, and makes it in one revision unless only asked.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use serde_json::json;

use crate::api::client::Client;
use crate::api::codec::{Request, Transaction, TransactionKind};
use crate::api::rows::{LogRow, TextRow, TransactionRow};
use crate::args::{ApplyArgs, LogArgs, PlanArgs, Reading, RestoreArgs, RollbackArgs, SaveArgs};
use crate::counted::counted;
use crate::failure::{Exit, Failure};
use crate::weiradm::{self, BadLine, Lines, SocketTransport, SystemNames};

/// Longest name of a file in a request, bytes; a longer one loses its beginning.
const NAME_BYTES_MAX: usize = 100;
/// Milliseconds of a second, seconds of a day.
const MS: u64 = 1000;
const DAY: u64 = 86_400;

/// `weir plan`.
pub fn plan(args: &PlanArgs) -> Result<Exit, Failure> {
    configuration(&args.file, true, &args.reading)
}

/// `weir apply`.
pub fn apply(args: &ApplyArgs) -> Result<Exit, Failure> {
    configuration(&args.file, args.dry_run, &args.reading)
}

/// `weir restore`.
pub fn restore(args: &RestoreArgs) -> Result<Exit, Failure> {
    let name = args.file.display().to_string();
    let unread = |error: io::Error| Failure::usage(name.clone(), error);
    let mut input: Box<dyn Read> = match name.as_str() {
        "-" => Box::new(io::stdin()),
        _ => Box::new(File::open(&args.file).map_err(unread)?),
    };
    let lines = Lines::read(&mut *input, "weiradm", &SystemNames).map_err(unread)?;
    let mut lines = lines.map_err(|bad| bad_line(&name, &bad, Exit::Usage))?;
    let transaction = Transaction {
        kind: TransactionKind::Restore,
        name: short(&name),
        dry_run: args.dry_run,
        content: lines.take_content(),
    };
    if transaction.content.is_empty() {
        return Err(Failure::usage(name, "no command in it, and every service would go")
            .hint("`weir save` writes one line at least; `weiradm -C` removes every service"));
    }
    let rows = Client::connect(&args.reading.socket_path())?.transact(transaction)?;
    if let [TransactionRow::Refused { line, errno }] = rows[..] {
        return Err(bad_line(&name, &lines.refused(line, errno), Exit::Failed));
    }
    say(&rows, args.dry_run, args.reading.json)
}

/// `weir rollback`.
pub fn rollback(args: &RollbackArgs) -> Result<Exit, Failure> {
    let request = Request::Rollback { revision: args.revision, dry_run: args.dry_run };
    let rows = Client::connect(&args.reading.socket_path())?.collect(&request)?;
    say(&rows, args.dry_run, args.reading.json)
}

/// `weir log`.
pub fn log(args: &LogArgs) -> Result<Exit, Failure> {
    let rows: Vec<LogRow> = Client::connect(&args.reading.socket_path())?.collect(&Request::Log)?;
    if args.reading.json {
        print(&(serde_json::to_string_pretty(&json!({ "revisions": rows })).expect("plain values") + "\n"))?;
        return Ok(Exit::Done);
    }
    let mut text =
        format!("{:>8}  {:<20}  {:>5}  {:<16}  {}\n", "REVISION", "WHEN", "UID", "PROGRAM", "WHAT");
    for row in rows {
        text.push_str(&format!(
            "{:>8}  {:<20}  {:>5}  {:<16}  {}\n",
            row.revision,
            utc(row.unix_ms),
            row.uid,
            row.program,
            row.what
        ));
    }
    print(&text)?;
    Ok(Exit::Done)
}

/// `weir save`.
pub fn save(args: &SaveArgs) -> Result<Exit, Failure> {
    let path = args.socket_path();
    if args.toml {
        let rows: Vec<TextRow> = Client::connect(&path)?.collect(&Request::Save)?;
        print(&rows.into_iter().map(|row| row.text).collect::<String>())?;
        return Ok(Exit::Done);
    }
    // For its errors: who has no daemon is told so in our words.
    drop(Client::connect(&path)?);
    let transport =
        SocketTransport::connect(&path).map_err(|e| Failure::environment(path.display().to_string(), e))?;
    let mut text = Vec::new();
    weiradm::save_all(transport, &mut text).map_err(|errno| Failure::run("save", errno))?;
    print(&String::from_utf8_lossy(&text))?;
    Ok(Exit::Done)
}

/// Sends the configuration file, having checked it.
fn configuration(file: &Path, dry_run: bool, reading: &Reading) -> Result<Exit, Failure> {
    let name = file.display().to_string();
    let text = std::fs::read_to_string(file).map_err(|error| Failure::usage(name.clone(), error))?;
    if let Err(errors) = config::parse(&text, &name) {
        return Ok(crate::check::report(&crate::check::LoadError::Content(errors)));
    }
    let transaction = Transaction {
        kind: TransactionKind::Configuration,
        name: short(&name),
        dry_run,
        content: text.into_bytes(),
    };
    let rows = Client::connect(&reading.socket_path())?.transact(transaction)?;
    say(&rows, dry_run, reading.json)
}

/// Prints what a transaction changes; of a dry run with differences the exit status says so.
fn say(rows: &[TransactionRow], dry_run: bool, as_json: bool) -> Result<Exit, Failure> {
    let (mut texts, mut restart, mut left_out, mut end) = (Vec::new(), Vec::new(), Vec::new(), None);
    for row in rows {
        match row {
            TransactionRow::Change { text } => texts.push(text),
            TransactionRow::Restart { setting } => restart.push(setting),
            TransactionRow::LeftOut { change } => left_out.push(change),
            TransactionRow::End { revision, changes, applied } => end = Some((*revision, *changes, *applied)),
            TransactionRow::Refused { .. } => {}
        }
    }
    let Some((revision, changes, applied)) = end else {
        return Err(Failure::run("the daemon", "its answer has no end")
            .hint("it is another version than this program"));
    };
    if as_json {
        let value = json!({
            "revision": revision, "applied": applied, "changes": texts, "restart_needed": restart,
            "left_out": left_out,
        });
        print(&(serde_json::to_string_pretty(&value).expect("plain values") + "\n"))?;
    } else {
        let mut out = String::new();
        texts.iter().for_each(|text| out.push_str(&format!("{text}\n")));
        restart.iter().for_each(|setting| out.push_str(&format!("! restart needed: {setting}\n")));
        left_out
            .iter()
            .for_each(|change| out.push_str(&format!("! left out, deleted over the socket: {change}\n")));
        out.push_str(&match (changes, applied) {
            (0, _) => "nothing to change\n".to_owned(),
            (_, true) => format!("revision {revision} is in force\n"),
            (_, false) => format!("{}, not made\n", counted(changes as usize, "change")),
        });
        print(&out)?;
    }
    Ok(if dry_run && changes > 0 { Exit::Differences } else { Exit::Done })
}

fn bad_line(name: &str, bad: &BadLine, exit: Exit) -> Failure {
    let what = format!("{name}:{}", bad.number);
    let failure = Failure { exit, what, why: bad.why.clone(), hint: None };
    failure.hint(format!("{}\nnothing was changed: a file is taken whole or not at all", bad.text))
}

/// The end of a name that is too long for a request.
fn short(name: &str) -> String {
    let from = name.len().saturating_sub(NAME_BYTES_MAX);
    let from = (from..=name.len()).find(|at| name.is_char_boundary(*at)).unwrap_or(name.len());
    name[from..].replace('\0', "")
}

/// Writes to stdout; a reader that has gone (`| head`) is no failure of ours.
fn print(text: &str) -> Result<(), Failure> {
    match io::stdout().lock().write_all(text.as_bytes()) {
        Err(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::run("stdout", error)),
        _ => Ok(()),
    }
}

/// A time as RFC 3339 writes it, in UTC.
fn utc(unix_ms: u64) -> String {
    let seconds = unix_ms / MS;
    let (days, of_day) = (seconds / DAY, seconds % DAY);
    // Days since 1 March of year 0, in eras of 400 years (H. Hinnant, "chrono-compatible low-level date algorithms").
    let day = days + 719_468;
    let (era, of_era) = (day / 146_097, day % 146_097);
    let year_of_era = (of_era - of_era / 1460 + of_era / 36_524 - of_era / 146_096) / 365;
    let of_year = of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * of_year + 2) / 153;
    let day_of_month = of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    let (hour, minute, second) = (of_day / 3600, of_day / 60 % 60, of_day % 60);
    format!("{year:04}-{month:02}-{day_of_month:02}T{hour:02}:{minute:02}:{second:02}Z")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_those_of_date() {
        // `date -u -d @N +%FT%TZ`
        let cases = [
            (0, "1970-01-01T00:00:00Z"),
            (951_782_399, "2000-02-28T23:59:59Z"),
            (951_782_400, "2000-02-29T00:00:00Z"),
            (1_709_251_200, "2024-03-01T00:00:00Z"),
            (4_102_444_799, "2099-12-31T23:59:59Z"),
        ];
        for (seconds, text) in cases {
            assert_eq!(utc(seconds * MS + 999), text);
        }
    }

    #[test]
    fn a_long_name_keeps_its_end() {
        assert_eq!(short("weir.toml"), "weir.toml");
        let long = format!("{}ä/weir.toml", "a".repeat(90));
        assert!(long.ends_with(&short(&long)) && short(&long).len() <= NAME_BYTES_MAX);
    }
}

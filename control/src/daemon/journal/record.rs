//! One line of the journal, and what the lines come to.
//!
//! A line is the CRC-32 of its text in eight hexadecimal digits, a blank, the text (JSON, which has no line end
//! inside), a line end. A line whose sum is wrong, or that has no end, is damaged; nothing behind it counts.

use serde::{Deserialize, Serialize};

use crate::daemon::table::{Op, Table};

/// Version of the form of the lines.
pub(super) const VERSION: u32 = 1;
/// Hexadecimal digits of the sum, and the blank.
const SUM_BYTES: usize = 9;

/// The first line: whose file it is.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Head {
    /// Version of the form of the lines.
    pub weir_journal: u32,
}

/// Who made a change.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Author {
    /// User id.
    pub uid: u32,
    /// Process id.
    pub pid: i32,
    /// Name of the program.
    pub program: String,
}

/// One revision: a publication, whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its number; one more than that of the line before.
    pub revision: u64,
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
    /// Who.
    pub author: Author,
    /// What, for people.
    pub what: String,
    /// What it does to the table. In the first record: what makes the whole of it.
    pub ops: Vec<Op>,
    /// The configuration file, if another one is in force from here on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
}

/// What the records come to.
#[derive(Clone, Debug, Default)]
pub struct State {
    /// Number of the last one.
    pub revision: u64,
    /// Everything that was asked for.
    pub table: Table,
    /// The configuration file as last applied.
    pub file: Option<String>,
}

impl State {
    /// The next record.
    pub(super) fn take(&mut self, record: &Record) {
        self.revision = record.revision;
        record.ops.iter().for_each(|op| self.table.take(op));
        if record.file.is_some() {
            self.file.clone_from(&record.file);
        }
    }

    /// The record that makes all of it, as the first of a journal, with the words of the last one.
    pub(super) fn as_record(&self, last: &Record) -> Record {
        Record {
            revision: self.revision,
            unix_ms: last.unix_ms,
            author: last.author.clone(),
            what: last.what.clone(),
            ops: Table::default().difference(&self.table),
            file: self.file.clone(),
        }
    }
}

/// A value as a line.
pub(super) fn line(value: &impl Serialize) -> String {
    let text = serde_json::to_string(value).expect("records have string keys and finite numbers");
    format!("{:08x} {text}\n", crc32fast::hash(text.as_bytes()))
}

/// The text of a line without its end; `None` when it is damaged.
fn text(line: &[u8]) -> Option<&[u8]> {
    let (sum, text) = line.split_at_checked(SUM_BYTES)?;
    let sum = std::str::from_utf8(sum.strip_suffix(b" ")?).ok()?;
    // Only what `line` writes: no sign, no capitals.
    let is_digits = sum.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
    (is_digits && u32::from_str_radix(sum, 16).ok()? == crc32fast::hash(text)).then_some(text)
}

/// What a journal's bytes hold.
#[derive(Debug)]
pub(super) enum Reading {
    /// Nothing that can be used: its first lines are damaged, or it is empty.
    Nothing,
    /// Lines of another version of this program.
    Version(u32),
    /// Good records, and how many bytes hold them; what is behind is damaged.
    Records { records: Vec<Record>, good_bytes: usize },
}

/// Reads every good record.
pub(super) fn read(bytes: &[u8]) -> Reading {
    let mut rest = bytes;
    let mut next = || {
        let end = rest.iter().position(|byte| *byte == b'\n')?;
        let line = text(&rest[..end])?;
        rest = &rest[end + 1..];
        Some((line, bytes.len() - rest.len()))
    };
    let head = next().and_then(|(line, _)| serde_json::from_slice::<Head>(line).ok());
    match head {
        None => return Reading::Nothing,
        Some(head) if head.weir_journal != VERSION => return Reading::Version(head.weir_journal),
        Some(_) => {}
    }
    let mut records: Vec<Record> = Vec::new();
    let mut good_bytes = 0;
    while let Some((line, end)) = next() {
        let Ok(record) = serde_json::from_slice::<Record>(line) else { break };
        if records.last().is_some_and(|last| record.revision != last.revision + 1) {
            break;
        }
        records.push(record);
        good_bytes = end;
    }
    if records.is_empty() { Reading::Nothing } else { Reading::Records { records, good_bytes } }
}

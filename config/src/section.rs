//! One table of the file, against its row in the table of keys.

use crate::error::Span;
use crate::keys::{Key, Table};
use crate::value::Value;

/// One table of the file.
pub(crate) struct Section {
    pub table: &'static Table,
    /// Its header, for problems with the whole.
    pub at: Span,
    /// By position of the key in the table's row.
    slots: Vec<Slot>,
}

#[derive(Clone)]
enum Slot {
    Absent,
    Refused,
    Given(Value, Span),
}

impl Section {
    /// A table that says nothing.
    pub(crate) fn defaults(table: &'static Table) -> Section {
        Section::empty(table, Span::default())
    }

    /// One whose header is there.
    pub(crate) fn empty(table: &'static Table, at: Span) -> Section {
        Section { table, at, slots: vec![Slot::Absent; table.keys.len()] }
    }

    /// The value of a key or its default; the default also in place of a refused value. `None`: it has neither.
    pub(crate) fn value(&self, name: &str) -> Option<Value> {
        let (key, slot) = self.slot(name);
        match slot {
            Slot::Given(value, _) => Some(value.clone()),
            Slot::Absent | Slot::Refused => Value::preset(key),
        }
    }

    /// The value a key was given, with its place; no default.
    pub(crate) fn given(&self, name: &str) -> Option<(&Value, &Span)> {
        match self.slot(name).1 {
            Slot::Given(value, at) => Some((value, at)),
            Slot::Absent | Slot::Refused => None,
        }
    }

    /// Place of a key's value, or of the header where it was not given.
    pub(crate) fn place(&self, name: &str) -> &Span {
        self.given(name).map_or(&self.at, |(_, at)| at)
    }

    /// Whether a value was given and refused: what depends on it is not to be judged.
    pub(crate) fn refused(&self, name: &str) -> bool {
        matches!(self.slot(name).1, Slot::Refused)
    }

    /// `table.key`.
    pub(crate) fn path(&self, name: &str) -> String {
        format!("{}.{name}", self.table.name)
    }

    /// Gives the key at this position of the row its value, or refuses it.
    pub(crate) fn put(&mut self, index: usize, value: Option<Value>, at: Span) {
        self.slots[index] = value.map_or(Slot::Refused, |value| Slot::Given(value, at));
    }

    /// Keys of the row that the file does not write.
    pub(crate) fn absent(&self) -> impl Iterator<Item = &'static Key> {
        let pairs = self.table.keys.iter().zip(&self.slots);
        pairs.filter(|(_, slot)| matches!(slot, Slot::Absent)).map(|(key, _)| key)
    }

    fn slot(&self, name: &str) -> (&'static Key, &Slot) {
        let keys = self.table.keys;
        let at = keys.iter().position(|k| k.name == name).expect("callers name keys of the table");
        (&keys[at], &self.slots[at])
    }
}

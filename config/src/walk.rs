//! The file's TOML against the table of keys.
//!
//! Model: every table of the file becomes a [`Section`], which has for each key of its row the value, or the
//! knowledge that one was given and refused. Whatever the table of keys does not have is a problem. What values
//! mean to each other is left to `validate`.

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::error::{Problems, Span};
use crate::field::Settings;
use crate::keys::{self, LATER, Preset, TABLES, Table};
use crate::section::Section;
use crate::value::{convert, nearest, quoted};

/// All tables of a file.
pub(crate) struct Document {
    /// One section for each table that is written once, given or not.
    singles: Vec<Section>,
    /// `[[port]]`.
    pub ports: Vec<Section>,
    /// `[[route]]`.
    pub routes: Vec<Section>,
    /// `[[neighbour]]`.
    pub neighbours: Vec<Section>,
    /// `[[service]]` with the `[[service.destination]]` of each.
    pub services: Vec<(Section, Vec<Section>)>,
    /// Whether the text is TOML all through, so that what is missing is missing.
    pub complete: bool,
}

impl Document {
    /// The settings of one table.
    pub(crate) fn settings<S: Settings>(&self) -> S {
        S::read(self.single(S::TABLE))
    }

    /// The section of a table that is written once.
    pub(crate) fn single(&self, name: &str) -> &Section {
        self.singles.iter().find(|s| s.table.name == name).expect("a section for each table written once")
    }
}

/// Reads all of `text`, noting every problem there is with single values.
pub(crate) fn walk(text: &str, problems: &mut Problems) -> Document {
    let (root, syntax) = DeTable::parse_recoverable(text);
    for error in &syntax {
        let span = error.span().unwrap_or_default();
        problems.push(&span, Problems::SYNTAX, error.message().replace('\n', " "));
    }
    let mut walker = Walker { problems, complete: syntax.is_empty() };
    let mut document = walker.root(root.get_ref());
    document.complete = syntax.is_empty();
    document
}

struct Walker<'p> {
    problems: &'p mut Problems,
    complete: bool,
}

impl Walker<'_> {
    fn root(&mut self, root: &DeTable<'_>) -> Document {
        for (key, value) in root {
            if !top_tables().any(|table| table.name == key.get_ref()) {
                self.unknown_at_top(key.get_ref(), &key.span(), value.get_ref());
            }
        }
        let mut list = |name: &str| {
            let table = keys::table(name);
            let elements = self.elements(table, root.get(name));
            elements.into_iter().map(|(element, at)| self.section(table, element, at)).collect()
        };
        let (ports, routes, neighbours) = (list("port"), list("route"), list("neighbour"));
        let service = keys::table("service");
        let services = self
            .elements(service, root.get(service.name))
            .into_iter()
            .map(|(element, at)| (self.section(service, element, at), self.destinations(element)))
            .collect();
        let singles = top_tables().filter(|t| !t.list).map(|table| self.single(table, root.get(table.name)));
        Document { singles: singles.collect(), ports, routes, neighbours, services, complete: true }
    }

    fn destinations(&mut self, service: &DeTable<'_>) -> Vec<Section> {
        let table = keys::table("service.destination");
        let elements = self.elements(table, service.get("destination"));
        elements.into_iter().map(|(element, at)| self.section(table, element, at)).collect()
    }

    fn single(&mut self, table: &'static Table, found: Option<&Spanned<DeValue<'_>>>) -> Section {
        let Some(found) = found else { return Section::empty(table, Span::default()) };
        match found.get_ref() {
            DeValue::Table(inner) => self.section(table, inner, found.span()),
            DeValue::Array(array) if array.iter().all(|element| element.get_ref().is_table()) => {
                // The first of several is read; that there are several is the problem.
                for element in array.iter() {
                    self.problems
                        .push(&element.span(), table.name, "a list where there should be one table")
                        .help(format!("write {} and put all its keys there", table.header()));
                }
                Section::empty(table, found.span())
            }
            _ => {
                self.problems
                    .push(&found.span(), table.name, "a value where there should be a table")
                    .expected(table.header());
                Section::empty(table, found.span())
            }
        }
    }

    /// The tables of a list.
    fn elements<'v, 'i>(
        &mut self,
        table: &'static Table,
        found: Option<&'v Spanned<DeValue<'i>>>,
    ) -> Vec<(&'v DeTable<'i>, Span)> {
        let Some(found) = found else { return Vec::new() };
        match found.get_ref() {
            DeValue::Array(array) => array
                .iter()
                .filter_map(|element| match element.get_ref() {
                    DeValue::Table(inner) => Some((inner, element.span())),
                    _ => {
                        self.problems
                            .push(
                                &element.span(),
                                table.name,
                                "a value where there should be a list of tables",
                            )
                            .expected(table.header());
                        None
                    }
                })
                .collect(),
            DeValue::Table(inner) => {
                self.problems
                    .push(&found.span(), table.name, "one table where there should be a list of them")
                    .help(format!("write {} above the keys of each", table.header()));
                vec![(inner, found.span())]
            }
            _ => {
                self.problems
                    .push(&found.span(), table.name, "a value where there should be a list of tables")
                    .expected(table.header());
                Vec::new()
            }
        }
    }

    fn section(&mut self, table: &'static Table, found: &DeTable<'_>, at: Span) -> Section {
        let mut section = Section::empty(table, at);
        for (name, value) in found {
            let path = format!("{}.{}", table.name, name.get_ref());
            if let Some(index) = table.keys.iter().position(|key| key.name == name.get_ref()) {
                let converted = convert(&table.keys[index], &path, value, self.problems);
                section.put(index, converted, value.span());
            } else if !TABLES.iter().any(|child| child.name == path) {
                self.unknown(table, name.get_ref(), &name.span());
            }
        }
        for key in section.absent() {
            if self.complete && key.default == Preset::Required {
                let path = section.path(key.name);
                self.problems
                    .push(&section.at, path, "is missing")
                    .expected(key.kind.expected())
                    .help(format!("add {} = ... to it. {}", key.name, key.sentence));
            }
        }
        section
    }

    fn unknown(&mut self, table: &'static Table, name: &str, at: &Span) {
        let path = format!("{}.{}", table.name, printable_key(name));
        if let Some(later) = LATER.iter().find(|l| l.place == table.name && l.word == name) {
            let why = format!("is not supported yet by this version ({})", later.feature);
            self.problems.push(at, path, why);
            return;
        }
        let children = TABLES.iter().filter_map(|t| t.name.strip_prefix(table.name)?.strip_prefix('.'));
        let help = nearest(name, table.keys.iter().map(|key| key.name).chain(children))
            .map(|near| format!("did you mean {near}?"))
            .or_else(|| belongs_elsewhere(name));
        let problem = self.problems.push(at, path, "unknown key");
        problem.expected(format!("a key of {}: {}", table.header(), key_names(table)));
        if let Some(help) = help {
            problem.help(help);
        }
    }

    fn unknown_at_top(&mut self, name: &str, at: &Span, value: &DeValue<'_>) {
        let near = nearest(name, top_tables().map(|table| table.name));
        let help = match near {
            Some(near) => Some(format!("did you mean {}?", keys::table(near).header())),
            None => belongs_elsewhere(name),
        };
        let what = match value {
            DeValue::Table(_) | DeValue::Array(_) => "unknown table",
            _ => "unknown key",
        };
        let headers: Vec<_> = top_tables().map(Table::header).collect();
        let problem = self.problems.push(at, printable_key(name), what);
        problem.expected(format!("one of {}", headers.join(", ")));
        if let Some(help) = help {
            problem.help(help);
        }
    }
}

fn top_tables() -> impl Iterator<Item = &'static Table> {
    TABLES.iter().filter(|table| !table.name.contains('.'))
}

fn key_names(table: &Table) -> String {
    let names: Vec<_> = table.keys.iter().map(|key| key.name).collect();
    names.join(", ")
}

/// A key that another table has.
fn belongs_elsewhere(name: &str) -> Option<String> {
    let home = TABLES.iter().find(|table| table.key(name).is_some())?;
    Some(format!("{name} is a key of {}", home.header()))
}

/// A key of the file within a message: plain if it is plain, else in quotes and made harmless.
fn printable_key(name: &str) -> String {
    let plain = name.bytes().all(|b| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_'));
    if plain && (1..=60).contains(&name.len()) { name.to_string() } else { quoted(name) }
}

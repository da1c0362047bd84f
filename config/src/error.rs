//! What is wrong with a file, in a form for people.
//!
//! Model: checks push [`Problem`]s into a [`Problems`] list with the bytes of the text they mean; at the end the
//! list becomes [`Errors`], in the order of the file, each with its line. Programs match on nothing here but
//! line, column and key; the words may change.

use std::collections::HashSet;
use std::fmt;
use std::ops::Range;

use thiserror::Error;

/// Bytes of the file's text that a value or problem covers.
pub(crate) type Span = Range<usize>;

/// Everything found wrong with one file; at least one problem, in the order of the file.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{}", Rendered(self))]
pub struct Errors {
    file: String,
    problems: Vec<Problem>,
    more: usize,
}

impl Errors {
    /// The problems, in the order of the file; of a hopeless file the first thousand met.
    pub fn problems(&self) -> &[Problem] {
        &self.problems
    }

    /// Name of the file as it was given.
    pub fn file(&self) -> &str {
        &self.file
    }
}

/// One thing that is wrong.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Key or table, e.g. `service.destination.weight`; `syntax` if it is not TOML.
    pub key: String,
    /// Why it is refused.
    pub why: String,
    /// What would be accepted.
    pub expected: Option<String>,
    /// How to put it right, where that is known.
    pub help: Option<String>,
    /// Line, from 1.
    pub line: usize,
    /// Column, from 1, in characters.
    pub column: usize,
    shown: String,
    mark: Range<usize>,
    span: Span,
}

impl Problem {
    pub(crate) fn expected(&mut self, expected: impl Into<String>) -> &mut Problem {
        self.expected = Some(expected.into());
        self
    }

    pub(crate) fn help(&mut self, help: impl Into<String>) -> &mut Problem {
        self.help = Some(help.into());
        self
    }
}

/// Problems found so far in one text.
pub(crate) struct Problems {
    text: String,
    line_starts: Vec<usize>,
    list: Vec<Problem>,
    more: usize,
}

/// Problems kept; beyond, they are counted only, so that a file of rubbish costs neither time nor memory.
const KEPT_PROBLEMS: usize = 1000;

/// Problems printed in full.
const SHOWN_PROBLEMS: usize = 100;

/// Characters of a line shown; the marked ones are kept in sight.
const SHOWN_CHARS: usize = 100;

impl Problems {
    /// Key of problems with the TOML itself.
    pub(crate) const SYNTAX: &'static str = "syntax";

    pub(crate) fn new(text: &str) -> Problems {
        let line_starts = std::iter::once(0).chain(text.match_indices('\n').map(|(at, _)| at + 1)).collect();
        Problems { text: text.to_string(), line_starts, list: Vec::new(), more: 0 }
    }

    /// Notes a problem with `key`, at `span`; the caller may add to what is returned.
    pub(crate) fn push(
        &mut self,
        span: &Span,
        key: impl Into<String>,
        why: impl Into<String>,
    ) -> &mut Problem {
        if self.list.len() == KEPT_PROBLEMS {
            self.list.pop();
            self.more += 1;
        }
        let (row, start) = self.row(span.start);
        let line = self.line(row);
        let chars = |bytes: usize| line.char_indices().take_while(|(at, _)| *at < bytes).count();
        let (from, to) = (chars(span.start - start), chars(span.end.saturating_sub(start)));
        let first = from.saturating_sub(SHOWN_CHARS / 2);
        let first = if line.chars().count() <= SHOWN_CHARS { 0 } else { first };
        let shown: String = line.chars().skip(first).take(SHOWN_CHARS).map(printable).collect();
        let mark = from - first..to.clamp(from + 1, (first + SHOWN_CHARS).max(from + 1)) - first;
        self.list.push(Problem {
            key: key.into(),
            why: why.into(),
            expected: None,
            help: None,
            line: row + 1,
            column: from + 1,
            shown,
            mark,
            span: span.clone(),
        });
        self.list.last_mut().expect("just pushed")
    }

    /// Line of a byte of the text, from 1.
    pub(crate) fn line_of(&self, span: &Span) -> usize {
        self.row(span.start).0 + 1
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.list.is_empty()
    }

    /// The list as an error about `file`, if there is anything in it.
    pub(crate) fn into_errors(mut self, file: &str) -> Option<Errors> {
        // A line that is no TOML has values that mean nothing: only the syntax is reported.
        let broken: HashSet<_> = self.list.iter().filter(|p| p.key == Self::SYNTAX).map(|p| p.line).collect();
        self.list.retain(|p| p.key == Self::SYNTAX || !broken.contains(&p.line));
        self.list.sort_by_key(|p| (p.span.start, p.span.end));
        (!self.list.is_empty()).then(|| Errors {
            file: file.to_string(),
            problems: self.list,
            more: self.more,
        })
    }

    fn row(&self, byte: usize) -> (usize, usize) {
        let row = self.line_starts.partition_point(|start| *start <= byte) - 1;
        (row, self.line_starts[row])
    }

    fn line(&self, row: usize) -> &str {
        let start = self.line_starts[row];
        let end = self.line_starts.get(row + 1).copied().unwrap_or(self.text.len());
        self.text[start..end].trim_end_matches(['\n', '\r'])
    }
}

struct Rendered<'a>(&'a Errors);

impl fmt::Display for Rendered<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Errors { file, problems, more } = self.0;
        for (i, problem) in problems.iter().take(SHOWN_PROBLEMS).enumerate() {
            if i > 0 {
                writeln!(f)?;
            }
            render(f, file, problem)?;
        }
        let unseen = problems.len().saturating_sub(SHOWN_PROBLEMS) + more;
        if unseen > 0 {
            writeln!(f, "\nweir: {file}: {unseen} more problems")?;
        }
        Ok(())
    }
}

fn render(f: &mut fmt::Formatter<'_>, file: &str, problem: &Problem) -> fmt::Result {
    let (before, marked) = (problem.mark.start, problem.mark.len());
    writeln!(f, "weir: {}: {}", problem.key, problem.why)?;
    writeln!(f, "  {file}:{}", problem.line)?;
    writeln!(f, "    {}", problem.shown.trim_end())?;
    writeln!(f, "    {:before$}{:^<marked$}", "", "")?;
    if let Some(expected) = &problem.expected {
        writeln!(f, "  expected {expected}")?;
    }
    if let Some(help) = &problem.help {
        writeln!(f, "  help: {help}")?;
    }
    Ok(())
}

/// What a file says must not drive the terminal that shows it, nor shift the mark under it.
pub(crate) fn printable(c: char) -> char {
    match c {
        '\t' => ' ',
        c if c.is_control() => '\u{fffd}',
        c => c,
    }
}

//! What was recorded from kernel IPVS, as values. Origin of the files: `data/README.md`.
//!
//! The texts are compiled in. A line that the readers here do not understand is a panic with the line: nothing
//! recorded is skipped in silence.

pub mod packets;
pub mod schedulers;
pub mod states;

/// Splits a text at its first occurrence of `at`; panics with the text if there is none.
fn cut<'a>(text: &'a str, at: &str) -> (&'a str, &'a str) {
    text.split_once(at).unwrap_or_else(|| panic!("no {at:?} in {text:?}"))
}

/// Parses a number; panics with the text.
fn number<T: std::str::FromStr>(text: &str) -> T {
    text.trim().parse().unwrap_or_else(|_| panic!("not a number: {text:?}"))
}

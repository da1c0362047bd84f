//! Knobs as text.

use config::keys::Preset;
use config::knobs::{Cpus, Knob, PREFIX, Tunables};

use crate::api::rows::KnobRow;

/// As `sysctl` prints them; with what has no effect yet marked.
pub fn listing(rows: &[KnobRow]) -> String {
    rows.iter().map(line).collect()
}

fn line(row: &KnobRow) -> String {
    let note = if row.in_effect { "" } else { "  # not in effect in this version" };
    format!("{PREFIX}{} = {}{note}\n", row.name, row.value)
}

/// The default, as a program would read it.
pub fn default(knob: &Knob) -> String {
    match knob.key.default {
        Preset::Unset(meaning) => meaning.to_owned(),
        _ => Tunables::of(&config::Valid::empty()).text(*knob, &Cpus::default()),
    }
}

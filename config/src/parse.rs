//! From text to an accepted configuration.

use crate::error::{Errors, Problems};
use crate::valid::Valid;
use crate::validate::validate;
use crate::walk::walk;

/// The configuration in `text`, or everything that is wrong with it. `file` is the name errors say it has.
///
/// Pure; any thread. On errors nothing has changed anywhere.
pub fn parse(text: &str, file: &str) -> Result<Valid, Errors> {
    let mut problems = Problems::new(text);
    let document = walk(text, &mut problems);
    // What is missing or at odds in a file that is not TOML all through may be in the part not understood.
    let valid = document.complete.then(|| validate(&document, &mut problems)).flatten();
    match (problems.into_errors(file), valid) {
        (Some(errors), _) => Err(errors),
        (None, Some(valid)) => Ok(valid),
        (None, None) => unreachable!("without a problem there is a value"),
    }
}

impl Valid {
    /// What there is before a start: no ports, no services, every setting at its default.
    ///
    /// [`crate::plan()`] from it is what a start has to do.
    pub fn empty() -> Valid {
        let empty = parse("", "").expect("a file without a line has no mistake");
        Valid { blank: true, ..empty }
    }
}

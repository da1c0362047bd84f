//! A plan reaches the registry whole or not at all.

use config::Change;
use dataplane::registry::{ApplyError, Registry};

/// A change that the registry refuses.
#[derive(Debug)]
pub struct RefusedChange {
    /// The change.
    pub change: Box<Change>,
    /// Why.
    pub error: ApplyError,
}

/// Applies every change, or none.
pub fn apply_whole(registry: &mut Registry, changes: &[Change]) -> Result<(), RefusedChange> {
    registry
        .apply_all(changes)
        .map_err(|(number, error)| RefusedChange { change: Box::new(changes[number].clone()), error })
}

#[cfg(test)]
mod tests;

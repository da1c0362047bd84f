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

/// Applies every change, or none: what was applied before one is refused is taken back.
pub fn apply_whole(registry: &mut Registry, changes: &[Change]) -> Result<(), RefusedChange> {
    for (applied, change) in changes.iter().enumerate() {
        if let Err(error) = registry.apply(change) {
            for back in changes[..applied].iter().rev().filter_map(inverse) {
                registry.apply(&back).expect("what was just applied can be taken back");
            }
            return Err(RefusedChange { change: Box::new(change.clone()), error });
        }
    }
    Ok(())
}

/// The change that undoes `change`. Removals come last in a plan and are never refused, so none is undone.
fn inverse(change: &Change) -> Option<Change> {
    Some(match change.clone() {
        Change::SetNetwork { from, to } => Change::SetNetwork { from: to, to: from },
        Change::SetPolicy { from, to } => Change::SetPolicy { from: to, to: from },
        Change::SetTimeouts { from, to } => Change::SetTimeouts { from: to, to: from },
        Change::SetKnobs { from, to } => Change::SetKnobs { from: to, to: from },
        Change::SetEstimators { from, to } => Change::SetEstimators { from: to, to: from },
        Change::AddService { key, .. } => Change::DeleteService { key },
        Change::EditService { key, from, to } => Change::EditService { key, from: to, to: from },
        Change::AddDest { service, dest } => Change::DeleteDest { service, dest: dest.key },
        Change::EditDest { service, from, to } => Change::EditDest { service, from: to, to: from },
        _ => return None,
    })
}

#[cfg(test)]
mod tests;

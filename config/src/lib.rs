//! Weir's configuration: TOML text to an accepted value, and the difference between two of them.
#![forbid(unsafe_code)]

mod types;
mod valid;

pub use types::*;
pub use valid::*;

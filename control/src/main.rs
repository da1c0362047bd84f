//! The `weir` program.
#![forbid(unsafe_code)]
fn main() {}

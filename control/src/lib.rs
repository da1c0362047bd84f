//! Weir: control.
#![forbid(unsafe_code)]
pub mod api;
pub mod failure;
pub mod show;

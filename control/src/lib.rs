//! Weir: control.
#![forbid(unsafe_code)]
pub mod api;
pub mod args;
pub mod check;
pub mod commands;
pub mod conn_filter;
pub mod daemon;
pub mod failure;
pub mod ipvs;
pub mod replay;
pub mod show;
pub mod weiradm;

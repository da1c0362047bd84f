//! Weir: control.

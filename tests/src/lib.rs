//! Weir: tests.

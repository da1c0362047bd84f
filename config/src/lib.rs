//! Weir: config.

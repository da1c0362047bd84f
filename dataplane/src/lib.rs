//! Weir: dataplane.

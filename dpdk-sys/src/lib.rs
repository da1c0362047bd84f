//! Weir: dpdk-sys.

//! DPDK for Weir.

mod raw;

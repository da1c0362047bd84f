//! Texts of the kernel's /proc: which there are.

/// Files of `/proc/net` that the daemon has.
pub const NAMES: [&str; 6] =
    ["ip_vs", "ip_vs_app", "ip_vs_conn", "ip_vs_conn_sync", "ip_vs_stats", "ip_vs_stats_percpu"];

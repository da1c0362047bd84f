//! Numbers of things, as people write them.

/// `1 port`, `2 ports`.
pub fn counted(count: usize, noun: &str) -> String {
    if count == 1 { format!("1 {noun}") } else { format!("{count} {noun}s") }
}

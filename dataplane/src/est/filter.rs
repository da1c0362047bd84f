//! The filter: kernel IPVS's exponential average, bit for bit, in integers.
//!
//! ```text
//! sample = (sum - last) << k          k = 9 for connections and packets, 4 for bytes
//! rate   = rate + floor((sample - rate) / 4)
//! ```
//!
//! A state has 10 (bytes: 5) bits below the point; the shift is one less because a period is two seconds, which is
//! assumed, not measured. A weight of 1/4 covers about 8 s. Safe while a period has fewer than 2^54 packets and 2^59 bytes.

/// Shift of connections.
pub const CONNS: u32 = 9;

/// Shifts of a counter slot's cells: inpkts, outpkts, inbytes, outbytes.
pub const PACKETS: [u32; 4] = [9, 9, 4, 4];

/// A state after one more period in which `sum - last` was counted. Wraps as the sums do.
#[inline(always)]
pub fn step(rate: u64, last: u64, sum: u64, shift: u32) -> u64 {
    let sample = sum.wrapping_sub(last) << shift;
    rate.wrapping_add((sample.wrapping_sub(rate) as i64 >> 2) as u64)
}

/// Packets or connections per second that a state stands for: to the nearest, exactly half down.
pub fn packets_shown(rate: u64) -> u64 {
    (rate + 511) >> 10
}

/// Bytes per second that a state stands for: to the nearest, exactly half down.
pub fn bytes_shown(rate: u64) -> u64 {
    (rate + 15) >> 5
}

//! The two statistics nests: the old one of 32 bits, and the one of 64.

use super::attr::{Attr, Attrs, Policy, Shape};
use super::types::Stats;

/// Attribute numbers; between the two byte counters and the rates nothing is left out.
mod number {
    pub const CONNS: u16 = 1;
    pub const IN_PACKETS: u16 = 2;
    pub const OUT_PACKETS: u16 = 3;
    pub const IN_BYTES: u16 = 4;
    pub const OUT_BYTES: u16 = 5;
    pub const CONNS_PER_SECOND: u16 = 6;
    pub const IN_PACKETS_PER_SECOND: u16 = 7;
    pub const OUT_PACKETS_PER_SECOND: u16 = 8;
    pub const IN_BYTES_PER_SECOND: u16 = 9;
    pub const OUT_BYTES_PER_SECOND: u16 = 10;
}

const POLICY64: Policy = &[
    (number::CONNS, Shape::AtLeast(8)),
    (number::IN_PACKETS, Shape::AtLeast(8)),
    (number::OUT_PACKETS, Shape::AtLeast(8)),
    (number::IN_BYTES, Shape::AtLeast(8)),
    (number::OUT_BYTES, Shape::AtLeast(8)),
    (number::CONNS_PER_SECOND, Shape::AtLeast(8)),
    (number::IN_PACKETS_PER_SECOND, Shape::AtLeast(8)),
    (number::OUT_PACKETS_PER_SECOND, Shape::AtLeast(8)),
    (number::IN_BYTES_PER_SECOND, Shape::AtLeast(8)),
    (number::OUT_BYTES_PER_SECOND, Shape::AtLeast(8)),
];

/// The nest of 32 bits: the low bits of everything but the byte counters, which have 64 here too.
pub(super) fn legacy(kind: u16, stats: &Stats) -> Attr {
    let numbers = numbers(stats).into_iter().map(|(number, value)| match number {
        number::IN_BYTES | number::OUT_BYTES => Attr::u64(number, value),
        _ => Attr::u32(number, value as u32),
    });
    Attr::nest(kind, numbers.collect())
}

/// The nest of 64 bits.
pub(super) fn full(kind: u16, stats: &Stats) -> Attr {
    Attr::nest(kind, numbers(stats).into_iter().map(|(number, value)| Attr::u64(number, value)).collect())
}

/// Reads the nest of 64 bits; `None` unless all ten numbers are there.
pub(super) fn read(outer: &Attrs<'_>, kind: u16) -> Option<Stats> {
    let nest = outer.nest(kind, POLICY64).ok()?;
    Some(Stats {
        conns: nest.u64(number::CONNS)?,
        in_packets: nest.u64(number::IN_PACKETS)?,
        out_packets: nest.u64(number::OUT_PACKETS)?,
        in_bytes: nest.u64(number::IN_BYTES)?,
        out_bytes: nest.u64(number::OUT_BYTES)?,
        conns_per_second: nest.u64(number::CONNS_PER_SECOND)?,
        in_packets_per_second: nest.u64(number::IN_PACKETS_PER_SECOND)?,
        out_packets_per_second: nest.u64(number::OUT_PACKETS_PER_SECOND)?,
        in_bytes_per_second: nest.u64(number::IN_BYTES_PER_SECOND)?,
        out_bytes_per_second: nest.u64(number::OUT_BYTES_PER_SECOND)?,
    })
}

fn numbers(stats: &Stats) -> [(u16, u64); 10] {
    [
        (number::CONNS, stats.conns),
        (number::IN_PACKETS, stats.in_packets),
        (number::OUT_PACKETS, stats.out_packets),
        (number::IN_BYTES, stats.in_bytes),
        (number::OUT_BYTES, stats.out_bytes),
        (number::CONNS_PER_SECOND, stats.conns_per_second),
        (number::IN_PACKETS_PER_SECOND, stats.in_packets_per_second),
        (number::OUT_PACKETS_PER_SECOND, stats.out_packets_per_second),
        (number::IN_BYTES_PER_SECOND, stats.in_bytes_per_second),
        (number::OUT_BYTES_PER_SECOND, stats.out_bytes_per_second),
    ]
}

//! Wire formats: what bytes mean, and nothing else.
//!
//! # Model
//!
//! * A **view** (`Header<T>` in each module) is a fixed-size header laid over the first bytes of a
//!   slice. `Header::at(bytes)` asks once whether the bytes are there; after that every getter and
//!   setter is an index into an array of known size, a plain load or store without a bounds check
//!   and without a panic. A view never judges what it reads.
//! * A **check** ([`ipv4::check`], [`tcp::check`], [`udp::check`], [`icmp::checksum_valid`]) judges, once per
//!   packet, and yields lengths that the rest of the pipeline may trust.
//! * A **builder** ([`arp::Repr::emit`], [`icmp::error`], [`tcp::reset`]) writes a whole packet from
//!   values and cannot produce a wrong checksum or length; [`icmp::echo_reply`] does so in place.
//! * [`checksum`] holds the one's complement arithmetic of all of them.
//!
//! Numbers are in host byte order on this side of the view; addresses are `u32` as
//! [`core::net::Ipv4Addr::to_bits`] gives them. Nothing here allocates, keeps state, reads a clock
//! or knows mbufs; every function may be called on the hot path unless its doc says slow.
//!
//! A new protocol is a new file with the same three parts.

pub mod arp;
pub mod checksum;
pub mod ethernet;
pub mod icmp;
pub mod ipv4;
pub mod tcp;
pub mod udp;

/// Reads a big-endian `u16` at a constant offset.
#[inline(always)]
fn be16<const N: usize>(bytes: &[u8; N], at: usize) -> u16 {
    u16::from_be_bytes([bytes[at], bytes[at + 1]])
}

/// Reads a big-endian `u32` at a constant offset.
#[inline(always)]
fn be32<const N: usize>(bytes: &[u8; N], at: usize) -> u32 {
    u32::from_be_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

/// Writes a big-endian `u16` at a constant offset.
#[inline(always)]
fn put16<const N: usize>(bytes: &mut [u8; N], at: usize, value: u16) {
    bytes[at..at + 2].copy_from_slice(&value.to_be_bytes());
}

/// Writes a big-endian `u32` at a constant offset.
#[inline(always)]
fn put32<const N: usize>(bytes: &mut [u8; N], at: usize, value: u32) {
    bytes[at..at + 4].copy_from_slice(&value.to_be_bytes());
}

//! IPv4 headers (RFC 791).

use core::borrow::{Borrow, BorrowMut};

use super::checksum;
use super::{be16, be32, put16, put32};

/// Bytes of a header without options.
pub const LEN: usize = 20;

/// Protocol number of ICMP.
pub const ICMP: u8 = 1;
/// Protocol number of TCP.
pub const TCP: u8 = 6;
/// Protocol number of UDP.
pub const UDP: u8 = 17;

/// TTL of packets we originate (RFC 1700; the kernel's default as well).
pub const DEFAULT_TTL: u8 = 64;

/// Don't Fragment, in the [`Header::fragment`] word.
pub const DF: u16 = 0x4000;
/// More Fragments, in the [`Header::fragment`] word.
pub const MF: u16 = 0x2000;
/// Fragment offset in units of 8 bytes, in the [`Header::fragment`] word.
pub const OFFSET: u16 = 0x1fff;

const VERSION_IHL: usize = 0;
const TOS: usize = 1;
const TOTAL_LEN: usize = 2;
const ID: usize = 4;
const FRAGMENT: usize = 6;
const TTL: usize = 8;
const PROTOCOL: usize = 9;
const CHECK: usize = 10;
const SRC: usize = 12;
const DST: usize = 16;

/// View of the fixed part of a header; `T` is `&[u8; 20]`, `&mut [u8; 20]` or the array itself.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

impl<'a> Header<&'a [u8; LEN]> {
    /// Views the start of a packet; `None` if it is shorter than 20 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at(packet: &'a [u8]) -> Option<Self> {
        packet.first_chunk().map(Self)
    }
}

impl<'a> Header<&'a mut [u8; LEN]> {
    /// Views the start of a packet for writing; `None` if it is shorter than 20 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(packet: &'a mut [u8]) -> Option<Self> {
        packet.first_chunk_mut().map(Self)
    }
}

impl<T: Borrow<[u8; LEN]>> Header<T> {
    /// Version, 4 in a good packet.
    #[inline(always)]
    #[must_use]
    pub fn version(&self) -> u8 {
        self.0.borrow()[VERSION_IHL] >> 4
    }

    /// Header length in bytes with options: 0 to 60, at least 20 in a good packet.
    #[inline(always)]
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.borrow()[VERSION_IHL] & 0x0f) * 4
    }

    /// Type of service: DSCP and ECN.
    #[inline(always)]
    #[must_use]
    pub fn tos(&self) -> u8 {
        self.0.borrow()[TOS]
    }

    /// Length of header and payload in bytes.
    #[inline(always)]
    #[must_use]
    pub fn total_len(&self) -> u16 {
        be16(self.0.borrow(), TOTAL_LEN)
    }

    /// Identification.
    #[inline(always)]
    #[must_use]
    pub fn id(&self) -> u16 {
        be16(self.0.borrow(), ID)
    }

    /// The word of [`DF`], [`MF`] and [`OFFSET`].
    #[inline(always)]
    #[must_use]
    pub fn fragment(&self) -> u16 {
        be16(self.0.borrow(), FRAGMENT)
    }

    /// Any fragment, the first included.
    #[inline(always)]
    #[must_use]
    pub fn is_fragment(&self) -> bool {
        self.fragment() & (MF | OFFSET) != 0
    }

    /// Time to live.
    #[inline(always)]
    #[must_use]
    pub fn ttl(&self) -> u8 {
        self.0.borrow()[TTL]
    }

    /// Protocol of the payload.
    #[inline(always)]
    #[must_use]
    pub fn protocol(&self) -> u8 {
        self.0.borrow()[PROTOCOL]
    }

    /// Header check.
    #[inline(always)]
    #[must_use]
    pub fn check(&self) -> u16 {
        be16(self.0.borrow(), CHECK)
    }

    /// Source address.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> u32 {
        be32(self.0.borrow(), SRC)
    }

    /// Destination address.
    #[inline(always)]
    #[must_use]
    pub fn dst(&self) -> u32 {
        be32(self.0.borrow(), DST)
    }
}

impl<T: BorrowMut<[u8; LEN]>> Header<T> {
    /// Sets the identification; the check is not touched, as with all setters.
    #[inline(always)]
    pub fn set_id(&mut self, id: u16) {
        put16(self.0.borrow_mut(), ID, id);
    }

    /// Sets the word of [`DF`], [`MF`] and [`OFFSET`].
    #[inline(always)]
    pub fn set_fragment(&mut self, fragment: u16) {
        put16(self.0.borrow_mut(), FRAGMENT, fragment);
    }

    /// Sets the time to live.
    #[inline(always)]
    pub fn set_ttl(&mut self, ttl: u8) {
        self.0.borrow_mut()[TTL] = ttl;
    }

    /// Sets the header check.
    #[inline(always)]
    pub fn set_check(&mut self, check: u16) {
        put16(self.0.borrow_mut(), CHECK, check);
    }

    /// Sets the source address.
    #[inline(always)]
    pub fn set_src(&mut self, src: u32) {
        put32(self.0.borrow_mut(), SRC, src);
    }

    /// Sets the destination address.
    #[inline(always)]
    pub fn set_dst(&mut self, dst: u32) {
        put32(self.0.borrow_mut(), DST, dst);
    }

    /// Takes one from the TTL and corrects the check (RFC 1141 for this one word). The TTL must be at least 1.
    #[inline(always)]
    pub fn decrement_ttl(&mut self) {
        self.set_ttl(self.ttl().wrapping_sub(1));
        self.set_check(checksum::apply(self.check(), checksum::TTL_DECREMENT));
    }
}

/// What is wrong with a packet.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Error {
    /// Version, header length or total length contradict each other or the bytes present.
    Malformed,
    /// The header check is wrong.
    Checksum,
}

/// Lengths of a packet that passed [`check`].
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Lengths {
    /// Bytes of the header: 20 to 60.
    pub header: usize,
    /// Bytes of header and payload, at most the bytes present: anything behind it is Ethernet padding.
    pub total: usize,
}

/// Judges a packet that starts at byte 0 of `packet`.
///
/// `verify` is false when the receiving hardware vouched for the header check.
#[inline(always)]
pub fn check(packet: &[u8], verify: bool) -> Result<Lengths, Error> {
    let view = Header::at(packet).ok_or(Error::Malformed)?;
    let lengths = Lengths { header: view.header_len(), total: usize::from(view.total_len()) };
    if view.version() != 4
        || lengths.header < LEN
        || lengths.total < lengths.header
        || lengths.total > packet.len()
    {
        return Err(Error::Malformed);
    }
    if verify {
        let good = if lengths.header == LEN {
            checksum::sum(view.0) == 0xffff
        } else {
            options_checksum_valid(packet, lengths.header)
        };
        if !good {
            return Err(Error::Checksum);
        }
    }
    Ok(lengths)
}

/// Is the check over a header with options good? Out of line: few packets have any.
#[cold]
#[inline(never)]
fn options_checksum_valid(packet: &[u8], header_len: usize) -> bool {
    packet.get(..header_len).is_some_and(|header| checksum::sum(header) == 0xffff)
}

/// May a packet from the wire carry this source? Not "this network", loopback, multicast or the limited
/// broadcast (RFC 1122 §3.2.1.3).
#[inline(always)]
#[must_use]
pub const fn is_usable_source(address: u32) -> bool {
    // 1.0.0.0 up to 223.255.255.255, and class E short of the broadcast.
    let unicast = address.wrapping_sub(0x0100_0000) < 0xdf00_0000;
    (unicast || address.wrapping_sub(0xf000_0000) < 0x0fff_ffff) && address >> 24 != 127
}

/// 224.0.0.0/4 (RFC 5771).
#[inline(always)]
#[must_use]
pub const fn is_multicast(address: u32) -> bool {
    address >> 28 == 0xe
}

/// What the options of a header ask for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Options {
    /// Nothing that matters to a forwarder.
    Harmless,
    /// Loose or strict source route: the sender wants to choose the path.
    SourceRoute,
    /// A length that does not fit.
    Malformed,
}

/// Scans the option bytes between the fixed header and the payload. Slow path: few packets have any.
#[must_use]
pub fn options(mut bytes: &[u8]) -> Options {
    const END: u8 = 0;
    const NOP: u8 = 1;
    const LOOSE_SOURCE_ROUTE: u8 = 0x83;
    const STRICT_SOURCE_ROUTE: u8 = 0x89;
    loop {
        bytes = match *bytes {
            [] | [END, ..] => return Options::Harmless,
            [NOP, ref rest @ ..] => rest,
            [LOOSE_SOURCE_ROUTE | STRICT_SOURCE_ROUTE, ..] => return Options::SourceRoute,
            [_, len, ..] if len >= 2 => match bytes.get(usize::from(len)..) {
                Some(rest) => rest,
                None => return Options::Malformed,
            },
            _ => return Options::Malformed,
        };
    }
}

/// Values of a header without options.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Type of service.
    pub tos: u8,
    /// Bytes of header and payload.
    pub total_len: u16,
    /// Identification.
    pub id: u16,
    /// The word of [`DF`], [`MF`] and [`OFFSET`].
    pub fragment: u16,
    /// Time to live.
    pub ttl: u8,
    /// Protocol of the payload.
    pub protocol: u8,
    /// Source address.
    pub src: u32,
    /// Destination address.
    pub dst: u32,
}

impl Repr {
    /// Writes the header with its check.
    pub fn emit(&self, bytes: &mut [u8; LEN]) {
        bytes[VERSION_IHL] = 0x45;
        bytes[TOS] = self.tos;
        put16(bytes, TOTAL_LEN, self.total_len);
        put16(bytes, ID, self.id);
        put16(bytes, FRAGMENT, self.fragment);
        bytes[TTL] = self.ttl;
        bytes[PROTOCOL] = self.protocol;
        put16(bytes, CHECK, 0);
        put32(bytes, SRC, self.src);
        put32(bytes, DST, self.dst);
        put16(bytes, CHECK, checksum::check(bytes));
    }
}

#[cfg(test)]
#[path = "ipv4_tests.rs"]
mod tests;

//! One's complement checksums (RFC 1071) and their incremental update (RFC 1624).
//!
//! Three kinds of `u16` pass through here, all in host byte order:
//!
//! * a **sum**: folded one's complement sum of 16-bit words, not inverted; sums combine with [`add`];
//! * a **check**: the inverted sum, as a header carries it;
//! * a **delta**: what a change of the covered words adds to their sum, `~old + new`. A connection
//!   computes its deltas once and [`apply`] costs two additions a packet. Deltas [`combine`] like sums.
//!
//! A check that was wrong by some amount stays wrong by the same amount under [`apply`]: corruption
//! on the way in is still visible to the receiver, as with the kernel's NAT.

/// The delta of a TTL decrement: the word `ttl << 8 | protocol` falls by `0x0100`, whatever it was.
pub const TTL_DECREMENT: u16 = !0x0100;

/// One's complement sum of two sums (end-around carry).
#[inline(always)]
#[must_use]
pub const fn add(a: u16, b: u16) -> u16 {
    let (sum, carry) = a.overflowing_add(b);
    // Cannot overflow: with a carry the sum is at most 0xfffe.
    sum + carry as u16
}

/// Sum of a byte string, an odd last byte padded with zero on the right (RFC 1071 §4.1).
///
/// Works in native byte order on eight bytes a step, which RFC 1071 §2(B) allows, and swaps once at
/// the end. An odd-length string may only be the last part of a combined sum.
#[inline]
#[must_use]
pub fn sum(bytes: &[u8]) -> u16 {
    // Halves of each word into 64 bits: carries cannot be lost below 2^31 words.
    let (words, tail) = bytes.as_chunks::<8>();
    let mut total: u64 = 0;
    for word in words {
        total += halves(u64::from_ne_bytes(*word));
    }
    // At most 7 bytes, in pieces that begin at even offsets; a call to memcpy would cost more.
    let mut rest = tail;
    if let Some((four, after)) = rest.split_first_chunk() {
        total += u64::from(u32::from_ne_bytes(*four));
        rest = after;
    }
    if let Some((two, after)) = rest.split_first_chunk() {
        total += u64::from(u16::from_ne_bytes(*two));
        rest = after;
    }
    if let [last] = *rest {
        total += u64::from(u16::from_ne_bytes([last, 0]));
    }
    fold(total).to_be()
}

/// Check of a byte string: what a header field over these bytes holds.
#[inline]
#[must_use]
pub fn check(bytes: &[u8]) -> u16 {
    !sum(bytes)
}

/// Sum of the IPv4 pseudo header (RFC 9293 §3.1, RFC 768). `length` is that of the L4 header and payload in bytes.
#[inline]
#[must_use]
pub fn pseudo(src: u32, dst: u32, protocol: u8, length: u16) -> u16 {
    fold(u64::from(src) + u64::from(dst) + u64::from(protocol) + u64::from(length))
}

/// Check of a TCP or UDP segment under its IPv4 pseudo header. The check field inside must be zero;
/// with a filled field the result is 0 exactly when the segment is valid.
///
/// Segments longer than 65535 bytes do not exist in IPv4; their length would be cut.
#[inline]
#[must_use]
pub fn transport(src: u32, dst: u32, protocol: u8, segment: &[u8]) -> u16 {
    !add(pseudo(src, dst, protocol, segment.len() as u16), sum(segment))
}

/// Delta of a 16-bit word.
#[inline(always)]
#[must_use]
pub const fn delta_u16(old: u16, new: u16) -> u16 {
    add(!old, new)
}

/// Delta of a 32-bit field at an even offset, an address for instance.
#[inline(always)]
#[must_use]
pub const fn delta_u32(old: u32, new: u32) -> u16 {
    fold(!old as u64 + new as u64)
}

/// Delta of two changes together.
#[inline(always)]
#[must_use]
pub const fn combine(a: u16, b: u16) -> u16 {
    add(a, b)
}

/// RFC 1624 equation 3: `C' = ~(~C + delta)`.
#[inline(always)]
#[must_use]
pub const fn apply(check: u16, delta: u16) -> u16 {
    !add(!check, delta)
}

/// [`apply`] for one changed word.
#[inline(always)]
#[must_use]
pub const fn adjust(check: u16, old: u16, new: u16) -> u16 {
    apply(check, delta_u16(old, new))
}

/// [`apply`] under UDP's rules (RFC 768): 0 means "no checksum" and stays; a computed 0 is sent as 0xffff.
#[inline(always)]
#[must_use]
pub const fn apply_udp(check: u16, delta: u16) -> u16 {
    if check == 0 { 0 } else { udp_nonzero(apply(check, delta)) }
}

/// A computed UDP check as it goes on the wire: 0 becomes 0xffff.
#[inline(always)]
#[must_use]
pub const fn udp_nonzero(check: u16) -> u16 {
    if check == 0 { 0xffff } else { check }
}

/// Both 32-bit halves of a word, added without loss.
#[inline(always)]
const fn halves(word: u64) -> u64 {
    (word & 0xffff_ffff) + (word >> 32)
}

/// Folds to 16 bits with end-around carry; 0 only for 0.
#[inline(always)]
const fn fold(total: u64) -> u16 {
    let once = halves(total);
    let twice = (once & 0xffff) + (once >> 16);
    let thrice = (twice & 0xffff) + (twice >> 16);
    let last = (thrice & 0xffff) + (thrice >> 16);
    last as u16
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Word by word, as RFC 1071 words it.
    fn slow_sum(bytes: &[u8]) -> u16 {
        let mut total = 0u32;
        for pair in bytes.chunks(2) {
            total += u32::from(pair[0]) << 8 | u32::from(*pair.get(1).unwrap_or(&0));
            if total > 0xffff {
                total -= 0xffff;
            }
        }
        total as u16
    }

    #[test]
    fn rfc_1071_example() {
        assert_eq!(sum(&[0x00, 0x01, 0xf2, 0x03, 0xf4, 0xf5, 0xf6, 0xf7]), 0xddf2);
        assert_eq!(sum(&[]), 0);
    }

    #[test]
    fn rfc_1624_example() {
        // §4: the word 0x5555 becomes 0x3285 under the check 0xdd2f; equation 2 would give 0xffff.
        assert_eq!(adjust(0xdd2f, 0x5555, 0x3285), 0x0000);
    }

    #[test]
    fn udp_zero_rules() {
        assert_eq!(apply_udp(0, 0x1234), 0, "no checksum stays none");
        assert_eq!(apply(0xdd2f, delta_u16(0x5555, 0x3285)), 0);
        assert_eq!(apply_udp(0xdd2f, delta_u16(0x5555, 0x3285)), 0xffff);
    }

    #[test]
    fn largest_words_fold_without_loss() {
        for len in [0, 1, 2, 7, 8, 9, 65535] {
            let bytes = vec![0xff; len];
            assert_eq!(sum(&bytes), slow_sum(&bytes), "{len} bytes of ff");
        }
        assert_eq!(fold(u64::MAX), 0xffff);
        assert_eq!(delta_u32(0, u32::MAX), 0xffff);
    }

    proptest! {
        #[test]
        fn sum_equals_the_slow_one(bytes in proptest::collection::vec(any::<u8>(), 0..2000)) {
            prop_assert_eq!(sum(&bytes), slow_sum(&bytes));
        }

        #[test]
        fn sums_of_even_parts_combine(bytes in proptest::collection::vec(any::<u8>(), 0..200), at in 0usize..100) {
            let (a, b) = bytes.split_at((at * 2).min(bytes.len() & !1));
            prop_assert_eq!(add(sum(a), sum(b)), sum(&bytes));
        }

        #[test]
        fn pseudo_header_equals_its_bytes(src: u32, dst: u32, protocol: u8, length: u16) {
            let mut bytes = Vec::new();
            bytes.extend(src.to_be_bytes());
            bytes.extend(dst.to_be_bytes());
            bytes.extend([0, protocol]);
            bytes.extend(length.to_be_bytes());
            prop_assert_eq!(pseudo(src, dst, protocol, length), slow_sum(&bytes));
        }

        /// Any words replaced, any error carried by the check: the error after is the error before.
        #[test]
        fn apply_keeps_the_error(
            mut bytes in proptest::collection::vec(any::<u8>(), 8..80), address: u32, port: u16, error: u16,
        ) {
            let before = apply(check(&bytes), error);
            let old32 = u32::from_be_bytes(*bytes.first_chunk().unwrap());
            let old16 = u16::from_be_bytes([bytes[6], bytes[7]]);
            bytes[..4].copy_from_slice(&address.to_be_bytes());
            bytes[6..8].copy_from_slice(&port.to_be_bytes());
            let delta = combine(delta_u32(old32, address), delta_u16(old16, port));
            // 0 and 0xffff are the same number in one's complement.
            let same = |a: u16, b: u16| a % 0xffff == b % 0xffff;
            prop_assert!(same(apply(before, delta), apply(check(&bytes), error)));
        }
    }
}

//! UDP headers (RFC 768).

use core::borrow::{Borrow, BorrowMut};

use super::{be16, checksum, ipv4, put16};

/// Bytes of a header.
pub const LEN: usize = 8;

const SPORT: usize = 0;
const DPORT: usize = 2;
const LENGTH: usize = 4;
const CHECK: usize = 6;

/// View of a header; `T` is `&[u8; 8]`, `&mut [u8; 8]` or the array itself.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

impl<'a> Header<&'a [u8; LEN]> {
    /// Views the start of a datagram; `None` if it is shorter than 8 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at(datagram: &'a [u8]) -> Option<Self> {
        datagram.first_chunk().map(Self)
    }
}

impl<'a> Header<&'a mut [u8; LEN]> {
    /// Views the start of a datagram for writing; `None` if it is shorter than 8 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(datagram: &'a mut [u8]) -> Option<Self> {
        datagram.first_chunk_mut().map(Self)
    }
}

impl<T: Borrow<[u8; LEN]>> Header<T> {
    /// Source port.
    #[inline(always)]
    #[must_use]
    pub fn sport(&self) -> u16 {
        be16(self.0.borrow(), SPORT)
    }

    /// Destination port.
    #[inline(always)]
    #[must_use]
    pub fn dport(&self) -> u16 {
        be16(self.0.borrow(), DPORT)
    }

    /// Bytes of header and payload.
    #[inline(always)]
    #[must_use]
    pub fn length(&self) -> u16 {
        be16(self.0.borrow(), LENGTH)
    }

    /// Check over pseudo header and datagram; 0 means none.
    #[inline(always)]
    #[must_use]
    pub fn check(&self) -> u16 {
        be16(self.0.borrow(), CHECK)
    }
}

impl<T: BorrowMut<[u8; LEN]>> Header<T> {
    /// Sets the source port; the check is not touched, as with all setters.
    #[inline(always)]
    pub fn set_sport(&mut self, port: u16) {
        put16(self.0.borrow_mut(), SPORT, port);
    }

    /// Sets the destination port.
    #[inline(always)]
    pub fn set_dport(&mut self, port: u16) {
        put16(self.0.borrow_mut(), DPORT, port);
    }

    /// Sets the check as it goes on the wire.
    #[inline(always)]
    pub fn set_check(&mut self, check: u16) {
        put16(self.0.borrow_mut(), CHECK, check);
    }
}

/// Length in bytes that the datagram claims, if it lies between the header and the bytes present.
#[inline(always)]
#[must_use]
pub fn check(datagram: &[u8]) -> Option<usize> {
    let len = usize::from(Header::at(datagram)?.length());
    (LEN <= len && len <= datagram.len()).then_some(len)
}

/// Gives a whole datagram a full check, as NAT owes one that arrived without. `None`: nothing written,
/// the length is a lie.
///
/// The check covers the bytes that the length field claims (RFC 768).
#[must_use]
pub fn fill_check(src: u32, dst: u32, datagram: &mut [u8]) -> Option<()> {
    let len = check(datagram)?;
    let covered = datagram.get_mut(..len)?;
    Header::at_mut(covered)?.set_check(0);
    let sum = checksum::transport(src, dst, ipv4::UDP, covered);
    Header::at_mut(covered)?.set_check(checksum::udp_nonzero(sum));
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Port 40000 to 53, "hello", no check.
    const HELLO: [u8; 13] = *b"\x9c\x40\x00\x35\x00\x0d\x00\x00hello";

    #[test]
    fn fields_are_where_they_are() {
        let udp = Header::at(&HELLO).unwrap();
        assert_eq!((udp.sport(), udp.dport()), (40000, 53));
        assert_eq!((udp.length(), udp.check()), (13, 0));
        assert_eq!(check(&HELLO), Some(13));
        assert_eq!(check(&HELLO[..12]), None);
        assert_eq!(check(&HELLO[..7]), None);
        assert_eq!(check(b"\x00\x01\x00\x02\x00\x07\x00\x00"), None);
    }

    #[test]
    fn filled_check_as_the_kernel_sends_it() {
        let mut datagram = HELLO;
        fill_check(0xc633_640a, 0x0a00_0001, &mut datagram).unwrap();
        assert_eq!(Header(datagram.first_chunk::<LEN>().unwrap()).check(), 0xeb4d);
    }

    proptest! {
        #[test]
        fn filled_check_is_valid_and_never_zero(src: u32, dst: u32, mut bytes in proptest::collection::vec(any::<u8>(), 8..60)) {
            let len = bytes.len() as u16;
            bytes[LENGTH..CHECK].copy_from_slice(&len.to_be_bytes());
            fill_check(src, dst, &mut bytes).unwrap();
            prop_assert_ne!(Header::at(&bytes).unwrap().check(), 0);
            prop_assert_eq!(checksum::transport(src, dst, ipv4::UDP, &bytes), 0);
        }
    }
}

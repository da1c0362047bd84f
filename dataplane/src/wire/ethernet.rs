//! Ethernet II headers and the 802.1Q tag.

use core::borrow::{Borrow, BorrowMut};

use super::{be16, put16};

/// Bytes of an untagged header.
pub const LEN: usize = 14;

/// Bytes of one 802.1Q tag.
pub const TAG_LEN: usize = 4;

/// EtherType of IPv4 (RFC 894).
pub const IPV4: u16 = 0x0800;
/// EtherType of ARP (RFC 826).
pub const ARP: u16 = 0x0806;
/// EtherType of IPv6 (RFC 2464).
pub const IPV6: u16 = 0x86dd;
/// Tag protocol identifier of a customer VLAN tag (IEEE 802.1Q).
pub const VLAN: u16 = 0x8100;
/// Tag protocol identifier of a service VLAN tag (IEEE 802.1ad).
pub const QINQ: u16 = 0x88a8;

const DST: usize = 0;
const SRC: usize = 6;
const ETHERTYPE: usize = 12;

/// A MAC address.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Debug, Default)]
pub struct Mac(pub [u8; 6]);

impl Mac {
    /// All stations.
    pub const BROADCAST: Self = Self([0xff; 6]);
    /// Unknown, as an ARP request carries it.
    pub const ZERO: Self = Self([0; 6]);

    /// Group addresses, the broadcast included.
    #[inline(always)]
    #[must_use]
    pub const fn is_multicast(self) -> bool {
        self.0[0] & 1 != 0
    }

    /// The address in the low 48 bits, first byte highest.
    #[inline(always)]
    #[must_use]
    pub const fn to_bits(self) -> u64 {
        let [a, b, c, d, e, f] = self.0;
        u64::from_be_bytes([0, 0, a, b, c, d, e, f])
    }

    /// The inverse of [`Mac::to_bits`]; the high 16 bits are ignored.
    #[inline(always)]
    #[must_use]
    pub const fn from_bits(bits: u64) -> Self {
        let [_, _, a, b, c, d, e, f] = bits.to_be_bytes();
        Self([a, b, c, d, e, f])
    }
}

/// View of a header; `T` is `&[u8; 14]`, `&mut [u8; 14]` or the array itself.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

impl<'a> Header<&'a [u8; LEN]> {
    /// Views the start of a frame; `None` if it is shorter than a header.
    #[inline(always)]
    #[must_use]
    pub fn at(frame: &'a [u8]) -> Option<Self> {
        frame.first_chunk().map(Self)
    }
}

impl<'a> Header<&'a mut [u8; LEN]> {
    /// Views the start of a frame for writing; `None` if it is shorter than a header.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(frame: &'a mut [u8]) -> Option<Self> {
        frame.first_chunk_mut().map(Self)
    }
}

impl<T: Borrow<[u8; LEN]>> Header<T> {
    /// Whether the frame is for `mac`: one load and one comparison.
    #[inline(always)]
    #[must_use]
    pub fn is_for(&self, mac: Mac) -> bool {
        let bytes = self.0.borrow();
        let word = |six: &[u8; 8]| u64::from_le_bytes(*six) << 16;
        let [a, b, c, d, e, f] = mac.0;
        bytes.first_chunk().map(word) == Some(word(&[a, b, c, d, e, f, 0, 0]))
    }

    /// Destination.
    #[inline(always)]
    #[must_use]
    pub fn dst(&self) -> Mac {
        mac(self.0.borrow(), DST)
    }

    /// Source.
    #[inline(always)]
    #[must_use]
    pub fn src(&self) -> Mac {
        mac(self.0.borrow(), SRC)
    }

    /// EtherType, or the tag protocol identifier of a tagged frame.
    #[inline(always)]
    #[must_use]
    pub fn ethertype(&self) -> u16 {
        be16(self.0.borrow(), ETHERTYPE)
    }
}

impl<T: BorrowMut<[u8; LEN]>> Header<T> {
    /// Sets the destination.
    #[inline(always)]
    pub fn set_dst(&mut self, mac: Mac) {
        self.0.borrow_mut()[DST..SRC].copy_from_slice(&mac.0);
    }

    /// Sets the source.
    #[inline(always)]
    pub fn set_src(&mut self, mac: Mac) {
        self.0.borrow_mut()[SRC..ETHERTYPE].copy_from_slice(&mac.0);
    }

    /// Sets the EtherType.
    #[inline(always)]
    pub fn set_ethertype(&mut self, ethertype: u16) {
        put16(self.0.borrow_mut(), ETHERTYPE, ethertype);
    }
}

/// What follows the Ethernet header of a frame.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Payload {
    /// VLAN identifier of the tag; 0 for a priority tag, `None` without a tag.
    pub vlan: Option<u16>,
    /// EtherType behind the tag. Frames with a service tag or a second tag keep that tag's identifier here.
    pub ethertype: u16,
    /// Offset of the payload in bytes: 14 or 18.
    pub offset: usize,
}

/// Looks behind at most one 802.1Q tag; `None` if the frame ends before the payload begins.
#[inline(always)]
#[must_use]
pub fn payload(frame: &[u8]) -> Option<Payload> {
    let ethertype = Header::at(frame)?.ethertype();
    if ethertype != VLAN {
        return Some(Payload { vlan: None, ethertype, offset: LEN });
    }
    let tagged: &[u8; LEN + TAG_LEN] = frame.first_chunk()?;
    Some(Payload {
        vlan: Some(be16(tagged, LEN) & 0x0fff),
        ethertype: be16(tagged, LEN + 2),
        offset: LEN + TAG_LEN,
    })
}

#[inline(always)]
fn mac(bytes: &[u8; LEN], at: usize) -> Mac {
    Mac([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3], bytes[at + 4], bytes[at + 5]])
}

#[cfg(test)]
mod tests {
    use super::*;

    const FRAME: [u8; 20] = [2, 0, 0, 0, 0, 1, 2, 0, 0, 0, 0, 0xfe, 0x08, 0x00, 0x45, 0, 0, 1, 2, 3];

    #[test]
    fn fields_are_where_they_are() {
        let header = Header::at(&FRAME).unwrap();
        assert_eq!(header.dst(), Mac([2, 0, 0, 0, 0, 1]));
        assert_eq!(header.src(), Mac([2, 0, 0, 0, 0, 0xfe]));
        assert!(header.is_for(header.dst()) && !header.is_for(header.src()));
        assert_eq!(header.ethertype(), IPV4);

        let mut again = [0u8; LEN];
        let mut out = Header(&mut again);
        out.set_dst(header.dst());
        out.set_src(header.src());
        out.set_ethertype(IPV4);
        assert_eq!(again, FRAME[..LEN]);
    }

    #[test]
    fn payload_behind_tags() {
        let plain = payload(&FRAME).unwrap();
        assert_eq!((plain.vlan, plain.ethertype, plain.offset), (None, IPV4, 14));

        let mut tagged = FRAME;
        tagged[12..18].copy_from_slice(&[0x81, 0x00, 0xe0, 0x64, 0x08, 0x06]);
        let arp = payload(&tagged).unwrap();
        assert_eq!((arp.vlan, arp.ethertype, arp.offset), (Some(100), ARP, 18));

        assert_eq!(payload(&tagged[..17]), None, "the tag is cut");
        assert_eq!(payload(&tagged[..13]), None, "the header is cut");

        tagged[12..14].copy_from_slice(&[0x88, 0xa8]);
        assert_eq!(payload(&tagged).unwrap().ethertype, QINQ);
    }

    #[test]
    fn mac_bits_round_trip() {
        let mac = Mac([0x02, 0x11, 0x22, 0x33, 0x44, 0x55]);
        assert_eq!(mac.to_bits(), 0x0211_2233_4455);
        assert_eq!(Mac::from_bits(0xffff_0211_2233_4455), mac);
        assert!(Mac::BROADCAST.is_multicast() && !mac.is_multicast());
    }
}

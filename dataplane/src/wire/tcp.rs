//! TCP headers (RFC 9293), and the reset for a segment that belongs to no connection.

use core::borrow::{Borrow, BorrowMut};

use super::{be16, be32, checksum, ipv4, put16, put32};

/// Bytes of a header without options.
pub const LEN: usize = 20;

/// Bytes of the packet that [`reset`] writes.
pub const RESET_LEN: usize = ipv4::LEN + LEN;

/// The sender has finished sending.
pub const FIN: u8 = 0x01;
/// Synchronise sequence numbers.
pub const SYN: u8 = 0x02;
/// Reset.
pub const RST: u8 = 0x04;
/// Push.
pub const PSH: u8 = 0x08;
/// The acknowledgement number means something.
pub const ACK: u8 = 0x10;
/// The urgent pointer means something.
pub const URG: u8 = 0x20;

const SPORT: usize = 0;
const DPORT: usize = 2;
const SEQ: usize = 4;
const ACKNO: usize = 8;
const DOFF: usize = 12;
const FLAGS: usize = 13;
const WINDOW: usize = 14;
const CHECK: usize = 16;

/// View of the fixed part of a header; `T` is `&[u8; 20]`, `&mut [u8; 20]` or the array itself.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

impl<'a> Header<&'a [u8; LEN]> {
    /// Views the start of a segment; `None` if it is shorter than 20 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at(segment: &'a [u8]) -> Option<Self> {
        segment.first_chunk().map(Self)
    }
}

impl<'a> Header<&'a mut [u8; LEN]> {
    /// Views the start of a segment for writing; `None` if it is shorter than 20 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(segment: &'a mut [u8]) -> Option<Self> {
        segment.first_chunk_mut().map(Self)
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

    /// Sequence number.
    #[inline(always)]
    #[must_use]
    pub fn seq(&self) -> u32 {
        be32(self.0.borrow(), SEQ)
    }

    /// Acknowledgement number.
    #[inline(always)]
    #[must_use]
    pub fn ack(&self) -> u32 {
        be32(self.0.borrow(), ACKNO)
    }

    /// Header length in bytes with options: 0 to 60, at least 20 in a good segment.
    #[inline(always)]
    #[must_use]
    pub fn header_len(&self) -> usize {
        usize::from(self.0.borrow()[DOFF] >> 4) * 4
    }

    /// Flags: [`FIN`] to [`URG`], and the two ECN bits above them.
    #[inline(always)]
    #[must_use]
    pub fn flags(&self) -> u8 {
        self.0.borrow()[FLAGS]
    }

    /// Receive window, unscaled.
    #[inline(always)]
    #[must_use]
    pub fn window(&self) -> u16 {
        be16(self.0.borrow(), WINDOW)
    }

    /// Check over pseudo header and segment.
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

    /// Sets the check.
    #[inline(always)]
    pub fn set_check(&mut self, check: u16) {
        put16(self.0.borrow_mut(), CHECK, check);
    }
}

/// Header length in bytes of a segment, if the whole header is there and its length is not a lie.
#[inline(always)]
#[must_use]
pub fn check(segment: &[u8]) -> Option<usize> {
    let len = Header::at(segment)?.header_len();
    (LEN <= len && len <= segment.len()).then_some(len)
}

/// Writes into `out` the IPv4 packet that resets the sender of `packet` (RFC 9293 §3.10.7.1). Slow path.
///
/// With ACK in the segment the reset takes its sequence number from there; without, it acknowledges the
/// whole segment, SYN and FIN counting one each. As from the kernel: DF set, ID 0, window 0, DSCP of the
/// offender. `packet` is a whole IPv4 packet that passed [`ipv4::check`], cut to its total length.
/// `None`: a reset is never answered, nor is a segment whose header does not fit.
#[must_use]
pub fn reset(out: &mut [u8; RESET_LEN], packet: &[u8]) -> Option<()> {
    let ip = ipv4::Header::at(packet)?;
    let segment = packet.get(ip.header_len()..)?;
    let header_len = check(segment)?;
    let tcp = Header::at(segment)?;
    let flags = tcp.flags();
    if flags & RST != 0 {
        return None;
    }
    let (seq, ack, answer) = if flags & ACK != 0 {
        (tcp.ack(), 0, RST)
    } else {
        let payload = (segment.len() - header_len) as u32;
        let controls = u32::from(flags & SYN != 0) + u32::from(flags & FIN != 0);
        (0, tcp.seq().wrapping_add(payload + controls), RST | ACK)
    };

    let (head, body) = out.split_first_chunk_mut::<{ ipv4::LEN }>()?;
    ipv4::Repr {
        tos: ip.tos() & 0xfc,
        total_len: RESET_LEN as u16,
        id: 0,
        fragment: ipv4::DF,
        ttl: ipv4::DEFAULT_TTL,
        protocol: ipv4::TCP,
        src: ip.dst(),
        dst: ip.src(),
    }
    .emit(head);
    let body: &mut [u8; LEN] = body.first_chunk_mut()?;
    *body = [0; LEN];
    put16(body, SPORT, tcp.dport());
    put16(body, DPORT, tcp.sport());
    put32(body, SEQ, seq);
    put32(body, ACKNO, ack);
    body[DOFF] = (LEN as u8 / 4) << 4;
    body[FLAGS] = answer;
    let check = checksum::transport(ip.dst(), ip.src(), ipv4::TCP, body);
    put16(body, CHECK, check);
    Some(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// 198.51.100.10:40000 → 203.0.113.10:80, SYN with MSS 1460, under its IPv4 header.
    const SYN_PACKET: [u8; 44] = [
        0x45, 0x00, 0x00, 0x2c, 0x12, 0x34, 0x40, 0x00, 0x40, 0x06, 0xc2, 0x4f, 0xc6, 0x33, 0x64, 0x0a, 0xcb,
        0x00, 0x71, 0x0a, 0x9c, 0x40, 0x00, 0x50, 0x11, 0x11, 0x11, 0x11, 0x00, 0x00, 0x00, 0x00, 0x60, 0x02,
        0xff, 0xff, 0x73, 0x2b, 0x00, 0x00, 0x02, 0x04, 0x05, 0xb4,
    ];

    #[test]
    fn fields_are_where_they_are() {
        let tcp = Header::at(&SYN_PACKET[20..]).unwrap();
        assert_eq!((tcp.sport(), tcp.dport()), (40000, 80));
        assert_eq!((tcp.seq(), tcp.ack()), (0x1111_1111, 0));
        assert_eq!((tcp.header_len(), tcp.flags(), tcp.window()), (24, SYN, 0xffff));
        assert_eq!(tcp.check(), 0x732b);
        assert_eq!(checksum::transport(0xc633_640a, 0xcb00_710a, ipv4::TCP, &SYN_PACKET[20..]), 0);
    }

    #[test]
    fn check_refuses_lies() {
        let segment = &SYN_PACKET[20..];
        assert_eq!(check(segment), Some(24));
        assert_eq!(check(&segment[..23]), None, "options cut");
        assert_eq!(check(&segment[..19]), None, "header cut");
        let mut short = [0u8; 20];
        short[DOFF] = 0x40;
        assert_eq!(check(&short), None, "offset below the header");
    }

    /// Flags and payload bytes of the offender; sequence, acknowledgement and flags of the answer.
    #[test]
    fn reset_table() {
        let seq = 0x1111_1111;
        for (flags, payload, expected) in [
            (SYN, 0, Some((0, seq + 1, RST | ACK))),
            (SYN, 5, Some((0, seq + 6, RST | ACK))),
            (FIN, 3, Some((0, seq + 4, RST | ACK))),
            (0, 7, Some((0, seq + 7, RST | ACK))),
            (ACK, 9, Some((0x2222_2222, 0, RST))),
            (SYN | ACK, 0, Some((0x2222_2222, 0, RST))),
            (FIN | ACK, 0, Some((0x2222_2222, 0, RST))),
            (RST, 0, None),
            (RST | ACK, 0, None),
        ] {
            let mut packet = SYN_PACKET.to_vec();
            packet[20 + FLAGS] = flags;
            packet[20 + ACKNO..20 + ACKNO + 4].copy_from_slice(&[0x22; 4]);
            packet[1] = 0x1f;
            packet.resize(packet.len() + payload, 0);
            let mut out = [0xff; RESET_LEN];
            let answer = reset(&mut out, &packet).map(|()| {
                let ip = ipv4::Header::at(&out).unwrap();
                assert_eq!(ipv4::check(&out, true).unwrap().total, 40);
                assert_eq!((ip.src(), ip.dst()), (0xcb00_710a, 0xc633_640a));
                assert_eq!((ip.ttl(), ip.fragment(), ip.id(), ip.tos()), (64, ipv4::DF, 0, 0x1c));
                assert_eq!(checksum::transport(ip.src(), ip.dst(), ipv4::TCP, &out[20..]), 0);
                let tcp = Header::at(&out[20..]).unwrap();
                assert_eq!((tcp.sport(), tcp.dport(), tcp.window()), (80, 40000, 0));
                (tcp.seq(), tcp.ack(), tcp.flags())
            });
            assert_eq!(answer, expected, "flags {flags:02x}, payload {payload}");
        }
    }

    proptest! {
        #[test]
        fn any_bytes_are_survived(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            let _ = check(&bytes);
            let _ = reset(&mut [0; RESET_LEN], &bytes);
        }
    }
}

//! ICMP (RFC 792): views, the errors a forwarder owes, and the answer to an echo request.

use core::borrow::{Borrow, BorrowMut};

use super::{be16, be32, checksum, ipv4, put16, put32};

/// Bytes of a header.
pub const LEN: usize = 8;

/// Longest error packet in bytes, IPv4 header included (RFC 1812 §4.3.2.3).
pub const ERROR_MAX: usize = 576;

/// Echo reply.
pub const ECHO_REPLY: u8 = 0;
/// Destination unreachable.
pub const UNREACHABLE: u8 = 3;
/// Source quench, obsolete (RFC 6633).
pub const SOURCE_QUENCH: u8 = 4;
/// Redirect.
pub const REDIRECT: u8 = 5;
/// Echo request.
pub const ECHO_REQUEST: u8 = 8;
/// Time exceeded.
pub const TIME_EXCEEDED: u8 = 11;
/// Parameter problem.
pub const PARAMETER_PROBLEM: u8 = 12;

/// Highest type the kernel knows; anything above is treated as an error when we are about to report one.
const LAST_KNOWN_TYPE: u8 = 18;

const TYPE: usize = 0;
const CODE: usize = 1;
const CHECK: usize = 2;
const REST: usize = 4;

/// View of a header; `T` is `&[u8; 8]`, `&mut [u8; 8]` or the array itself.
#[derive(Clone, Copy, Debug)]
pub struct Header<T>(pub T);

impl<'a> Header<&'a [u8; LEN]> {
    /// Views the start of a message; `None` if it is shorter than 8 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at(message: &'a [u8]) -> Option<Self> {
        message.first_chunk().map(Self)
    }
}

impl<'a> Header<&'a mut [u8; LEN]> {
    /// Views the start of a message for writing; `None` if it is shorter than 8 bytes.
    #[inline(always)]
    #[must_use]
    pub fn at_mut(message: &'a mut [u8]) -> Option<Self> {
        message.first_chunk_mut().map(Self)
    }
}

impl<T: Borrow<[u8; LEN]>> Header<T> {
    /// Type of the message.
    #[inline(always)]
    #[must_use]
    pub fn kind(&self) -> u8 {
        self.0.borrow()[TYPE]
    }

    /// Code within the type.
    #[inline(always)]
    #[must_use]
    pub fn code(&self) -> u8 {
        self.0.borrow()[CODE]
    }

    /// Check over the whole message.
    #[inline(always)]
    #[must_use]
    pub fn check(&self) -> u16 {
        be16(self.0.borrow(), CHECK)
    }

    /// The four bytes whose meaning depends on the type.
    #[inline(always)]
    #[must_use]
    pub fn rest(&self) -> u32 {
        be32(self.0.borrow(), REST)
    }

    /// Identifier of an echo.
    #[inline(always)]
    #[must_use]
    pub fn echo_id(&self) -> u16 {
        be16(self.0.borrow(), REST)
    }

    /// Sequence number of an echo.
    #[inline(always)]
    #[must_use]
    pub fn echo_seq(&self) -> u16 {
        be16(self.0.borrow(), REST + 2)
    }
}

impl<T: BorrowMut<[u8; LEN]>> Header<T> {
    /// Sets the type; the check is not touched, as with all setters.
    #[inline(always)]
    pub fn set_kind(&mut self, kind: u8) {
        self.0.borrow_mut()[TYPE] = kind;
    }

    /// Sets the check.
    #[inline(always)]
    pub fn set_check(&mut self, check: u16) {
        put16(self.0.borrow_mut(), CHECK, check);
    }
}

/// Is the check of a whole message good?
#[inline]
#[must_use]
pub fn checksum_valid(message: &[u8]) -> bool {
    message.len() >= LEN && checksum::sum(message) == 0xffff
}

/// Is this a type that reports about another packet?
#[inline(always)]
#[must_use]
pub const fn is_error(kind: u8) -> bool {
    matches!(kind, UNREACHABLE | SOURCE_QUENCH | REDIRECT | TIME_EXCEEDED | PARAMETER_PROBLEM)
}

/// What an error says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Problem {
    /// 3/1.
    HostUnreachable,
    /// 3/3.
    PortUnreachable,
    /// 3/4 with the MTU of the next link in bytes (RFC 1191).
    FragmentationNeeded {
        /// Bytes of an IPv4 packet that would have passed.
        mtu: u16,
    },
    /// 11/0.
    TtlExceeded,
}

impl Problem {
    /// Type and code.
    #[must_use]
    pub const fn kind_code(self) -> (u8, u8) {
        match self {
            Self::HostUnreachable => (UNREACHABLE, 1),
            Self::PortUnreachable => (UNREACHABLE, 3),
            Self::FragmentationNeeded { .. } => (UNREACHABLE, 4),
            Self::TtlExceeded => (TIME_EXCEEDED, 0),
        }
    }
}

/// May an error about this packet be sent (RFC 1122 §3.2.2)? Not about later fragments, about a group or
/// broadcast destination, about a source that names no single host, or about another ICMP error.
///
/// `packet` passed [`ipv4::check`]. That the frame was addressed to us alone is for the caller to know,
/// and so are the broadcast addresses of subnets.
#[must_use]
pub fn may_report(packet: &[u8]) -> bool {
    let Some(ip) = ipv4::Header::at(packet) else {
        return false;
    };
    if ip.fragment() & ipv4::OFFSET != 0
        || !ipv4::is_usable_source(ip.src())
        || ipv4::is_multicast(ip.dst())
        || ip.dst() == u32::MAX
    {
        return false;
    }
    if ip.protocol() != ipv4::ICMP {
        return true;
    }
    match packet.get(ip.header_len()) {
        Some(&kind) => !is_error(kind) && kind <= LAST_KNOWN_TYPE,
        None => false,
    }
}

/// Writes into `out` the IPv4 packet that tells the sender of `packet` about `problem`, and returns its
/// length in bytes. Slow path.
///
/// As from the kernel: TTL 64, DF clear, TOS `(original & 0x1e) | 0xc0` (internetwork control, the
/// original's low delay bits kept), quoting as much of the original as fits in 576 bytes and in `out`.
/// `packet` is a whole IPv4 packet that passed [`ipv4::check`], cut to its total length; `id` is the
/// identification of the new packet; `source` an address of ours. `None`: `out` cannot hold the headers
/// and one quoted header, or `packet` is none.
#[must_use]
pub fn error(out: &mut [u8], packet: &[u8], problem: Problem, source: u32, id: u16) -> Option<usize> {
    const HEADERS: usize = ipv4::LEN + LEN;
    let offender = ipv4::Header::at(packet)?;
    let room = out.len().min(ERROR_MAX).checked_sub(HEADERS)?;
    let quote = packet.get(..packet.len().min(room))?;
    if quote.len() < ipv4::LEN {
        return None;
    }
    let total = HEADERS + quote.len();

    let (head, message) = out.get_mut(..total)?.split_first_chunk_mut()?;
    ipv4::Repr {
        tos: offender.tos() & 0x1e | 0xc0,
        total_len: total as u16,
        id,
        fragment: 0,
        ttl: ipv4::DEFAULT_TTL,
        protocol: ipv4::ICMP,
        src: source,
        dst: offender.src(),
    }
    .emit(head);

    let (kind, code) = problem.kind_code();
    let (header, body) = message.split_first_chunk_mut::<LEN>()?;
    header[TYPE] = kind;
    header[CODE] = code;
    let rest = match problem {
        Problem::FragmentationNeeded { mtu } => u32::from(mtu),
        _ => 0,
    };
    put16(header, CHECK, 0);
    put32(header, REST, rest);
    body.copy_from_slice(quote);
    let check = checksum::check(message);
    Header::at_mut(message)?.set_check(check);
    Some(total)
}

/// Turns a whole echo request into its reply, in place: addresses swapped, TTL 64, DF clear, `id` as
/// identification; TOS, options and data stay. Header check recomputed, ICMP check by increment.
///
/// `packet` passed [`ipv4::check`], is no fragment and is cut to its total length. False: it was no echo
/// request or its ICMP check is bad, and nothing is changed. RFC 1122 §3.2.2.6.
#[must_use]
pub fn echo_reply(packet: &mut [u8], id: u16) -> bool {
    let Some(header_len) = ipv4::Header::at(packet)
        .filter(|ip| ip.protocol() == ipv4::ICMP && !ip.is_fragment())
        .map(|ip| ip.header_len())
    else {
        return false;
    };
    let Some((head, message)) = packet.split_at_mut_checked(header_len) else {
        return false;
    };
    if !checksum_valid(message) {
        return false;
    }
    let (Some(mut ip), Some(mut icmp)) = (ipv4::Header::at_mut(head), Header::at_mut(message)) else {
        return false;
    };
    if icmp.kind() != ECHO_REQUEST {
        return false;
    }
    const KIND: u16 = checksum::delta_u16((ECHO_REQUEST as u16) << 8, (ECHO_REPLY as u16) << 8);
    icmp.set_kind(ECHO_REPLY);
    icmp.set_check(checksum::apply(icmp.check(), KIND));

    let (src, dst) = (ip.src(), ip.dst());
    ip.set_src(dst);
    ip.set_dst(src);
    ip.set_ttl(ipv4::DEFAULT_TTL);
    ip.set_fragment(0);
    ip.set_id(id);
    ip.set_check(0);
    let check = checksum::check(head);
    if let Some(mut ip) = ipv4::Header::at_mut(head) {
        ip.set_check(check);
    }
    true
}

#[cfg(test)]
#[path = "icmp_tests.rs"]
mod tests;

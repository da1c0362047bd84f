//! Netlink messages as bytes: what concerns IPVS, what ends an exchange, and the answers we invent.
//!
//! Pure functions on datagrams; nothing here fails on any input. Layouts: `struct nlmsghdr`, `struct
//! genlmsghdr`, `struct nlattr` and `struct nlmsgerr` of the kernel's user interface, host byte order.

/// Bytes of a message header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of an error message that carries the request's header only.
pub const ERROR_BYTES: usize = HEADER_BYTES + 4 + HEADER_BYTES;
/// Family number of IPVS on Weir's socket: the highest legal one; the kernel hands them out from below.
pub const FAMILY_IPVS: u16 = 0x3ff;

/// Number of Weir's own family.
pub const FAMILY_WEIR: u16 = 0x3fe;

/// `GENL_ID_CTRL`, the family that looks up families.
const FAMILY_CONTROL: u16 = 0x10;
/// `CTRL_ATTR_FAMILY_ID`, `CTRL_ATTR_FAMILY_NAME`.
const ATTRIBUTE_ID: u16 = 1;
const ATTRIBUTE_NAME: u16 = 2;
/// Attribute flags that are no part of its number (`NLA_F_NESTED`, `NLA_F_NET_BYTEORDER`).
const ATTRIBUTE_FLAGS: u16 = 0xc000;
/// Bytes of a generic netlink header, after the message header.
const GENERIC_BYTES: usize = 4;
const TYPE_ERROR: u16 = 2;
const TYPE_DONE: u16 = 3;
const FLAG_REQUEST: u16 = 1;
const FLAG_MULTI: u16 = 2;
const FLAG_ACK: u16 = 4;
/// `NLM_F_CAPPED`: the error message carries no more than the request's header.
const FLAG_CAPPED: u16 = 0x100;

/// A message header.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Header {
    /// Of the whole message, bytes.
    pub length: u32,
    /// Family, or one of netlink's own types.
    pub kind: u16,
    /// `NLM_F_*`.
    pub flags: u16,
    /// Sequence number.
    pub sequence: u32,
    /// Port id of the sender of the request.
    pub port: u32,
}

impl Header {
    /// Header of a request of `length` bytes that wants an acknowledgement.
    pub fn request(length: usize, kind: u16, sequence: u32) -> Header {
        Header { length: length as u32, kind, flags: FLAG_REQUEST | FLAG_ACK, sequence, port: 0 }
    }

    /// Header of these bytes.
    pub fn read(bytes: &[u8; HEADER_BYTES]) -> Header {
        Header {
            length: u32_at(bytes, 0),
            kind: u16_at(bytes, 4),
            flags: u16_at(bytes, 6),
            sequence: u32_at(bytes, 8),
            port: u32_at(bytes, 12),
        }
    }

    /// Bytes of this header.
    pub fn bytes(&self) -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..4].copy_from_slice(&self.length.to_ne_bytes());
        bytes[4..6].copy_from_slice(&self.kind.to_ne_bytes());
        bytes[6..8].copy_from_slice(&self.flags.to_ne_bytes());
        bytes[8..12].copy_from_slice(&self.sequence.to_ne_bytes());
        bytes[12..].copy_from_slice(&self.port.to_ne_bytes());
        bytes
    }

    /// Whether a datagram of `total` bytes may begin with this header and go to a generic family.
    pub fn plausible(&self, total: usize) -> bool {
        self.length as usize >= HEADER_BYTES && self.length as usize <= total && self.kind <= FAMILY_IPVS
    }

    /// Whether this message of an answer is the last one to `request`.
    pub fn ends(&self, request: &Header) -> bool {
        let single = self.flags & FLAG_MULTI == 0 && request.flags & FLAG_ACK == 0;
        self.sequence == request.sequence && (matches!(self.kind, TYPE_ERROR | TYPE_DONE) || single)
    }
}

/// The messages of a datagram, each with its place; ends at the first header that is not sound.
pub fn messages(datagram: &[u8]) -> impl Iterator<Item = (usize, Header, &[u8])> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let rest = datagram.get(at..)?;
        let header = Header::read(rest.first_chunk()?);
        let length = header.length as usize;
        let payload = rest.get(HEADER_BYTES..length)?;
        let place = at;
        at += length.next_multiple_of(4);
        Some((place, header, payload))
    })
}

/// Whether a message of this datagram is for IPVS: of its family, or a question about it.
pub fn concerns_ipvs(datagram: &[u8]) -> bool {
    messages(datagram).any(|(_, header, payload)| match header.kind {
        FAMILY_IPVS => true,
        FAMILY_CONTROL => names_ipvs(payload),
        _ => false,
    })
}

/// Writes the port id into every header, as the kernel goes by the sender's whatever the header says.
pub fn stamp(datagram: &mut [u8], port: u32) {
    let mut at = 0_usize;
    while let Some(header) = datagram.get_mut(at..at.saturating_add(HEADER_BYTES)) {
        header[12..].copy_from_slice(&port.to_ne_bytes());
        let length = u32_at(header, 0) as usize;
        if length < HEADER_BYTES {
            return;
        }
        at = at.saturating_add(length.next_multiple_of(4));
    }
}

/// The error number in an acknowledgement, 0 for success; `None` for what is none.
pub fn result(datagram: &[u8]) -> Option<i32> {
    let (_, header, payload) = messages(datagram).next()?;
    let code = i32::from_ne_bytes(*payload.first_chunk()?);
    (header.kind == TYPE_ERROR && code <= 0).then_some(code.wrapping_neg())
}

/// An answer of our own to `request`: it failed with this error number.
pub fn refusal(request: &Header, port: u32, errno: i32) -> [u8; ERROR_BYTES] {
    let header = Header {
        length: ERROR_BYTES as u32,
        kind: TYPE_ERROR,
        flags: FLAG_CAPPED,
        sequence: request.sequence,
        port,
    };
    let mut message = [0; ERROR_BYTES];
    message[..HEADER_BYTES].copy_from_slice(&header.bytes());
    message[HEADER_BYTES..HEADER_BYTES + 4].copy_from_slice(&(-errno).to_ne_bytes());
    message[HEADER_BYTES + 4..].copy_from_slice(&request.bytes());
    message
}

/// Whether a message to the family of families asks about IPVS, by name or number.
fn names_ipvs(payload: &[u8]) -> bool {
    let mut rest = payload.get(GENERIC_BYTES..).unwrap_or_default();
    while rest.len() >= 4 {
        let length = usize::from(u16_at(rest, 0));
        let Some(value) = rest.get(4..length) else { return false };
        let found = match u16_at(rest, 2) & !ATTRIBUTE_FLAGS {
            ATTRIBUTE_NAME => value.split(|b| *b == 0).next() == Some(b"IPVS"),
            ATTRIBUTE_ID => value == FAMILY_IPVS.to_ne_bytes(),
            _ => false,
        };
        if found {
            return true;
        }
        rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
    }
    false
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_ne_bytes([bytes[at], bytes[at + 1]])
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_ne_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(kind: u16, flags: u16, sequence: u32, payload: &[u8]) -> Vec<u8> {
        let length = (HEADER_BYTES + payload.len()) as u32;
        let mut bytes = Header { length, kind, flags, sequence, port: 0 }.bytes().to_vec();
        bytes.extend_from_slice(payload);
        bytes.resize(bytes.len().next_multiple_of(4), 0);
        bytes
    }

    fn lookup(name: &[u8]) -> Vec<u8> {
        let mut payload = vec![3, 1, 0, 0];
        payload.extend_from_slice(&(4 + name.len() as u16).to_ne_bytes());
        payload.extend_from_slice(&ATTRIBUTE_NAME.to_ne_bytes());
        payload.extend_from_slice(name);
        message(FAMILY_CONTROL, 5, 7, &payload)
    }

    #[test]
    fn only_ipvs_is_ours() {
        let by_number = [3, 1, 0, 0, 6, 0, 1, 0, 0xff, 3, 0, 0];
        for (datagram, ours) in [
            (lookup(b"IPVS\0"), true),
            (lookup(b"IPVS"), true),
            (lookup(b"IPVSX\0"), false),
            (lookup(b"nl80211\0"), false),
            (message(FAMILY_CONTROL, 5, 1, &by_number), true),
            (message(FAMILY_CONTROL, 0x305, 1, &[3, 1, 0, 0]), false),
            (message(FAMILY_IPVS, 5, 1, &[15, 1, 0, 0]), true),
            (message(0x1b, 5, 1, &[15, 1, 0, 0]), false),
            ([lookup(b"nl80211\0"), lookup(b"IPVS\0")].concat(), true),
            (vec![], false),
        ] {
            assert_eq!(concerns_ipvs(&datagram), ours, "{datagram:?}");
        }
    }

    #[test]
    fn cut_and_torn_datagrams_are_no_matter() {
        let whole = [lookup(b"nl80211\0"), lookup(b"IPVS\0")].concat();
        for end in 0..whole.len() {
            assert!(!concerns_ipvs(&whole[..end.min(whole.len() - 4)]), "{end}");
            for at in 0..end {
                for value in [0, 1, 3, 0xff] {
                    let mut torn = whole[..end].to_vec();
                    torn[at] = value;
                    concerns_ipvs(&torn);
                    stamp(&mut torn, 1);
                }
            }
        }
    }

    #[test]
    fn every_header_gets_the_port_id() {
        let mut two = [lookup(b"IPVS\0"), lookup(b"x\0")].concat();
        stamp(&mut two, 0x1234_5678);
        let ports: Vec<u32> = messages(&two).map(|(_, header, _)| header.port).collect();
        assert_eq!(ports, [0x1234_5678; 2]);
    }

    #[test]
    fn the_last_message_of_an_answer() {
        let header = |kind, flags, sequence| Header { length: 20, kind, flags, sequence, port: 0 };
        let (asks_ack, asks_none) = (header(FAMILY_IPVS, 5, 9), header(FAMILY_IPVS, 1, 9));
        for (reply, to_ack, to_none) in [
            (header(TYPE_ERROR, 0, 9), true, true),
            (header(TYPE_DONE, 2, 9), true, true),
            (header(FAMILY_IPVS, 2, 9), false, false),
            (header(FAMILY_IPVS, 0, 9), false, true),
            (header(TYPE_ERROR, 0, 8), false, false),
        ] {
            assert_eq!((reply.ends(&asks_ack), reply.ends(&asks_none)), (to_ack, to_none), "{reply:?}");
        }
    }

    #[test]
    fn a_refusal_is_an_error_message_of_netlink() {
        let request = Header { length: 32, kind: 0x10, flags: 5, sequence: 77, port: 0 };
        let bytes = refusal(&request, 42, 16);
        let (_, header, payload) = messages(&bytes).next().unwrap();
        assert_eq!((header.length, header.kind, header.sequence, header.port), (36, 2, 77, 42));
        assert_eq!(payload[..4], (-16i32).to_ne_bytes());
        assert_eq!(payload[4..], request.bytes());
    }
}

//! Netlink attributes: checked reading by a table of what each number may hold, and writing.
//!
//! The kernel reads this family's attributes liberally: flag bits of the number are masked off, unknown
//! numbers are skipped, the last of a repeated number wins, what is left over at the end is ignored, and an
//! integer may be longer than its type. What is too short or too long is refused.
//!
//! Source: kernel 6.1 `lib/nlattr.c`, by behaviour.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::{NLA_F_NESTED, Nla, NlasIterator};
use rustix::io::Errno;

use super::types::Family;

/// Bytes of an attribute's header: length and number.
const HEADER_BYTES: usize = 4;

/// What an attribute may hold.
#[derive(Clone, Copy, Debug)]
pub(super) enum Shape {
    /// At least so many bytes, of which the first count.
    AtLeast(usize),
    /// At most so many bytes; fewer are extended with zeros.
    AtMost(usize),
    /// Text of at most so many characters, with NUL.
    Text(usize),
    /// Attributes; empty, or at least one header.
    Nest,
}

impl Shape {
    /// Whether the value is of this shape; the kernel's error number if not.
    fn check(self, value: &[u8]) -> Result<(), Errno> {
        let holds = match self {
            Shape::AtLeast(bytes) => value.len() >= bytes,
            Shape::AtMost(bytes) => value.len() <= bytes,
            Shape::Text(characters) => {
                if !value.iter().take(characters + 1).any(|byte| *byte == 0) {
                    return Err(Errno::INVAL);
                }
                value.strip_suffix(&[0]).unwrap_or(value).len() <= characters
            }
            Shape::Nest => value.is_empty() || value.len() >= HEADER_BYTES,
        };
        holds.then_some(()).ok_or(Errno::RANGE)
    }
}

/// The numbers of a nest and what each may hold; a number that is not there is not looked at.
pub(super) type Policy = &'static [(u16, Shape)];

/// Attributes that passed their policy.
#[derive(Clone, Debug, Default)]
pub struct Attrs<'a> {
    found: Vec<(u16, &'a [u8])>,
}

impl<'a> Attrs<'a> {
    /// Reads the attributes of a message.
    ///
    /// # Errors
    /// ERANGE when one does not hold what the policy says, EINVAL for a text without its NUL.
    pub(super) fn top(bytes: &'a [u8], policy: Policy) -> Result<Attrs<'a>, Errno> {
        let mut found = Vec::new();
        for attribute in NlasIterator::new(bytes).map_while(Result::ok) {
            let end = usize::from(attribute.length());
            let kind = attribute.kind();
            let value = &attribute.into_inner()[HEADER_BYTES..end];
            if let Some((_, shape)) = policy.iter().find(|(number, _)| *number == kind) {
                shape.check(value)?;
                found.push((kind, value));
            }
        }
        Ok(Attrs { found })
    }

    /// Reads the attributes of the nest with this number.
    ///
    /// # Errors
    /// EINVAL when there is no such nest, or one of its attributes does not hold what the policy says.
    pub(super) fn nest(&self, kind: u16, policy: Policy) -> Result<Attrs<'a>, Errno> {
        Attrs::top(self.get(kind).ok_or(Errno::INVAL)?, policy).map_err(|_| Errno::INVAL)
    }

    /// Value of the last attribute with this number.
    pub(super) fn get(&self, kind: u16) -> Option<&'a [u8]> {
        self.found.iter().rev().find(|(number, _)| *number == kind).map(|(_, value)| *value)
    }

    pub(super) fn u8(&self, kind: u16) -> Option<u8> {
        self.get(kind).and_then(|value| value.first().copied())
    }

    pub(super) fn u16(&self, kind: u16) -> Option<u16> {
        self.first(kind).map(u16::from_ne_bytes)
    }

    pub(super) fn u16_be(&self, kind: u16) -> Option<u16> {
        self.first(kind).map(u16::from_be_bytes)
    }

    pub(super) fn u32(&self, kind: u16) -> Option<u32> {
        self.first(kind).map(u32::from_ne_bytes)
    }

    pub(super) fn u32_be(&self, kind: u16) -> Option<u32> {
        self.first(kind).map(u32::from_be_bytes)
    }

    pub(super) fn u64(&self, kind: u16) -> Option<u64> {
        self.first(kind).map(u64::from_ne_bytes)
    }

    /// Bytes, extended with zeros.
    pub(super) fn padded<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        let value = self.get(kind)?;
        let mut bytes = [0; N];
        let length = value.len().min(N);
        bytes[..length].copy_from_slice(&value[..length]);
        Some(bytes)
    }

    /// Text up to its NUL. Names are compared only, so one that is no UTF-8 may lose that part.
    pub(super) fn text(&self, kind: u16) -> Option<String> {
        let value = self.get(kind)?;
        let end = value.iter().position(|byte| *byte == 0).unwrap_or(value.len());
        Some(String::from_utf8_lossy(&value[..end]).into_owned())
    }

    /// Address of this family: of IPv4 the first four bytes, whatever follows.
    pub(super) fn address(&self, kind: u16, family: Family) -> Option<IpAddr> {
        let bytes: [u8; 16] = self.padded(kind)?;
        Some(match family {
            Family::V4 => Ipv4Addr::new(bytes[0], bytes[1], bytes[2], bytes[3]).into(),
            Family::V6 => Ipv6Addr::from(bytes).into(),
        })
    }

    fn first<const N: usize>(&self, kind: u16) -> Option<[u8; N]> {
        self.get(kind)?.first_chunk().copied()
    }
}

/// An attribute to be written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Attr {
    kind: u16,
    value: Value,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Value {
    U8(u8),
    U16([u8; 2]),
    U32([u8; 4]),
    U64([u8; 8]),
    Bytes([u8; 16]),
    Text(String),
    Nest(Vec<Attr>),
}

impl Attr {
    pub(super) fn u8(kind: u16, value: u8) -> Attr {
        Attr { kind, value: Value::U8(value) }
    }

    pub(super) fn u16(kind: u16, value: u16) -> Attr {
        Attr { kind, value: Value::U16(value.to_ne_bytes()) }
    }

    pub(super) fn u16_be(kind: u16, value: u16) -> Attr {
        Attr { kind, value: Value::U16(value.to_be_bytes()) }
    }

    pub(super) fn u32(kind: u16, value: u32) -> Attr {
        Attr { kind, value: Value::U32(value.to_ne_bytes()) }
    }

    pub(super) fn u32_be(kind: u16, value: u32) -> Attr {
        Attr { kind, value: Value::U32(value.to_be_bytes()) }
    }

    pub(super) fn u64(kind: u16, value: u64) -> Attr {
        Attr { kind, value: Value::U64(value.to_ne_bytes()) }
    }

    /// Two numbers of 32 bits one after the other.
    pub(super) fn pair(kind: u16, first: u32, second: u32) -> Attr {
        let mut bytes = [0; 8];
        bytes[..4].copy_from_slice(&first.to_ne_bytes());
        bytes[4..].copy_from_slice(&second.to_ne_bytes());
        Attr { kind, value: Value::U64(bytes) }
    }

    pub(super) fn text(kind: u16, text: &str) -> Attr {
        Attr { kind, value: Value::Text(text.to_owned()) }
    }

    /// Address in the 16 bytes of the family's union, IPv4 padded with zeros.
    pub(super) fn address(kind: u16, address: IpAddr) -> Attr {
        let bytes = match address {
            IpAddr::V4(v4) => {
                let mut bytes = [0; 16];
                bytes[..4].copy_from_slice(&v4.octets());
                bytes
            }
            IpAddr::V6(v6) => v6.octets(),
        };
        Attr { kind, value: Value::Bytes(bytes) }
    }

    /// Nest as the kernel writes it: without the flag bit.
    pub(super) fn nest(kind: u16, attributes: Vec<Attr>) -> Attr {
        Attr { kind, value: Value::Nest(attributes) }
    }

    /// Nest as libnl writes it in requests: with the flag bit.
    pub(super) fn flagged_nest(kind: u16, attributes: Vec<Attr>) -> Attr {
        Attr { kind: kind | NLA_F_NESTED, value: Value::Nest(attributes) }
    }
}

impl Nla for Attr {
    fn value_len(&self) -> usize {
        match &self.value {
            Value::U8(_) => 1,
            Value::U16(_) => 2,
            Value::U32(_) => 4,
            Value::U64(_) => 8,
            Value::Bytes(_) => 16,
            Value::Text(text) => text.len() + 1,
            Value::Nest(attributes) => {
                attributes.iter().map(|a| HEADER_BYTES + a.value_len().next_multiple_of(4)).sum()
            }
        }
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        use netlink_packet_core::Emitable;
        match &self.value {
            Value::U8(byte) => buffer[0] = *byte,
            Value::U16(bytes) => buffer.copy_from_slice(bytes),
            Value::U32(bytes) => buffer.copy_from_slice(bytes),
            Value::U64(bytes) => buffer.copy_from_slice(bytes),
            Value::Bytes(bytes) => buffer.copy_from_slice(bytes),
            Value::Text(text) => {
                buffer[..text.len()].copy_from_slice(text.as_bytes());
                buffer[text.len()] = 0;
            }
            Value::Nest(attributes) => attributes.as_slice().emit(buffer),
        }
    }
}

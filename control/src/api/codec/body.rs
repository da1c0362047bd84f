//! The family's payload before it is typed: a command number and attributes.

use netlink_packet_core::{DecodeError, Emitable, Nla, NlasIterator, ParseableParametrized};
use netlink_packet_generic::{GenlFamily, GenlHeader};
use rustix::io::Errno;

use super::{FAMILY_ID, FAMILY_VERSION, Refusal};

/// Longest text that is looked at; the longest legal one is a CPU list that names every second of 8192 CPUs in full.
const TEXT_BYTES_MAX: usize = 4096;

/// Generic header's command and the attributes: the family's payload, not yet typed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Body {
    pub(super) command: u8,
    pub(super) attributes: Vec<Attribute>,
}

impl Body {
    /// Value of the attribute; of a repeated one the last wins, as in the kernel.
    pub(super) fn find(&self, kind: u16) -> Option<&[u8]> {
        self.attributes.iter().rev().find(|a| a.kind == kind).map(|a| a.value.as_slice())
    }

    /// Value of the last attribute of one of these kinds.
    pub(super) fn into_value(self, kinds: &[u16]) -> Option<Vec<u8>> {
        self.attributes.into_iter().rev().find(|a| kinds.contains(&a.kind)).map(|a| a.value)
    }

    /// Value of an attribute that must be there.
    pub(super) fn need(&self, kind: u16, name: &str) -> Result<&[u8], Refusal> {
        self.find(kind).ok_or_else(|| Refusal::new(Errno::INVAL, format!("attribute {name} is missing")))
    }

    /// Text of the attribute, without the closing NUL.
    pub(super) fn text(&self, kind: u16, name: &str) -> Result<Option<String>, Refusal> {
        let Some(bytes) = self.find(kind) else {
            return Ok(None);
        };
        let text = bytes
            .strip_suffix(&[0])
            .filter(|text| text.len() <= TEXT_BYTES_MAX && !text.contains(&0))
            .and_then(|text| std::str::from_utf8(text).ok())
            .ok_or_else(|| Refusal::new(Errno::INVAL, format!("attribute {name} is not a text")))?;
        Ok(Some(text.to_owned()))
    }

    /// Text of an attribute that has to be there.
    pub(super) fn required_text(&self, kind: u16, name: &str) -> Result<String, Refusal> {
        self.text(kind, name)?.ok_or_else(|| missing(name))
    }

    /// Number of an attribute that has to be there.
    pub(super) fn number(&self, kind: u16, name: &str) -> Result<u32, Refusal> {
        let bytes = self.find(kind).ok_or_else(|| missing(name))?;
        let bytes = bytes
            .try_into()
            .map_err(|_| Refusal::new(Errno::INVAL, format!("attribute {name} is no number")))?;
        Ok(u32::from_ne_bytes(bytes))
    }
}

/// One attribute: number without flag bits, and value.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Attribute {
    kind: u16,
    value: Vec<u8>,
}

impl Attribute {
    pub(super) fn new(kind: u16, value: Vec<u8>) -> Attribute {
        Attribute { kind, value }
    }
}

impl Nla for Attribute {
    fn value_len(&self) -> usize {
        self.value.len()
    }

    fn kind(&self) -> u16 {
        self.kind
    }

    fn emit_value(&self, buffer: &mut [u8]) {
        buffer.copy_from_slice(&self.value);
    }
}

impl GenlFamily for Body {
    fn family_name() -> &'static str {
        "WEIR"
    }

    fn family_id(&self) -> u16 {
        FAMILY_ID
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        FAMILY_VERSION
    }
}

impl Emitable for Body {
    fn buffer_len(&self) -> usize {
        self.attributes.as_slice().buffer_len()
    }

    fn emit(&self, buffer: &mut [u8]) {
        self.attributes.as_slice().emit(buffer);
    }
}

impl ParseableParametrized<[u8], GenlHeader> for Body {
    /// Attributes up to the first that is malformed; what is left over is ignored, as in the kernel.
    fn parse_with_param(bytes: &[u8], header: GenlHeader) -> Result<Body, DecodeError> {
        let attributes = NlasIterator::new(bytes)
            .map_while(Result::ok)
            .map(|a| Attribute::new(a.kind(), a.value().to_vec()))
            .collect();
        Ok(Body { command: header.cmd, attributes })
    }
}

fn missing(name: &str) -> Refusal {
    Refusal::new(Errno::INVAL, format!("attribute {name} is missing"))
}

/// Attribute of a number of 32 bits.
pub(super) fn number_attribute(kind: u16, number: u32) -> Attribute {
    Attribute::new(kind, number.to_ne_bytes().to_vec())
}

/// Attribute of a text and its closing NUL.
pub(super) fn text_attribute(kind: u16, text: &str) -> Attribute {
    let mut value = text.as_bytes().to_vec();
    value.push(0);
    Attribute::new(kind, value)
}

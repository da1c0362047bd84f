//! Our own generic-netlink family: bytes to typed requests and replies, and back.
//!
//! Model: one datagram holds one or more netlink messages (16-byte header, host byte order, aligned to 4).
//! A message of the family adds the generic header (command, version) and attributes. A request carries its
//! filters as attributes; a reply is one row as JSON in one attribute, so that a listing of any length
//! streams and a program needs nothing but a JSON reader. Connections alone, of which there are millions, come as
//! fixed records, many in one attribute ([`super::conns`]). Acknowledgements, errors and the end of a listing
//! are netlink's own (`NLMSG_ERROR`, `NLMSG_DONE`), with the reason as the extended-acknowledgement text
//! (`NLMSGERR_ATTR_MSG`).
//!
//! Pure functions between bytes and types: no socket, no state, no panic on any input. Any thread may call
//! them; in the daemon only the control thread does.
//!
//! A new command goes into [`Command`], [`Request`] and the two tables of `request`; `body` has the attributes.
//!
//! Sources: netlink(7), `linux/netlink.h`, `linux/genetlink.h`.

mod body;
mod request;

use std::num::NonZeroI32;

use netlink_packet_core::{
    DecodeError, DoneMessage, Emitable, ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP,
    NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::GenlMessage;
use rustix::io::Errno;

use body::{Attribute, Body, text_attribute};
use request::attr;
pub use request::{
    CONTENT_BYTES_MAX, Command, ConnFilterText, RATES_TOP, RateOrder, Request, Transaction, TransactionKind,
};

/// Message type of the family: the number below that of the IPVS family, which is the highest legal one.
pub const FAMILY_ID: u16 = 0x3fe;
/// Version of the family that this program speaks.
pub const FAMILY_VERSION: u8 = 1;
/// Bytes of a netlink header.
const HEADER_BYTES: usize = 16;
/// Message types below this are netlink's own and never a request (`NLMSG_MIN_TYPE`).
const FIRST_FAMILY_TYPE: u16 = 0x10;
/// Extended-acknowledgement attribute that holds the reason as text (`NLMSGERR_ATTR_MSG`).
const ERROR_ATTR_TEXT: u16 = 1;
/// Longest row: the attribute's length field has 16 bits and counts its own 4-byte header.
pub const ROW_BYTES_MAX: usize = u16::MAX as usize - 4;

/// Why a request is not executed: the number for programs, the sentence for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// Error number, positive.
    pub errno: Errno,
    /// Reason, lower case, no full stop.
    pub text: String,
}

impl Refusal {
    /// Refusal with this number and reason.
    pub fn new(errno: Errno, text: impl Into<String>) -> Refusal {
        Refusal { errno, text: text.into() }
    }
}

/// One message of a datagram that came from a client.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Incoming {
    /// The whole message, for an error reply.
    pub raw: Vec<u8>,
    /// Netlink header.
    pub header: NetlinkHeader,
}

impl Incoming {
    /// Splits a datagram into its messages, in order.
    ///
    /// A header whose length is below 16 or beyond the datagram ends it without an answer, as in the kernel.
    pub fn split(datagram: &[u8]) -> Vec<Incoming> {
        let mut rest = datagram;
        let mut messages = Vec::new();
        while let Ok(buffer) = NetlinkBuffer::new_checked(rest) {
            let length = buffer.length() as usize;
            let Ok(header) = NetlinkHeader::parse(&buffer) else {
                break;
            };
            messages.push(Incoming { raw: rest[..length].to_vec(), header });
            rest = rest.get(length.next_multiple_of(4)..).unwrap_or_default();
        }
        messages
    }

    /// The first message of a datagram that is not taken whole, without its content.
    pub fn head_only(datagram: &[u8]) -> Option<Incoming> {
        let raw = datagram.get(..HEADER_BYTES)?.to_vec();
        let header = NetlinkHeader::parse(&NetlinkBuffer::new(&raw[..])).ok()?;
        Some(Incoming { raw, header })
    }

    /// Whether the client asked for an acknowledgement.
    pub fn wants_ack(&self) -> bool {
        self.header.flags & NLM_F_ACK != 0
    }

    /// Whether this is a request at all; what is none is acknowledged when asked and otherwise ignored.
    pub fn is_request(&self) -> bool {
        self.header.flags & NLM_F_REQUEST != 0 && self.header.message_type >= FIRST_FAMILY_TYPE
    }

    /// The typed request, or why it is refused.
    ///
    /// # Errors
    /// ENOENT for another family, EINVAL for a malformed message or value, EOPNOTSUPP for an unknown command.
    pub fn request(&self) -> Result<Request, Refusal> {
        if self.header.message_type != FAMILY_ID {
            return Err(Refusal::new(
                Errno::NOENT,
                format!("no family with number {:#x}", self.header.message_type),
            ));
        }
        let message = GenlMessage::<Body>::parse_with_param(&self.raw[HEADER_BYTES..], FAMILY_ID)
            .map_err(|error| Refusal::new(Errno::INVAL, format!("malformed message: {error}")))?;
        let request = Request::from_body(&message.payload)?;
        if request.command().is_listing() != (self.header.flags & NLM_F_DUMP == NLM_F_DUMP) {
            return Err(Refusal::new(Errno::OPNOTSUPP, "listings, and only they, are asked for as dumps"));
        }
        Ok(request)
    }
}

/// One message of a datagram that came from the daemon.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// One row, JSON text, or a piece of a connection listing.
    Row(Vec<u8>),
    /// End of a listing.
    Done,
    /// The request was executed.
    Ack,
    /// The request was refused.
    Refused(Refusal),
}

impl Reply {
    /// Splits a datagram of the daemon into replies with their sequence numbers.
    ///
    /// # Errors
    /// The text says what is malformed: the peer is no `weir` daemon, or another version of it.
    pub fn split(datagram: &[u8]) -> Result<Vec<(u32, Reply)>, DecodeError> {
        Incoming::split(datagram)
            .into_iter()
            .map(|message| Ok((message.header.sequence_number, Reply::decode(&message)?)))
            .collect()
    }

    fn decode(message: &Incoming) -> Result<Reply, DecodeError> {
        match NetlinkMessage::<GenlMessage<Body>>::deserialize(&message.raw)?.payload {
            NetlinkPayload::InnerMessage(inner) => {
                match inner.payload.into_value(&[attr::ROW, attr::CONNS]) {
                    Some(row) => Ok(Reply::Row(row)),
                    None => Err(DecodeError::from("reply without a row")),
                }
            }
            NetlinkPayload::Done(_) => Ok(Reply::Done),
            NetlinkPayload::Error(error) => Ok(match error.code {
                None => Reply::Ack,
                Some(code) => Reply::Refused(Refusal {
                    errno: errno(code.get()),
                    text: reason(message.header.flags, &error.header),
                }),
            }),
            _ => Err(DecodeError::from("unexpected message type")),
        }
    }
}

/// The error number of a refusal, which has it negative; EPROTO for a number that is none.
pub fn errno(code: i32) -> Errno {
    match code.wrapping_neg() {
        number @ 1..=4095 => Errno::from_raw_os_error(number),
        _ => Errno::PROTO,
    }
}

/// Bytes of a request.
pub fn encode_request(sequence: u32, request: &Request) -> Vec<u8> {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | if request.command().is_listing() { NLM_F_DUMP } else { NLM_F_ACK };
    header.sequence_number = sequence;
    encode_body(header, Body { command: request.command() as u8, attributes: request.attributes() })
}

/// Bytes of one row in answer to the message with header `to`; `part` marks a row of a listing.
///
/// A row over [`ROW_BYTES_MAX`] does not fit: `None`, and the caller answers EMSGSIZE.
pub fn encode_row(to: &NetlinkHeader, command: Command, part: bool, row: Vec<u8>) -> Option<Vec<u8>> {
    if row.len() > ROW_BYTES_MAX {
        return None;
    }
    let header = reply_header(to, if part { NLM_F_MULTIPART } else { 0 });
    let attributes = vec![Attribute::new(command.row_attribute(), row)];
    Some(encode_body(header, Body { command: command as u8, attributes }))
}

/// Bytes of the end of a listing, in answer to the message with header `to`.
pub fn encode_done(to: &NetlinkHeader) -> Vec<u8> {
    let mut header = reply_header(to, NLM_F_MULTIPART);
    header.message_type = NLMSG_DONE;
    encode(header, NetlinkPayload::<GenlMessage<Body>>::Done(DoneMessage::default()))
}

/// Bytes of the acknowledgement of `to`: code 0 and the request's header only.
pub fn encode_ack(to: &Incoming) -> Vec<u8> {
    let mut header = reply_header(&to.header, NLM_F_CAPPED);
    header.message_type = NLMSG_ERROR;
    let mut error = ErrorMessage::default();
    error.header = to.raw[..HEADER_BYTES].to_vec();
    encode(header, NetlinkPayload::<GenlMessage<Body>>::Error(error))
}

/// Bytes of the refusal of `to`: minus the error number, the whole request, and the reason as text.
pub fn encode_refusal(to: &Incoming, refusal: &Refusal) -> Vec<u8> {
    let capped = if to.raw.len() == HEADER_BYTES { NLM_F_CAPPED } else { 0 };
    let mut header = reply_header(&to.header, NLM_F_ACK_TLVS | capped);
    header.message_type = NLMSG_ERROR;
    let mut error = ErrorMessage::default();
    error.code = NonZeroI32::new(-refusal.errno.raw_os_error());
    error.header = to.raw.clone();
    error.header.resize(to.raw.len().next_multiple_of(4), 0);
    let text = text_attribute(ERROR_ATTR_TEXT, &refusal.text);
    let start = error.header.len();
    error.header.resize(start + text.buffer_len(), 0);
    text.emit(&mut error.header[start..]);
    encode(header, NetlinkPayload::<GenlMessage<Body>>::Error(error))
}

/// Header of an answer: the request's sequence number and port id, which clients compare.
fn reply_header(to: &NetlinkHeader, flags: u16) -> NetlinkHeader {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = to.sequence_number;
    header.port_number = to.port_number;
    header
}

fn encode_body(mut header: NetlinkHeader, body: Body) -> Vec<u8> {
    header.message_type = FAMILY_ID;
    encode(header, NetlinkPayload::InnerMessage(GenlMessage::from_payload(body)))
}

fn encode(header: NetlinkHeader, payload: NetlinkPayload<GenlMessage<Body>>) -> Vec<u8> {
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

/// Text of an extended acknowledgement, after the request's header or the whole request.
fn reason(flags: u16, after_code: &[u8]) -> String {
    let request_bytes = NetlinkBuffer::new_checked(after_code).map_or(0, |request| request.length() as usize);
    let skip = if flags & NLM_F_CAPPED != 0 { HEADER_BYTES } else { request_bytes.next_multiple_of(4) };
    let rest = after_code.get(skip..).unwrap_or_default();
    NlasIterator::new(rest)
        .map_while(Result::ok)
        .find(|a| flags & NLM_F_ACK_TLVS != 0 && a.kind() == ERROR_ATTR_TEXT)
        .map(|a| String::from_utf8_lossy(a.value()).trim_end_matches('\0').to_owned())
        .unwrap_or_default()
}

#[cfg(test)]
mod tests;

//! Our own generic-netlink family: bytes to typed requests and replies, and back.
//!
//! Model: one datagram holds one or more netlink messages (16-byte header, host byte order, aligned to 4).
//! A message of the family adds the generic header (command, version) and attributes. A request carries its
//! filters as attributes; a reply is one row as JSON in one attribute, so that a listing of any length
//! streams and a program needs nothing but a JSON reader. Acknowledgements, errors and the end of a listing
//! are netlink's own (`NLMSG_ERROR`, `NLMSG_DONE`), with the reason as the extended-acknowledgement text
//! (`NLMSGERR_ATTR_MSG`).
//!
//! Pure functions between bytes and types: no socket, no state, no panic on any input. Any thread may call
//! them; in the daemon only the control thread does.
//!
//! A new command goes into [`Command`], [`Request`] and the two tables below them.
//!
//! Sources: netlink(7), `linux/netlink.h`, `linux/genetlink.h`.

mod body;

use std::num::NonZeroI32;

use clap::ValueEnum;
use netlink_packet_core::{
    DecodeError, DoneMessage, Emitable, ErrorMessage, NLM_F_ACK, NLM_F_ACK_TLVS, NLM_F_CAPPED, NLM_F_DUMP,
    NLM_F_MULTIPART, NLM_F_REQUEST, NLMSG_DONE, NLMSG_ERROR, NetlinkBuffer, NetlinkHeader, NetlinkMessage,
    NetlinkPayload, NlasIterator, Parseable, ParseableParametrized,
};
use netlink_packet_generic::GenlMessage;
use rustix::io::Errno;

use body::{Attribute, Body, number_attribute, text_attribute};

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

/// Longest piece of content in one message: with its headers it stays below the limit of a client's datagram.
pub const CONTENT_BYTES_MAX: usize = 12 * 1024;
/// Objects of `weir rates` if nobody says how many.
pub const RATES_TOP: u32 = 20;

/// Attribute numbers: 1 in replies, the others in requests.
mod attr {
    pub const ROW: u16 = 1;
    pub const CLIENT: u16 = 2;
    pub const SERVICE: u16 = 3;
    pub const DEST: u16 = 4;
    pub const STATE: u16 = 5;
    pub const ALL: u16 = 6;
    pub const NAME: u16 = 7;
    pub const TEXT: u16 = 8;
    pub const MODE: u16 = 9;
    pub const NUMBER: u16 = 10;
    pub const DATA: u16 = 11;
    pub const LENGTH: u16 = 12;
    pub const REVISION: u16 = 16;
    pub const KIND: u16 = 18;
    pub const DRY_RUN: u16 = 19;
    pub const CONTENT: u16 = 20;
    pub const TOP: u16 = 24;
    pub const ORDER: u16 = 25;
}

/// Command numbers of the family. 2 to 15 are the socket options, texts and knobs of the IPVS interface.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub enum Command {
    /// Who serves: name, version, protocol version, the caller's rights. One row.
    Hello = 1,
    /// Old socket option, set. Acknowledged.
    OptionSet = 2,
    /// Old socket option, read. Acknowledged with a file that holds the answer.
    OptionGet = 3,
    /// A file of the kernel's /proc. Acknowledged with the opened file.
    TextOpen = 4,
    /// The rows of `weir sysctl`.
    SysctlGet = 5,
    /// Sets a knob. Acknowledged.
    SysctlSet = 6,
    /// The rows of `weir status`.
    Status = 16,
    /// The rows of `weir drops`.
    Drops = 17,
    /// The rows of `weir list`.
    List = 18,
    /// The rows of `weir conns`.
    Conns = 19,
    /// The rows of `weir workers`.
    Workers = 24,
    /// A piece of a transaction's content; kept by the session until the transaction comes.
    Content = 32,
    /// A transaction on the content sent before; rows say what it changes.
    Transact = 33,
    /// The rows of `weir log`.
    Log = 34,
    /// A transaction back to a revision; rows say what it changes.
    Rollback = 35,
    /// What runs as lines of a configuration file.
    Save = 36,
    /// The rows of `weir est`.
    Est = 40,
    /// The rows of `weir rates`.
    Rates = 41,
}

impl Command {
    const ALL: [Command; 18] = [
        Command::Hello,
        Command::OptionSet,
        Command::OptionGet,
        Command::TextOpen,
        Command::SysctlGet,
        Command::SysctlSet,
        Command::Status,
        Command::Drops,
        Command::List,
        Command::Conns,
        Command::Workers,
        Command::Content,
        Command::Transact,
        Command::Log,
        Command::Rollback,
        Command::Save,
        Command::Est,
        Command::Rates,
    ];

    /// Whether the answer is a listing, closed by an end message, rather than at most one row and an
    /// acknowledgement.
    pub fn is_listing(self) -> bool {
        use Command::{Content, Hello, OptionGet, OptionSet, SysctlSet, TextOpen};
        !matches!(self, Hello | OptionSet | OptionGet | TextOpen | SysctlSet | Content)
    }

    fn from_number(number: u8) -> Option<Command> {
        Command::ALL.into_iter().find(|c| *c as u8 == number)
    }
}

/// What a client asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Who serves.
    Hello,
    /// Sets an old socket option of IPVS.
    OptionSet {
        /// Number of the option, from 1152.
        number: u32,
        /// Its structure.
        data: Vec<u8>,
    },
    /// Reads an old socket option of IPVS.
    OptionGet {
        /// Number of the option, from 1152.
        number: u32,
        /// Room for the answer, bytes.
        length: u32,
        /// The beginning of what is in that room: it may say which object.
        data: Vec<u8>,
    },
    /// Opens a file of the kernel's /proc.
    TextOpen {
        /// Its name: `net/ip_vs`, `sys/conntrack`.
        name: String,
        /// To write it: each write is a value.
        write: bool,
    },
    /// One knob, or all.
    SysctlGet {
        /// Its name, with or without `net.ipv4.vs.`.
        name: Option<String>,
    },
    /// Sets a knob.
    SysctlSet {
        /// Its name, with or without `net.ipv4.vs.`.
        name: String,
        /// The value, as it is written to the kernel's file.
        text: String,
    },
    /// State of the daemon.
    Status,
    /// What each worker does.
    Workers,
    /// Drop reasons; `all` with those that never happened.
    Drops {
        /// Reasons with count 0 too.
        all: bool,
    },
    /// Services and destinations.
    List,
    /// Connections that pass the filter.
    Conns(ConnFilterText),
    /// A piece of content, at most [`CONTENT_BYTES_MAX`].
    Content(Vec<u8>),
    /// One change of what runs, whole or not at all.
    Transact(Transaction),
    /// The revisions that are kept.
    Log,
    /// Back to a revision.
    Rollback {
        /// Its number.
        revision: u64,
        /// Only say what would change.
        dry_run: bool,
    },
    /// What runs as a configuration file.
    Save,
    /// Estimator threads.
    Est,
    /// Objects with the highest rates.
    Rates {
        /// By which rates.
        order: RateOrder,
        /// How many objects.
        top: u32,
    },
}

/// A change of what runs by a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Transaction {
    /// What the content is.
    pub kind: TransactionKind,
    /// Name of the file, for the log and for errors.
    pub name: String,
    /// Only say what would change.
    pub dry_run: bool,
    /// The content; sent before, in pieces.
    pub content: Vec<u8>,
}

/// What a transaction's content is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(u8)]
pub enum TransactionKind {
    /// A configuration file.
    #[default]
    Configuration = 1,
    /// Messages of the IPVS family that make all services, their sequence numbers being line numbers.
    Restore = 2,
    /// The same, on top of what runs.
    Lines = 3,
}

/// What `weir rates` sorts by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, ValueEnum)]
pub enum RateOrder {
    /// Packets, both ways.
    #[default]
    Packets,
    /// Bytes, both ways.
    Bytes,
    /// Connections.
    Connections,
}

/// Filter of a connection listing, as text; the daemon parses it and refuses with the reason.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnFilterText {
    /// Client address, with or without L4 port.
    pub client: Option<String>,
    /// Service identity, e.g. `tcp:198.51.100.1:80`.
    pub service: Option<String>,
    /// Destination identity, e.g. `10.0.0.11:8080`.
    pub dest: Option<String>,
    /// State name, e.g. `ESTABLISHED`.
    pub state: Option<String>,
}

impl Request {
    /// The request's command number.
    pub fn command(&self) -> Command {
        match self {
            Request::Hello => Command::Hello,
            Request::OptionSet { .. } => Command::OptionSet,
            Request::OptionGet { .. } => Command::OptionGet,
            Request::TextOpen { .. } => Command::TextOpen,
            Request::SysctlGet { .. } => Command::SysctlGet,
            Request::SysctlSet { .. } => Command::SysctlSet,
            Request::Status => Command::Status,
            Request::Workers => Command::Workers,
            Request::Drops { .. } => Command::Drops,
            Request::List => Command::List,
            Request::Conns(_) => Command::Conns,
            Request::Content(_) => Command::Content,
            Request::Transact(_) => Command::Transact,
            Request::Log => Command::Log,
            Request::Rollback { .. } => Command::Rollback,
            Request::Save => Command::Save,
            Request::Est => Command::Est,
            Request::Rates { .. } => Command::Rates,
        }
    }

    /// Whether it can change what runs.
    pub fn changes(&self) -> bool {
        matches!(self, Request::Content(_) | Request::Transact(_) | Request::Rollback { .. })
    }

    fn attributes(&self) -> Vec<Attribute> {
        match self {
            Request::Hello
            | Request::Status
            | Request::Workers
            | Request::List
            | Request::Est
            | Request::Drops { all: false } => Vec::new(),
            Request::Log | Request::Save => Vec::new(),
            Request::Content(bytes) => vec![Attribute::new(attr::CONTENT, bytes.clone())],
            Request::Transact(transaction) => {
                let mut attributes = vec![
                    Attribute::new(attr::KIND, vec![transaction.kind as u8]),
                    text_attribute(attr::NAME, &transaction.name),
                ];
                attributes.extend(transaction.dry_run.then(|| Attribute::new(attr::DRY_RUN, Vec::new())));
                attributes
            }
            Request::Rollback { revision, dry_run } => {
                let mut attributes = vec![Attribute::new(attr::REVISION, revision.to_ne_bytes().to_vec())];
                attributes.extend(dry_run.then(|| Attribute::new(attr::DRY_RUN, Vec::new())));
                attributes
            }
            Request::Rates { order, top } => vec![
                Attribute::new(attr::TOP, top.to_ne_bytes().to_vec()),
                Attribute::new(attr::ORDER, vec![*order as u8]),
            ],
            Request::Drops { all: true } => vec![Attribute::new(attr::ALL, Vec::new())],
            Request::OptionSet { number, data } => {
                vec![number_attribute(attr::NUMBER, *number), Attribute::new(attr::DATA, data.clone())]
            }
            Request::OptionGet { number, length, data } => vec![
                number_attribute(attr::NUMBER, *number),
                number_attribute(attr::LENGTH, *length),
                Attribute::new(attr::DATA, data.clone()),
            ],
            Request::TextOpen { name, write } => {
                vec![text_attribute(attr::NAME, name), number_attribute(attr::MODE, (*write).into())]
            }
            Request::SysctlGet { name } => name.iter().map(|name| text_attribute(attr::NAME, name)).collect(),
            Request::SysctlSet { name, text } => {
                vec![text_attribute(attr::NAME, name), text_attribute(attr::TEXT, text)]
            }
            Request::Conns(filter) => [
                (attr::CLIENT, &filter.client),
                (attr::SERVICE, &filter.service),
                (attr::DEST, &filter.dest),
                (attr::STATE, &filter.state),
            ]
            .into_iter()
            .filter_map(|(kind, text)| text.as_ref().map(|text| text_attribute(kind, text)))
            .collect(),
        }
    }

    fn from_body(body: &Body) -> Result<Request, Refusal> {
        let command = Command::from_number(body.command)
            .ok_or_else(|| Refusal::new(Errno::OPNOTSUPP, format!("unknown command {}", body.command)))?;
        Ok(match command {
            Command::Hello => Request::Hello,
            Command::OptionSet => Request::OptionSet {
                number: body.number(attr::NUMBER, "number")?,
                data: body.find(attr::DATA).unwrap_or_default().to_vec(),
            },
            Command::OptionGet => Request::OptionGet {
                number: body.number(attr::NUMBER, "number")?,
                length: body.number(attr::LENGTH, "length")?,
                data: body.find(attr::DATA).unwrap_or_default().to_vec(),
            },
            Command::TextOpen => Request::TextOpen {
                name: body.required_text(attr::NAME, "name")?,
                write: body.number(attr::MODE, "mode")? != 0,
            },
            Command::SysctlGet => Request::SysctlGet { name: body.text(attr::NAME, "name")? },
            Command::SysctlSet => Request::SysctlSet {
                name: body.required_text(attr::NAME, "name")?,
                text: body.required_text(attr::TEXT, "text")?,
            },
            Command::Status => Request::Status,
            Command::Workers => Request::Workers,
            Command::List => Request::List,
            Command::Est => Request::Est,
            Command::Rates => Request::Rates {
                order: match body.find(attr::ORDER) {
                    None | Some([0]) => RateOrder::Packets,
                    Some([1]) => RateOrder::Bytes,
                    Some([2]) => RateOrder::Connections,
                    Some(_) => return Err(Refusal::new(Errno::INVAL, "unknown order of rates")),
                },
                top: match body.find(attr::TOP).map(<[u8; 4]>::try_from) {
                    None => RATES_TOP,
                    Some(Ok(bytes)) => u32::from_ne_bytes(bytes),
                    Some(Err(_)) => return Err(Refusal::new(Errno::INVAL, "attribute top is not a number")),
                },
            },
            Command::Drops => Request::Drops { all: body.find(attr::ALL).is_some() },
            Command::Conns => Request::Conns(ConnFilterText {
                client: body.text(attr::CLIENT, "client")?,
                service: body.text(attr::SERVICE, "service")?,
                dest: body.text(attr::DEST, "dest")?,
                state: body.text(attr::STATE, "state")?,
            }),
            Command::Content => Request::Content(body.need(attr::CONTENT, "content")?.to_vec()),
            Command::Transact => Request::Transact(Transaction {
                kind: TransactionKind::from_bytes(body.need(attr::KIND, "kind")?)?,
                name: body.text(attr::NAME, "name")?.unwrap_or_default(),
                dry_run: body.find(attr::DRY_RUN).is_some(),
                content: Vec::new(),
            }),
            Command::Log => Request::Log,
            Command::Rollback => {
                let bytes = <[u8; 8]>::try_from(body.need(attr::REVISION, "revision")?);
                let bytes =
                    bytes.map_err(|_| Refusal::new(Errno::INVAL, "attribute revision is no number"))?;
                let dry_run = body.find(attr::DRY_RUN).is_some();
                Request::Rollback { revision: u64::from_ne_bytes(bytes), dry_run }
            }
            Command::Save => Request::Save,
        })
    }
}

impl TransactionKind {
    fn from_bytes(bytes: &[u8]) -> Result<TransactionKind, Refusal> {
        let all = [TransactionKind::Configuration, TransactionKind::Restore, TransactionKind::Lines];
        let kind = all.into_iter().find(|kind| bytes == [*kind as u8]);
        kind.ok_or_else(|| Refusal::new(Errno::INVAL, "unknown kind of transaction"))
    }
}

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
    /// One row, JSON text.
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
            NetlinkPayload::InnerMessage(inner) => match inner.payload.find(attr::ROW) {
                Some(row) => Ok(Reply::Row(row.to_vec())),
                None => Err(DecodeError::from("reply without a row")),
            },
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
    let attributes = vec![Attribute::new(attr::ROW, row)];
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

//! The commands of our family: what a client asks for, as a type and as attributes.
//!
//! Attributes of a request are its filters and values; [`Request::from_body`] refuses what it does not understand with the
//! reason.

use clap::ValueEnum;
use rustix::io::Errno;

use super::Refusal;
use super::body::{Attribute, Body, number_attribute, text_attribute};

/// Longest piece of content in one message: with its headers it stays below the limit of a client's datagram.
pub const CONTENT_BYTES_MAX: usize = 12 * 1024;
/// Objects of `weir rates` if nobody says how many.
pub const RATES_TOP: u32 = 20;

/// Attribute numbers: 1 and 13 in replies, the others in requests.
pub(super) mod attr {
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
    pub const CONNS: u16 = 13;
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

    /// The attribute that its rows come in.
    pub(super) fn row_attribute(self) -> u16 {
        if self == Command::Conns { attr::CONNS } else { attr::ROW }
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

    pub(super) fn attributes(&self) -> Vec<Attribute> {
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

    pub(super) fn from_body(body: &Body) -> Result<Request, Refusal> {
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

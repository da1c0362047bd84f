//! Answers as clients read them.

use netlink_packet_core::{NLMSG_DONE, NLMSG_ERROR};
use netlink_packet_generic::constants::GENL_HDRLEN;
use rustix::io::Errno;

use super::attr::Attrs;
use super::request::{self, number};
use super::types::{Daemon, Dest, Family, Info, Service, Timeouts};
use super::{attr, daemon, dest, lookup, service};
use crate::api::codec::{self, Incoming};

/// Bytes of a netlink header.
const HEADER_BYTES: usize = 16;

/// One message of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Reply {
    /// An object; what it is depends on the request.
    Object(Object),
    /// The end of a dump.
    Done,
    /// The request was executed.
    Ack,
    /// The request was refused.
    Refused(Errno),
}

/// An object's attributes, not yet read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object(Vec<u8>);

impl Reply {
    /// Splits a datagram into messages with their sequence numbers; a message that is too short ends it.
    pub fn split(datagram: &[u8]) -> Vec<(u32, Reply)> {
        Incoming::split(datagram)
            .into_iter()
            .map_while(|message| Some((message.header.sequence_number, Reply::read(&message)?)))
            .collect()
    }

    fn read(message: &Incoming) -> Option<Reply> {
        let payload = &message.raw[HEADER_BYTES..];
        Some(match message.header.message_type {
            NLMSG_DONE => Reply::Done,
            NLMSG_ERROR => match i32::from_ne_bytes(*payload.first_chunk()?) {
                0 => Reply::Ack,
                code => Reply::Refused(codec::errno(code)),
            },
            _ => Reply::Object(Object(payload.get(GENL_HDRLEN..)?.to_vec())),
        })
    }
}

/// Reading an object as what was asked for: `None` when it is something else.
impl Object {
    /// The family's number.
    pub fn family_id(&self) -> Option<u16> {
        lookup::read(&self.0)
    }

    /// A service.
    pub fn service(&self) -> Option<Service> {
        service::read(&self.nest(number::SERVICE, service::POLICY)?).ok()
    }

    /// A destination of a service of this family.
    pub fn dest(&self, of_service: Family) -> Option<Dest> {
        dest::read(&self.nest(number::DEST, dest::POLICY)?, of_service).ok()
    }

    /// A sync daemon.
    pub fn daemon(&self) -> Option<Daemon> {
        daemon::read(&self.nest(number::DAEMON, daemon::POLICY)?).ok()
    }

    /// The timeouts.
    pub fn timeouts(&self) -> Option<Timeouts> {
        Some(request::timeouts(&Attrs::top(&self.0, request::POLICY).ok()?))
    }

    /// Version and table size.
    pub fn info(&self) -> Option<Info> {
        const POLICY: attr::Policy = &[
            (number::INFO_VERSION, attr::Shape::AtLeast(4)),
            (number::INFO_TABLE_SIZE, attr::Shape::AtLeast(4)),
        ];
        let top = Attrs::top(&self.0, POLICY).ok()?;
        Some(Info { version: top.u32(number::INFO_VERSION)?, table_size: top.u32(number::INFO_TABLE_SIZE)? })
    }

    fn nest(&self, kind: u16, policy: attr::Policy) -> Option<Attrs<'_>> {
        Attrs::top(&self.0, request::POLICY).ok()?.nest(kind, policy).ok()
    }
}

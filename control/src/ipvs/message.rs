//! Whole messages of the family: header, command, attributes; and the kernel's form of a refusal.

use netlink_packet_core::{
    Emitable, ErrorMessage, NLM_F_MULTIPART, NLMSG_ERROR, NetlinkHeader, NetlinkMessage, NetlinkPayload,
};
use netlink_packet_generic::{GenlFamily, GenlMessage};
use rustix::io::Errno;

use super::attr::Attr;
use crate::api::codec::Incoming;

/// Message type of the family: the highest legal number. Kernels hand numbers out from below, so that one
/// which a program keeps from the kernel is never taken for ours.
pub const FAMILY_ID: u16 = 0x3ff;
/// Name under which programs look the family up.
pub const FAMILY_NAME: &str = "IPVS";
/// Version of the family that kernels speak.
pub const FAMILY_VERSION: u8 = 1;

/// Command and attributes of one message.
#[derive(Clone, Debug)]
pub(super) struct Body {
    /// Message type.
    pub family_id: u16,
    /// Version byte; nobody checks it.
    pub version: u8,
    /// Command number.
    pub command: u8,
    /// Attributes.
    pub attributes: Vec<Attr>,
}

impl Body {
    /// Body of a message of the IPVS family.
    pub fn ipvs(command: u8, attributes: Vec<Attr>) -> Body {
        Body { family_id: FAMILY_ID, version: FAMILY_VERSION, command, attributes }
    }

    /// Bytes of a request.
    pub fn request(self, sequence: u32, flags: u16) -> Vec<u8> {
        let mut header = NetlinkHeader::default();
        header.sequence_number = sequence;
        header.flags = flags;
        self.encode(header)
    }

    /// Bytes of the only message that answers `to`.
    pub fn reply(self, to: &NetlinkHeader) -> Vec<u8> {
        self.encode(answer_header(to, 0))
    }

    /// Bytes of one of the messages of a dump.
    pub fn part(self, to: &NetlinkHeader) -> Vec<u8> {
        self.encode(answer_header(to, NLM_F_MULTIPART))
    }

    fn encode(self, mut header: NetlinkHeader) -> Vec<u8> {
        header.message_type = self.family_id;
        encode(header, NetlinkPayload::InnerMessage(GenlMessage::from_payload(self)))
    }
}

impl GenlFamily for Body {
    fn family_name() -> &'static str {
        FAMILY_NAME
    }

    fn family_id(&self) -> u16 {
        self.family_id
    }

    fn command(&self) -> u8 {
        self.command
    }

    fn version(&self) -> u8 {
        self.version
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

/// Bytes of a refusal as kernels send it: minus the error number, and the whole request.
pub(super) fn refusal(to: &Incoming, errno: Errno) -> Vec<u8> {
    let mut header = answer_header(&to.header, 0);
    header.message_type = NLMSG_ERROR;
    let mut error = ErrorMessage::default();
    error.code = std::num::NonZeroI32::new(-errno.raw_os_error());
    error.header = to.raw.clone();
    encode(header, NetlinkPayload::Error(error))
}

/// Header of an answer: the request's sequence number and port id, which programs compare.
fn answer_header(to: &NetlinkHeader, flags: u16) -> NetlinkHeader {
    let mut header = NetlinkHeader::default();
    header.flags = flags;
    header.sequence_number = to.sequence_number;
    header.port_number = to.port_number;
    header
}

fn encode(header: NetlinkHeader, payload: NetlinkPayload<GenlMessage<Body>>) -> Vec<u8> {
    let mut message = NetlinkMessage::new(header, payload);
    message.finalize();
    let mut bytes = vec![0; message.buffer_len()];
    message.serialize(&mut bytes);
    bytes
}

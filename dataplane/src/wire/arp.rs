//! ARP for IPv4 over Ethernet (RFC 826), the only kind we speak.

use super::ethernet::{self, Mac};
use super::{be16, be32, put16, put32};

/// Bytes of a packet.
pub const LEN: usize = 28;

/// Bytes of an untagged frame with a packet in it, without padding.
pub const FRAME_LEN: usize = ethernet::LEN + LEN;

const HARDWARE: usize = 0;
const PROTOCOL: usize = 2;
const LENGTHS: usize = 4;
const OPERATION: usize = 6;
const SENDER_MAC: usize = 8;
const SENDER_IP: usize = 14;
const TARGET_MAC: usize = 18;
const TARGET_IP: usize = 24;

const HARDWARE_ETHERNET: u16 = 1;
const LENGTHS_ETHERNET_IPV4: u16 = 0x0604;

/// What the sender wants.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Operation {
    /// Who has the target address?
    Request,
    /// The sender has the sender address.
    Reply,
}

/// A packet as values.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Repr {
    /// Request or reply.
    pub operation: Operation,
    /// MAC of the sender.
    pub sender_mac: Mac,
    /// IPv4 address of the sender; 0 in a probe (RFC 5227).
    pub sender_ip: u32,
    /// MAC of the target; meaningless in a request.
    pub target_mac: Mac,
    /// IPv4 address of the target.
    pub target_ip: u32,
}

impl Repr {
    /// Reads the payload of an ARP frame. `None`: too short, another kind of address, another operation.
    #[must_use]
    pub fn parse(payload: &[u8]) -> Option<Self> {
        let bytes: &[u8; LEN] = payload.first_chunk()?;
        let ours = be16(bytes, HARDWARE) == HARDWARE_ETHERNET
            && be16(bytes, PROTOCOL) == ethernet::IPV4
            && be16(bytes, LENGTHS) == LENGTHS_ETHERNET_IPV4;
        let operation = match be16(bytes, OPERATION) {
            1 if ours => Operation::Request,
            2 if ours => Operation::Reply,
            _ => return None,
        };
        let mac = |at: usize| Mac(core::array::from_fn(|i| bytes[at + i]));
        Some(Self {
            operation,
            sender_mac: mac(SENDER_MAC),
            sender_ip: be32(bytes, SENDER_IP),
            target_mac: mac(TARGET_MAC),
            target_ip: be32(bytes, TARGET_IP),
        })
    }

    /// Asks who has `target_ip`.
    #[must_use]
    pub const fn request(sender_mac: Mac, sender_ip: u32, target_ip: u32) -> Self {
        Self { operation: Operation::Request, sender_mac, sender_ip, target_mac: Mac::ZERO, target_ip }
    }

    /// Answers `request`: the address it asks for is at `mac`.
    #[must_use]
    pub const fn reply_to(request: &Self, mac: Mac) -> Self {
        Self {
            operation: Operation::Reply,
            sender_mac: mac,
            sender_ip: request.target_ip,
            target_mac: request.sender_mac,
            target_ip: request.sender_ip,
        }
    }

    /// Announces `ip` at `mac`: a request for the address from itself (RFC 5227 §3).
    #[must_use]
    pub const fn gratuitous(mac: Mac, ip: u32) -> Self {
        Self::request(mac, ip, ip)
    }

    /// Writes the packet behind an Ethernet header.
    pub fn emit(&self, bytes: &mut [u8; LEN]) {
        put16(bytes, HARDWARE, HARDWARE_ETHERNET);
        put16(bytes, PROTOCOL, ethernet::IPV4);
        put16(bytes, LENGTHS, LENGTHS_ETHERNET_IPV4);
        put16(bytes, OPERATION, self.operation as u16 + 1);
        bytes[SENDER_MAC..SENDER_IP].copy_from_slice(&self.sender_mac.0);
        put32(bytes, SENDER_IP, self.sender_ip);
        bytes[TARGET_MAC..TARGET_IP].copy_from_slice(&self.target_mac.0);
        put32(bytes, TARGET_IP, self.target_ip);
    }

    /// Writes an untagged frame from the sender to `dst`, without padding.
    pub fn emit_frame(&self, dst: Mac, frame: &mut [u8; FRAME_LEN]) {
        let (head, body) = frame.split_at_mut(ethernet::LEN);
        if let Some(mut header) = ethernet::Header::at_mut(head) {
            header.set_dst(dst);
            header.set_src(self.sender_mac);
            header.set_ethertype(ethernet::ARP);
        }
        if let Some(body) = body.first_chunk_mut() {
            self.emit(body);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A request of 10.0.0.254 at 02:00:00:00:01:01 for 10.0.0.1.
    const REQUEST: [u8; FRAME_LEN] = [
        0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02, 0, 0, 0, 0x01, 0x01, 0x08, 0x06, // Ethernet
        0x00, 0x01, 0x08, 0x00, 6, 4, 0x00, 0x01, // request, Ethernet, IPv4
        0x02, 0, 0, 0, 0x01, 0x01, 10, 0, 0, 254, // sender
        0, 0, 0, 0, 0, 0, 10, 0, 0, 1, // target
    ];
    const US: Mac = Mac([2, 0, 0, 0, 1, 1]);
    const SERVER: Mac = Mac([2, 0, 0, 0, 1, 0x0a]);

    #[test]
    fn request_byte_for_byte() {
        let repr = Repr::request(US, 0x0a00_00fe, 0x0a00_0001);
        let mut frame = [0xaa; FRAME_LEN];
        repr.emit_frame(Mac::BROADCAST, &mut frame);
        assert_eq!(frame, REQUEST);
        assert_eq!(Repr::parse(&REQUEST[ethernet::LEN..]), Some(repr));
    }

    #[test]
    fn reply_turns_the_request_round() {
        let request = Repr::request(US, 0x0a00_00fe, 0x0a00_0001);
        let reply = Repr::reply_to(&request, SERVER);
        assert_eq!(reply.operation, Operation::Reply);
        assert_eq!((reply.sender_mac, reply.sender_ip), (SERVER, 0x0a00_0001));
        assert_eq!((reply.target_mac, reply.target_ip), (US, 0x0a00_00fe));
    }

    #[test]
    fn gratuitous_asks_for_itself() {
        let repr = Repr::gratuitous(US, 7);
        assert_eq!((repr.operation, repr.sender_ip, repr.target_ip), (Operation::Request, 7, 7));
    }

    #[test]
    fn other_kinds_are_refused() {
        // Hardware type, protocol, lengths, operations 0 and 3.
        for (at, value) in [(1, 6), (2, 0x86), (4, 8), (5, 16), (7, 0), (7, 3), (6, 1)] {
            let mut bytes = REQUEST[ethernet::LEN..].to_vec();
            bytes[at] = value;
            assert_eq!(Repr::parse(&bytes), None, "byte {at} = {value}");
        }
        assert_eq!(Repr::parse(&REQUEST[ethernet::LEN..FRAME_LEN - 1]), None);
    }

    proptest! {
        #[test]
        fn emit_then_parse(reply: bool, s: [u8; 6], t: [u8; 6], sender_ip: u32, target_ip: u32) {
            let operation = if reply { Operation::Reply } else { Operation::Request };
            let repr = Repr { operation, sender_mac: Mac(s), sender_ip, target_mac: Mac(t), target_ip };
            let mut bytes = [0; LEN];
            repr.emit(&mut bytes);
            prop_assert_eq!(Repr::parse(&bytes), Some(repr));
        }
    }
}

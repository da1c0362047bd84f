//! Connections on the wire: records of fixed length, many in one message, so that a million take a second.
//!
//! Model: a message of the listing carries the length of its records, then records. All numbers are in
//! network byte order. The daemon copies what its workers reported, names and texts are the client's work. A new figure
//! is appended to [`Record`]; a reader takes the part of each record that it knows. Pure.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};

use dataplane::conn::{TICK_NS, flag, state};
use dataplane::mailbox;
use zerocopy::byteorder::network_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::rows::ConnRow;

/// Records of one message: with its headers just over 16 KiB, a quarter of what a client's buffer takes.
pub const RECORDS_MAX: usize = 256;

/// Begins a message's records.
#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Head {
    /// Bytes from one record to the next.
    record_bytes: U16,
    reserved: U16,
}

/// One connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct Record {
    client: Endpoint,
    service: Endpoint,
    dest: Endpoint,
    worker: U16,
    /// The kernel's flags, forwarding method included.
    flags: U16,
    expires_ms: U32,
    /// IP protocol number.
    proto: u8,
    /// State number of the protocol.
    state: u8,
}

/// Address, IPv4 as IPv4-mapped IPv6 (RFC 4291 2.5.5.2), and port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
struct Endpoint {
    address: [u8; 16],
    port: U16,
}

const _: () = assert!(size_of::<Record>() == 64 && size_of::<Head>() == 4);

impl Record {
    /// What worker number `worker` reported.
    pub fn new(worker: usize, conn: &mailbox::ConnRow) -> Record {
        let t = &conn.tuple;
        Record {
            client: Endpoint::v4(t.caddr, t.cport),
            service: Endpoint::v4(t.vaddr, t.vport),
            dest: Endpoint::v4(t.daddr, t.dport),
            worker: U16::new(worker as u16),
            flags: U16::new(conn.flags),
            expires_ms: U32::new(
                (u64::from(conn.remaining) * TICK_NS / 1_000_000).min(u32::MAX.into()) as u32
            ),
            proto: t.proto,
            state: conn.state,
        }
    }

    /// The connection as programs and people read it.
    pub fn row(&self) -> ConnRow {
        let (protocol, state) = match self.proto {
            17 => ("UDP", state::udp_name(self.state)),
            _ => ("TCP", state::tcp_name(self.state)),
        };
        ConnRow {
            worker: usize::from(self.worker.get()),
            protocol,
            client: self.client.socket(),
            service_address: self.service.socket(),
            dest: self.dest.socket(),
            state,
            expires_ms: self.expires_ms.get().into(),
            method: method_name(self.flags.get()),
        }
    }
}

impl Endpoint {
    fn v4(address: u32, port: u16) -> Endpoint {
        let address = Ipv4Addr::from_bits(address).to_ipv6_mapped().octets();
        Endpoint { address, port: U16::new(port) }
    }

    fn socket(&self) -> SocketAddr {
        SocketAddr::new(IpAddr::from(self.address).to_canonical(), self.port.get())
    }
}

/// Bytes of a message of these records.
pub fn encode(records: impl Iterator<Item = Record>) -> Vec<u8> {
    let mut message = Vec::with_capacity(size_of::<Head>() + RECORDS_MAX * size_of::<Record>());
    let head = Head { record_bytes: U16::new(size_of::<Record>() as u16), reserved: U16::new(0) };
    message.extend_from_slice(head.as_bytes());
    records.for_each(|record| message.extend_from_slice(record.as_bytes()));
    message
}

/// The records of a message; nothing if it is none, or one of a version with shorter records.
pub fn decode(message: &[u8]) -> Option<impl Iterator<Item = Record>> {
    let (head, records) = Head::read_from_prefix(message).ok()?;
    let step = usize::from(head.record_bytes.get());
    let whole = step >= size_of::<Record>() && records.len().is_multiple_of(step);
    whole
        .then(|| records.chunks_exact(step).filter_map(|bytes| Some(Record::read_from_prefix(bytes).ok()?.0)))
}

fn method_name(flags: u16) -> &'static str {
    match flags & flag::METHOD {
        flag::NAT => "nat",
        flag::LOCAL => "local",
        flag::TUNNEL => "tunnel",
        flag::DR => "dr",
        _ => "bypass",
    }
}

#[cfg(test)]
mod tests {
    use dataplane::conn::Tuple;

    use super::*;

    fn reported(n: u32) -> mailbox::ConnRow {
        let tuple = Tuple {
            proto: if n.is_multiple_of(2) { 6 } else { 17 },
            caddr: 0xc000_0200 + n,
            cport: 4000,
            vaddr: 0xcb00_710a,
            vport: 80,
            daddr: 0x0a00_000b,
            dport: 8080,
        };
        mailbox::ConnRow {
            tuple,
            state: if n.is_multiple_of(2) { 3 } else { 0 },
            flags: flag::DR | flag::HASHED,
            remaining: 15,
            dest: 0,
            in_pkts: 1,
        }
    }

    #[test]
    fn what_was_reported_comes_out_with_names() {
        let message = encode((7..9).map(|n| Record::new(3, &reported(n))));
        let rows: Vec<ConnRow> = decode(&message).unwrap().map(|record| record.row()).collect();
        let row = |protocol, client: &str, state| ConnRow {
            worker: 3,
            protocol,
            client: client.parse().unwrap(),
            service_address: "203.0.113.10:80".parse().unwrap(),
            dest: "10.0.0.11:8080".parse().unwrap(),
            state,
            expires_ms: 1006,
            method: "dr",
        };
        assert_eq!(rows, [row("UDP", "192.0.2.7:4000", "UDP"), row("TCP", "192.0.2.8:4000", "SYN_RECV")]);
    }

    #[test]
    fn longer_records_are_read_and_torn_ones_refused() {
        let record = Record::new(0, &reported(1));
        let longer = [&[0, 66, 0, 0][..], record.as_bytes(), &[1, 2], record.as_bytes(), &[3, 4]].concat();
        assert!(decode(&longer).unwrap().eq([record, record]));
        let torn: [&[u8]; 4] = [&[], &[0, 64], &[0, 63, 0, 0], &longer[..longer.len() - 1]];
        torn.into_iter().for_each(|message| assert!(decode(message).is_none(), "{message:?}"));
    }
}

//! Capture files as ports: the worker over packets of a pcap file with the file's own time.
//!
//! A classic pcap file says nothing of interfaces, so the receiving port is told by the frame: the port whose MAC
//! address it was sent to, for group frames (ARP) the port whose network the sender is in. Frames for neither are
//! handed to the first port, where they are dropped and counted as on the wire. Between packets the worker is polled
//! so that timers and ARP retries run. Everything is deterministic: same rules and file, same output.

use std::io::{Read, Write};
use std::net::Ipv4Addr;
use std::time::Duration;

use pcap_file::pcap::{PcapHeader, PcapPacket, PcapReader, PcapWriter};
use pcap_file::{DataLink, Endianness, PcapError, TsResolution};
use thiserror::Error;

use super::PortIndex;
use super::mem::{MemBuf, MemIo};
use crate::limits::HOUSEKEEPING_NS;
use crate::route::Net;
use crate::wire::arp;
use crate::wire::ethernet::{self, Mac};
use crate::worker::Worker;

/// Polls between two packets at most, however far apart they are: timers move in steps of a thousandth of the gap.
const STEPS_PER_GAP: u64 = 1000;

/// One captured frame.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Frame {
    /// Time, nanoseconds since the epoch of the capture.
    pub time_ns: u64,
    /// The frame from the Ethernet header on.
    pub bytes: Vec<u8>,
}

/// One packet's way through the worker.
#[derive(Debug)]
pub struct Step<'a> {
    /// Number of the packet in the file, from 1.
    pub number: usize,
    /// The packet.
    pub frame: &'a Frame,
    /// Port it came in on.
    pub port: PortIndex,
    /// What went out in consequence, and since the packet before.
    pub sent: Vec<(PortIndex, Vec<u8>)>,
}

/// A capture cannot be read or written.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file's framing.
    #[error("not a readable pcap file (pcapng is not read: convert it with editcap -F pcap): {0}")]
    Format(#[from] PcapError),
    /// Frames of another medium.
    #[error("link type {0:?}, expected Ethernet")]
    LinkType(DataLink),
    /// The capture cut packets short.
    #[error("packet {number}: {captured} of {original} bytes captured; capture with -s 0")]
    Truncated {
        /// Number of the packet, from 1.
        number: usize,
        /// Bytes in the file.
        captured: usize,
        /// Bytes on the wire.
        original: usize,
    },
}

/// Reads every frame of a pcap file.
pub fn read(reader: impl Read) -> Result<Vec<Frame>, CaptureError> {
    let mut reader = PcapReader::new(reader)?;
    let link = reader.header().datalink;
    if link != DataLink::ETHERNET {
        return Err(CaptureError::LinkType(link));
    }
    let mut frames = Vec::new();
    while let Some(packet) = reader.next_packet() {
        let packet = packet?;
        let (captured, original) = (packet.data.len(), packet.orig_len as usize);
        if captured < original {
            return Err(CaptureError::Truncated { number: frames.len() + 1, captured, original });
        }
        let time_ns = u64::try_from(packet.timestamp.as_nanos()).unwrap_or(u64::MAX);
        frames.push(Frame { time_ns, bytes: packet.data.into_owned() });
    }
    Ok(frames)
}

/// Writes a pcap file with nanosecond time stamps.
pub fn write<'f>(
    writer: impl Write,
    frames: impl IntoIterator<Item = &'f Frame>,
) -> Result<(), CaptureError> {
    let header = PcapHeader {
        ts_resolution: TsResolution::NanoSecond,
        endianness: Endianness::Little,
        datalink: DataLink::ETHERNET,
        ..PcapHeader::default()
    };
    let mut writer = PcapWriter::with_header(writer, header)?;
    for frame in frames {
        let len = frame.bytes.len() as u32;
        writer.write_packet(&PcapPacket::new(Duration::from_nanos(frame.time_ns), len, &frame.bytes))?;
    }
    Ok(())
}

/// The port that would have received `frame`.
pub fn receiving_port(frame: &[u8], net: &Net) -> PortIndex {
    let Some(ether) = ethernet::Header::at(frame) else { return 0 };
    let by_mac = net.ports.iter().position(|p| Mac(p.facts.mac) == ether.dst());
    let by_sender = || {
        let sender = arp::Repr::parse(frame.get(ethernet::LEN..)?)?.sender_ip;
        net.route_on_link(Ipv4Addr::from_bits(sender)).map(|hop| usize::from(hop.port))
    };
    by_mac.or_else(by_sender).unwrap_or(0) as PortIndex
}

/// Runs `frames` through `worker` and hands `each` packet's consequences out. `settle_ns` of time pass after the last
/// packet. Returns the time at the end.
pub fn replay(
    worker: &mut Worker<MemBuf>,
    io: &mut MemIo,
    net: &Net,
    frames: &[Frame],
    settle_ns: u64,
    mut each: impl FnMut(&Worker<MemBuf>, Step<'_>),
) -> u64 {
    let mut now = frames.first().map_or(0, |f| f.time_ns);
    for (index, frame) in frames.iter().enumerate() {
        now = pass_time(worker, io, now, frame.time_ns);
        let port = receiving_port(&frame.bytes, net);
        io.inject(port, &frame.bytes);
        worker.poll(now, io);
        each(worker, Step { number: index + 1, frame, port, sent: io.drain() });
    }
    pass_time(worker, io, now, now + settle_ns)
}

/// Polls an idle worker from `now` on until `then`.
fn pass_time(worker: &mut Worker<MemBuf>, io: &mut MemIo, mut now: u64, then: u64) -> u64 {
    let step = (then.saturating_sub(now) / STEPS_PER_GAP).max(HOUSEKEEPING_NS);
    while now < then {
        worker.poll(now, io);
        now = then.min(now + step);
    }
    now
}

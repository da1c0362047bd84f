//! What crossed a link: `tcpdump` writes it, this reads it back.

use std::fs::{self, File};
use std::net::Ipv4Addr;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use pcap_file::pcap::PcapReader;
use rustix::process::Signal;

use super::{Host, Net, Process, wait_for};

/// An IPv4 packet as it was on the wire.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Packet {
    /// Source address.
    pub src: Ipv4Addr,
    /// Destination address.
    pub dst: Ipv4Addr,
    /// Time to live.
    pub ttl: u8,
    /// IP protocol number.
    pub protocol: u8,
    /// L4 source port, 0 for other protocols than TCP and UDP.
    pub src_port: u16,
    /// L4 destination port, 0 for other protocols than TCP and UDP.
    pub dst_port: u16,
    /// Length of the IP packet in bytes.
    pub length: u64,
}

/// A running capture of the IPv4 packets of one link.
#[derive(Debug)]
pub struct Capture {
    process: Process,
    file: PathBuf,
}

impl Capture {
    /// Starts it and waits until tcpdump listens. One capture at a time per host and device.
    pub fn start(net: &Net, host: &Host, device: &str) -> Capture {
        let file = net.dir().join(format!("{}-{device}.pcap", host.namespace));
        let log = file.with_extension("log");
        let mut command = host.command("tcpdump");
        command.args(["-n", "-U", "--immediate-mode", "-B", "16384", "-Z", "root", "-i", device, "-w"]);
        command.arg(&file).arg("ip").stdout(Stdio::null());
        command.stderr(File::create(&log).expect("a directory of our own"));
        let process = Process::start("tcpdump", &mut command);
        wait_for("tcpdump listens", Duration::from_secs(5), || {
            fs::read_to_string(&log).is_ok_and(|text| text.contains("listening on")).then_some(())
        });
        Capture { process, file }
    }

    /// Ends the capture and returns its packets in order.
    pub fn stop(mut self) -> Vec<Packet> {
        // What is still between the kernel's ring and tcpdump gets time to arrive.
        std::thread::sleep(Duration::from_millis(100));
        self.process.signal(Signal::INT);
        self.process.wait(Duration::from_secs(5));
        let mut reader = PcapReader::new(File::open(&self.file).expect("tcpdump wrote its file"))
            .expect("tcpdump wrote a whole header");
        let mut packets = Vec::new();
        while let Some(record) = reader.next_packet() {
            packets.extend(parse(&record.expect("tcpdump ended in order").data));
        }
        packets
    }
}

/// Reads an Ethernet frame that holds an IPv4 packet.
fn parse(frame: &[u8]) -> Option<Packet> {
    let ip = frame.get(14..).filter(|ip| ip.len() >= 20)?;
    let word = |at: usize| ip.get(at..at + 2).map_or(0, |bytes| u16::from_be_bytes([bytes[0], bytes[1]]));
    let address = |at: usize| Ipv4Addr::new(ip[at], ip[at + 1], ip[at + 2], ip[at + 3]);
    let l4 = usize::from(ip[0] & 15) * 4;
    let has_ports = matches!(ip[9], 6 | 17);
    Some(Packet {
        src: address(12),
        dst: address(16),
        ttl: ip[8],
        protocol: ip[9],
        src_port: if has_ports { word(l4) } else { 0 },
        dst_port: if has_ports { word(l4 + 2) } else { 0 },
        length: u64::from(word(2)),
    })
}

/// Number of packets and sum of their bytes.
pub fn total<'a>(packets: impl IntoIterator<Item = &'a Packet>) -> (u64, u64) {
    packets.into_iter().fold((0, 0), |(count, bytes), packet| (count + 1, bytes + packet.length))
}

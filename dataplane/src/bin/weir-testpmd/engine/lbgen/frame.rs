//! The frames of lbgen: 60 bytes of Ethernet, IPv4 without options, TCP or UDP.

use dataplane::wire::arp::{self, Repr};
use dataplane::wire::ethernet::Mac;
use dataplane::wire::{checksum, ipv4};

use crate::engine::lab::{BALANCER, CLIENTS, FLOWS_PER_CLIENT, ROUTER};
use crate::settings::{LbGenSettings, Traffic};

/// Bytes of a frame: Ethernet's 64 without the check sequence.
pub(super) const FRAME: usize = 60;
/// Bytes of Ethernet, IPv4 and TCP headers: less is in no frame that comes back.
pub(super) const LEAST: usize = 54;
/// Where things are in a frame without options.
pub(super) const IP: usize = 14;
pub(super) const PROTOCOL: usize = 23;
pub(super) const IP_CHECK: usize = 24;
pub(super) const SRC: usize = 26;
pub(super) const DST: usize = 30;
pub(super) const SPORT: usize = 34;
pub(super) const DPORT: usize = 36;
pub(super) const FLAGS: usize = 46;
pub(super) const TCP_CHECK: usize = 50;
pub(super) const UDP_CHECK: usize = 40;

pub(super) const FIN: u8 = 0x01;
pub(super) const SYN: u8 = 0x02;
pub(super) const RST: u8 = 0x04;
pub(super) const PSH: u8 = 0x08;
pub(super) const ACK: u8 = 0x10;

/// A frame of the clients without source and flags, and the sums of what is there.
pub(super) struct Template {
    frame: [u8; FRAME],
    ip_sum: u32,
    l4_sum: u32,
    tcp: bool,
}

impl Template {
    pub(super) fn new(settings: &LbGenSettings) -> Template {
        let tcp = settings.traffic != Traffic::Udp;
        let protocol = if tcp { ipv4::TCP } else { ipv4::UDP };
        let len: u16 = if tcp { 40 } else { (FRAME - IP) as u16 };
        let mut frame = [0; FRAME];
        frame[12..14].copy_from_slice(&[8, 0]);
        frame[IP] = 0x45;
        frame[IP + 2..IP + 4].copy_from_slice(&len.to_be_bytes());
        frame[IP + 6] = 0x40;
        (frame[IP + 8], frame[PROTOCOL]) = (64, protocol);
        frame[DST..DST + 4].copy_from_slice(&settings.service.ip().octets());
        frame[DPORT..DPORT + 2].copy_from_slice(&settings.service.port().to_be_bytes());
        if tcp {
            frame[FLAGS] = 0x50;
            frame[48..50].fill(0xff);
        } else {
            frame[38..40].copy_from_slice(&(len - 20).to_be_bytes());
        }
        let l4 = usize::from(len) + IP;
        Template {
            ip_sum: checksum::sum(&frame[IP..SPORT]).into(),
            l4_sum: u32::from(checksum::sum(&frame[DST..l4])) + u32::from(protocol) + u32::from(len - 20),
            frame,
            tcp,
        }
    }

    #[inline(always)]
    pub(super) fn write(&self, frame: &mut [u8; FRAME], flow: u32, first_port: u16, flags: u8) {
        let client = CLIENTS + flow / FLOWS_PER_CLIENT;
        let port = first_port + (flow % FLOWS_PER_CLIENT) as u16;
        *frame = self.frame;
        frame[SRC..SRC + 4].copy_from_slice(&client.to_be_bytes());
        frame[SPORT..SPORT + 2].copy_from_slice(&port.to_be_bytes());
        let address = (client >> 16) + (client & 0xffff);
        frame[IP_CHECK..IP_CHECK + 2].copy_from_slice(&(!fold(self.ip_sum + address)).to_be_bytes());
        let sum = fold(self.l4_sum + address + u32::from(port) + u32::from(flags));
        if self.tcp {
            frame[FLAGS + 1] = flags;
            frame[TCP_CHECK..TCP_CHECK + 2].copy_from_slice(&(!sum).to_be_bytes());
        } else {
            let check = checksum::udp_nonzero(!sum);
            frame[UDP_CHECK..UDP_CHECK + 2].copy_from_slice(&check.to_be_bytes());
        }
    }
}

/// MAC addresses, IP addresses and ports change places; no checksum changes.
pub(super) fn swap_ends(frame: &mut [u8]) {
    for (from, half) in [(0, 6), (SRC, 4), (SPORT, 2)] {
        let (first, second) = frame[from..from + 2 * half].split_at_mut(half);
        first.swap_with_slice(second);
    }
}

/// Back to where a frame came from, its IP ends as they are.
pub(super) fn readdress_back(frame: &mut [u8]) {
    let (first, second) = frame[..12].split_at_mut(6);
    first.swap_with_slice(second);
}

/// Changes TCP flags and the checksum with them.
pub(super) fn set_flags(frame: &mut [u8], flags: u8) {
    let old = be16(frame, FLAGS);
    let new = old & 0xff00 | u16::from(flags);
    let check = checksum::adjust(be16(frame, TCP_CHECK), old, new);
    frame[FLAGS + 1] = flags;
    frame[TCP_CHECK..TCP_CHECK + 2].copy_from_slice(&check.to_be_bytes());
}

/// Who has the balancer's address?
pub(super) fn ask(frame: &mut [u8; FRAME], own: Mac) {
    frame.fill(0);
    if let Some(whole) = frame.first_chunk_mut::<{ arp::FRAME_LEN }>() {
        Repr::request(own, ROUTER.to_bits(), BALANCER.to_bits()).emit_frame(Mac([0xff; 6]), whole);
    }
}

pub(super) fn be16(frame: &[u8], at: usize) -> u16 {
    u16::from_be_bytes([frame[at], frame[at + 1]])
}

pub(super) fn be32(frame: &[u8], at: usize) -> u32 {
    u32::from(be16(frame, at)) << 16 | u32::from(be16(frame, at + 2))
}

#[inline(always)]
fn fold(sum: u32) -> u16 {
    let sum = (sum & 0xffff) + (sum >> 16);
    (sum + (sum >> 16)) as u16
}

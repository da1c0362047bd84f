//! txonly and flowgen: UDP frames from a template, as testpmd builds them.
//!
//! txonly sends frames of `txpkts` bytes between the addresses of `--tx-ip`; flowgen frames of four bytes less (the
//! check sequence is not counted) from 10.254.0.0 to as many addresses from 10.253.0.0 on as there are flows. Its MAC
//! addresses are testpmd's fixed ones, but those of the link where `--eth-peer` names the peer.

use std::net::Ipv4Addr;
use std::sync::atomic::AtomicBool;

use dataplane::wire::{checksum, ipv4};
use dpdk_sys::free_bulk;

use super::{Lane, Packets, Plan, spin};

/// Bytes of the headers: Ethernet, IPv4, UDP.
const HEADERS: usize = 42;
const IP: usize = 14;
const IP_CHECK: usize = 24;
const IP_SRC: usize = 26;
const IP_DST: usize = 30;

/// flowgen's MAC addresses, to and from, IP addresses and ports.
const FLOWGEN_MACS: ([u8; 6], [u8; 6]) = ([0, 1, 2, 3, 4, 1], [0, 1, 2, 3, 4, 0]);
const FLOWGEN_SRC: u32 = u32::from_be_bytes([10, 254, 0, 0]);
const FLOWGEN_DST: u32 = u32::from_be_bytes([10, 253, 0, 0]);
const FLOWGEN_PORTS: (u16, u16) = (1000, 1001);

/// Bytes of the frame check sequence.
const CRC: usize = 4;

/// Sends without end.
pub fn tx_only<'p>(lanes: &mut [Lane<'p>], plan: &Plan<'p>, stop: &AtomicBool) {
    let mut sender = TxOnly::new(plan);
    spin(lanes, stop, |lane, burst| sender.burst(lane, burst, plan));
}

/// Sends the bursts that were asked for before a start.
pub fn tx_first<'p>(lanes: &mut [Lane<'p>], plan: &Plan<'p>) {
    let mut sender = TxOnly::new(plan);
    let mut burst = Packets::new();
    for _ in 0..plan.first {
        for lane in &mut *lanes {
            sender.burst(lane, &mut burst, plan);
        }
    }
}

/// Sends flows without end and frees what comes in.
pub fn flow_gen<'p>(lanes: &mut [Lane<'p>], plan: &Plan<'p>, stop: &AtomicBool) {
    let settings = &plan.settings;
    let flows = settings.flowgen_flows;
    let mut frame = Template::new(usize::from(settings.txpkts) - CRC, FLOWGEN_PORTS);
    let mut next = 0;
    spin(lanes, stop, |lane, burst| {
        if lane.receive(burst, settings.burst) > 0 {
            free_bulk(burst);
        }
        let named = settings.peers_given.get(usize::from(lane.stream.tx_port)) == Some(&true);
        let (dst, src) = if named { (lane.peer, lane.own) } else { FLOWGEN_MACS };
        frame.set_macs(dst, src);
        if plan.pool.alloc_bulk(burst, settings.burst.into()).is_err() {
            return;
        }
        for mbuf in burst.iter_mut() {
            frame.set_addresses(FLOWGEN_SRC, FLOWGEN_DST.wrapping_add(next));
            frame.write(mbuf);
            next = if next + 1 >= flows { 0 } else { next + 1 };
        }
        // Flows of packets that were not taken have their turn again.
        let dropped = lane.send(burst) as u32 % flows;
        next = (next + flows - dropped) % flows;
    });
}

struct TxOnly {
    frame: Template,
    varied: u8,
}

impl TxOnly {
    fn new(plan: &Plan<'_>) -> TxOnly {
        let settings = &plan.settings;
        let mut frame = Template::new(settings.txpkts.into(), settings.tx_udp);
        frame.set_addresses(settings.tx_ip.0.to_bits(), settings.tx_ip.1.to_bits());
        TxOnly { frame, varied: 0 }
    }

    #[inline(always)]
    fn burst<'p>(&mut self, lane: &mut Lane<'p>, burst: &mut Packets<'p>, plan: &Plan<'p>) {
        let settings = &plan.settings;
        if plan.pool.alloc_bulk(burst, settings.burst.into()).is_err() {
            return;
        }
        self.frame.set_macs(lane.peer, lane.own);
        for mbuf in burst.iter_mut() {
            if settings.multi_flow {
                let (_, dst) = settings.tx_ip;
                self.frame.set_addresses(varied(dst, self.varied, plan.core as u32), dst.to_bits());
                self.varied = self.varied.wrapping_add(1);
            }
            self.frame.write(mbuf);
        }
        lane.send(burst);
    }
}

/// The source address number `n` of core `core`: testpmd's bits, the second lowest byte counting.
fn varied(dst: Ipv4Addr, n: u8, core: u32) -> u32 {
    (dst.to_bits() | u32::from(n) << 8).wrapping_add(core + 1)
}

/// Headers of a UDP frame and its length.
struct Template {
    head: [u8; HEADERS],
    len: usize,
}

impl Template {
    fn new(len: usize, (sport, dport): (u16, u16)) -> Template {
        let mut head = [0; HEADERS];
        head[12..14].copy_from_slice(&[8, 0]);
        let ip_len = (len - IP) as u16;
        head[IP] = 0x45;
        head[IP + 2..IP + 4].copy_from_slice(&ip_len.to_be_bytes());
        (head[IP + 8], head[IP + 9]) = (64, ipv4::UDP);
        head[34..36].copy_from_slice(&sport.to_be_bytes());
        head[36..38].copy_from_slice(&dport.to_be_bytes());
        head[38..40].copy_from_slice(&(ip_len - 20).to_be_bytes());
        Template { head, len }
    }

    fn set_macs(&mut self, dst: [u8; 6], src: [u8; 6]) {
        self.head[..6].copy_from_slice(&dst);
        self.head[6..12].copy_from_slice(&src);
    }

    #[inline(always)]
    fn set_addresses(&mut self, src: u32, dst: u32) {
        self.head[IP_CHECK..IP_CHECK + 2].fill(0);
        self.head[IP_SRC..IP_SRC + 4].copy_from_slice(&src.to_be_bytes());
        self.head[IP_DST..IP_DST + 4].copy_from_slice(&dst.to_be_bytes());
        let check = checksum::check(&self.head[IP..IP + ipv4::LEN]);
        self.head[IP_CHECK..IP_CHECK + 2].copy_from_slice(&check.to_be_bytes());
    }

    /// Makes `mbuf` the frame. The bytes behind the headers are whatever the mbuf holds, as with testpmd.
    #[inline(always)]
    fn write(&self, mbuf: &mut dpdk_sys::Mbuf<'_>) {
        if mbuf.set_len(self.len).is_ok()
            && let Some(head) = mbuf.data_mut().first_chunk_mut::<HEADERS>()
        {
            *head = self.head;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use dataplane::io::Io;
    use dataplane::io::mem::MemIo;
    use dataplane::pipeline::parse::{Kind, parse};
    use dataplane::wire::ethernet::Mac;

    #[test]
    fn frames_are_valid_udp() {
        let mut template = Template::new(60, FLOWGEN_PORTS);
        template.set_macs([2; 6], [4; 6]);
        template.set_addresses(FLOWGEN_SRC, FLOWGEN_DST + 300);
        let mut frame = template.head.to_vec();
        frame.resize(60, 0);
        let mut io = MemIo::new(1, 1);
        assert!(io.inject(0, &frame));
        let mut burst = dataplane::io::Burst::new();
        io.rx(0, &mut burst);
        let meta = parse(&burst[0], Mac([2; 6]));
        assert_eq!((meta.kind, meta.ip_len, meta.ttl), (Kind::Flow, 46, 64));
        assert_eq!((meta.dst(), meta.key.dport), (Ipv4Addr::new(10, 253, 1, 44), 1001));
    }

    #[test]
    fn varied_sources_count_in_their_second_byte() {
        let dst = Ipv4Addr::new(198, 18, 0, 2);
        assert_eq!(Ipv4Addr::from_bits(varied(dst, 0, 0)), Ipv4Addr::new(198, 18, 0, 3));
        assert_eq!(Ipv4Addr::from_bits(varied(dst, 5, 1)), Ipv4Addr::new(198, 18, 5, 4));
    }
}

//! The engines that send on what they receive: io, mac, macswap, 5tswap; and rxonly, which does not.

use std::sync::atomic::AtomicBool;

use dataplane::wire::{ethernet, ipv4};
use dpdk_sys::free_bulk;

use super::{Lane, spin};
use crate::settings::Mode;

/// EtherType of IPv6.
const IPV6: u16 = 0x86dd;
/// Bytes of an IPv6 header, and where its next header and addresses are.
const IPV6_LEN: usize = 40;
const IPV6_NEXT: usize = 6;
const IPV6_SRC: usize = 8;
/// Where the source addresses of IPv4 are.
const IPV4_SRC: usize = 12;

/// Forwards in one of these modes, bursts of `limit` packets.
pub fn run(mode: Mode, lanes: &mut [Lane<'_>], limit: u16, stop: &AtomicBool) {
    match mode {
        Mode::RxOnly => spin(lanes, stop, |lane, burst| {
            if lane.receive(burst, limit) > 0 {
                free_bulk(burst);
            }
        }),
        Mode::Mac => each(lanes, limit, stop, |lane, frame| readdress(frame, lane.peer, lane.own)),
        Mode::MacSwap => each(lanes, limit, stop, |_, frame| swap_macs(frame)),
        Mode::FiveTupleSwap => each(lanes, limit, stop, |_, frame| swap_five(frame)),
        _ => each(lanes, limit, stop, |_, _| {}),
    }
}

/// The lane's addresses as a frame needs them.
#[derive(Clone, Copy)]
struct Ends {
    own: [u8; 6],
    peer: [u8; 6],
}

#[inline(always)]
fn each(lanes: &mut [Lane<'_>], limit: u16, stop: &AtomicBool, change: impl Fn(Ends, &mut [u8])) {
    spin(lanes, stop, |lane, burst| {
        if lane.receive(burst, limit) == 0 {
            return;
        }
        let ends = Ends { own: lane.own, peer: lane.peer };
        for mbuf in burst.iter_mut() {
            change(ends, mbuf.data_mut());
        }
        lane.send(burst);
    });
}

/// To `dst`, from `src`.
#[inline(always)]
fn readdress(frame: &mut [u8], dst: [u8; 6], src: [u8; 6]) {
    if let Some(head) = frame.first_chunk_mut::<12>() {
        head[..6].copy_from_slice(&dst);
        head[6..].copy_from_slice(&src);
    }
}

/// Destination and source MAC address change places.
#[inline(always)]
fn swap_macs(frame: &mut [u8]) {
    if let Some(head) = frame.first_chunk_mut::<12>() {
        let (dst, src) = head.split_at_mut(6);
        dst.swap_with_slice(src);
    }
}

/// MAC addresses, IP addresses and TCP or UDP ports change places. Every checksum stays right.
#[inline(always)]
fn swap_five(frame: &mut [u8]) {
    swap_macs(frame);
    let Some(payload) = ethernet::payload(frame) else { return };
    let Some(packet) = frame.get_mut(payload.offset..) else { return };
    let (protocol, header) = match payload.ethertype {
        ethernet::IPV4 => {
            let Some(ip) = packet.first_chunk::<{ ipv4::LEN }>() else { return };
            let (protocol, header) = (ip[9], usize::from(ip[0] & 15) * 4);
            swap_halves(&mut packet[IPV4_SRC..ipv4::LEN]);
            (protocol, header)
        }
        IPV6 => {
            let Some(ip) = packet.first_chunk::<IPV6_LEN>() else { return };
            let protocol = ip[IPV6_NEXT];
            swap_halves(&mut packet[IPV6_SRC..IPV6_LEN]);
            (protocol, IPV6_LEN)
        }
        _ => return,
    };
    if matches!(protocol, ipv4::TCP | ipv4::UDP)
        && let Some(ports) = packet.get_mut(header..header + 4)
    {
        swap_halves(ports);
    }
}

#[inline(always)]
fn swap_halves(bytes: &mut [u8]) {
    let (first, second) = bytes.split_at_mut(bytes.len() / 2);
    first.swap_with_slice(second);
}

#[cfg(test)]
mod tests {
    use super::*;

    fn frame(ethertype: [u8; 2], l3: &[u8]) -> Vec<u8> {
        [&[1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2][..], &ethertype, l3, &[0, 7, 0, 8, 99]].concat()
    }

    fn ip4(protocol: u8) -> Vec<u8> {
        let mut header = vec![0x45; 20];
        header[9] = protocol;
        header[12..20].copy_from_slice(&[10, 0, 0, 1, 10, 0, 0, 2]);
        header
    }

    #[test]
    fn five_tuples_are_swapped_and_nothing_else() {
        for (protocol, ports) in [(6, [0, 8, 0, 7]), (17, [0, 8, 0, 7]), (1, [0, 7, 0, 8])] {
            let mut bytes = frame([8, 0], &ip4(protocol));
            swap_five(&mut bytes);
            assert_eq!(bytes[..12], [2, 2, 2, 2, 2, 2, 1, 1, 1, 1, 1, 1]);
            assert_eq!(bytes[26..34], [10, 0, 0, 2, 10, 0, 0, 1], "protocol {protocol}");
            assert_eq!((&bytes[34..38], bytes[38]), (&ports[..], 99), "protocol {protocol}");
        }
        let mut six = vec![0; 40];
        six[6] = 17;
        (six[8], six[24]) = (0xfd, 0xfe);
        let mut bytes = frame([0x86, 0xdd], &six);
        swap_five(&mut bytes);
        assert_eq!((bytes[22], bytes[38], &bytes[54..58]), (0xfe, 0xfd, &[0, 8, 0, 7][..]));
    }

    #[test]
    fn short_and_other_frames_keep_what_they_have() {
        let whole = frame([8, 0], &ip4(17));
        for len in 0..38 {
            let mut bytes = whole[..len].to_vec();
            swap_five(&mut bytes);
            assert_eq!(bytes.len(), len);
        }
        let mut arp = frame([8, 6], &[3; 28]);
        let before = arp.clone();
        swap_five(&mut arp);
        assert_eq!(arp[12..], before[12..]);
        let mut bytes = whole;
        readdress(&mut bytes, [9; 6], [8; 6]);
        assert_eq!(bytes[..12], [9, 9, 9, 9, 9, 9, 8, 8, 8, 8, 8, 8]);
    }
}

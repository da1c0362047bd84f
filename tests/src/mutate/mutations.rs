//! What is done to a frame: one row each, so that a new idea is a row and a few lines.

#![allow(clippy::ptr_arg, reason = "all mutations are functions of one type")]

use super::{FRAME_MAX, Rng};
use crate::packets::{BROADCAST, DIP, P0, P1_MAC, VIP};

/// Whether checksums are made right afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Fix {
    Always,
    /// Every other time.
    Maybe,
    Never,
}

/// One way to spoil a frame.
pub struct Mutation {
    /// For the table of counts.
    pub name: &'static str,
    /// How often, relative to the others.
    pub weight: usize,
    /// Checksums afterwards.
    pub fix: Fix,
    /// Changes the frame.
    pub apply: fn(&mut Vec<u8>, &mut Rng),
}

/// All of them.
#[rustfmt::skip]
pub const MUTATIONS: &[Mutation] = &[
    Mutation { name: "cut anywhere",            weight: 6, fix: Fix::Never,  apply: cut },
    Mutation { name: "cut, length corrected",   weight: 6, fix: Fix::Always, apply: cut_and_say_so },
    Mutation { name: "header length lies",      weight: 3, fix: Fix::Maybe,  apply: |f, r| set(f, 14, 0x40 | r.byte() & 0x0f) },
    Mutation { name: "version",                 weight: 1, fix: Fix::Always, apply: |f, r| set(f, 14, r.byte()) },
    Mutation { name: "type of service",         weight: 1, fix: Fix::Always, apply: |f, r| set(f, 15, r.byte()) },
    Mutation { name: "total length lies",       weight: 4, fix: Fix::Maybe,  apply: total_length },
    Mutation { name: "fragment",                weight: 3, fix: Fix::Always, apply: fragment },
    Mutation { name: "TTL 0 or 1",              weight: 4, fix: Fix::Always, apply: |f, r| set(f, 22, r.byte() & 1) },
    Mutation { name: "any TTL",                 weight: 1, fix: Fix::Always, apply: |f, r| set(f, 22, r.byte()) },
    Mutation { name: "protocol",                weight: 2, fix: Fix::Maybe,  apply: protocol },
    Mutation { name: "IPv4 checksum wrong",     weight: 3, fix: Fix::Never,  apply: |f, r| flip(f, 24 + r.below(2), r) },
    Mutation { name: "source address",          weight: 4, fix: Fix::Maybe,  apply: |f, r| address(f, 26, r) },
    Mutation { name: "destination address",     weight: 4, fix: Fix::Maybe,  apply: |f, r| address(f, 30, r) },
    Mutation { name: "IPv4 options",            weight: 5, fix: Fix::Always, apply: options },
    Mutation { name: "TCP data offset lies",    weight: 3, fix: Fix::Maybe,  apply: |f, r| at_l4(f, 12, r) },
    Mutation { name: "TCP flags",               weight: 6, fix: Fix::Always, apply: |f, r| at_l4(f, 13, r) },
    Mutation { name: "UDP length lies",         weight: 3, fix: Fix::Maybe,  apply: |f, r| at_l4(f, 4 + r.below(2), r) },
    Mutation { name: "L4 checksum wrong",       weight: 4, fix: Fix::Never,  apply: wrong_l4_check },
    Mutation { name: "L4 checksum zero",        weight: 3, fix: Fix::Never,  apply: zero_l4_check },
    Mutation { name: "ports",                   weight: 6, fix: Fix::Maybe,  apply: ports },
    Mutation { name: "ICMP type or code",       weight: 2, fix: Fix::Maybe,  apply: |f, r| at_l4(f, r.below(2), r) },
    Mutation { name: "destination MAC",         weight: 3, fix: Fix::Never,  apply: destination_mac },
    Mutation { name: "source MAC",              weight: 1, fix: Fix::Never,  apply: |f, r| flip(f, 6 + r.below(6), r) },
    Mutation { name: "VLAN tag",                weight: 2, fix: Fix::Never,  apply: vlan },
    Mutation { name: "EtherType",               weight: 2, fix: Fix::Never,  apply: ethertype },
    Mutation { name: "bytes flipped",           weight: 8, fix: Fix::Maybe,  apply: flips },
    Mutation { name: "bits flipped",            weight: 6, fix: Fix::Maybe,  apply: bits },
    Mutation { name: "block of noise",          weight: 3, fix: Fix::Maybe,  apply: noise },
    Mutation { name: "trailing bytes",          weight: 2, fix: Fix::Never,  apply: trailing },
    Mutation { name: "long",                    weight: 5, fix: Fix::Always, apply: grow },
];

fn set(frame: &mut [u8], at: usize, value: u8) {
    if let Some(byte) = frame.get_mut(at) {
        *byte = value;
    }
}

fn flip(frame: &mut [u8], at: usize, rng: &mut Rng) {
    if let Some(byte) = frame.get_mut(at) {
        *byte ^= rng.byte() | 1;
    }
}

/// Where the IPv4 header says that it ends.
fn l4(frame: &[u8]) -> usize {
    14 + frame.get(14).map_or(20, |byte| usize::from(byte & 0x0f) * 4)
}

fn at_l4(frame: &mut [u8], offset: usize, rng: &mut Rng) {
    let at = l4(frame) + offset;
    set(frame, at, rng.byte());
}

fn set_total_len(frame: &mut [u8], len: usize) {
    if let Some(bytes) = frame.get_mut(16..18) {
        bytes.copy_from_slice(&(len as u16).to_be_bytes());
    }
}

fn cut(frame: &mut Vec<u8>, rng: &mut Rng) {
    frame.truncate(rng.below(frame.len() + 1));
}

fn cut_and_say_so(frame: &mut Vec<u8>, rng: &mut Rng) {
    // Near the end of the L4 header more often than elsewhere: the interesting places are there.
    let end = if rng.one_in(2) { 80.min(frame.len() + 1) } else { frame.len() + 1 };
    frame.truncate(rng.below(end));
    let len = frame.len().saturating_sub(14);
    set_total_len(frame, len);
}

fn total_length(frame: &mut Vec<u8>, rng: &mut Rng) {
    let true_len = frame.len().saturating_sub(14);
    let len = match rng.below(4) {
        0 => rng.below(0x1_0000),
        1 => rng.below(21),
        2 => true_len + 1 + rng.below(8),
        _ => true_len.saturating_sub(1 + rng.below(8)),
    };
    set_total_len(frame, len);
}

fn fragment(frame: &mut Vec<u8>, rng: &mut Rng) {
    let word = match rng.below(3) {
        0 => 0x2000,
        1 => rng.word() & 0x1fff | 1,
        _ => rng.word(),
    };
    if let Some(bytes) = frame.get_mut(20..22) {
        bytes.copy_from_slice(&word.to_be_bytes());
    }
}

fn protocol(frame: &mut Vec<u8>, rng: &mut Rng) {
    let any = rng.byte();
    set(frame, 23, *rng.pick(&[1, 6, 17, 4, 41, 47, 132, any]));
}

/// Addresses that are somebody's: ours, nobody's, everybody's.
fn address(frame: &mut Vec<u8>, at: usize, rng: &mut Rng) {
    let choices = [
        VIP.octets(),
        P0.octets(),
        DIP.octets(),
        [127, 0, 0, 1],
        [224, 0, 0, 5],
        [255, 255, 255, 255],
        [0, 0, 0, 0],
        [10, 0, 0, 255],
        [10, 0, 0, rng.byte()],
        [192, 88, 99, rng.byte()],
        [rng.byte(), rng.byte(), rng.byte(), rng.byte()],
    ];
    if let Some(bytes) = frame.get_mut(at..).and_then(<[u8]>::first_chunk_mut) {
        *bytes = *rng.pick(&choices);
    }
}

fn options(frame: &mut Vec<u8>, rng: &mut Rng) {
    if frame.len() < 34 || frame[14] & 0x0f != 5 {
        return;
    }
    let any = [rng.byte(), rng.byte(), rng.byte(), rng.byte()];
    let choices: [&[u8]; 9] = [
        &[131, 7, 4, 10, 0, 0, 1, 0],               // loose source route
        &[137, 11, 4, 10, 0, 0, 1, 10, 0, 0, 2, 0], // strict source route
        &[1, 1, 131, 3, 4, 0, 0, 0],                // source route behind padding
        &[7, 7, 4, 0, 0, 0, 0, 0],                  // record route
        &[1, 1, 1, 0],                              // padding
        &[68, 0, 0, 0],                             // of no length
        &[68, 200, 5, 0],                           // longer than the header
        &[148, 4, 0, 0],                            // router alert
        &any,
    ];
    let options = *rng.pick(&choices);
    frame.splice(34..34, options.iter().copied());
    frame[14] += (options.len() / 4) as u8;
    let len = frame.len() - 14;
    set_total_len(frame, len);
}

/// Offset of the L4 checksum.
fn check_at(frame: &[u8]) -> usize {
    let offset = match frame.get(23) {
        Some(6) => 16,
        Some(17) => 6,
        _ => 2,
    };
    l4(frame) + offset
}

fn wrong_l4_check(frame: &mut Vec<u8>, rng: &mut Rng) {
    let at = check_at(frame) + rng.below(2);
    flip(frame, at, rng);
}

fn zero_l4_check(frame: &mut Vec<u8>, _: &mut Rng) {
    let at = check_at(frame);
    set(frame, at, 0);
    set(frame, at + 1, 0);
}

fn ports(frame: &mut Vec<u8>, rng: &mut Rng) {
    let at = l4(frame) + 2 * rng.below(2);
    let any = rng.word();
    let port = *rng.pick(&[0, 20, 53, 80, 81, 90, 91, 514, 8080, 0xffff, any]);
    if let Some(bytes) = frame.get_mut(at..at + 2) {
        bytes.copy_from_slice(&port.to_be_bytes());
    }
}

fn destination_mac(frame: &mut Vec<u8>, rng: &mut Rng) {
    let any = [rng.byte(), rng.byte(), rng.byte(), rng.byte(), rng.byte(), rng.byte()];
    let choices = [BROADCAST, [1, 0, 0x5e, 0, 0, 5], [0; 6], P1_MAC, any];
    if let Some(bytes) = frame.first_chunk_mut() {
        *bytes = *rng.pick(&choices);
    }
}

fn vlan(frame: &mut Vec<u8>, rng: &mut Rng) {
    if frame.len() >= 14 {
        let [a, b] = rng.word().to_be_bytes();
        frame.splice(12..12, [0x81, 0x00, a, b]);
    }
}

fn ethertype(frame: &mut Vec<u8>, rng: &mut Rng) {
    let any = rng.word();
    let kind = *rng.pick(&[0x86dd_u16, 0x0806, 0x0800, 0x8847, 0x88cc, 46, any]);
    if let Some(bytes) = frame.get_mut(12..14) {
        bytes.copy_from_slice(&kind.to_be_bytes());
    }
}

fn flips(frame: &mut Vec<u8>, rng: &mut Rng) {
    for _ in 0..1 + rng.below(4) {
        let at = rng.below(frame.len() + 1);
        flip(frame, at, rng);
    }
}

/// In the headers, where they matter.
fn bits(frame: &mut Vec<u8>, rng: &mut Rng) {
    let end = frame.len().min(60);
    for _ in 0..1 + rng.below(3) {
        let at = rng.below(end + 1);
        if let Some(byte) = frame.get_mut(at) {
            *byte ^= 1 << rng.below(8);
        }
    }
}

fn noise(frame: &mut Vec<u8>, rng: &mut Rng) {
    let from = rng.below(frame.len() + 1);
    let to = (from + 1 + rng.below(24)).min(frame.len());
    frame[from..to].iter_mut().for_each(|byte| *byte = rng.byte());
}

fn trailing(frame: &mut Vec<u8>, rng: &mut Rng) {
    let len = frame.len() + 1 + rng.below(64);
    frame.resize(len.min(FRAME_MAX), rng.byte());
}

/// Longer than some link's MTU, with and without don't-fragment.
fn grow(frame: &mut Vec<u8>, rng: &mut Rng) {
    if frame.len() < 34 || frame[12..14] != [8, 0] {
        return;
    }
    let len = 600 + rng.below(FRAME_MAX - 600 + 1);
    frame.resize(len.max(frame.len()), 0x77);
    let total_len = frame.len() - 14;
    set_total_len(frame, total_len);
    set(frame, 20, if rng.one_in(2) { 0x40 } else { 0 });
    if frame[23] == 17 {
        let at = l4(frame) + 4;
        let len = (14 + total_len).saturating_sub(l4(frame)) as u16;
        if let Some(bytes) = frame.get_mut(at..at + 2) {
            bytes.copy_from_slice(&len.to_be_bytes());
        }
    }
}

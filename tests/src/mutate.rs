//! Valid traffic and what can become of it on the wire, made fast enough for millions of frames.
//!
//! [`traffic`] has the correct frames of some hundred clients, their servers and the hosts around them,
//! [`mutations`] the table of what is done to a frame, [`scenario`] the rules and faults under which all that
//! arrives. [`Source`] puts frames together; the same seed gives the same frames. Nothing here shares code with the
//! balancer.

pub mod mutations;
pub mod scenario;
pub mod traffic;

use crate::packets::ones_sum;
use mutations::{Fix, MUTATIONS};
use traffic::Base;

/// Longest frame made, bytes: what a memory buffer holds.
pub const FRAME_MAX: usize = 2048;

/// Of so many frames one is left as it is.
const UNTOUCHED: usize = 3;

/// Of so many mutated frames one is mutated a second time.
const TWICE: usize = 4;

/// A seeded generator of random numbers: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016).
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// From a seed; the seed 0 counts as 1.
    pub fn new(seed: u64) -> Self {
        Self(seed.max(1))
    }

    /// 64 random bits.
    pub fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is at most 2^32.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.bits() >> 32) * end as u64) >> 32) as usize
    }

    /// True once in so many calls.
    pub fn one_in(&mut self, calls: usize) -> bool {
        self.below(calls) == 0
    }

    /// Any of them.
    pub fn pick<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }

    /// Any byte.
    pub fn byte(&mut self) -> u8 {
        (self.bits() >> 56) as u8
    }

    /// Any two bytes.
    pub fn word(&mut self) -> u16 {
        (self.bits() >> 48) as u16
    }
}

/// Where frames come from.
pub struct Source {
    rng: Rng,
    bases: Vec<Base>,
    /// Each mutation as often as it weighs.
    urn: Vec<usize>,
    frame: Vec<u8>,
    /// How often each mutation of [`MUTATIONS`] was done.
    pub done: Vec<u64>,
    /// Frames left as they were.
    pub untouched: u64,
}

impl Source {
    /// Frames of this seed.
    pub fn new(seed: u64) -> Self {
        let urn =
            MUTATIONS.iter().enumerate().flat_map(|(at, m)| std::iter::repeat_n(at, m.weight)).collect();
        Self {
            rng: Rng::new(seed),
            bases: traffic::bases(),
            urn,
            frame: Vec::with_capacity(FRAME_MAX),
            done: vec![0; MUTATIONS.len()],
            untouched: 0,
        }
    }

    /// The next frame and the port it arrives on. Its IPv4 identification is `id`, unless a mutation hit that.
    pub fn next_frame(&mut self, id: u16) -> (u8, &[u8]) {
        let rng = &mut self.rng;
        let base = rng.pick(&self.bases);
        base.write(rng, id, &mut self.frame);
        if rng.one_in(UNTOUCHED) {
            self.untouched += 1;
            return (base.port, &self.frame);
        }
        let times = if rng.one_in(TWICE) { 2 } else { 1 };
        for _ in 0..times {
            let at = *rng.pick(&self.urn);
            let mutation = &MUTATIONS[at];
            (mutation.apply)(&mut self.frame, rng);
            self.frame.truncate(FRAME_MAX);
            self.done[at] += 1;
            if mutation.fix == Fix::Always || mutation.fix == Fix::Maybe && rng.one_in(2) {
                fix(&mut self.frame);
            }
        }
        (base.port, &self.frame)
    }
}

/// Makes the checksums of an IPv4 frame right, as far as its lengths allow. A UDP datagram without one keeps none.
pub fn fix(frame: &mut [u8]) {
    let Some((ether, packet)) = frame.split_at_mut_checked(14) else { return };
    if ether[12..14] != [8, 0] || packet.len() < 20 {
        return;
    }
    let header_len = usize::from(packet[0] & 0x0f) * 4;
    if header_len < 20 || header_len > packet.len() {
        return;
    }
    set_check(packet, 10, |packet| !ones_sum(&[&packet[..header_len]]));

    let total_len = usize::from(u16::from_be_bytes([packet[2], packet[3]]));
    let whole = u16::from_be_bytes([packet[6], packet[7]]) & 0x3fff == 0;
    if !whole || total_len < header_len || total_len > packet.len() {
        return;
    }
    let (header, segment) = packet[..total_len].split_at_mut(header_len);
    let protocol = header[9];
    let [a, b] = (segment.len() as u16).to_be_bytes();
    let addresses: [u8; 8] = std::array::from_fn(|i| header[12 + i]);
    let pseudo = |segment: &[u8]| !ones_sum(&[&addresses, &[0, protocol, a, b], segment]);
    match protocol {
        1 if segment.len() >= 8 => set_check(segment, 2, |segment| !ones_sum(&[segment])),
        6 if segment.len() >= 20 => set_check(segment, 16, pseudo),
        17 if segment.len() >= 8 && segment[6..8] != [0, 0] => {
            set_check(segment, 6, |segment| match pseudo(segment) {
                0 => 0xffff,
                check => check,
            });
        }
        _ => {}
    }
}

fn set_check(bytes: &mut [u8], at: usize, check: impl FnOnce(&[u8]) -> u16) {
    bytes[at..at + 2].fill(0);
    let check = check(bytes);
    bytes[at..at + 2].copy_from_slice(&check.to_be_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::check;

    #[test]
    fn every_base_is_valid() {
        let mut rng = Rng::new(1);
        let mut frame = Vec::new();
        for base in traffic::bases() {
            for id in 0..100 {
                base.write(&mut rng, id, &mut frame);
                check::valid(&frame);
            }
        }
    }

    #[test]
    fn the_same_seed_gives_the_same_frames() {
        let (mut a, mut b, mut c) = (Source::new(7), Source::new(7), Source::new(8));
        let mut different = 0;
        for id in 0..1000 {
            let frame = a.next_frame(id);
            assert_eq!(frame, b.next_frame(id));
            different += usize::from(frame != c.next_frame(id));
        }
        assert!(different > 900);
    }

    /// No mutation is without effect, and none makes a frame that no buffer holds.
    #[test]
    fn every_mutation_changes_most_frames() {
        let mut rng = Rng::new(3);
        let (mut before, mut after) = (Vec::new(), Vec::new());
        for mutation in MUTATIONS {
            let mut changed = 0;
            for base in traffic::bases() {
                base.write(&mut rng, 1, &mut before);
                after.clone_from(&before);
                (mutation.apply)(&mut after, &mut rng);
                changed += usize::from(before != after);
                assert!(after.len() <= FRAME_MAX, "{}", mutation.name);
            }
            assert!(changed * 8 > traffic::bases().len(), "{}: {changed}", mutation.name);
        }
    }
}

//! Inputs near those that are known: what is done to bytes, and to lines of text.

/// A seeded generator of random numbers: xorshift64* (Vigna, "An experimental exploration of Marsaglia's xorshift
/// generators, scrambled", 2016).
pub struct Rng(u64);

impl Rng {
    /// From a seed that is not 0.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    fn bits(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    /// A number below `end`, which is not 0.
    pub fn below(&mut self, end: usize) -> usize {
        (((self.bits() >> 32) * end as u64) >> 32) as usize
    }

    fn one_of<'a, T>(&mut self, of: &'a [T]) -> &'a T {
        &of[self.below(of.len())]
    }
}

/// Longest input made, bytes: longer than the longest legal datagram.
const LENGTH_MAX: usize = 20 * 1024;
/// Values at which code changes its mind.
const NUMBERS: [u32; 20] = [
    0,
    1,
    2,
    3,
    4,
    5,
    7,
    8,
    10,
    15,
    16,
    17,
    20,
    0x7f,
    0x80,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX,
];

/// One to four changes to a copy of `input`; `others` are what it may be mixed with, `words` what text is made of.
pub fn mutate(input: &[u8], others: &[Vec<u8>], words: &[Vec<u8>], rng: &mut Rng) -> Vec<u8> {
    let mut bytes = input.to_vec();
    for _ in 0..=rng.below(4) {
        if words.is_empty() || rng.below(4) == 0 {
            binary(&mut bytes, others, rng)
        } else {
            text(&mut bytes, words, rng)
        }
    }
    bytes.truncate(LENGTH_MAX);
    bytes
}

fn binary(bytes: &mut Vec<u8>, others: &[Vec<u8>], rng: &mut Rng) {
    let length = bytes.len();
    match rng.below(11) {
        0 if length > 0 => {
            let at = rng.below(length);
            bytes[at] ^= 1 << rng.below(8);
        }
        1 if length > 0 => {
            let at = rng.below(length);
            bytes[at] = *rng.one_of(&NUMBERS) as u8;
        }
        // Lengths and numbers are aligned.
        2 | 3 if length >= 4 => {
            let at = rng.below(length / 4) * 4;
            let value = rng.one_of(&NUMBERS).to_ne_bytes();
            bytes[at..at + 4].copy_from_slice(&value);
        }
        4 | 5 if length >= 2 => {
            let at = rng.below(length / 2) * 2;
            let value = (*rng.one_of(&NUMBERS) as u16).to_ne_bytes();
            bytes[at..at + 2].copy_from_slice(&value);
        }
        6 if length > 0 => bytes.truncate(rng.below(length)),
        7 => {
            let times = if rng.below(8) == 0 { 70 } else { 1 + rng.below(3) };
            let copy = rng.one_of(others).clone();
            (0..times).for_each(|_| bytes.extend_from_slice(&copy));
        }
        8 if length > 0 => {
            let (from, to) = span(length, rng);
            bytes.drain(from..to);
        }
        9 if length > 0 => {
            let (from, to) = span(length, rng);
            let copy = bytes[from..to].to_vec();
            bytes.splice(from..from, copy);
        }
        _ => {
            // The front of this, the back of another.
            let other = rng.one_of(others);
            let (keep, from) = (rng.below(length + 1), rng.below(other.len() + 1));
            bytes.truncate(keep);
            bytes.extend_from_slice(&other[from..]);
        }
    }
}

fn span(length: usize, rng: &mut Rng) -> (usize, usize) {
    let from = rng.below(length);
    (from, from + 1 + rng.below((length - from).min(64)))
}

/// A word is put in, taken out or exchanged.
fn text(bytes: &mut Vec<u8>, words: &[Vec<u8>], rng: &mut Rng) {
    let gaps: Vec<usize> =
        bytes.iter().enumerate().filter(|(_, byte)| b" \n=\"".contains(byte)).map(|(at, _)| at).collect();
    let word = rng.one_of(words).clone();
    let Some(&from) = gaps.get(rng.below(gaps.len() + 1)) else {
        bytes.splice(0..0, word);
        return;
    };
    let to = gaps.iter().copied().find(|at| *at > from).unwrap_or(bytes.len());
    match rng.below(4) {
        0 => drop(bytes.drain(from..to)),
        1 => drop(bytes.splice(from + 1..to, word)),
        2 => drop(bytes.splice(from..from, [b" ", &word[..]].concat())),
        _ => drop(bytes.splice(from..from, [b"\n", &word[..]].concat())),
    }
}

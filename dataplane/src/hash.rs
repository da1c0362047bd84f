//! The keyed hash of a flow.
//!
//! A connection is found by the four addresses and ports of the packet and its protocol, all of
//! which a stranger chooses. The hash is therefore keyed, with two random 64-bit key halves drawn
//! when the daemon starts: by AES rounds where the processor has them ([`dpdk_sys::AesHash`], a
//! burst in one call), else by SipHash-1-3, the variant hash tables use against chosen keys
//! (Aumasson and Bernstein 2012; one round a word, three to finish). A flow has 13 significant
//! bytes, which is exactly one full word and one last word of SipHash, so that the whole function is
//! five rounds without a loop or a branch.
//!
//! Runs on the worker that owns the table, once a packet and direction; holds no state but the key.

use dpdk_sys::AesHash;

/// A flow as one packet shows it: source, destination, protocol.
///
/// Addresses and ports are the numbers on the wire read as big-endian integers (192.0.2.1 is
/// `0xc000_0201`). A request and its reply are two different keys.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct FlowKey {
    /// Source IPv4 address.
    pub src: u32,
    /// Destination IPv4 address.
    pub dst: u32,
    /// Source TCP or UDP port.
    pub sport: u16,
    /// Destination TCP or UDP port.
    pub dport: u16,
    /// IP protocol number.
    pub proto: u8,
}

impl FlowKey {
    /// The 13 significant bytes as SipHash's words: the last one ends in the length.
    #[inline(always)]
    pub fn words(&self) -> [u64; 2] {
        [
            u64::from(self.src) | u64::from(self.dst) << 32,
            u64::from(self.sport)
                | u64::from(self.dport) << 16
                | u64::from(self.proto) << 32
                | FLOW_BYTES << 56,
        ]
    }

    fn from_words([first, last]: [u64; 2]) -> Self {
        FlowKey {
            src: first as u32,
            dst: (first >> 32) as u32,
            sport: last as u16,
            dport: (last >> 16) as u16,
            proto: (last >> 32) as u8,
        }
    }
}

/// Hashes a flow. The table is generic over it, so that its tests can force collisions.
pub trait HashFlow {
    /// 64 well-mixed bits of `key`; both halves are used.
    fn hash(&self, key: &FlowKey) -> u64;

    /// The hashes of a burst's flows, given as [`FlowKey::words`], each in the same place of `hashes`. Hot.
    #[inline(always)]
    fn hash_burst(&self, words: &[[u64; 2]], hashes: &mut [u64]) {
        for (words, hash) in words.iter().zip(hashes) {
            *hash = self.hash(&FlowKey::from_words(*words));
        }
    }
}

/// Bytes of a flow that differ between flows: two addresses, two ports, the protocol.
const FLOW_BYTES: u64 = 4 + 4 + 2 + 2 + 1;

/// The hash of a [`FlowKey`] under a 128-bit key.
#[derive(Clone, Copy)]
pub struct FlowHasher(Kind);

#[derive(Clone, Copy)]
enum Kind {
    Aes(AesHash),
    Sip { k0: u64, k1: u64 },
}

impl FlowHasher {
    /// The hasher of the key halves `k0` and `k1`; both must be random and secret. AES rounds where the processor has
    /// them; their round keys are SipHash outputs under the key.
    pub fn new(k0: u64, k1: u64) -> Self {
        let word = |n: u64| sip_1_3(k0, k1, [n, FLOW_BYTES << 56]);
        let keys = std::array::from_fn(|round| [word(2 * round as u64), word(2 * round as u64 + 1)]);
        AesHash::new(keys).map_or(Self::portable(k0, k1), |aes| FlowHasher(Kind::Aes(aes)))
    }

    /// SipHash-1-3 on any processor.
    pub const fn portable(k0: u64, k1: u64) -> Self {
        FlowHasher(Kind::Sip { k0, k1 })
    }
}

impl HashFlow for FlowHasher {
    #[inline(always)]
    fn hash(&self, key: &FlowKey) -> u64 {
        match &self.0 {
            Kind::Aes(aes) => aes.hash(key.words()),
            Kind::Sip { k0, k1 } => sip_1_3(*k0, *k1, key.words()),
        }
    }

    #[inline(always)]
    fn hash_burst(&self, words: &[[u64; 2]], hashes: &mut [u64]) {
        match &self.0 {
            Kind::Aes(aes) => aes.hash_all(words, hashes),
            Kind::Sip { k0, k1 } => {
                for (words, hash) in words.iter().zip(hashes) {
                    *hash = sip_1_3(*k0, *k1, *words);
                }
            }
        }
    }
}

/// SipHash-1-3 of a message of one full and one last word.
#[inline(always)]
fn sip_1_3(k0: u64, k1: u64, words: [u64; 2]) -> u64 {
    // The four initial words spell "somepseudorandomlygeneratedbytes".
    let mut v = [
        k0 ^ 0x736f_6d65_7073_6575,
        k1 ^ 0x646f_7261_6e64_6f6d,
        k0 ^ 0x6c79_6765_6e65_7261,
        k1 ^ 0x7465_6462_7974_6573,
    ];
    for word in words {
        v[3] ^= word;
        v = round(v);
        v[0] ^= word;
    }
    v[2] ^= 0xff;
    v = round(round(round(v)));
    v[0] ^ v[1] ^ v[2] ^ v[3]
}

/// One SipRound.
#[inline(always)]
fn round([mut a, mut b, mut c, mut d]: [u64; 4]) -> [u64; 4] {
    a = a.wrapping_add(b);
    c = c.wrapping_add(d);
    b = b.rotate_left(13) ^ a;
    d = d.rotate_left(16) ^ c;
    a = a.rotate_left(32).wrapping_add(d);
    c = c.wrapping_add(b);
    d = d.rotate_left(21) ^ a;
    b = b.rotate_left(17) ^ c;
    c = c.rotate_left(32);
    [a, b, c, d]
}

#[cfg(test)]
mod tests {
    use std::hash::Hasher;

    use proptest::prelude::*;
    use siphasher::sip::SipHasher13;

    use super::*;

    proptest! {
        #[test]
        fn equals_siphash_1_3_of_the_thirteen_bytes(
            k0: u64, k1: u64, src: u32, dst: u32, sport: u16, dport: u16, proto: u8,
        ) {
            let mut reference = SipHasher13::new_with_keys(k0, k1);
            let mut bytes = Vec::new();
            bytes.extend(src.to_le_bytes());
            bytes.extend(dst.to_le_bytes());
            bytes.extend(sport.to_le_bytes());
            bytes.extend(dport.to_le_bytes());
            bytes.push(proto);
            reference.write(&bytes);

            let key = FlowKey { src, dst, sport, dport, proto };
            prop_assert_eq!(FlowHasher::portable(k0, k1).hash(&key), reference.finish());
            for hasher in [FlowHasher::portable(k0, k1), FlowHasher::new(k0, k1)] {
                let mut burst = [0; 2];
                hasher.hash_burst(&[key.words(), FlowKey::default().words()], &mut burst);
                prop_assert_eq!(burst, [hasher.hash(&key), hasher.hash(&FlowKey::default())]);
            }
            prop_assert_eq!(FlowKey::from_words(key.words()), key);
        }
    }
}

//! A keyed hash of 16 bytes by the processor's AES rounds, for tables whose keys strangers choose.
//!
//! The words are mixed with one round key and go through four AES rounds with four more; the two halves of the result
//! are folded. Four rounds diffuse every input bit over the whole block; without the keys, collisions cannot be
//! constructed. It is no cipher and nothing decrypts it.

#[cfg(target_arch = "x86_64")]
use core::arch::x86_64::{__m128i, _mm_aesenc_si128, _mm_set_epi64x, _mm_xor_si128};

/// AES rounds of one hash.
const ROUNDS: usize = 4;

/// The hash under one key. 80 bytes; any thread may use it.
#[derive(Clone, Copy)]
pub struct AesHash {
    /// Two words a round key, one before the first round.
    keys: [[u64; 2]; ROUNDS + 1],
}

impl AesHash {
    /// The hash whose round keys are `keys`, all of them random and secret; `None` when the processor has no AES
    /// instructions. Control.
    pub fn new(keys: [[u64; 2]; 5]) -> Option<Self> {
        #[cfg(target_arch = "x86_64")]
        if std::arch::is_x86_feature_detected!("aes") {
            return Some(Self { keys });
        }
        let _ = keys;
        None
    }

    /// 64 well-mixed bits of `words`. Hot.
    #[inline]
    pub fn hash(&self, words: [u64; 2]) -> u64 {
        let mut out = [0];
        self.hash_all(&[words], &mut out);
        out[0]
    }

    /// The hash of each of `words` into the same place of `out`, as far as both go. Hot, one call a burst.
    ///
    /// JUSTIFICATION: SipHash-1-3 of the same bytes takes about 90 instructions one after the other, this takes 12
    /// that overlap with the next hash's.
    #[inline]
    pub fn hash_all(&self, words: &[[u64; 2]], out: &mut [u64]) {
        #[cfg(target_arch = "x86_64")]
        // SAFETY: the constructor found the AES instructions, and values are made by it alone.
        unsafe {
            self.hash_all_aes(words, out);
        }
        #[cfg(not(target_arch = "x86_64"))]
        unreachable!("no AesHash is ever made on this processor: {} {}", words.len(), out.len());
    }

    #[cfg(target_arch = "x86_64")]
    #[target_feature(enable = "aes,sse4.1")]
    fn hash_all_aes(&self, words: &[[u64; 2]], out: &mut [u64]) {
        let load = |[low, high]: [u64; 2]| -> __m128i { _mm_set_epi64x(high as i64, low as i64) };
        let [first, rest @ ..] = self.keys.map(load);
        for (words, out) in words.iter().zip(out) {
            let mut state = _mm_xor_si128(load(*words), first);
            for key in rest {
                state = _mm_aesenc_si128(state, key);
            }
            let low = core::arch::x86_64::_mm_cvtsi128_si64(state) as u64;
            let high = core::arch::x86_64::_mm_extract_epi64::<1>(state) as u64;
            *out = low ^ high;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYS: [[u64; 2]; 5] = [[1, 2], [3, 4], [5, 6], [7, 8], [9, 10]];

    #[test]
    fn bursts_and_single_hashes_agree_and_every_bit_counts() {
        let Some(hash) = AesHash::new(KEYS) else { return };
        let base = [0x0123_4567_89ab_cdef, 0x0d00_0006_9c40_0050];
        let mut words = vec![base];
        words.extend((0..128).map(|bit| {
            let mut flipped = base;
            flipped[bit / 64] ^= 1 << (bit % 64);
            flipped
        }));
        let mut out = vec![0; words.len()];
        hash.hash_all(&words, &mut out);
        for (words, out) in words.iter().zip(&out) {
            assert_eq!(hash.hash(*words), *out);
        }
        // One bit of input moves about half of the 64 bits of output: far from 32 would be a broken round.
        for other in &out[1..] {
            let moved = (out[0] ^ other).count_ones();
            assert!((12..=52).contains(&moved), "{moved} of 64 bits moved");
        }
        let other = AesHash::new([[1, 2], [3, 4], [5, 6], [7, 8], [9, 11]]).unwrap();
        assert_ne!(other.hash(base), out[0], "the key counts");
    }

    #[test]
    fn tags_and_places_of_many_flows_are_even() {
        let Some(hash) = AesHash::new(KEYS) else { return };
        let mut buckets = [0u32; 256];
        for i in 0..256 * 256u64 {
            buckets[(hash.hash([i, 0]) >> 56) as usize] += 1;
        }
        // 256 a bucket on average, deviation 16: seven of them are not reached by chance.
        assert!(buckets.iter().all(|n| (144..=368).contains(n)), "{buckets:?}");
    }
}

//! Comparisons of several words at once, with a portable form of the same answer.

/// Which of the eight `tags` equal `tag`: bit `i` of the result is for `tags[i]`. Hot.
///
/// JUSTIFICATION for SSE2: a loop with a branch for each tag cost 14 ns more for a packet in a table
/// of a million connections.
#[inline]
pub fn match_tags(tags: &[u32; 8], tag: u32) -> u8 {
    #[cfg(target_arch = "x86_64")]
    {
        match_tags_sse2(tags, tag)
    }
    #[cfg(not(target_arch = "x86_64"))]
    {
        match_tags_portable(tags, tag)
    }
}

#[cfg(target_arch = "x86_64")]
#[inline]
fn match_tags_sse2(tags: &[u32; 8], tag: u32) -> u8 {
    use core::arch::x86_64::{
        __m128i, _mm_cmpeq_epi32, _mm_loadu_si128, _mm_movemask_epi8, _mm_packs_epi16, _mm_packs_epi32,
        _mm_set1_epi32, _mm_setzero_si128,
    };
    // SAFETY: every x86-64 CPU has SSE2; the two unaligned loads read the 32 bytes of `tags`.
    unsafe {
        let wanted = _mm_set1_epi32(tag as i32);
        let first = tags.as_ptr().cast::<__m128i>();
        let low = _mm_cmpeq_epi32(_mm_loadu_si128(first), wanted);
        let high = _mm_cmpeq_epi32(_mm_loadu_si128(first.add(1)), wanted);
        // Lanes are all ones or zero, so packing with saturation keeps them so: eight bytes remain.
        let bytes = _mm_packs_epi16(_mm_packs_epi32(low, high), _mm_setzero_si128());
        _mm_movemask_epi8(bytes) as u8
    }
}

#[cfg(any(test, not(target_arch = "x86_64")))]
fn match_tags_portable(tags: &[u32; 8], tag: u32) -> u8 {
    tags.iter().enumerate().fold(0, |mask, (i, &t)| mask | (u8::from(t == tag) << i))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every set of matching positions, with tags whose halves are likely to mislead.
    #[test]
    fn every_mask() {
        for tag in [0, 1, 0x8000_0000, 0x7fff_8000, 0xffff_0000, u32::MAX] {
            for mask in 0..=255u8 {
                let tags =
                    std::array::from_fn(|i| if mask >> i & 1 == 1 { tag } else { tag ^ (1 << (i * 4)) });
                assert_eq!(match_tags(&tags, tag), mask, "{tags:x?} {tag:#x}");
                assert_eq!(match_tags_portable(&tags, tag), mask, "{tags:x?} {tag:#x}");
            }
        }
    }
}

//! The buffers of a call, as vectors.

use libc::iovec;

/// The vectors at `first`; none if that is no place, or if one of them names none for its bytes (the kernel
/// has an error number for it).
///
/// # Safety
/// `first` is null or has `count` vectors that outlive the result.
pub unsafe fn at<'a>(first: *const iovec, count: usize) -> Option<&'a [iovec]> {
    if first.is_null() {
        return (count == 0).then_some(&[]);
    }
    // SAFETY: the caller's promise.
    let vectors = unsafe { std::slice::from_raw_parts(first, count) };
    vectors.iter().all(|vector| !vector.iov_base.is_null() || vector.iov_len == 0).then_some(vectors)
}

/// Bytes they hold.
pub fn total(vectors: &[iovec]) -> usize {
    vectors.iter().fold(0, |sum, vector| sum.saturating_add(vector.iov_len))
}

/// Copies into `out` what follows the first `skip` bytes; the number of bytes copied.
///
/// # Safety
/// Each vector is readable.
pub unsafe fn gather(vectors: &[iovec], mut skip: usize, out: &mut [u8]) -> usize {
    let mut done = 0;
    for vector in vectors {
        let skipped = skip.min(vector.iov_len);
        skip -= skipped;
        let count = (vector.iov_len - skipped).min(out.len() - done);
        if count > 0 {
            // SAFETY: `count` bytes lie behind `skipped` in this vector, and in `out` behind `done`; a buffer
            // of the program is not ours.
            unsafe {
                let from = vector.iov_base.cast::<u8>().add(skipped);
                std::ptr::copy_nonoverlapping(from, out.as_mut_ptr().add(done), count);
            }
            done += count;
        }
    }
    done
}

/// Copies `data` into them as far as it fits; the number of bytes copied.
///
/// # Safety
/// Each vector is writable.
pub unsafe fn scatter(vectors: &[iovec], data: &[u8]) -> usize {
    let mut done = 0;
    for vector in vectors {
        let count = vector.iov_len.min(data.len() - done);
        if count > 0 {
            // SAFETY: `count` bytes lie in `data` behind `done`, and in this vector; the two are not the same.
            unsafe {
                std::ptr::copy_nonoverlapping(data.as_ptr().add(done), vector.iov_base.cast::<u8>(), count);
            }
            done += count;
        }
    }
    done
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bytes_go_through_any_vectors_in_order() {
        let data: Vec<u8> = (0..40).collect();
        for cut in 0..=data.len() {
            let (mut a, mut b) = (vec![0u8; cut], vec![0u8; data.len() - cut]);
            let vectors = [&mut a, &mut Vec::new(), &mut b]
                .map(|part| iovec { iov_base: part.as_mut_ptr().cast(), iov_len: part.len() });
            assert_eq!(total(&vectors), data.len());
            for skip in 0..=data.len() {
                let mut out = [0xff; 16];
                // SAFETY: the vectors are those of `a`, nothing, and `b`, which live to the end.
                let count = unsafe {
                    assert_eq!(scatter(&vectors, &data), data.len());
                    gather(&vectors, skip, &mut out)
                };
                assert_eq!(out[..count], data[skip..data.len().min(skip + 16)], "{cut} {skip}");
            }
        }
    }
}

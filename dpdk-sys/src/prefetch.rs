//! Cache hints. They change no state a program can see, fault on no address, and so are safe to
//! call. On machines other than x86-64 they do nothing.

/// Brings the first cache line of `target` towards the core, to be read. Hot.
#[inline(always)]
pub fn prefetch_read<T: ?Sized>(target: &T) {
    prefetch_address(std::ptr::from_ref(target).cast());
}

/// Brings the first cache line of `target` towards the core, to be written. Hot.
#[inline(always)]
pub fn prefetch_write<T: ?Sized>(target: &T) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_ET0, _mm_prefetch};
        // SAFETY: a hint only, never a memory access in the program's sense.
        unsafe { _mm_prefetch::<_MM_HINT_ET0>(std::ptr::from_ref(target).cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = target;
}

/// Brings `slice[index]` towards the core, without a bounds check: a wild index hints at an address
/// of no use and does no harm. Hot.
#[inline(always)]
pub fn prefetch_index<T>(slice: &[T], index: usize) {
    prefetch_address(slice.as_ptr().wrapping_add(index).cast());
}

/// Brings the cache line at `address` towards the core.
#[inline(always)]
pub(crate) fn prefetch_address(address: *const u8) {
    #[cfg(target_arch = "x86_64")]
    {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        // SAFETY: a hint only: it faults on no address, mapped or not.
        unsafe { _mm_prefetch::<_MM_HINT_T0>(address.cast()) };
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_address_faults() {
        let slice = [1u64, 2, 3];
        for index in [0, 2, 3, usize::MAX, usize::MAX / 8, 1 << 40] {
            prefetch_index(&slice, index);
        }
        prefetch_index::<u64>(&[], 5);
        prefetch_read(&slice);
        prefetch_write(&slice[1]);
        assert_eq!(slice, [1, 2, 3]);
    }
}

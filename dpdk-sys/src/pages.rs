//! Pages: which kind DPDK gets, and [`Slab`], a large zeroed table of our own.
//!
//! DPDK's packet memory wants hugepages (a packet costs about three times as much with normal ones)
//! but works without. Our tables do not come from DPDK at all: a slab is anonymous memory for which
//! the kernel is asked to use transparent hugepages, so it works on any machine.

use std::fmt;
use std::fs;
use std::ops::{Deref, DerefMut, Range};
use std::ptr::NonNull;

use zerocopy::FromZeros;

use crate::errno::DpdkError;

/// Which pages DPDK shall use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Pages {
    /// Hugepages if enough are free, else normal ones.
    #[default]
    Auto,
    /// Hugepages, or fail.
    Huge,
    /// Normal pages.
    Normal,
}

/// Which pages DPDK uses, and the figures that decided. Displays as one line for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageChoice {
    /// Hugepages.
    Huge {
        /// Memory asked for, in MB.
        wanted_mb: u32,
        /// Free hugepage memory before the start, in MB.
        free_mb: u64,
    },
    /// Normal pages, by wish or for want of hugepages.
    Normal {
        /// Memory asked for, in MB.
        wanted_mb: u32,
        /// Free hugepage memory before the start, in MB.
        free_mb: u64,
    },
}

impl PageChoice {
    /// Applies the wish to what is free. [`DpdkError::Hugepages`] if the wish cannot be met.
    pub(crate) fn decide(wish: Pages, wanted_mb: u32, free_mb: u64) -> Result<Self, DpdkError> {
        let enough = free_mb >= u64::from(wanted_mb);
        match wish {
            Pages::Huge if !enough => Err(DpdkError::Hugepages { wanted_mb, free_mb }),
            Pages::Huge | Pages::Auto if enough => Ok(PageChoice::Huge { wanted_mb, free_mb }),
            _ => Ok(PageChoice::Normal { wanted_mb, free_mb }),
        }
    }
}

impl fmt::Display for PageChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (kind, wanted_mb, free_mb) = match self {
            PageChoice::Huge { wanted_mb, free_mb } => ("hugepages", wanted_mb, free_mb),
            PageChoice::Normal { wanted_mb, free_mb } => ("normal pages", wanted_mb, free_mb),
        };
        write!(f, "{wanted_mb} MB in {kind} ({free_mb} MB of hugepages free)")
    }
}

/// Free and unreserved hugepages of all sizes, in MB. 0 if the kernel has none or does not say.
pub(crate) fn free_hugepages_mb() -> u64 {
    let Ok(sizes) = fs::read_dir("/sys/kernel/mm/hugepages") else { return 0 };
    let free_kb: u64 = sizes
        .filter_map(|entry| {
            let folder = entry.ok()?.path();
            let name = folder.file_name()?.to_str()?;
            let page_kb: u64 = name.strip_prefix("hugepages-")?.strip_suffix("kB")?.parse().ok()?;
            let count = |file| fs::read_to_string(folder.join(file)).ok()?.trim().parse::<u64>().ok();
            Some(page_kb * count("free_hugepages")?.saturating_sub(count("resv_hugepages")?))
        })
        .sum();
    free_kb / 1024
}

/// Size and alignment of a transparent hugepage on x86-64, and of a 2 MiB block elsewhere.
const HUGE_BYTES: usize = 2 << 20;

/// Smallest page of the machines we run on; the stride when pages are touched one by one.
const PAGE_BYTES: usize = 4096;

/// Whether a slab's memory exists from the start or when it is first written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefault {
    /// All pages now: no page fault later, and a lack of memory is an error here.
    Now,
    /// Address space only; pages come with the first write to them.
    Lazy,
}

/// A table of fixed length in memory of its own, all zero at first.
///
/// Shape: `len` records side by side, aligned to a page, to 2 MiB if it is that large; transparent
/// hugepages are asked for. It derefs to a slice. It is as `Send` and `Sync` as its records:
/// ```
/// # use dpdk_sys::{Prefault, Slab};
/// use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
/// let slab = Slab::<AtomicU64>::zeroed(1000, Prefault::Lazy)?;
/// std::thread::scope(|scope| { scope.spawn(|| slab[7].store(1, Relaxed)); });
/// assert_eq!(slab[7].load(Relaxed), 1);
/// # Ok::<(), dpdk_sys::SlabError>(())
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::Slab<std::cell::Cell<u64>>>();
/// ```
/// A record must have all zeros among its values; derive `zerocopy::FromZeros` for it:
/// ```compile_fail,E0599
/// # use dpdk_sys::{Prefault, Slab};
/// let slab = Slab::<&'static str>::zeroed(10, Prefault::Lazy);
/// ```
/// It has no destructor:
/// ```compile_fail,E0080
/// # use dpdk_sys::{Prefault, Slab};
/// #[derive(zerocopy::FromZeros)]
/// #[repr(C)]
/// struct Noisy(u64);
/// impl Drop for Noisy { fn drop(&mut self) {} }
/// let slab = Slab::<Noisy>::zeroed(10, Prefault::Lazy);
/// ```
pub struct Slab<T> {
    records: NonNull<[T]>,
    mapping: Mapping,
}

/// No memory or address space for a slab.
#[derive(Debug, thiserror::Error)]
#[error("cannot {action} {bytes} bytes of memory: {source}")]
pub struct SlabError {
    action: &'static str,
    bytes: usize,
    source: std::io::Error,
}

impl SlabError {
    /// Bytes that were asked for; `usize::MAX` stands for more than that.
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

impl<T: FromZeros> Slab<T> {
    /// Maps `len` zero records. Control thread; with [`Prefault::Now`] about 0.1 s per GB.
    ///
    /// # Errors
    /// The kernel refuses the address space, or with [`Prefault::Now`] the memory.
    pub fn zeroed(len: usize, prefault: Prefault) -> Result<Self, SlabError> {
        Self::zeroed_from(0, len, prefault)
    }

    /// The same, its first record `skip` records behind that alignment: tables that are read side by side at the same index
    /// shall not meet in one set of a cache.
    ///
    /// # Errors
    /// As [`Slab::zeroed`].
    pub fn zeroed_from(skip: usize, len: usize, prefault: Prefault) -> Result<Self, SlabError> {
        const {
            assert!(size_of::<T>() > 0, "a slab of empty records has no memory");
            assert!(align_of::<T>() <= PAGE_BYTES, "a slab is aligned to a page");
            assert!(!std::mem::needs_drop::<T>(), "records of a slab are not dropped");
        }
        let whole = skip.checked_add(len).and_then(|records| records.checked_mul(size_of::<T>()));
        let Some(bytes) = whole.filter(|&bytes| bytes <= isize::MAX as usize) else {
            let source = std::io::Error::from_raw_os_error(libc::ENOMEM);
            return Err(SlabError { action: "map", bytes: usize::MAX, source });
        };
        let mapping = Mapping::new(bytes)?;
        if prefault == Prefault::Now {
            mapping.populate()?;
        }
        // SAFETY: `skip` and `len` records together are inside the mapping.
        let first = unsafe { mapping.start.cast::<T>().add(skip) };
        Ok(Slab { records: NonNull::slice_from_raw_parts(first, len), mapping })
    }
}

impl<T> Slab<T> {
    /// Makes the pages of `range` exist, so that nobody faults them in later. What is in them stays; others may
    /// use the records meanwhile. Where the kernel cannot (before 5.14), they come with the first write.
    pub fn touch(&self, range: Range<usize>) -> Result<(), SlabError> {
        let range = range.start.min(self.len())..range.end.min(self.len());
        let first = self.as_ptr().addr() - self.mapping.start.as_ptr().addr();
        let at = |record: usize| first + record * size_of::<T>();
        self.mapping.touch(at(range.start)..at(range.end))
    }

    /// Bytes of the table, rounded up to pages.
    pub fn bytes(&self) -> usize {
        self.mapping.bytes
    }
}

impl<T> Deref for Slab<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        // SAFETY: `records` is the mapping of this slab, aligned, of `len` records that were zero
        // and so valid (FromZeros), and lives as long as `self`.
        unsafe { self.records.as_ref() }
    }
}

impl<T> DerefMut for Slab<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        // SAFETY: as in `deref`; `&mut self` makes the access exclusive.
        unsafe { self.records.as_mut() }
    }
}

impl<T> fmt::Debug for Slab<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Slab").field("len", &self.len()).field("bytes", &self.bytes()).finish()
    }
}

// SAFETY: a slab owns its records as a `Box<[T]>` does.
unsafe impl<T: Send> Send for Slab<T> {}
// SAFETY: as above; shared access goes through `&[T]` only.
unsafe impl<T: Sync> Sync for Slab<T> {}

/// Anonymous memory, unmapped when dropped.
struct Mapping {
    /// First usable byte, aligned.
    start: NonNull<u8>,
    /// Usable bytes from `start`, a multiple of the page.
    bytes: usize,
    /// What was mapped: `start` lies in it.
    whole: NonNull<u8>,
    whole_bytes: usize,
}

impl Mapping {
    fn new(bytes: usize) -> Result<Mapping, SlabError> {
        let bytes = bytes.max(1).next_multiple_of(PAGE_BYTES);
        // Older kernels do not align large mappings by themselves.
        let slack = if bytes >= HUGE_BYTES { HUGE_BYTES } else { 0 };
        let whole_bytes = bytes + slack;
        // SAFETY: a fresh anonymous mapping touches no memory that exists.
        let whole = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                whole_bytes,
                libc::PROT_READ | libc::PROT_WRITE,
                libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
                -1,
                0,
            )
        };
        if whole == libc::MAP_FAILED {
            return Err(SlabError::last("map", bytes));
        }
        let whole = NonNull::new(whole.cast::<u8>()).expect("mmap does not map address 0");
        let pad = if slack > 0 { whole.align_offset(HUGE_BYTES) } else { 0 };
        // SAFETY: `pad` is less than `slack`, so `bytes` more bytes follow inside the mapping.
        let start = unsafe { whole.add(pad) };
        // Advice only: a kernel without transparent hugepages refuses, and normal pages serve.
        // SAFETY: the range lies inside the mapping made above.
        unsafe { libc::madvise(start.as_ptr().cast(), bytes, libc::MADV_HUGEPAGE) };
        Ok(Mapping { start, bytes, whole, whole_bytes })
    }

    /// Makes the pages of a range of bytes exist; whether the kernel knows how.
    fn fault_in(&self, range: Range<usize>) -> Result<bool, SlabError> {
        let from = range.start / PAGE_BYTES * PAGE_BYTES;
        let bytes = range.end.min(self.bytes).saturating_sub(from);
        // SAFETY: the range is ours; populating changes no byte.
        let ret =
            unsafe { libc::madvise(self.start.as_ptr().add(from).cast(), bytes, libc::MADV_POPULATE_WRITE) };
        if ret == 0 {
            return Ok(true);
        }
        let error = SlabError::last("fault in", bytes);
        if error.source.raw_os_error() == Some(libc::EINVAL) { Ok(false) } else { Err(error) }
    }

    fn touch(&self, range: Range<usize>) -> Result<(), SlabError> {
        self.fault_in(range).map(drop)
    }

    /// Makes every page exist.
    fn populate(&self) -> Result<(), SlabError> {
        if self.fault_in(0..self.bytes)? {
            return Ok(());
        }
        // Kernels before 5.14 do not know the advice: touch each page.
        for at in (0..self.bytes).step_by(PAGE_BYTES) {
            // SAFETY: inside the mapping, nobody else has a reference yet, and the byte is zero.
            unsafe { self.start.add(at).write_volatile(0) };
        }
        Ok(())
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: unmaps exactly what `new` mapped; no reference outlives the slab.
        unsafe { libc::munmap(self.whole.as_ptr().cast(), self.whole_bytes) };
    }
}

impl SlabError {
    fn last(action: &'static str, bytes: usize) -> Self {
        SlabError { action, bytes, source: std::io::Error::last_os_error() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_follow_wish_and_supply() {
        let huge = PageChoice::Huge { wanted_mb: 64, free_mb: 64 };
        let normal = |free_mb| PageChoice::Normal { wanted_mb: 64, free_mb };
        for (wish, free_mb, expected) in [
            (Pages::Auto, 64, Some(huge)),
            (Pages::Auto, 63, Some(normal(63))),
            (Pages::Huge, 64, Some(huge)),
            (Pages::Huge, 63, None),
            (Pages::Normal, 64, Some(normal(64))),
        ] {
            assert_eq!(PageChoice::decide(wish, 64, free_mb).ok(), expected, "{wish:?} {free_mb}");
        }
        assert_eq!(normal(3).to_string(), "64 MB in normal pages (3 MB of hugepages free)");
    }

    #[test]
    fn slab_is_zero_aligned_and_writable_to_its_end() {
        for (len, prefault) in [(1, Prefault::Now), (5000, Prefault::Lazy), (300_000, Prefault::Now)] {
            let mut slab = Slab::<[u32; 16]>::zeroed(len, prefault).unwrap();
            assert_eq!(slab.len(), len);
            assert!(slab.bytes() >= len * 64 && slab.bytes() < len * 64 + PAGE_BYTES);
            assert_eq!(slab.as_ptr().align_offset(PAGE_BYTES), 0);
            if slab.bytes() >= HUGE_BYTES {
                assert_eq!(slab.as_ptr().align_offset(HUGE_BYTES), 0);
            }
            assert!(slab.iter().flatten().all(|&word| word == 0));
            slab[len - 1][15] = 7;
            assert_eq!(slab[len - 1][15], 7);
        }
    }

    #[test]
    fn a_slab_may_start_behind_its_alignment() {
        let mut slab = Slab::<[u64; 4]>::zeroed_from(66, 100_000, Prefault::Lazy).unwrap();
        assert_eq!((slab.len(), slab.as_ptr().addr() % HUGE_BYTES), (100_000, 66 * 32));
        slab[99_999] = [7; 4];
        assert_eq!((slab[0], slab[99_999]), ([0; 4], [7; 4]));
        assert!(Slab::<u64>::zeroed_from(1, usize::MAX, Prefault::Lazy).is_err());
    }

    #[test]
    fn touched_records_keep_what_is_in_them() {
        let mut slab = Slab::<[u64; 4]>::zeroed(100_000, Prefault::Lazy).unwrap();
        slab[2047] = [5; 4];
        slab.touch(1024..2048).unwrap();
        slab.touch(99_999..200_000).unwrap();
        slab.touch(0..0).unwrap();
        assert_eq!((slab[1024], slab[2047]), ([0; 4], [5; 4]));
    }

    #[test]
    fn empty_slab_is_an_empty_slice() {
        assert!(Slab::<u64>::zeroed(0, Prefault::Now).unwrap().is_empty());
    }

    #[test]
    fn size_beyond_the_machine_is_an_error() {
        let error = Slab::<u64>::zeroed(usize::MAX / 8, Prefault::Lazy).unwrap_err();
        assert!(error.to_string().starts_with("cannot map 184467440737095"), "{error}");
        assert_eq!(Slab::<u64>::zeroed(1 << 55, Prefault::Lazy).unwrap_err().bytes(), 1 << 58);
    }
}

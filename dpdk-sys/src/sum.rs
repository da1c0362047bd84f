//! Sums over columns of counters that other threads go on writing.
//!
//! A walk over millions of counters runs at the speed of memory, so it has to ask for many cache lines at a time: up to
//! four columns are read side by side, each with hints some lines ahead, and near the end of four the first lines of the next.
//!
//! # Why vector reads of atomics are sound here
//!
//! A compiler does not make vector code of atomic loads, and a vector load of memory that another thread writes would be a
//! data race to it. The loads are therefore instructions of our own (`asm!`), which the compiler does not look
//! into, and they do what relaxed atomic loads of each cell would: on x86-64 an aligned eight-byte part of a vector load is
//! read whole (16 aligned bytes are, on every processor with AVX; no x86-64 processor splits eight aligned ones).
//! Under Miri, and on other processors, the cells are loaded one by one.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Columns that are read side by side: enough lines in flight for one core, few enough for its registers.
pub const COLUMNS: usize = 4;

/// Cells of a cache line.
const LINE: usize = 8;

/// Lines between a load and its hint. Two to 48 measure alike within a tenth, the best of them 12.
const AHEAD: usize = 12;

/// Adds the cells of each of `columns` to `sums`, which wrap; `next` are the columns of the next call, whose first
/// lines are asked for meanwhile. At most [`COLUMNS`] of each count. Estimator threads; never waits, and does not allocate.
///
/// JUSTIFICATION for vector code: cell by cell the walk reaches a third of a core's memory bandwidth, so most of its time.
///
/// # Panics
/// If a column is shorter than `sums`.
pub fn sum_columns(sums: &mut [u64], columns: &[&[AtomicU64]], next: &[&[AtomicU64]]) {
    match *columns {
        [a, b, c, d, ..] => dispatch(sums, [a, b, c, d], next),
        [a, b, c] => dispatch(sums, [a, b, c], next),
        [a, b] => dispatch(sums, [a, b], next),
        [a] => dispatch(sums, [a], next),
        [] => {}
    }
}

fn dispatch<const N: usize>(sums: &mut [u64], columns: [&[AtomicU64]; N], next: &[&[AtomicU64]]) {
    let columns = columns.map(|column| &column[..sums.len()]);
    #[cfg(all(target_arch = "x86_64", not(miri)))]
    {
        let whole = sums.len() / LINE * LINE;
        let (lines, rest) = sums.split_at_mut(whole);
        if std::arch::is_x86_feature_detected!("avx2") {
            // SAFETY: the processor has AVX2, and every column is at least as long as `lines`.
            unsafe { x86::add_avx2(lines, columns, next) };
        } else {
            // SAFETY: every column is at least as long as `lines`.
            unsafe { x86::add_sse2(lines, columns, next) };
        }
        add_cells(rest, columns.map(|column| &column[whole..]));
    }
    #[cfg(not(all(target_arch = "x86_64", not(miri))))]
    {
        let _ = next;
        add_cells(sums, columns);
    }
}

/// The same, a cell at a time.
fn add_cells<const N: usize>(sums: &mut [u64], columns: [&[AtomicU64]; N]) {
    for (i, sum) in sums.iter_mut().enumerate() {
        for column in columns {
            *sum = sum.wrapping_add(column[i].load(Relaxed));
        }
    }
}

#[cfg(all(target_arch = "x86_64", not(miri)))]
mod x86 {
    use core::arch::asm;
    use core::arch::x86_64::{__m128i, __m256i, _mm_loadu_si128, _mm_storeu_si128};
    use core::arch::x86_64::{_mm256_loadu_si256, _mm256_storeu_si256};
    use std::sync::atomic::AtomicU64;

    use super::{AHEAD, COLUMNS, LINE};
    use crate::prefetch::prefetch_address;

    /// Where to hint while a column's line is added: the address for line 0.
    struct Hints {
        /// Lines that hint within their own columns.
        own: usize,
        next: [*const AtomicU64; COLUMNS],
        next_len: usize,
    }

    impl Hints {
        fn new(lines: usize, next: &[&[AtomicU64]]) -> Self {
            let own = lines.saturating_sub(AHEAD);
            let mut hints =
                Self { own, next: [std::ptr::null(); COLUMNS], next_len: next.len().min(COLUMNS) };
            for (hint, column) in hints.next.iter_mut().zip(next) {
                *hint = column.as_ptr().wrapping_sub(own * LINE);
            }
            hints
        }

        #[inline(always)]
        fn give<const N: usize>(&self, line: usize, columns: &[&[AtomicU64]; N]) {
            if line < self.own {
                for column in columns {
                    prefetch_address(column.as_ptr().wrapping_add((line + AHEAD) * LINE).cast());
                }
            } else {
                for hint in &self.next[..self.next_len] {
                    prefetch_address(hint.wrapping_add(line * LINE).cast());
                }
            }
        }
    }

    /// Lines of 64 bytes by two vectors of 32.
    ///
    /// # Safety
    /// The processor has AVX2; `sums` is whole lines; no column is shorter.
    #[target_feature(enable = "avx2")]
    pub unsafe fn add_avx2<const N: usize>(
        sums: &mut [u64],
        columns: [&[AtomicU64]; N],
        next: &[&[AtomicU64]],
    ) {
        let hints = Hints::new(sums.len() / LINE, next);
        for (line, sums) in sums.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
            hints.give(line, &columns);
            let at = sums.as_mut_ptr().cast::<__m256i>();
            // SAFETY: `at` is the 64 bytes of `sums`.
            let (mut low, mut high) = unsafe { (_mm256_loadu_si256(at), _mm256_loadu_si256(at.add(1))) };
            for column in columns {
                // SAFETY: reads the 64 bytes of `column` that belong to `line`, as relaxed loads would (module page).
                unsafe {
                    asm!(
                        "vpaddq {low}, {low}, ymmword ptr [{cells}]",
                        "vpaddq {high}, {high}, ymmword ptr [{cells} + 32]",
                        low = inout(ymm_reg) low,
                        high = inout(ymm_reg) high,
                        cells = in(reg) column.as_ptr().add(line * LINE),
                        options(nostack, readonly, preserves_flags),
                    );
                }
            }
            // SAFETY: as for the loads above.
            unsafe {
                _mm256_storeu_si256(at, low);
                _mm256_storeu_si256(at.add(1), high);
            }
        }
    }

    /// Lines of 64 bytes by four vectors of 16, which every x86-64 processor has.
    ///
    /// # Safety
    /// `sums` is whole lines; no column is shorter.
    pub unsafe fn add_sse2<const N: usize>(
        sums: &mut [u64],
        columns: [&[AtomicU64]; N],
        next: &[&[AtomicU64]],
    ) {
        let hints = Hints::new(sums.len() / LINE, next);
        for (line, sums) in sums.as_chunks_mut::<LINE>().0.iter_mut().enumerate() {
            hints.give(line, &columns);
            let at = sums.as_mut_ptr().cast::<__m128i>();
            // SAFETY: `at` is the 64 bytes of `sums`.
            let [mut a, mut b, mut c, mut d] = std::array::from_fn(|i| unsafe { _mm_loadu_si128(at.add(i)) });
            for column in columns {
                // SAFETY: reads the 64 bytes of `column` that belong to `line`, as relaxed loads would (module page).
                unsafe {
                    asm!(
                        "movdqu {t}, xmmword ptr [{cells}]",
                        "paddq {a}, {t}",
                        "movdqu {t}, xmmword ptr [{cells} + 16]",
                        "paddq {b}, {t}",
                        "movdqu {t}, xmmword ptr [{cells} + 32]",
                        "paddq {c}, {t}",
                        "movdqu {t}, xmmword ptr [{cells} + 48]",
                        "paddq {d}, {t}",
                        a = inout(xmm_reg) a,
                        b = inout(xmm_reg) b,
                        c = inout(xmm_reg) c,
                        d = inout(xmm_reg) d,
                        t = out(xmm_reg) _,
                        cells = in(reg) column.as_ptr().add(line * LINE),
                        options(nostack, readonly, preserves_flags),
                    );
                }
            }
            for (i, sum) in [a, b, c, d].into_iter().enumerate() {
                // SAFETY: as for the loads above.
                unsafe { _mm_storeu_si128(at.add(i), sum) };
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn columns(n: usize, len: usize) -> Vec<Vec<AtomicU64>> {
        let mut seed = 0x9e37_79b9_7f4a_7c15u64;
        let mut random = || {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            AtomicU64::new(seed)
        };
        (0..n).map(|_| (0..len).map(|_| random()).collect()).collect()
    }

    /// Every number of columns, lengths around a line's and the hints' end, starts that are not aligned to a vector.
    #[test]
    fn every_way_gives_the_same_sums() {
        for len in [0, 1, 7, 8, 9, 40, 47, 48, 56, 64, 257] {
            for n in 0..=5 {
                let columns = columns(n, len + 3);
                let columns: Vec<&[AtomicU64]> = columns.iter().map(|c| &c[1..]).collect();
                let (start, used) = (vec![u64::MAX - 5; len], n.min(COLUMNS));
                let sum = |i: usize| {
                    let cells = columns[..used].iter().map(|c| c[i].load(Relaxed));
                    cells.fold(start[i], u64::wrapping_add)
                };
                let expected: Vec<u64> = (0..len).map(sum).collect();
                let mut sums = start.clone();
                sum_columns(&mut sums, &columns, &columns);
                assert_eq!(sums, expected, "{n} columns of {len}");
                #[cfg(all(target_arch = "x86_64", not(miri)))]
                if let [a, b, c, d, ..] = columns[..] {
                    let mut sums = start.clone();
                    let whole = len / LINE * LINE;
                    // SAFETY: whole lines, and the columns are longer.
                    unsafe { x86::add_sse2(&mut sums[..whole], [a, b, c, d], &[]) };
                    assert_eq!(sums[..whole], expected[..whole], "baseline, {len}");
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "out of range")]
    fn short_columns_are_refused() {
        sum_columns(&mut [0; 9], &[&columns(1, 8)[0]], &[]);
    }

    /// A cell that another thread counts up is read whole, and never goes back.
    #[test]
    fn cells_are_read_whole() {
        const STEP: u64 = 0x0000_0001_0000_0001;
        let cells: Vec<AtomicU64> = (0..64).map(|_| AtomicU64::new(0)).collect();
        let done = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for n in 1..=100_000u64 {
                    cells.iter().for_each(|cell| cell.store(n * STEP, Relaxed));
                }
                done.store(true, Relaxed);
            });
            let mut last = [0; 64];
            while !done.load(Relaxed) {
                let mut sums = [0; 64];
                sum_columns(&mut sums, &[&cells], &[]);
                for (now, last) in sums.into_iter().zip(&mut last) {
                    assert!(now >> 32 == now & 0xffff_ffff && now >= *last, "{now:#x} after {last:#x}");
                    *last = now;
                }
            }
        });
    }
}

//! What estimator rows are compared with: kernel IPVS's way of walking, and this core's read bandwidth.

use std::hint::black_box;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use dataplane::counters::{self, CounterSlab, Totals};
use dataplane::est::Rates;
use dataplane::est::filter::{self, bytes_shown, packets_shown, step};
use dpdk_sys::{Prefault, Slab};
use tests::est::{Rig, thread_cpu_ns};

/// End of the list.
const END: u32 = u32::MAX;

/// An estimator as in the kernel: the link and its rates in the object, so that each step waits for the one before.
struct Object {
    next: u32,
    slot: u32,
    last: [u64; 5],
    rate: [u64; 5],
}

/// One list of all estimators in random order over the rig's own counters, and over a copy laid out as in the kernel: 40 bytes
/// (conns, packets, bytes) for each object and CPU, in pages of 4 KiB. Everything is prefaulted.
pub struct List {
    slabs: Vec<Arc<CounterSlab>>,
    cpus: Vec<Vec<[AtomicU64; 5]>>,
    objects: Vec<Object>,
    first: u32,
}

impl List {
    /// The estimators of `rig` with the counters as they are now, rates at 0.
    pub fn new(rig: &Rig) -> Self {
        let n = rig.slots.len();
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        for i in (1..n).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, ((seed >> 33) % (i as u64 + 1)) as usize);
        }
        let object = |&slot: &u32| Object { next: END, slot, last: [0; 5], rate: [0; 5] };
        let mut objects: Vec<Object> = rig.slots.iter().map(object).collect();
        for pair in order.windows(2) {
            objects[pair[0] as usize].next = pair[1];
        }
        let cpu = |slab| -> Vec<[AtomicU64; 5]> {
            let cells = |&slot| array(counters::sum(from_ref(slab), slot)).map(AtomicU64::new);
            rig.slots.iter().map(cells).collect()
        };
        let cpus = rig.slabs.iter().map(cpu).collect();
        Self { slabs: rig.slabs.clone(), cpus, objects, first: order[0] }
    }

    /// Passes all estimators; CPU time, nanoseconds.
    pub fn walk(&mut self) -> u64 {
        let slabs = &self.slabs;
        walk(&mut self.objects, self.first, |_, slot| array(counters::sum(slabs, slot)))
    }

    /// The same over the kernel's layout, whose counters do not move; CPU time, nanoseconds. Rates are spoiled by it.
    pub fn walk_kernel(&mut self) -> u64 {
        let cpus = &self.cpus;
        walk(&mut self.objects, self.first, |i, _| {
            let mut sums = [0u64; 5];
            for cpu in cpus {
                for (sum, cell) in sums.iter_mut().zip(&cpu[i]) {
                    *sum += cell.load(Relaxed);
                }
            }
            sums
        })
    }

    /// Every estimator's rates must be the engine's.
    pub fn compare(&self, rig: &Rig) -> Result<(), String> {
        for object in &self.objects {
            let [cps, inpps, outpps] = std::array::from_fn(|i| packets_shown(object.rate[i]));
            let [inbps, outbps] = std::array::from_fn(|i| bytes_shown(object.rate[i + 3]));
            let ours = rig.est.read(object.slot).map(|snapshot| snapshot.rates);
            if ours != Some(Rates { cps, inpps, outpps, inbps, outbps }) {
                return Err(format!("slot {}: {ours:?}, the list has {:?}", object.slot, object.rate));
            }
        }
        Ok(())
    }
}

fn walk(objects: &mut [Object], first: u32, sum: impl Fn(usize, u32) -> [u64; 5]) -> u64 {
    let before = thread_cpu_ns();
    let mut at = first;
    while at != END {
        let object = &mut objects[at as usize];
        let sums = sum(at as usize, object.slot);
        for (lane, shift) in [filter::CONNS].into_iter().chain(filter::PACKETS).enumerate() {
            object.rate[lane] = step(object.rate[lane], object.last[lane], sums[lane], shift);
        }
        object.last = sums;
        at = object.next;
    }
    thread_cpu_ns() - before
}

fn array(totals: Totals) -> [u64; 5] {
    let Totals { conns, inpkts, outpkts, inbytes, outbytes } = totals;
    [conns, inpkts, outpkts, inbytes, outbytes]
}

/// Memory to read as fast as one core can.
pub struct Stream(Slab<u64>);

impl Stream {
    /// As much as `bytes`, up to a gigabyte.
    pub fn new(bytes: usize) -> Result<Self, String> {
        let words = bytes.min(1 << 30) / 8 / 4096 * 4096;
        Slab::zeroed(words, Prefault::Now).map(Self).map_err(|e| e.to_string())
    }

    /// Bytes a nanosecond of CPU time: the better of one stream and of four side by side.
    pub fn read(&self) -> f64 {
        let quarter = self.0.len() / 4;
        let start = thread_cpu_ns();
        let mut sums = [0u64; 16];
        for line in self.0.as_chunks::<16>().0 {
            add_to(&mut sums, line);
        }
        let middle = thread_cpu_ns();
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| self.0[i * quarter..(i + 1) * quarter].as_chunks::<16>().0);
        for (((a, b), c), d) in a.iter().zip(b).zip(c).zip(d) {
            [a, b, c, d].into_iter().for_each(|line| add_to(&mut sums, line));
        }
        let end = thread_cpu_ns();
        black_box(sums);
        (self.0.len() * 8) as f64 / (middle - start).min(end - middle) as f64
    }
}

fn add_to(sums: &mut [u64; 16], words: &[u64; 16]) {
    for (sum, word) in sums.iter_mut().zip(words) {
        *sum = sum.wrapping_add(*word);
    }
}

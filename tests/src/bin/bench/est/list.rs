//! What estimator rows are compared with: kernel IPVS's way of walking, and this core's read bandwidth.

use std::hint::black_box;
use std::slice::from_ref;
use std::sync::Arc;
use std::sync::atomic::{
    AtomicU32, AtomicU64,
    Ordering::{Acquire, Relaxed, Release},
};

use dataplane::counters::{self, CounterSlab, Totals};
use dataplane::est::Rates;
use dataplane::est::filter::{self, bytes_shown, packets_shown, step};
use dpdk_sys::{Prefault, Slab};
use tests::est::{Rig, thread_cpu_ns};
use zerocopy::FromZeros;

/// End of the list.
const END: u64 = u64::MAX;

/// `struct ip_vs_stats` of Linux 6.2 and later, field by field: 280 bytes, the link to the next one in the middle, a spin lock
/// that each pass takes. Two lie further apart in the kernel, each in its service's or destination's memory.
#[derive(FromZeros)]
#[repr(C)]
struct Object {
    /// `kstats`: the sums as shown, and rates that only readers write.
    sums: [u64; 5],
    rates_read: [u64; 5],
    /// `est.list`: the next object (a pointer there), and the one before.
    next: u64,
    before: u64,
    last: [u64; 5],
    rate: [u64; 5],
    /// Thread, row and chain.
    place: u64,
    /// `cpustats`: where its counters are; the object's slot.
    slot: u64,
    lock: AtomicU32,
    padding: u32,
    /// `kstats0`: sums and rates at the last zeroing.
    zero: [u64; 10],
}

impl Object {
    /// `spin_lock` as long as nobody holds it: one locked instruction.
    fn lock(&self) {
        while self.lock.compare_exchange(0, 1, Acquire, Relaxed).is_err() {
            std::hint::spin_loop();
        }
    }

    fn unlock(&self) {
        self.lock.store(0, Release);
    }
}

/// One list of all estimators in random order over the rig's own counters, and over a copy laid out as in the kernel: 40 bytes
/// (conns, packets, bytes) for each object and CPU, in pages of 4 KiB. Everything is prefaulted.
pub struct List {
    slabs: Vec<Arc<CounterSlab>>,
    cpus: Vec<Vec<[AtomicU64; 5]>>,
    objects: Slab<Object>,
    first: u64,
}

impl List {
    /// The estimators of `rig` with the counters as they are now, rates at 0.
    pub fn new(rig: &Rig) -> Result<Self, String> {
        let n = rig.slots.len();
        let mut order: Vec<u32> = (0..n as u32).collect();
        let mut seed = 0x2545_f491_4f6c_dd1du64;
        for i in (1..n).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            order.swap(i, ((seed >> 33) % (i as u64 + 1)) as usize);
        }
        let mut objects = Slab::<Object>::zeroed(n, Prefault::Now).map_err(|e| e.to_string())?;
        for (object, slot) in objects.iter_mut().zip(&rig.slots) {
            (object.next, object.slot) = (END, u64::from(*slot));
        }
        for pair in order.windows(2) {
            objects[pair[0] as usize].next = pair[1].into();
            objects[pair[1] as usize].before = pair[0].into();
        }
        let cpu = |slab| -> Vec<[AtomicU64; 5]> {
            let cells = |&slot| array(counters::sum(from_ref(slab), slot)).map(AtomicU64::new);
            rig.slots.iter().map(cells).collect()
        };
        let cpus = rig.slabs.iter().map(cpu).collect();
        Ok(Self { slabs: rig.slabs.clone(), cpus, objects, first: order[0].into() })
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
        for object in self.objects.iter() {
            let [cps, inpps, outpps] = std::array::from_fn(|i| packets_shown(object.rate[i]));
            let [inbps, outbps] = std::array::from_fn(|i| bytes_shown(object.rate[i + 3]));
            let ours = rig.est.read(object.slot as u32).map(|snapshot| snapshot.rates);
            if ours != Some(Rates { cps, inpps, outpps, inbps, outbps }) {
                return Err(format!("slot {}: {ours:?}, the list has {:?}", object.slot, object.rate));
            }
        }
        Ok(())
    }
}

fn walk(objects: &mut [Object], first: u64, sum: impl Fn(usize, u32) -> [u64; 5]) -> u64 {
    let before = thread_cpu_ns();
    let mut at = first;
    while at != END {
        let object = &mut objects[at as usize];
        object.lock();
        object.sums = sum(at as usize, object.slot as u32);
        let sums = object.sums;
        for (lane, shift) in [filter::CONNS].into_iter().chain(filter::PACKETS).enumerate() {
            object.rate[lane] = step(object.rate[lane], object.last[lane], sums[lane], shift);
        }
        object.last = sums;
        object.unlock();
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

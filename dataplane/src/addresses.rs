//! A set of IPv4 addresses that every packet is looked up in: open-addressed buckets of eight, one comparison each.
//!
//! Part of a snapshot: control changes its working copy, workers only read. 0.0.0.0 marks a free cell and is never in
//! the set.

use dpdk_sys::match_tags;

/// Cells of a bucket: half a cache line.
const BUCKET: usize = 8;

/// The set.
#[derive(Clone, Debug)]
pub(crate) struct Addresses {
    /// A power of two of buckets, at most half full together; a full bucket goes on in the next.
    buckets: Box<[[u32; BUCKET]]>,
    len: usize,
}

impl Default for Addresses {
    fn default() -> Self {
        Self { buckets: Box::new([[0; BUCKET]]), len: 0 }
    }
}

impl Addresses {
    /// Whether `addr` is in the set. Hot.
    #[inline(always)]
    pub(crate) fn contains(&self, addr: u32) -> bool {
        let mut at = self.home(addr);
        loop {
            let bucket = &self.buckets[at & (self.buckets.len() - 1)];
            let found = match_tags(bucket, addr) != 0;
            if found || match_tags(bucket, 0) != 0 {
                return found & (addr != 0);
            }
            at += 1;
        }
    }

    /// Puts an address in, once. Control.
    pub(crate) fn insert(&mut self, addr: u32) {
        if addr == 0 || self.contains(addr) {
            return;
        }
        if (self.len + 1) * 2 > self.buckets.len() * BUCKET {
            self.rebuild(self.buckets.len() * 2, None);
        }
        self.put(addr);
    }

    /// Takes an address out. Control.
    pub(crate) fn remove(&mut self, addr: u32) {
        if self.contains(addr) {
            // Made anew, so that no bucket stays full in name only.
            self.rebuild(self.buckets.len(), Some(addr));
        }
    }

    fn rebuild(&mut self, buckets: usize, without: Option<u32>) {
        let old = std::mem::replace(&mut self.buckets, vec![[0; BUCKET]; buckets].into_boxed_slice());
        self.len = 0;
        for addr in old.iter().flatten().filter(|addr| **addr != 0 && Some(**addr) != without) {
            self.put(*addr);
        }
    }

    fn put(&mut self, addr: u32) {
        let mut at = self.home(addr);
        loop {
            let last = self.buckets.len() - 1;
            if let Some(cell) = self.buckets[at & last].iter_mut().find(|cell| **cell == 0) {
                *cell = addr;
                self.len += 1;
                return;
            }
            at += 1;
        }
    }

    #[inline(always)]
    fn home(&self, addr: u32) -> usize {
        // The top bits choose the shard that this set is of.
        (addr.wrapping_mul(0x9E37_79B1) >> 8) as usize
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn is_a_set(steps in proptest::collection::vec((any::<bool>(), 0u32..60, any::<bool>()), 0..400)) {
            let (mut set, mut model) = (Addresses::default(), HashSet::new());
            for (add, low, same_home) in steps {
                // The low bits decide nothing of the home when the product of the rest is 0.
                let addr = if same_home { low << 24 } else { 0xc000_0200 + low };
                if add && addr != 0 {
                    set.insert(addr);
                    model.insert(addr);
                } else {
                    set.remove(addr);
                    model.remove(&addr);
                }
                prop_assert_eq!(set.len, model.len());
            }
            for addr in (0..60).flat_map(|low| [low << 24, 0xc000_0200 + low, low]) {
                prop_assert_eq!(set.contains(addr), model.contains(&addr));
            }
        }
    }
}

//! Deleted destinations that connections still refer to. Swept each minute: one without connections is stamped at a
//! sweep and freed at a later one at least two minutes after (kernel IPVS's rhythm), so a server that flaps comes
//! back as the same object. When new destinations need the room, those that were deleted first go before their time.

use std::collections::HashMap;

use config::{DestKey, ServiceKey};

/// Time between sweeps, nanoseconds.
const SWEEP_NS: u64 = 60_000_000_000;

/// Time without connections before a destination is freed, nanoseconds.
const IDLE_NS: u64 = 120_000_000_000;

/// Share of what can go that goes at once, so that a trash that stays full is not searched for each new destination.
const EVICTED_SHARE: usize = 16;

#[derive(Default)]
pub(super) struct Trash {
    entries: HashMap<(ServiceKey, DestKey), Entry>,
    next_sweep_ns: u64,
    /// Entries ever put.
    put: u64,
}

struct Entry {
    slot: u32,
    /// [`crate::service::Service::born`] of the service it was deleted from.
    born: u32,
    /// How many were put before it.
    number: u64,
    /// The first generation that lacks it: until every worker has taken that in, one may bind a connection to it.
    gone_in: u64,
    idle_since_ns: Option<u64>,
}

impl Trash {
    pub(super) fn put(&mut self, service: ServiceKey, dest: DestKey, slot: u32, born: u32, gone_in: u64) {
        let entry = Entry { slot, born, number: self.put, gone_in, idle_since_ns: None };
        self.entries.insert((service, dest), entry);
        self.put += 1;
    }

    /// Slots of at least `count` entries, those that were deleted first, of the ones without connections that no worker
    /// knows since `settled` and that are not wanted back; `None`, and nothing is done, when these are too few.
    pub(super) fn evict(
        &mut self,
        count: usize,
        settled: u64,
        is_wanted: impl Fn(&(ServiceKey, DestKey)) -> bool,
        in_use: impl Fn(u32) -> bool,
    ) -> Option<Vec<u32>> {
        if count == 0 {
            return Some(Vec::new());
        }
        let idle = self
            .entries
            .iter()
            .filter(|(name, entry)| entry.gone_in <= settled && !in_use(entry.slot) && !is_wanted(name));
        let mut idle: Vec<_> = idle.map(|(name, entry)| (entry.number, *name)).collect();
        if idle.len() < count {
            return None;
        }
        idle.sort_unstable_by_key(|(number, _)| *number);
        idle.truncate(count.max(idle.len() / EVICTED_SHARE));
        Some(idle.iter().filter_map(|(_, name)| self.entries.remove(name)).map(|entry| entry.slot).collect())
    }

    /// Takes a destination back: its slot and the number of the service it was deleted from.
    pub(super) fn revive(&mut self, service: ServiceKey, dest: DestKey) -> Option<(u32, u32)> {
        self.entries.remove(&(service, dest)).map(|e| (e.slot, e.born))
    }

    /// Whether the destination is in it.
    pub(super) fn holds(&self, service: ServiceKey, dest: DestKey) -> bool {
        self.entries.contains_key(&(service, dest))
    }

    /// One look at the clock: slots to free.
    pub(super) fn sweep(&mut self, now_ns: u64, in_use: impl Fn(u32) -> bool) -> Vec<u32> {
        let mut freed = Vec::new();
        if now_ns < self.next_sweep_ns {
            return freed;
        }
        self.next_sweep_ns = now_ns + SWEEP_NS;
        self.entries.retain(|_, entry| {
            if in_use(entry.slot) {
                entry.idle_since_ns = None;
                return true;
            }
            let since = *entry.idle_since_ns.get_or_insert(now_ns);
            let keep = now_ns - since < IDLE_NS;
            if !keep {
                freed.push(entry.slot);
            }
            keep
        });
        freed
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Names of the destinations in it, by slot.
    pub(super) fn names(&self) -> impl Iterator<Item = (u32, (ServiceKey, DestKey))> {
        self.entries.iter().map(|((service, dest), e)| (e.slot, (*service, *dest)))
    }
}

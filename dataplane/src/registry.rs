//! Control's model of services and destinations, and the snapshots made from it.
//!
//! Applies [`config::Change`]s to a working copy that shares structure with the published snapshots, hands out object
//! slots (counters and destination state), and keeps deleted destinations in the trash while connections remain, so
//! that a destination that comes back is the same object: its counts, its statistics, its connections.
//! Control thread only. Changes are applied whole or refused with nothing changed.

mod rows;
mod settings;
mod slots;
mod trash;
mod whole;

use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;

use config::{
    Change, DestKey, Destination, Method, SchedScope, Scheduler, ServiceKey, ServiceSettings, Valid,
};
use dpdk_sys::SlabError;
use thiserror::Error;

use crate::announcements::Announcements;
use crate::counters::{self, CounterSlab, WorkerStats};
use crate::dest::DestSlab;
use crate::est::{self, Estimators};
use crate::neigh::NeighTable;
use crate::publish::QUIESCENT;
use crate::route::{Net, PortFacts};
use crate::sched::{RrPlan, Turn, WrrPlan};
use crate::service::{Dest, Service};
use crate::snapshot::{Knobs, ServiceMap, Snapshot};
use crate::wire::ethernet::Mac;
use crate::worker::Shared;
pub use rows::{DestRow, ObjectName, ServiceRow};
use settings::{knobs, set_knobs, timeouts};
use slots::Slots;
use trash::Trash;

/// Announcements kept in a snapshot besides one for each service that may exist and each own address: all may become
/// ours in one publication, and some may come and go while the announcing worker is on its way through them.
const ANNOUNCEMENTS_SPARE: usize = 4096;

/// Why a change was refused. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ApplyError {
    /// A service of that identity exists.
    #[error("service {0} exists already")]
    ServiceExists(ServiceKey),
    /// No service of that identity.
    #[error("no service {0}")]
    NoService(ServiceKey),
    /// The service has that destination.
    #[error("service {0} has destination {1} already")]
    DestExists(ServiceKey, DestKey),
    /// The service has no such destination.
    #[error("service {0} has no destination {1}")]
    NoDest(ServiceKey, DestKey),
    /// An IPv6 address.
    #[error("{0}: IPv6 is not forwarded by this version")]
    NotIpv4(IpAddr),
    /// No room for another service.
    #[error("the limit of {0} services is reached ([limits] services)")]
    TooManyServices(u32),
    /// No room for another destination.
    #[error("the limit of {0} destinations is reached ([limits] destinations)")]
    TooManyDests(u32),
    /// What was deleted and is still in use holds the slots that new objects need.
    #[error(
        "no room: {0} deleted services and destinations are still in use; try again when their connections have \
         ended, or raise [limits] destinations"
    )]
    NoRoom(u32),
    /// No room for a static neighbour.
    #[error("the neighbour table is full ([limits] neighbours)")]
    TooManyNeighbours,
}

/// The control thread's model.
pub struct Registry {
    services: ServiceMap,
    net: Arc<Net>,
    knobs: Arc<Knobs>,
    announce: Arc<Announcements>,
    network: config::Network,
    facts: Vec<PortFacts>,
    shared: Shared,
    slabs: Vec<Arc<CounterSlab>>,
    slots: Slots,
    trash: Trash,
    limits: config::Limits,
    /// Schedulers have one position for all workers.
    one_turn: bool,
    service_count: u32,
    dest_count: u32,
    order: u64,
    sched_gen: u32,
    generation: u64,
    /// Generation that every worker has taken in.
    settled: u64,
    /// The workers' clock.
    now_ns: u64,
    /// The estimators' clock, which is the system's.
    est_now_ns: u64,
}

impl Registry {
    /// An empty model for `workers` workers over ports that turned out to be `facts`, with the limits of `valid` and
    /// every setting at its default: apply `plan(&Valid::empty(), valid)` next.
    pub fn new(valid: &Valid, facts: Vec<PortFacts>, workers: usize) -> Result<Self, SlabError> {
        let limits = valid.limits().clone();
        // Twice what may exist: deleted objects hold their slots until connections and workers have left them, so that
        // a reload may replace everything at the limits.
        let slots = 1 + 2 * (limits.services as usize + limits.destinations as usize);
        let slabs: Vec<_> =
            (0..workers).map(|_| CounterSlab::new(slots).map(Arc::new)).collect::<Result<_, _>>()?;
        let shared = Shared {
            dests: Arc::new(DestSlab::new(slots)?),
            neigh: Arc::new(NeighTable::new(limits.neighbours as usize)?),
        };
        let estimators = Estimators::new(slabs.clone(), est::Settings::default());
        let blank = Valid::empty();
        let network = blank.network().clone();
        Ok(Self {
            services: ServiceMap::default(),
            net: Arc::new(Net::new(&network, &facts, 0)),
            knobs: Arc::new(knobs(&blank, &limits)),
            announce: Arc::default(),
            network,
            facts,
            shared,
            slabs,
            slots: Slots::new(estimators, 2 * limits.services),
            trash: Trash::default(),
            limits,
            one_turn: workers > 1 && valid.workers().sched_scope == SchedScope::Global,
            service_count: 0,
            dest_count: 0,
            order: 0,
            sched_gen: 0,
            generation: 0,
            settled: 0,
            now_ns: 0,
            est_now_ns: 0,
        })
    }

    /// What workers share.
    pub fn shared(&self) -> &Shared {
        &self.shared
    }

    /// The estimators of all objects. The registry hands their slots out and takes them back; threads pass them.
    pub fn estimators(&self) -> &Arc<Estimators> {
        self.slots.estimators()
    }

    /// Worker `id`'s counters.
    pub fn counters(&self, id: usize) -> Arc<CounterSlab> {
        Arc::clone(&self.slabs[id])
    }

    /// Service indices that can be in use: the size of a worker's scheduler states.
    pub fn service_indices(&self) -> usize {
        2 * self.limits.services as usize
    }

    /// Figures of a worker that has not started yet: it delays no publication.
    pub fn worker_stats() -> Arc<WorkerStats> {
        let stats = WorkerStats::default();
        stats.generation.store(QUIESCENT, std::sync::atomic::Ordering::Release);
        Arc::new(stats)
    }

    /// Sets the time that neighbours and the trash go by; before [`Registry::apply`], and now and then.
    pub fn set_time(&mut self, now_ns: u64) {
        self.now_ns = now_ns;
    }

    /// Sets the time that first periods of estimators go by, on the clock of their threads; before
    /// [`Registry::apply`].
    pub fn set_est_time(&mut self, now_ns: u64) {
        self.est_now_ns = now_ns;
    }

    /// Makes one change that a trial has found possible.
    fn make(&mut self, change: &Change) -> Result<(), ApplyError> {
        match change {
            Change::SetNetwork { to, .. } => self.set_network(to),
            Change::SetPolicy { to, .. } => {
                let knobs = Arc::make_mut(&mut self.knobs);
                (knobs.unmatched, knobs.echo) = (to.unmatched, to.echo);
                Ok(())
            }
            Change::SetTimeouts { to, .. } => {
                Arc::make_mut(&mut self.knobs).timeouts = timeouts(to);
                Ok(())
            }
            Change::SetKnobs { to, .. } => {
                set_knobs(Arc::make_mut(&mut self.knobs), to);
                Ok(())
            }
            Change::AddService { key, settings } => self.add_service(*key, settings),
            Change::EditService { key, to, .. } => self.edit_service(*key, to),
            Change::DeleteService { key } => self.delete_service(*key),
            Change::AddDest { service, dest } => self.add_dest(*service, dest),
            Change::EditDest { service, to, .. } => self.edit_dest(*service, to),
            Change::DeleteDest { service, dest } => self.delete_dest(*service, *dest),
            // Estimators' settings are those of their threads: control's.
            _ => Ok(()),
        }
    }

    /// The working copy as the next snapshot to publish. Cheap: shares everything.
    pub fn snapshot(&mut self) -> Snapshot {
        self.generation += 1;
        Snapshot {
            generation: self.generation,
            services: self.services.clone(),
            net: Arc::clone(&self.net),
            knobs: Arc::clone(&self.knobs),
            announce: Arc::clone(&self.announce),
        }
    }

    /// Frees what no worker can touch any more, now that every worker has taken `generation` in, and destinations
    /// that have been in the trash without connections for long enough. Now and then.
    pub fn reclaim(&mut self, generation: u64) {
        for slot in self.trash.sweep(self.now_ns, |slot| self.shared.dests[slot].total() > 0) {
            self.free(slot);
        }
        self.slots.reclaim(generation);
        self.settled = self.settled.max(generation);
    }

    /// Gives back the slot of a destination that nobody refers to any more.
    fn free(&mut self, slot: u32) {
        self.shared.dests[slot].reset();
        self.slots.release(slot);
    }

    /// Lets the statistics of a service and its destinations start from zero at their last pass, or all there are.
    pub fn zero(&mut self, key: Option<ServiceKey>) {
        let services = self.services.iter().filter(|service| key.is_none_or(|key| service.key == key));
        let slots = services.flat_map(|s| std::iter::once(s.slot).chain(s.dests.iter().map(|d| d.slot)));
        let totals = key.is_none().then_some(counters::TOTALS);
        for slot in slots.chain(totals) {
            self.estimators().zero(slot);
        }
    }

    fn set_network(&mut self, to: &config::Network) -> Result<(), ApplyError> {
        let neigh = &self.shared.neigh;
        for new in &to.neighbours {
            // Room first: what cannot be done whole is not begun.
            let addr = ipv4(new.address)?;
            neigh.find(new.port as u8, addr, self.now_ns).ok_or(ApplyError::TooManyNeighbours)?;
        }
        for old in &self.network.neighbours {
            if let Ok(addr) = ipv4(old.address) {
                neigh.clear_permanent(old.port as u8, addr, self.now_ns);
            }
        }
        for new in &to.neighbours {
            let addr = ipv4(new.address)?;
            if !neigh.set_permanent(new.port as u8, addr, Mac(new.mac.0), self.now_ns) {
                return Err(ApplyError::TooManyNeighbours);
            }
        }
        let net = Net::new(to, &self.facts, self.net.generation.wrapping_add(1));
        let new_addrs = net.ports.iter().flat_map(|p| &p.addresses).map(|a| a.addr());
        let fresh: Vec<Ipv4Addr> = new_addrs.filter(|a| self.net.local(*a).is_none()).collect();
        self.services.set_own(&self.net, &net);
        self.net = Arc::new(net);
        self.network = to.clone();
        self.announce(fresh);
        Ok(())
    }

    fn add_service(&mut self, key: ServiceKey, settings: &ServiceSettings) -> Result<(), ApplyError> {
        let addr = ipv4(key.addr)?;
        if self.services.find(addr, key.port, key.proto.number()).is_some() {
            return Err(ApplyError::ServiceExists(key));
        }
        let index = self.slots.take_index().ok_or_else(|| self.no_room())?;
        let Some(slot) = self.slots.take(self.est_now_ns) else {
            self.slots.untake_index(index);
            return Err(self.no_room());
        };
        let announced = self.services.vip(addr).is_some_and(|v| v.is_announced());
        self.sched_gen += 1;
        self.services.insert(
            addr,
            Service {
                key,
                index,
                slot,
                scheduler: settings.scheduler,
                flags: settings.flags,
                unmatched: settings.unmatched,
                announce: settings.announce,
                born: self.sched_gen,
                sched_gen: self.sched_gen,
                version: 0,
                dests: Vec::new(),
                turn: self.one_turn.then(Arc::<Turn>::default),
                rr: RrPlan::default(),
                wrr: WrrPlan::start(&[], 0),
            },
        );
        self.service_count += 1;
        if settings.announce && !announced {
            self.announce(vec![addr]);
        }
        Ok(())
    }

    fn edit_service(&mut self, key: ServiceKey, to: &ServiceSettings) -> Result<(), ApplyError> {
        let addr = ipv4(key.addr)?;
        let announced = self.services.vip(addr).is_some_and(|v| v.is_announced());
        self.sched_gen += 1;
        let (sched_gen, one_turn) = (self.sched_gen, self.one_turn);
        self.edit(key, |service| {
            if service.scheduler != to.scheduler {
                service.scheduler = to.scheduler;
                service.sched_gen = sched_gen;
                service.turn = one_turn.then(Arc::<Turn>::default);
                service.wrr = WrrPlan::start(&service.dests, service.version);
            }
            (service.flags, service.unmatched, service.announce) = (to.flags, to.unmatched, to.announce);
        })?;
        if to.announce && !announced {
            self.announce(vec![addr]);
        }
        Ok(())
    }

    fn delete_service(&mut self, key: ServiceKey) -> Result<(), ApplyError> {
        let addr = ipv4(key.addr)?;
        let service =
            self.services.remove(addr, key.port, key.proto.number()).ok_or(ApplyError::NoService(key))?;
        for dest in &service.dests {
            self.discard(&service, dest);
        }
        self.service_count -= 1;
        self.slots.retire(service.slot, service.index, self.generation + 1);
        Ok(())
    }

    fn add_dest(&mut self, key: ServiceKey, new: &Destination) -> Result<(), ApplyError> {
        let service = Arc::clone(self.service(key)?);
        let addr = ipv4(new.key.addr)?;
        if service.dests.iter().any(|d| dest_key(d) == new.key) {
            return Err(ApplyError::DestExists(key, new.key));
        }
        let slot = match self.trash.revive(key, new.key) {
            Some((slot, born)) => {
                self.estimators().revive(slot);
                if born != service.born {
                    // The service was made anew: statistics start over, connections go on.
                    self.estimators().zero(slot);
                }
                slot
            }
            None => self.slots.take(self.est_now_ns).ok_or_else(|| self.no_room())?,
        };
        let state = &self.shared.dests[slot];
        state.set_service(service.slot);
        state.configure(new.weight, new.upper, new.lower);
        state.set_available(true);
        self.order += 1;
        let dest = dest_of(slot, addr, new, self.order);
        self.count_nat(key, &dest, 1);
        self.dest_count += 1;
        self.edit(key, |service| {
            service.dests.insert(0, dest);
            list_changed(service);
        })
    }

    fn edit_dest(&mut self, key: ServiceKey, to: &Destination) -> Result<(), ApplyError> {
        let service = Arc::clone(self.service(key)?);
        let old = service.dests.iter().find(|d| dest_key(d) == to.key);
        let old = *old.ok_or(ApplyError::NoDest(key, to.key))?;
        let new = dest_of(old.slot, old.addr, to, old.order);
        self.shared.dests[old.slot].configure(to.weight, to.upper, to.lower);
        self.count_nat(key, &old, -1);
        self.count_nat(key, &new, 1);
        self.edit(key, |service| {
            for dest in service.dests.iter_mut().filter(|d| d.slot == old.slot) {
                *dest = new;
            }
            // The kernel tells the scheduler of every edit, whether or not the weight changed.
            list_changed(service);
        })
    }

    fn delete_dest(&mut self, key: ServiceKey, gone: DestKey) -> Result<(), ApplyError> {
        let service = Arc::clone(self.service(key)?);
        let dest = service.dests.iter().find(|d| dest_key(d) == gone).ok_or(ApplyError::NoDest(key, gone))?;
        self.discard(&service, dest);
        self.edit(key, |service| {
            service.dests.retain(|d| d.slot != dest.slot);
            list_changed(service);
        })
    }

    /// Takes a destination out of service; its object stays while connections need it.
    fn discard(&mut self, service: &Service, dest: &Dest) {
        self.shared.dests[dest.slot].set_available(false);
        self.count_nat(service.key, dest, -1);
        self.estimators().suspend(dest.slot);
        self.trash.put(service.key, dest_key(dest), dest.slot, service.born, self.generation + 1);
        self.dest_count -= 1;
    }

    fn count_nat(&mut self, key: ServiceKey, dest: &Dest, by: i32) {
        if dest.method == Method::Nat {
            let port = if dest.port == 0 { key.port } else { dest.port };
            self.services.count_nat_dest(dest.addr, port, key.proto.number(), by);
        }
    }

    fn service(&self, key: ServiceKey) -> Result<&Arc<Service>, ApplyError> {
        let addr = ipv4(key.addr)?;
        self.services.find(addr, key.port, key.proto.number()).ok_or(ApplyError::NoService(key))
    }

    fn edit(&mut self, key: ServiceKey, change: impl FnOnce(&mut Service)) -> Result<(), ApplyError> {
        let found = self.services.edit(ipv4(key.addr)?, key.port, key.proto.number(), change);
        found.then_some(()).ok_or(ApplyError::NoService(key))
    }

    fn announce(&mut self, addrs: Vec<Ipv4Addr>) {
        let kept = self.limits.services as usize + self.net.own().count() + ANNOUNCEMENTS_SPARE;
        for addr in addrs {
            Arc::make_mut(&mut self.announce).push(addr, kept);
        }
    }
}

/// A destination came, went or was edited: positions start over as the scheduler's rules say.
fn list_changed(service: &mut Service) {
    service.version = service.version.wrapping_add(1);
    service.rr.change(&service.dests, service.version);
    if service.scheduler == Scheduler::Wrr {
        service.wrr.change(&service.dests, service.version);
    }
}

fn dest_of(slot: u32, addr: Ipv4Addr, dest: &Destination, order: u64) -> Dest {
    Dest {
        slot,
        addr,
        port: dest.key.port,
        method: dest.method,
        weight: dest.weight,
        upper: dest.upper,
        lower: dest.lower,
        order,
    }
}

fn dest_key(dest: &Dest) -> DestKey {
    DestKey::new(IpAddr::V4(dest.addr), dest.port)
}

fn ipv4(addr: IpAddr) -> Result<Ipv4Addr, ApplyError> {
    match addr {
        IpAddr::V4(addr) => Ok(addr),
        IpAddr::V6(_) => Err(ApplyError::NotIpv4(addr)),
    }
}

#[cfg(test)]
mod tests;

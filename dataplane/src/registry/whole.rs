//! Changes are made all or none: what can be refused is found before the first is made.
//!
//! Model: a [`Trial`] walks the changes over the registry and notes what would be there after each of them; it touches
//! nothing. The limits hold for what is there at the end. A plan's additions come before its removals, so in between
//! there may be twice as much, for which there are slots. What deleted objects hold of these is asked back from the
//! trash when it is wanted.

use std::collections::{HashMap, HashSet};

use config::{Change, DestKey, ServiceKey};

use super::{ApplyError, Registry, dest_key, ipv4};

/// What the changes take of the slots.
struct Needs {
    /// Services that come.
    services: Vec<usize>,
    /// Destinations that come.
    dests: Vec<usize>,
    /// Those of them that are in the trash: they have their slots.
    revived: HashSet<(ServiceKey, DestKey)>,
}

/// The registry as it would be.
struct Trial<'r> {
    registry: &'r Registry,
    /// Services that were touched.
    views: HashMap<ServiceKey, View>,
    services: u32,
    dests: u32,
    needs: Needs,
}

/// A service as it would be.
struct View {
    exists: bool,
    /// Made anew or deleted: what the registry says of its destinations is no more.
    emptied: bool,
    /// Whether the destinations that came or went are there.
    dests: HashMap<DestKey, bool>,
    count: u32,
}

impl Registry {
    /// Applies one change to the working copy; it is in force once a [`Registry::snapshot`] is published.
    ///
    /// # Errors
    /// Nothing was changed.
    pub fn apply(&mut self, change: &Change) -> Result<(), ApplyError> {
        self.apply_all(std::slice::from_ref(change)).map_err(|(_, error)| error)
    }

    /// Applies all changes, or none. The limits hold for what is there after the last one.
    ///
    /// # Errors
    /// The position of the change that is refused, and why. Nothing was changed.
    pub fn apply_all(&mut self, changes: &[Change]) -> Result<(), (usize, ApplyError)> {
        let needs = Trial::new(self).all(changes)?;
        let last = changes.len().saturating_sub(1);
        self.make_room(&needs).map_err(|error| (last, error))?;
        // The network first: it has to find room in the neighbour table, which workers share.
        let numbered = || changes.iter().enumerate();
        let is_network = |change: &Change| matches!(change, Change::SetNetwork { .. });
        let network = numbered().filter(|(_, change)| is_network(change));
        for (number, change) in network.chain(numbered().filter(|(_, change)| !is_network(change))) {
            self.make(change).map_err(|error| (number, error))?;
        }
        Ok(())
    }

    /// Has the trash give up what the changes need beyond what is free.
    fn make_room(&mut self, needs: &Needs) -> Result<(), ApplyError> {
        let (services, dests) = (self.limits.services as usize, self.limits.destinations as usize);
        let (there, retired) = (self.service_count as usize, self.slots.retired());
        if there + retired + needs.services.len() > 2 * services {
            return Err(self.no_room());
        }
        let used = there + self.dest_count as usize + retired + self.trash.len();
        let wanted = needs.services.len() + needs.dests.len() - needs.revived.len();
        let missing = (used + wanted).saturating_sub(2 * (services + dests));
        let states = &self.shared.dests;
        let in_use = |slot: u32| states[slot].total() > 0;
        let freed = self.trash.evict(missing, self.settled, |name| needs.revived.contains(name), in_use);
        let freed = freed.ok_or_else(|| self.no_room())?;
        freed.into_iter().for_each(|slot| self.free(slot));
        Ok(())
    }

    /// What holds the slots when there are none.
    pub(super) fn no_room(&self) -> ApplyError {
        ApplyError::NoRoom((self.trash.len() + self.slots.retired()) as u32)
    }
}

impl<'r> Trial<'r> {
    fn new(registry: &'r Registry) -> Self {
        let needs = Needs { services: Vec::new(), dests: Vec::new(), revived: HashSet::new() };
        let (services, dests) = registry.sizes();
        Trial { registry, views: HashMap::new(), services, dests, needs }
    }

    /// What all changes take, or the first that cannot be made.
    fn all(mut self, changes: &[Change]) -> Result<Needs, (usize, ApplyError)> {
        for (number, change) in changes.iter().enumerate() {
            self.one(number, change).map_err(|error| (number, error))?;
        }
        let limits = &self.registry.limits;
        let Needs { services, dests, .. } = &self.needs;
        if let Some(first) = beyond(self.services, limits.services, services) {
            return Err((first, ApplyError::TooManyServices(limits.services)));
        }
        if let Some(first) = beyond(self.dests, limits.destinations, dests) {
            return Err((first, ApplyError::TooManyDests(limits.destinations)));
        }
        Ok(self.needs)
    }

    fn one(&mut self, number: usize, change: &Change) -> Result<(), ApplyError> {
        match change {
            Change::AddService { key, .. } => {
                let view = self.view(*key)?;
                if view.exists {
                    return Err(ApplyError::ServiceExists(*key));
                }
                *view = View { exists: true, emptied: true, dests: HashMap::new(), count: 0 };
                self.services += 1;
                self.needs.services.push(number);
            }
            Change::EditService { key, .. } => {
                self.there(*key)?;
            }
            Change::DeleteService { key } => {
                let view = self.there(*key)?;
                let gone = view.count;
                *view = View { exists: false, emptied: true, dests: HashMap::new(), count: 0 };
                self.services -= 1;
                self.dests -= gone;
            }
            Change::AddDest { service, dest } => {
                self.there(*service)?;
                ipv4(dest.key.addr)?;
                if self.has(*service, dest.key) {
                    return Err(ApplyError::DestExists(*service, dest.key));
                }
                self.set(*service, dest.key, true);
                self.dests += 1;
                self.needs.dests.push(number);
                if self.registry.is_trashed(*service, dest.key) {
                    self.needs.revived.insert((*service, dest.key));
                }
            }
            Change::EditDest { service, to, .. } => self.dest(*service, to.key)?,
            Change::DeleteDest { service, dest } => {
                self.dest(*service, *dest)?;
                self.set(*service, *dest, false);
                self.dests -= 1;
            }
            // Refused, if at all, before anything is done.
            _ => {}
        }
        Ok(())
    }

    fn view(&mut self, key: ServiceKey) -> Result<&mut View, ApplyError> {
        ipv4(key.addr)?;
        let registry = self.registry;
        Ok(self.views.entry(key).or_insert_with(|| {
            let service = registry.service(key).ok();
            let count = service.map_or(0, |service| service.dests.len() as u32);
            View { exists: service.is_some(), emptied: false, dests: HashMap::new(), count }
        }))
    }

    /// The service, which has to be there.
    fn there(&mut self, key: ServiceKey) -> Result<&mut View, ApplyError> {
        let view = self.view(key)?;
        if view.exists { Ok(view) } else { Err(ApplyError::NoService(key)) }
    }

    /// The destination has to be there.
    fn dest(&mut self, service: ServiceKey, dest: DestKey) -> Result<(), ApplyError> {
        self.there(service)?;
        self.has(service, dest).then_some(()).ok_or(ApplyError::NoDest(service, dest))
    }

    fn has(&self, service: ServiceKey, dest: DestKey) -> bool {
        let view = &self.views[&service];
        let before =
            || self.registry.service(service).is_ok_and(|s| s.dests.iter().any(|d| dest_key(d) == dest));
        view.dests.get(&dest).copied().unwrap_or_else(|| !view.emptied && before())
    }

    fn set(&mut self, service: ServiceKey, dest: DestKey, is_there: bool) {
        if let Some(view) = self.views.get_mut(&service) {
            view.dests.insert(dest, is_there);
            view.count = if is_there { view.count + 1 } else { view.count - 1 };
        }
    }
}

/// Of the changes that add something, the first for which a limit has no room.
fn beyond(count: u32, limit: u32, additions: &[usize]) -> Option<usize> {
    let excess = count.saturating_sub(limit) as usize;
    (excess > 0).then(|| additions[additions.len() - excess])
}

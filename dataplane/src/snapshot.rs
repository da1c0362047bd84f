//! The configuration as workers see it: immutable, published whole, shared in parts.
//!
//! Addresses lie in shards, each behind an `Arc`, so that "is this address ours", asked for every packet, is two steps.
//! Services lie in groups of parts by their whole key, each group and each part behind an `Arc`, each service behind
//! another: to copy an `Arc` of a service is to write to its cold cache line, so a change copies a shard, the heads of
//! a group's parts and one part, some dozen `Arc`s, and many additions cost linear time, on one address too.

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::sync::Arc;

use config::Unmatched;
use foldhash::fast::FixedState;

use crate::addresses::Addresses;
use crate::announcements::Announcements;
use crate::conn::state::Timeouts;
use crate::route::Net;
use crate::service::Service;

/// Shards of the addresses, a power of two. With 100 000 addresses a shard holds about 100, and copying one takes about a
/// microsecond; a snapshot copies a pointer for each, some microseconds too.
pub const SHARDS: usize = 1024;
/// Groups of services and parts of a group, powers of two: about 25 services in each part with 100 000.
const GROUPS: usize = 256;
const PARTS: usize = 16;

/// One immutable configuration. Any thread may read it; the last reference is dropped on the control thread.
#[derive(Clone)]
pub struct Snapshot {
    /// Number of the publication, rising.
    pub generation: u64,
    /// Services by key.
    pub services: ServiceMap,
    /// Ports, addresses, routes.
    pub net: Arc<Net>,
    /// Knobs, timeouts and policy.
    pub knobs: Arc<Knobs>,
    /// Addresses that became ours, to announce those that still are.
    pub announce: Arc<Announcements>,
}

impl Snapshot {
    /// Whether `addr` is to be announced: a port's own or a virtual one that wants it. Slow path.
    pub fn announces(&self, addr: Ipv4Addr) -> bool {
        self.net.local(addr).is_some() || self.services.vip(addr).is_some_and(Vip::is_announced)
    }
}

/// Knobs of the packet path, each by its `net.ipv4.vs` name, and policy.
#[derive(Clone, Debug)]
pub struct Knobs {
    /// Bit map: 1 a SYN on TIME_WAIT or CLOSE is scheduled anew, 2 also on FIN_WAIT of a one-way connection.
    pub conn_reuse_mode: i32,
    /// A packet for a deleted destination ends its connection instead of being dropped.
    pub expire_nodest_conn: bool,
    /// TCP may start in mid-stream.
    pub sloppy_tcp: bool,
    /// 0 off, 3 on, 1 and 2 on while memory is low.
    pub secure_tcp: i32,
    /// 0 off, 3 on, 1 and 2 on while memory is low.
    pub drop_packet: i32,
    /// Every so many-th new connection is refused while `drop_packet` is 3; 0 none.
    pub am_droprate: u32,
    /// Stray packets of NAT destinations are answered with port unreachable.
    pub nat_icmp_send: bool,
    /// Idle times by state, ticks.
    pub timeouts: Timeouts,
    /// Answer to unmatched packets for addresses of ours that are no service's.
    pub unmatched: Unmatched,
    /// Whether echo requests are answered.
    pub echo: bool,
    /// Generated ICMP errors, echo replies and resets: each at most this many a second per worker.
    pub icmp_rate: u32,
    /// How many of each may leave at once.
    pub icmp_burst: u32,
}

/// Services by (address, L4 port, protocol), and the addresses themselves.
#[derive(Clone)]
pub struct ServiceMap {
    /// Shards that hold any address, one bit each: all that most packets to somewhere else touch.
    occupied: [u64; SHARDS / 64],
    shards: Box<[Arc<Shard>]>,
    groups: Box<[Arc<Group>]>,
}

#[derive(Clone, Default)]
struct Shard {
    /// The keys of `vips` and `own`, for a look at every packet.
    addresses: Addresses,
    /// The ports' own addresses.
    own: Vec<Ipv4Addr>,
    vips: HashMap<Ipv4Addr, Vip, FixedState>,
    /// How many services have (server address, port, protocol) as a NAT destination.
    nat_dests: HashMap<(Ipv4Addr, u16, u8), u32, FixedState>,
}

/// Services by (address, L4 port, protocol).
type Part = HashMap<(Ipv4Addr, u16, u8), Arc<Service>, FixedState>;
type Group = [Arc<Part>; PARTS];

/// A virtual address.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Vip {
    /// Services that have it.
    pub services: u32,
    /// Of them, those that want it announced.
    pub announcing: u32,
}

impl Vip {
    /// Whether ARP for it is answered.
    pub fn is_announced(self) -> bool {
        self.announcing > 0
    }
}

impl Default for ServiceMap {
    fn default() -> Self {
        // One empty shard and one empty group for all: few addresses are anybody's, and a look at any other
        // should find the cache lines that the last look did.
        let (shard, group) = (Arc::default(), Arc::default());
        Self {
            occupied: [0; SHARDS / 64],
            shards: std::iter::repeat_n(shard, SHARDS).collect(),
            groups: std::iter::repeat_n(group, GROUPS).collect(),
        }
    }
}

impl ServiceMap {
    /// The service of that identity. Slow path.
    pub fn find(&self, addr: Ipv4Addr, port: u16, proto: u8) -> Option<&Arc<Service>> {
        let (group, part) = part_of(addr, port);
        self.groups[group][part].get(&(addr, port, proto))
    }

    /// Whether `addr` is a virtual address or a port's own: what goes to one is a request, or was one while it had a
    /// service. Hot, with several workers.
    #[inline(always)]
    pub fn is_address(&self, addr: u32) -> bool {
        let shard = shard_of(Ipv4Addr::from_bits(addr));
        self.occupied[shard / 64] >> (shard % 64) & 1 == 1 && self.shards[shard].addresses.contains(addr)
    }

    /// The virtual address's entry, if it is one. Slow path.
    pub fn vip(&self, addr: Ipv4Addr) -> Option<Vip> {
        self.shards[shard_of(addr)].vips.get(&addr).copied()
    }

    /// Whether any service has that endpoint as a NAT destination. Slow path.
    pub fn has_nat_dest(&self, addr: Ipv4Addr, port: u16, proto: u8) -> bool {
        self.shards[shard_of(addr)].nat_dests.contains_key(&(addr, port, proto))
    }

    /// Every virtual address.
    pub fn vips(&self) -> impl Iterator<Item = (Ipv4Addr, Vip)> {
        self.shards.iter().flat_map(|s| s.vips.iter().map(|(a, v)| (*a, *v)))
    }

    /// Every service, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Service>> {
        self.groups.iter().flat_map(|group| group.iter()).flat_map(|part| part.values())
    }

    /// Puts in a service that is not there yet. Control, on its working copy.
    pub(crate) fn insert(&mut self, addr: Ipv4Addr, service: Service) {
        let vip = Arc::make_mut(&mut self.shards[shard_of(addr)]).vips.entry(addr).or_default();
        vip.services += 1;
        vip.announcing += u32::from(service.announce);
        self.settle(addr);
        let (port, proto) = (service.key.port, service.key.proto.number());
        self.part(addr, port).insert((addr, port, proto), Arc::new(service));
    }

    /// Counts a NAT destination in (+1) or out (-1). Control.
    pub(crate) fn count_nat_dest(&mut self, addr: Ipv4Addr, port: u16, proto: u8, by: i32) {
        let shard = Arc::make_mut(&mut self.shards[shard_of(addr)]);
        let count = shard.nat_dests.entry((addr, port, proto)).or_default();
        *count = count.saturating_add_signed(by);
        if *count == 0 {
            shard.nat_dests.remove(&(addr, port, proto));
        }
    }

    /// Takes a service out. Control.
    pub(crate) fn remove(&mut self, addr: Ipv4Addr, port: u16, proto: u8) -> Option<Arc<Service>> {
        let service = self.part(addr, port).remove(&(addr, port, proto))?;
        let shard = Arc::make_mut(&mut self.shards[shard_of(addr)]);
        if let Some(vip) = shard.vips.get_mut(&addr) {
            vip.services -= 1;
            vip.announcing -= u32::from(service.announce);
            if vip.services == 0 {
                shard.vips.remove(&addr);
                self.settle(addr);
            }
        }
        Some(service)
    }

    /// The ports have other addresses of their own. Control.
    pub(crate) fn set_own(&mut self, old: &Net, new: &Net) {
        for addr in old.own() {
            Arc::make_mut(&mut self.shards[shard_of(addr)]).own.retain(|own| *own != addr);
            self.settle(addr);
        }
        for addr in new.own() {
            Arc::make_mut(&mut self.shards[shard_of(addr)]).own.push(addr);
            self.settle(addr);
        }
    }

    /// Puts `addr` in or out of what every packet is looked up in, as it is ours now.
    fn settle(&mut self, addr: Ipv4Addr) {
        let number = shard_of(addr);
        let shard = Arc::make_mut(&mut self.shards[number]);
        if shard.vips.contains_key(&addr) || shard.own.contains(&addr) {
            shard.addresses.insert(addr.to_bits());
        } else {
            shard.addresses.remove(addr.to_bits());
        }
        let (bit, empty) = (1 << (number % 64), shard.vips.is_empty() && shard.own.is_empty());
        let occupied = &mut self.occupied[number / 64];
        *occupied = if empty { *occupied & !bit } else { *occupied | bit };
    }

    /// Changes a service in place, copying it if a published snapshot shares it. Control.
    pub(crate) fn edit(
        &mut self,
        addr: Ipv4Addr,
        port: u16,
        proto: u8,
        change: impl FnOnce(&mut Service),
    ) -> bool {
        let Some(service) = self.part(addr, port).get_mut(&(addr, port, proto)) else { return false };
        let announced = service.announce;
        change(Arc::make_mut(service));
        let announces = service.announce;
        if announces != announced {
            let shard = Arc::make_mut(&mut self.shards[shard_of(addr)]);
            if let Some(vip) = shard.vips.get_mut(&addr) {
                vip.announcing = vip.announcing + u32::from(announces) - u32::from(announced);
            }
        }
        true
    }

    /// The part that holds the services of an address and port, to change it.
    fn part(&mut self, addr: Ipv4Addr, port: u16) -> &mut Part {
        let (group, part) = part_of(addr, port);
        Arc::make_mut(&mut Arc::make_mut(&mut self.groups[group])[part])
    }
}

fn shard_of(addr: Ipv4Addr) -> usize {
    // Multiplicative hash: neighbouring addresses, the usual case, spread over the shards.
    (addr.to_bits().wrapping_mul(0x9E37_79B1) >> (u32::BITS - SHARDS.ilog2())) as usize
}

/// Group, and part of it.
fn part_of(addr: Ipv4Addr, port: u16) -> (usize, usize) {
    // Likewise, for neighbouring ports too, in whatever address.
    let product = addr.to_bits().wrapping_mul(0x9E37_79B1) ^ u32::from(port).wrapping_mul(0x85EB_CA6B);
    let part = (product >> (u32::BITS - GROUPS.ilog2() - PARTS.ilog2())) as usize;
    (part / PARTS, part % PARTS)
}

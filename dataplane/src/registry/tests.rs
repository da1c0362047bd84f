//! Life of services and destinations as control sees it: slots, trash, statistics, refusals.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::sync::atomic::Ordering::Release;

use config::Proto;

use super::*;
use crate::counters::Totals;
use crate::est::{Engine, Host, Next, PERIOD_NS, Snapshot};
use crate::publish::Publisher;

const WEB: ServiceKey = ServiceKey::new(Proto::Tcp, IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)), 80);
const DNS: ServiceKey = ServiceKey::new(Proto::Udp, IpAddr::V4(Ipv4Addr::new(203, 0, 113, 10)), 53);
const MINUTE: u64 = 60_000_000_000;

fn registry(limits: &str) -> Registry {
    let ports = "[[port]]\nname = \"lan\"\ndevice = \"memory\"\naddresses = [\"10.0.0.254/24\"]\n";
    let valid = config::parse(&format!("{ports}{limits}"), "test.toml").unwrap();
    let facts = vec![PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }];
    let mut registry = Registry::new(&valid, facts, 1).unwrap();
    for change in config::plan(&Valid::empty(), &valid).changes {
        registry.apply(&change).unwrap();
    }
    registry
}

fn add_service(key: ServiceKey) -> Change {
    let text = format!("[[service]]\naddress = \"{}://{}:{}\"\n", key.proto, key.addr, key.port);
    let ports = "[[port]]\nname = \"lan\"\ndevice = \"memory\"\naddresses = [\"10.0.0.254/24\"]\n";
    let valid = config::parse(&format!("{ports}{text}"), "test.toml").unwrap();
    let settings = valid.services()[0].settings;
    Change::AddService { key, settings }
}

fn destination(number: u8) -> Destination {
    let key = DestKey::new(Ipv4Addr::new(10, 0, 0, number).into(), 8080);
    Destination { key, method: Method::Nat, weight: 1, upper: 0, lower: 0 }
}

fn add(service: ServiceKey, number: u8) -> Change {
    Change::AddDest { service, dest: destination(number) }
}

fn delete(service: ServiceKey, number: u8) -> Change {
    Change::DeleteDest { service, dest: destination(number).key }
}

/// Time that stands still.
struct Still(u64);

impl Host for Still {
    fn now_ns(&mut self) -> u64 {
        self.0
    }

    fn cpu_ns(&mut self) -> u64 {
        self.0
    }

    fn between_pieces(&mut self) -> ControlFlow<()> {
        ControlFlow::Continue(())
    }
}

impl Registry {
    /// One pass of every estimator, or two.
    fn pass(&mut self) {
        let mut engine = Engine::new(Arc::clone(self.estimators()), 0);
        let mut host = Still(self.est_now_ns);
        while host.0 < self.est_now_ns + PERIOD_NS {
            let Next::At(at) = engine.turn(&mut host) else { panic!("estimation is on") };
            host.0 = host.0.max(at);
        }
        self.set_est_time(host.0);
    }

    #[track_caller]
    fn must(&mut self, changes: &[Change]) {
        for change in changes {
            self.apply(change).unwrap_or_else(|error| panic!("{change}: {error}"));
        }
    }

    fn slots(&self, key: ServiceKey) -> (u32, Vec<u32>) {
        let row = self.find(key).unwrap();
        (row.service.slot, row.dests.iter().map(|row| row.dest.slot).collect())
    }

    fn dest_row(&self, service: ServiceKey, number: u8) -> DestRow {
        let rows = self.find(service).unwrap().dests;
        *rows.iter().find(|row| dest_key(&row.dest) == destination(number).key).unwrap()
    }
}

#[test]
fn new_destinations_stand_at_the_head() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1), add(WEB, 2), add(WEB, 3), delete(WEB, 2), add(WEB, 2)]);
    let order: Vec<u8> =
        registry.find(WEB).unwrap().dests.iter().map(|row| row.dest.addr.octets()[3]).collect();
    assert_eq!(order, [2, 3, 1]);
    let orders: Vec<u64> = registry.find(WEB).unwrap().dests.iter().map(|row| row.dest.order).collect();
    assert!(orders.is_sorted_by(|a, b| a > b), "{orders:?}");
}

#[test]
fn a_services_slot_is_free_once_no_worker_can_hold_it() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), Change::DeleteService { key: WEB }, add_service(DNS)]);
    let (first, second) = (1, registry.slots(DNS).0);
    assert_ne!(second, first, "still known to workers");
    let index = |registry: &Registry, key| registry.find(key).unwrap().service.index;
    assert_eq!(index(&registry, DNS), 1);

    // The generation before the deletion is not enough.
    let generation = registry.snapshot().generation;
    registry.reclaim(generation - 1);
    registry.must(&[add_service(WEB)]);
    assert_ne!(registry.slots(WEB).0, first);
    registry.must(&[Change::DeleteService { key: WEB }]);
    registry.reclaim(generation);
    registry.must(&[add_service(WEB)]);
    assert_eq!((registry.slots(WEB).0, index(&registry, WEB)), (first, 0));
}

#[test]
fn a_destinations_slot_is_free_two_minutes_after_its_last_connection() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    let (_, slots) = registry.slots(WEB);
    let slot = slots[0];
    registry.shared().dests[slot].bind();
    registry.must(&[delete(WEB, 1)]);
    assert_eq!(registry.trashed(), 1);
    assert!(!registry.shared().dests[slot].is_available());

    let at = |registry: &mut Registry, minutes: u64| {
        registry.set_time(minutes * MINUTE);
        registry.reclaim(0);
        registry.trashed()
    };
    assert_eq!((at(&mut registry, 1), at(&mut registry, 100)), (1, 1), "it has a connection");
    registry.shared().dests[slot].unbind(false);
    assert_eq!((at(&mut registry, 101), at(&mut registry, 102)), (1, 1));
    registry.must(&[add(WEB, 2)]);
    assert_ne!(registry.slots(WEB).1, [slot]);
    assert_eq!(at(&mut registry, 103), 0);
    registry.must(&[add(WEB, 3)]);
    assert_eq!(registry.slots(WEB).1[0], slot);
}

#[test]
fn a_destination_that_comes_back_is_the_same() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    let (service, dest) = (registry.slots(WEB).0, registry.slots(WEB).1[0]);
    let counters = registry.counters(0);
    registry.shared().dests[dest].bind();
    counters.count_conn(dest, service);
    counters.count_in(dest, service, 100);
    let before = registry.dest_row(WEB, 1).totals;
    assert_eq!((before.conns, before.inpkts, before.inbytes), (1, 1, 100));

    registry.must(&[delete(WEB, 1), add(WEB, 2), add(WEB, 1)]);
    let row = registry.dest_row(WEB, 1);
    assert_eq!((row.dest.slot, row.inactive, row.totals), (dest, 1, before));
    assert!(registry.shared().dests[dest].is_available());
    assert_eq!(registry.trashed(), 0);
    assert_eq!(registry.dest_row(WEB, 2).totals, Totals::default());
}

#[test]
fn a_service_made_anew_starts_its_statistics_over_and_keeps_its_connections() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    let (service, dest) = (registry.slots(WEB).0, registry.slots(WEB).1[0]);
    registry.shared().dests[dest].bind();
    registry.counters(0).count_in(dest, service, 100);
    assert_eq!((registry.totals().inpkts, registry.stats().totals.inpkts), (1, 0), "before the first pass");
    registry.pass();
    registry.pass();
    assert_eq!((registry.stats().totals.inpkts, registry.dest_row(WEB, 1).stats.totals.inpkts), (1, 1));

    registry.must(&[Change::DeleteService { key: WEB }]);
    assert_eq!((registry.trashed(), registry.sizes()), (1, (0, 0)));
    assert!(!registry.shared().dests[dest].is_available());
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    let (new_service, new_dests) = registry.slots(WEB);
    assert_eq!(new_dests, [dest], "the destination is the same object");
    let row = registry.dest_row(WEB, 1);
    assert_eq!((row.inactive, row.totals), (1, Totals::default()));
    assert_eq!(registry.find(WEB).unwrap().totals, Totals::default());

    // Packets of its connections count for the new service from now on.
    let state = &registry.shared().dests[dest];
    assert_eq!((state.is_available(), state.service()), (true, new_service));
    registry.counters(0).count_in(dest, state.service(), 50);
    assert_eq!(registry.dest_row(WEB, 1).totals.inbytes, 50);
    assert_eq!(registry.find(WEB).unwrap().totals.inbytes, 50);
    assert_eq!(registry.totals().inbytes, 150, "the box's totals go on");
    registry.pass();
    registry.pass();
    let row = registry.find(WEB).unwrap();
    let shown = |stats: &Snapshot| (stats.totals.inbytes, stats.rates.inbps > 0);
    assert_eq!((shown(&row.stats), shown(&row.dests[0].stats)), ((50, true), (50, true)));
    registry.zero(Some(WEB));
    assert_eq!(registry.find(WEB).unwrap().stats.totals, Totals::default());
    assert_eq!(registry.stats().totals.inbytes, 150, "of a service, not of the box");
    registry.zero(None);
    assert_eq!((registry.stats().totals, registry.totals()), (Totals::default(), Totals::default()));
}

/// A worker that is behind counts in the slots of what it still knows: no object that came since has them, in its totals
/// or in its rates.
#[test]
fn what_a_worker_counts_for_the_deleted_reaches_nobody() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    registry.pass();
    let (service, dests) = registry.slots(WEB);
    let generation = registry.snapshot().generation;
    registry.must(&[Change::DeleteService { key: WEB }, add_service(DNS), add(DNS, 2)]);
    let counters = registry.counters(0);
    (0..1000).for_each(|_| counters.count_in(dests[0], service, 100));
    let shown = |registry: &Registry| {
        let row = registry.find(DNS).unwrap();
        (row.stats.totals, row.stats.rates, row.dests[0].stats.totals, row.dests[0].stats.rates)
    };
    registry.pass();
    registry.pass();
    assert_eq!(shown(&registry), Default::default());

    // Every worker has left it: the slot goes to the next service, which starts at what the deleted one left.
    registry.reclaim(generation + 1);
    registry.must(&[Change::DeleteService { key: DNS }, add_service(DNS), add(DNS, 2)]);
    registry.pass();
    registry.pass();
    assert_eq!(shown(&registry), Default::default());
}

/// A slot that is used again starts at zero for its new object.
#[test]
fn a_reused_slot_starts_at_zero() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB)]);
    let slot = registry.slots(WEB).0;
    registry.counters(0).count_in(7, slot, 999);
    registry.must(&[Change::DeleteService { key: WEB }]);
    let generation = registry.snapshot().generation;
    registry.reclaim(generation);
    registry.must(&[add_service(DNS)]);
    assert_eq!((registry.slots(DNS).0, registry.find(DNS).unwrap().totals), (slot, Totals::default()));
}

#[test]
fn what_is_refused_changes_nothing() {
    let mut registry = registry("[limits]\nservices = 1\ndestinations = 2\n");
    registry.must(&[add_service(WEB), add(WEB, 1), add(WEB, 2)]);
    let ipv6 = ServiceKey::new(Proto::Tcp, "2001:db8::1".parse().unwrap(), 80);
    let ipv6_dest = DestKey::new("2001:db8::2".parse().unwrap(), 80);
    let unknown = destination(9);
    let Change::AddService { settings, .. } = add_service(WEB) else { unreachable!() };
    let refused = [
        (add_service(WEB), ApplyError::ServiceExists(WEB)),
        (add_service(DNS), ApplyError::TooManyServices(1)),
        (Change::AddService { key: ipv6, settings }, ApplyError::NotIpv4(ipv6.addr)),
        (Change::DeleteService { key: DNS }, ApplyError::NoService(DNS)),
        (Change::EditService { key: DNS, from: settings, to: settings }, ApplyError::NoService(DNS)),
        (add(WEB, 1), ApplyError::DestExists(WEB, destination(1).key)),
        (add(WEB, 3), ApplyError::TooManyDests(2)),
        (add(DNS, 1), ApplyError::NoService(DNS)),
        (delete(WEB, 9), ApplyError::NoDest(WEB, unknown.key)),
        (Change::EditDest { service: WEB, from: unknown, to: unknown }, ApplyError::NoDest(WEB, unknown.key)),
        (
            Change::AddDest { service: WEB, dest: Destination { key: ipv6_dest, ..unknown } },
            ApplyError::NotIpv4(ipv6_dest.addr),
        ),
    ];
    let picture = |registry: &Registry| {
        (
            format!("{:?}", registry.find(WEB)),
            registry.sizes(),
            registry.trashed(),
            registry.dest_names().len(),
        )
    };
    let before = picture(&registry);
    for (change, expected) in refused {
        assert_eq!(registry.apply(&change), Err(expected), "{change}");
        assert_eq!(picture(&registry), before, "{change}");
    }
    // At the limits everything can be replaced at once: what was deleted has slots besides.
    registry.must(&[delete(WEB, 1), add(WEB, 3), delete(WEB, 2), add(WEB, 4)]);
    // Once more is too much until workers have left what was deleted: seven slots here, totals and service included.
    registry.must(&[delete(WEB, 3), delete(WEB, 4), add(WEB, 5)]);
    assert_eq!(registry.apply(&add(WEB, 6)), Err(ApplyError::NoRoom(4)));
    for minutes in [1, 2, 3] {
        registry.set_time(minutes * MINUTE);
        registry.reclaim(0);
    }
    registry.must(&[add(WEB, 6)]);
    assert_eq!(registry.sizes(), (1, 2));
}

/// Deleted destinations without connections make room, the first deleted first; what has connections, what a worker
/// may still know and what comes back with the same plan stay.
#[test]
fn the_trash_makes_room_when_it_is_needed() {
    let mut registry = registry("[limits]\nservices = 1\ndestinations = 2\n");
    registry.must(&[add_service(WEB)]);
    for round in 0..100 {
        let (one, other) = (2 * round + 1, 2 * round + 2);
        registry.must(&[add(WEB, one), add(WEB, other)]);
        assert_eq!(registry.dest_row(WEB, one).inactive, 0);
        registry.must(&[delete(WEB, one), delete(WEB, other)]);
        let generation = registry.snapshot().generation;
        registry.reclaim(generation);
    }
    // The first of five that are deleted with a connection each stays, and the second.
    let mut registry = self::registry("[limits]\nservices = 1\ndestinations = 2\n");
    registry.must(&[add_service(WEB)]);
    for number in 1..=5 {
        registry.must(&[add(WEB, number)]);
        let slot = registry.slots(WEB).1[0];
        registry.shared().dests[slot].bind();
        registry.must(&[delete(WEB, number)]);
    }
    let generation = registry.snapshot().generation;
    let slots: HashMap<u8, u32> =
        registry.dest_names().iter().map(|(slot, (_, dest))| (last_octet(*dest), *slot)).collect();
    let refused = registry.apply(&add(WEB, 6)).unwrap_err();
    assert_eq!(refused, ApplyError::NoRoom(5));
    assert!(
        refused.to_string().contains("5 deleted services and destinations are still in use"),
        "{refused}"
    );
    for number in [2, 3, 4] {
        registry.shared().dests[slots[&number]].unbind(false);
    }
    registry.reclaim(generation - 1);
    assert_eq!(registry.apply(&add(WEB, 6)), Err(ApplyError::NoRoom(5)), "a worker may still know them");
    registry.reclaim(generation);
    let trashed = |registry: &Registry| {
        let is_trashed = |number: &u8| registry.is_trashed(WEB, destination(*number).key);
        (1..=6).filter(is_trashed).collect::<Vec<_>>()
    };
    registry.apply_all(&[add(WEB, 6), add(WEB, 2)]).unwrap();
    assert_eq!(trashed(&registry), [1, 4, 5]);
    assert_eq!(registry.slots(WEB).1, [slots[&2], slots[&3]]);
}

/// A plan as `config::plan` makes it: what comes is first, what goes is last.
#[test]
fn limits_hold_for_the_result_of_a_plan() {
    let ports = "[[port]]\nname = \"lan\"\ndevice = \"memory\"\naddresses = [\"10.0.0.254/24\"]\n";
    let file = |services: &[(u8, &[u8])]| {
        let dest =
            |n: &u8| format!("[[service.destination]]\naddress = \"10.0.0.{n}:80\"\nmethod = \"nat\"\n");
        let service = |(number, dests): &(u8, &[u8])| {
            let dests: String = dests.iter().map(dest).collect();
            format!("[[service]]\naddress = \"tcp://203.0.113.{number}:80\"\n{dests}")
        };
        let services: String = services.iter().map(service).collect();
        config::parse(&format!("[limits]\nservices = 1\ndestinations = 2\n{ports}{services}"), "t").unwrap()
    };
    let mut registry = registry("[limits]\nservices = 1\ndestinations = 2\n");
    let settle = |registry: &mut Registry| {
        let generation = registry.snapshot().generation;
        registry.reclaim(generation);
    };
    let mut old = file(&[]);
    for n in 0..50 {
        let new = file(&[(n + 1, &[2 * n + 1, 2 * n + 2])]);
        registry.apply_all(&config::plan(&old, &new).changes).unwrap();
        assert_eq!((registry.sizes(), registry.rows().count()), ((1, 2), 1));
        settle(&mut registry);
        old = new;
    }
    // All destinations of the service at once, and both orders within a plan.
    registry.apply_all(&config::plan(&old, &file(&[(50, &[7, 8])])).changes).unwrap();
    settle(&mut registry);
    let key = old.services()[0].key;
    let at = |n: u8| DestKey::new(Ipv4Addr::new(10, 0, 0, n).into(), 80);
    let come = |n: u8| Change::AddDest { service: key, dest: Destination { key: at(n), ..destination(n) } };
    let go = |n: u8| Change::DeleteDest { service: key, dest: at(n) };
    let picture = |registry: &Registry| format!("{:?} {:?}", registry.find(key), registry.trashed());
    let before = picture(&registry);
    let refused = [
        (vec![come(1), go(7), come(2)], (2, ApplyError::TooManyDests(2))),
        (vec![go(7), come(1), come(2), come(3), go(2)], (3, ApplyError::TooManyDests(2))),
        (vec![go(7), go(7)], (1, ApplyError::NoDest(key, at(7)))),
        (vec![come(1), come(1), go(7), go(8)], (1, ApplyError::DestExists(key, at(1)))),
        (vec![Change::DeleteService { key }, go(7)], (1, ApplyError::NoService(key))),
        (
            vec![Change::DeleteService { key }, add_service(WEB), add_service(DNS)],
            (2, ApplyError::TooManyServices(1)),
        ),
        (
            vec![come(1), add_service(WEB), add(WEB, 1), Change::DeleteService { key: WEB }, go(9)],
            (4, ApplyError::NoDest(key, at(9))),
        ),
    ];
    for (changes, expected) in refused {
        assert_eq!(registry.apply_all(&changes), Err(expected), "{changes:?}");
        assert_eq!(picture(&registry), before, "{changes:?}");
    }
    registry.apply_all(&[come(1), go(7), go(1), come(7)]).unwrap();
    settle(&mut registry);
    registry.apply_all(&[Change::DeleteService { key }, add_service(WEB), add(WEB, 1), add(WEB, 2)]).unwrap();
    assert_eq!(registry.sizes(), (1, 2));
}

/// A plan that is refused has touched nothing that workers see: overload, thresholds and the schedulers' positions.
#[test]
fn a_refused_plan_has_not_been_begun() {
    let mut registry = registry("[limits]\nservices = 1\n");
    registry.must(&[add_service(WEB), add(WEB, 1), add(WEB, 2)]);
    let from = Destination { upper: 1, ..destination(1) };
    registry.must(&[Change::EditDest { service: WEB, from: destination(1), to: from }]);
    let slot = registry.dest_row(WEB, 1).dest.slot;
    registry.shared().dests[slot].bind();
    let Change::AddService { settings, .. } = add_service(WEB) else { unreachable!() };
    let other = ServiceSettings { scheduler: Scheduler::Rr, ..settings };
    let picture = |registry: &Registry| {
        let row = registry.find(WEB).unwrap();
        (row.dests[1].overloaded, row.service.sched_gen, row.service.version, format!("{row:?}"))
    };
    let before = picture(&registry);
    assert!(before.0);
    let changes = [
        Change::EditDest { service: WEB, from, to: Destination { upper: 0, weight: 9, ..from } },
        Change::EditService { key: WEB, from: settings, to: other },
        delete(WEB, 2),
        add_service(DNS),
    ];
    assert_eq!(registry.apply_all(&changes), Err((3, ApplyError::TooManyServices(1))));
    assert_eq!(picture(&registry), before);
}

fn last_octet(dest: DestKey) -> u8 {
    match dest.addr {
        IpAddr::V4(addr) => addr.octets()[3],
        IpAddr::V6(addr) => panic!("{addr}"),
    }
}

/// What is in the trash takes slots of its own, but no number of living ones is exceeded for it.
#[test]
fn a_destination_that_flaps_takes_one_slot() {
    let mut registry = registry("[limits]\nservices = 1\ndestinations = 1\n");
    registry.must(&[add_service(WEB)]);
    for _ in 0..1000 {
        registry.must(&[add(WEB, 1), delete(WEB, 1)]);
    }
    assert_eq!(registry.trashed(), 1);
    registry.must(&[add(WEB, 1)]);
    assert_eq!(registry.slots(WEB).1, [2]);
}

#[test]
fn nat_destinations_are_known_while_any_service_has_them() {
    let mut registry = registry("");
    let known = |registry: &Registry| {
        registry.services.has_nat_dest(Ipv4Addr::new(10, 0, 0, 1), 8080, Proto::Tcp.number())
    };
    let other = ServiceKey { port: 81, ..WEB };
    registry.must(&[add_service(WEB), add_service(other), add(WEB, 1), add(other, 1), delete(WEB, 1)]);
    assert!(known(&registry));
    let (from, to) = (destination(1), Destination { method: Method::Dr, ..destination(1) });
    registry.must(&[Change::EditDest { service: other, from, to }]);
    assert!(!known(&registry), "direct routing has no replies through us");
    registry.must(&[Change::EditDest { service: other, from: to, to: from }]);
    assert!(known(&registry));
    registry.must(&[Change::DeleteService { key: other }]);
    assert!(!known(&registry));
}

/// Workers keep what they have until they look; control sees when they have.
#[test]
fn a_snapshot_does_not_change_and_is_freed_by_control() {
    let mut registry = registry("");
    registry.must(&[add_service(WEB), add(WEB, 1)]);
    let stats = Registry::worker_stats();
    let mut publisher = Publisher::new(registry.snapshot(), vec![Arc::clone(&stats)]);
    let mut worker = publisher.subscribe();
    let held = Arc::clone(worker.load(&stats));

    registry.must(&[add(WEB, 2), Change::DeleteService { key: WEB }]);
    let next = registry.snapshot();
    let generation = next.generation;
    publisher.publish(next);
    let vip = Ipv4Addr::new(203, 0, 113, 10);
    assert_eq!(held.services.find(vip, 80, 6).unwrap().dests.len(), 1);
    assert!(!publisher.is_settled(generation));
    assert!(worker.load(&stats).services.find(vip, 80, 6).is_none());
    assert!(publisher.is_settled(generation));
    assert_eq!(publisher.reclaim(), 1, "the test holds it");
    drop(held);
    assert_eq!(publisher.reclaim(), 0);
    stats.generation.store(0, Release);
    assert!(!publisher.is_settled(generation));
}

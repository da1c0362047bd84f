//! Commands and reloads on a table with its registry, without workers: what is listed, what is forwarded.

use std::ops::ControlFlow;
use std::sync::Arc;

use config::knobs::{Cpus, Knob};
use config::plan;
use dataplane::est::{Engine, Host, Next, PERIOD_NS};
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use proptest::prelude::*;
use rustix::io::Errno;

use super::*;
use crate::daemon::whole::{RefusedChange, apply_whole};
use crate::ipvs::{Dest, Family, MemoryStore, Method, Service, Store, Timeouts, Tunnel, flag};

struct World {
    table: Table,
    registry: Registry,
    valid: Valid,
}

/// A file with these lines after its port.
fn valid(lines: &str) -> Valid {
    let text = format!(
        "[limits]\nservices = 4\ndestinations = 6\n[[port]]\nname = \"a\"\ndevice = \"net_null0\"\n\
         addresses = [\"10.0.0.1/24\"]\nmtu = 1400\n{lines}"
    );
    config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
}

/// A service of the file on 198.51.100.1 with these destinations and weights.
fn file_service(port: u16, dests: &[(&str, u32)]) -> String {
    let dest = |(address, weight): &(&str, u32)| {
        format!("[[service.destination]]\naddress = \"{address}\"\nweight = {weight}\n")
    };
    let dests: String = dests.iter().map(dest).collect();
    format!("[[service]]\naddress = \"tcp://198.51.100.1:{port}\"\n{dests}")
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

impl World {
    /// Two passes of every estimator, so that what was counted shows.
    fn pass(&self) {
        let mut engine = Engine::new(Arc::clone(self.registry.estimators()), 0);
        let mut host = Still(0);
        while host.0 < 2 * PERIOD_NS {
            let Next::At(at) = engine.turn(&mut host) else { panic!("estimation is on") };
            host.0 = host.0.max(at);
        }
    }

    fn new(lines: &str) -> World {
        let valid = valid(lines);
        let registry =
            Registry::new(&valid, vec![PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }], 1).unwrap();
        let mut world = World { table: Table::default(), registry, valid: Valid::empty() };
        world.reload_to(&valid).unwrap();
        world
    }

    /// A reload; the changes of the file that were left out.
    fn reload(&mut self, lines: &str) -> Vec<String> {
        self.reload_to(&valid(lines)).unwrap()
    }

    fn reload_to(&mut self, valid: &Valid) -> Result<Vec<String>, RefusedChange> {
        let plan = plan(&self.valid, valid);
        let merged = self.table.merge(&plan);
        apply_whole(&mut self.registry, &merged.changes)?;
        (self.table, self.valid) = (merged.table, plan.in_force);
        self.table.warn_of_all();
        Ok(merged.left_out.iter().map(ToString::to_string).collect())
    }

    fn store(&mut self) -> Running<'_> {
        Running::new(&mut self.table, &mut self.registry, &self.valid, 4096)
    }

    /// What the registry has: services as created, destinations newest first.
    fn forwarded(&self) -> Vec<String> {
        let mut rows: Vec<_> = self.registry.rows().collect();
        rows.sort_by_key(|row| row.service.born);
        rows.iter()
            .flat_map(|row| {
                let dest = |d: &dataplane::registry::DestRow| {
                    format!("  {}:{} {} {}", d.dest.addr, d.dest.port, d.dest.method, d.dest.weight)
                };
                let service = format!("{} {}", row.service.key, row.service.scheduler);
                std::iter::once(service).chain(row.dests.iter().map(dest)).collect::<Vec<_>>()
            })
            .collect()
    }

    fn listed(&mut self) -> Vec<(Service, Vec<Dest>)> {
        let store = self.store();
        store.services().map(|service| (service.clone(), store.dests(&service.key).collect())).collect()
    }

    fn weight(&mut self, dest: &str) -> i32 {
        let dest = dest_key(dest);
        self.store().dests(&key(80)).find(|d| d.key == dest).unwrap().options.weight
    }
}

fn key(port: u16) -> ServiceKey {
    ServiceKey::Address { protocol: 6, address: [198, 51, 100, 1].into(), port }
}

fn dest_key(text: &str) -> DestKey {
    let socket: std::net::SocketAddr = text.parse().unwrap();
    DestKey { address: socket.ip(), port: socket.port() }
}

fn options(scheduler: &str, flags: u32) -> ServiceOptions {
    ServiceOptions {
        scheduler: scheduler.to_owned(),
        engine: None,
        flags,
        timeout_seconds: 0,
        netmask: u32::MAX,
    }
}

fn weighing(weight: i32) -> DestOptions {
    DestOptions { method: Method::MASQUERADE, weight, upper: 0, lower: 0, tunnel: Tunnel::default() }
}

const A: &str = "10.0.0.2:8080";
const B: &str = "10.0.0.3:8080";

#[test]
fn what_the_file_says_is_listed_as_created_and_newest_first() {
    let mut world = World::new(&(file_service(81, &[(A, 1), (B, 2)]) + &file_service(80, &[])));
    let listed = world.listed();
    let names: Vec<_> = listed.iter().map(|(service, _)| service.key.to_string()).collect();
    assert_eq!(names, ["tcp:198.51.100.1:81", "tcp:198.51.100.1:80"]);
    let dests: Vec<_> = listed[0].1.iter().map(|dest| (dest.key.to_string(), dest.options.weight)).collect();
    assert_eq!(dests, [(B.to_owned(), 2), (A.to_owned(), 1)]);
    assert_eq!(listed[0].0.options, options("wlc", 0));
    assert_eq!(world.table.sizes(), (2, 2));
}

#[test]
fn a_weight_of_the_socket_survives_until_its_own_line_changes() {
    let file = |a, b, more: &str| file_service(80, &[(A, a), (B, b)]) + more;
    let mut world = World::new(&file(1, 1, ""));
    world.store().set_dest(&key(80), &dest_key(A), weighing(7)).unwrap();
    assert_eq!(world.reload(&file(1, 5, "[timeouts]\nudp = 17\n")), [""; 0]);
    assert_eq!((world.weight(A), world.weight(B)), (7, 5));
    // Another line of the same destination changes, and of the service.
    let upper = file(1, 5, "").replace("weight = 1\n", "weight = 1\nupper = 9\n");
    world.store().set_service(&key(80), options("rr", 0)).unwrap();
    world.reload(&upper.replace(":80\"\n", ":80\"\nannounce = false\n"));
    let listed = world.listed();
    assert_eq!((&listed[0].0.options, listed[0].1[1].options.upper), (&options("rr", 0), 9));
    assert_eq!(world.weight(A), 7);
    world.reload(&file(1, 5, "[timeouts]\nudp = 17\n"));
    assert_eq!(world.store().timeouts().udp, 17);
    assert_eq!(world.reload(&file(2, 5, "")), [""; 0]);
    assert_eq!((world.weight(A), world.weight(B)), (2, 5));
    assert_eq!(
        world.forwarded(),
        ["tcp:198.51.100.1:80 rr", "  10.0.0.3:8080 nat 5", "  10.0.0.2:8080 nat 2"]
    );
}

#[test]
fn what_is_gone_or_there_already_does_not_stop_a_reload() {
    let mut world = World::new(&(file_service(80, &[(A, 1), (B, 1)]) + &file_service(81, &[(A, 1)])));
    world.store().remove_dest(&key(80), &dest_key(A)).unwrap();
    world.store().remove_service(&key(81)).unwrap();
    world.store().add_service(key(82), options("sh", flag::PERSISTENT)).unwrap();
    world.store().add_dest(&key(82), dest_key(B), weighing(9)).unwrap();
    // Edits and removals of what is gone; additions of what is there; 83 is new, 82 loses its persistence.
    let left_out = world.reload(
        &(file_service(80, &[(A, 3), (B, 4)])
            + &file_service(82, &[(A, 6), (B, 5)])
            + &file_service(83, &[(A, 1)])),
    );
    assert_eq!(
        left_out,
        ["~ dest 10.0.0.2:8080 of tcp:198.51.100.1:80 weight 1 -> 3", "- service tcp:198.51.100.1:81",]
    );
    assert_eq!(
        world.forwarded(),
        [
            "tcp:198.51.100.1:80 wlc",
            "  10.0.0.3:8080 nat 4",
            "tcp:198.51.100.1:82 wlc",
            "  10.0.0.2:8080 nat 6",
            "  10.0.0.3:8080 nat 5",
            "tcp:198.51.100.1:83 wlc",
            "  10.0.0.2:8080 nat 1",
        ]
    );
    assert_eq!(world.table.not_forwarded(), [""; 0]);
}

#[test]
fn a_refused_reload_leaves_table_and_registry_alone() {
    let mut world = World::new(&file_service(80, &[(A, 1)]));
    for port in 81..84 {
        world.store().add_service(key(port), options("rr", 0)).unwrap();
    }
    assert_eq!(world.store().add_service(key(84), options("rr", 0)), Err(Errno::NOMEM));
    let before = (world.listed(), world.forwarded());
    let more = valid(&(file_service(80, &[(A, 2)]) + &file_service(99, &[])));
    world.reload_to(&more).unwrap_err();
    assert_eq!((world.listed(), world.forwarded()), before);
}

/// At the limits a file, or a transaction, may replace everything, time and again; a command may not add.
#[test]
fn at_the_limits_everything_can_be_replaced_at_once() {
    let full = |first: u16, hosts: [&str; 2]| {
        let dests = hosts.map(|host| (host, 1));
        let service = |n: u16| file_service(first + n, if n < 3 { &dests[..] } else { &[] });
        (0..4).map(service).collect::<String>()
    };
    let (old, new) = ([A, B], ["10.0.0.4:1", "10.0.0.5:1"]);
    let mut world = World::new(&full(80, old));
    let settle = |world: &mut World| {
        assert_eq!((world.table.sizes(), world.registry.sizes()), ((4, 6), (4, 6)));
        let generation = world.registry.snapshot().generation;
        world.registry.reclaim(generation);
    };
    settle(&mut world);
    for (first, hosts) in [(90, old), (80, new), (80, old), (90, new), (80, new)] {
        assert_eq!(world.reload(&full(first, hosts)), [""; 0]);
        settle(&mut world);
    }
    assert_eq!(world.store().add_service(key(70), options("rr", 0)), Err(Errno::NOMEM));
    assert_eq!(world.store().add_dest(&key(80), dest_key(A), weighing(1)), Err(Errno::NOMEM));
    let staged = world.table.stage(world.table.difference(&World::new(&full(60, old)).table));
    apply_whole(&mut world.registry, &staged.changes).unwrap();
    world.table = staged.table;
    settle(&mut world);
}

#[test]
fn what_is_not_forwarded_is_listed_and_named_and_comes_when_it_can() {
    let mut world = World::new("");
    world.store().add_service(key(80), options("wrr", 0)).unwrap();
    let tunnel = DestOptions { method: Method::TUNNEL, ..weighing(2) };
    world.store().add_dest(&key(80), dest_key(A), tunnel).unwrap();
    world.store().add_dest(&key(80), dest_key(B), weighing(1)).unwrap();
    world.store().add_service(ServiceKey::Mark { family: Family::V6, mark: 7 }, options("mh", 0)).unwrap();
    world.store().add_service(key(81), options("rr", 0)).unwrap();
    let forwarded = ["tcp:198.51.100.1:80 wrr", "  10.0.0.3:8080 nat 1", "tcp:198.51.100.1:81 rr"];
    assert_eq!(world.forwarded(), forwarded);
    assert_eq!(
        world.table.not_forwarded(),
        [
            "services by firewall mark: fwmark6:7",
            "forwarding methods other than NAT and direct routing: 10.0.0.2:8080 of tcp:198.51.100.1:80",
        ]
    );
    // Persistence takes the whole service out; without it everything that can be forwarded is back.
    world.store().set_service(&key(80), options("wrr", flag::PERSISTENT)).unwrap();
    assert_eq!(world.forwarded(), ["tcp:198.51.100.1:81 rr"]);
    assert_eq!(world.listed()[0].1.len(), 2);
    world.store().set_service(&key(80), options("wrr", 0)).unwrap();
    world.store().set_dest(&key(80), &dest_key(A), weighing(3)).unwrap();
    let both = ["tcp:198.51.100.1:80 wrr", "  10.0.0.2:8080 nat 3", "  10.0.0.3:8080 nat 1"];
    assert_eq!(world.forwarded()[1..], both);
    world.store().flush().unwrap();
    assert_eq!((world.forwarded().len(), world.table.sizes()), (0, (0, 0)));
}

#[test]
fn counters_start_from_zero_and_a_deleted_destination_comes_back_with_its_own() {
    let mut world = World::new(&file_service(80, &[(A, 1)]));
    let row = world.registry.find("tcp:198.51.100.1:80".parse().unwrap()).unwrap();
    let (service, dest) = (row.service.slot, row.dests[0].dest.slot);
    world.registry.counters(0).count_in(dest, service, 100);
    world.pass();
    let bytes = |world: &mut World| {
        let listed = world.listed();
        (listed[0].0.stats.in_bytes, listed[0].1[0].stats.in_bytes, listed[0].1[0].active)
    };
    assert_eq!(bytes(&mut world), (100, 100, 0));
    world.store().remove_dest(&key(80), &dest_key(A)).unwrap();
    assert!(world.store().has_waiting_dest(&key(80), &dest_key(A)));
    world.store().add_dest(&key(80), dest_key(A), weighing(1)).unwrap();
    assert!(!world.store().has_waiting_dest(&key(80), &dest_key(A)));
    assert_eq!(bytes(&mut world), (100, 100, 0));
    world.store().zero(Some(&key(80)));
    assert_eq!((bytes(&mut world), world.registry.totals().inbytes), ((0, 0, 0), 100));
    world.registry.counters(0).count_in(dest, service, 11);
    world.pass();
    assert_eq!(bytes(&mut world), (11, 11, 0));
    world.store().zero(None);
    assert_eq!((bytes(&mut world), world.registry.totals().inbytes), ((0, 0, 0), 0));
}

#[test]
fn services_of_the_socket_follow_the_files_policy_and_address() {
    let quiet = file_service(80, &[]).replace("\n", "\nannounce = false\n");
    let quiet = quiet.replacen("\nannounce = false\naddress", "\naddress", 1);
    let mut world = World::new(&quiet);
    world.store().add_service(key(81), options("rr", 0)).unwrap();
    let settings = |world: &World| {
        let row = world.registry.find("tcp:198.51.100.1:81".parse().unwrap()).unwrap();
        (row.service.announce, row.service.unmatched)
    };
    assert_eq!(settings(&world), (false, Unmatched::Reset));
    world.reload(&format!("[policy]\nunmatched = \"drop\"\n{}", file_service(80, &[])));
    assert_eq!(settings(&world), (true, Unmatched::Drop));
}

#[test]
fn a_knob_is_in_the_next_snapshot_and_survives_until_its_own_line_changes() {
    let cpus = Cpus { count: 2, allowed: vec![0, 1], preset: vec![0] };
    let mut world = World::new("[sysctl]\nsloppy_tcp = 0\nam_droprate = 10\n");
    let set = |world: &mut World, name: &str, text: &str| {
        let mut store = world.store();
        let set = store.set_knob(Knob::find(name).unwrap(), text, &cpus);
        (set, store.done)
    };
    let (done, words) = set(&mut world, "sloppy_tcp", "1\n");
    assert_eq!((done, words), (Ok(()), vec!["sysctl net.ipv4.vs.sloppy_tcp=1".to_owned()]));
    for (name, text, errno) in [
        ("secure_tcp", "4", Errno::INVAL),
        ("est_cpulist", "7", Errno::RANGE),
        ("est_cpulist", "99999999999", Errno::OVERFLOW),
    ] {
        assert_eq!(set(&mut world, name, text), (Err(errno), Vec::new()), "{name}");
    }
    set(&mut world, "secure_tcp", "3").0.unwrap();
    set(&mut world, "conntrack", "1").0.unwrap();
    set(&mut world, "est_nice", "5").0.unwrap();
    let in_force = |world: &mut World| {
        let knobs = world.registry.snapshot().knobs;
        (knobs.sloppy_tcp, knobs.secure_tcp, knobs.am_droprate)
    };
    assert_eq!(in_force(&mut world), (true, 3, 10));
    world.reload("[sysctl]\nsloppy_tcp = 0\nam_droprate = 7\n");
    assert_eq!(in_force(&mut world), (true, 3, 7));
    assert_eq!(world.table.tunables.unbuilt(), ["sysctl.conntrack = 1"]);
    assert_eq!(world.table.tunables.estimators.est_nice, 5);
    world.reload("[sysctl]\nsloppy_tcp = 2\nam_droprate = 7\nsecure_tcp = 1\n");
    assert_eq!(in_force(&mut world), (true, 1, 7));
}

#[test]
fn addresses_interfaces_and_timeouts() {
    let mut world = World::new("");
    let store = world.store();
    for (address, usable) in
        [("10.0.0.7", true), ("10.0.0.255", false), ("10.0.1.255", true), ("0.1.2.3", false), ("::1", true)]
    {
        assert_eq!(store.is_unicast(address.parse().unwrap()), usable, "{address}");
    }
    assert_eq!((store.interface_mtu("a"), store.interface_mtu("../lo")), (Some(1400), None));
    assert!(store.interface_mtu("lo").is_some());
    let mut store = world.store();
    let set = Timeouts { tcp: 1, tcp_fin: 2, udp: 3 };
    store.set_timeouts(set).unwrap();
    assert_eq!(store.timeouts(), set);
}

/// One command, by small numbers that collide often.
#[derive(Clone, Debug)]
enum Step {
    AddService(u8, u8),
    SetService(u8, u8),
    RemoveService(u8),
    AddDest(u8, u8, u8),
    SetDest(u8, u8, u8),
    RemoveDest(u8, u8),
    Flush,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let (s, d, o) = (0..5u8, 0..4u8, 0..6u8);
    let step = prop_oneof![
        4 => (s.clone(), o.clone()).prop_map(|(s, o)| Step::AddService(s, o)),
        2 => (s.clone(), o.clone()).prop_map(|(s, o)| Step::SetService(s, o)),
        1 => s.clone().prop_map(Step::RemoveService),
        6 => (s.clone(), d.clone(), o.clone()).prop_map(|(s, d, o)| Step::AddDest(s, d, o)),
        2 => (s.clone(), d.clone(), o).prop_map(|(s, d, o)| Step::SetDest(s, d, o)),
        1 => (s, d).prop_map(|(s, d)| Step::RemoveDest(s, d)),
        1 => Just(Step::Flush),
    ];
    prop::collection::vec(step, 1..60)
}

fn any_service(n: u8) -> ServiceKey {
    match n {
        0 => ServiceKey::Mark { family: Family::V4, mark: 5 },
        1 => ServiceKey::Address { protocol: 6, address: "2001:db8::1".parse().unwrap(), port: 80 },
        n => key(80 + u16::from(n)),
    }
}

fn any_dest(n: u8) -> DestKey {
    dest_key(["10.0.0.2:80", "10.0.0.2:81", "10.0.0.3:80", "[2001:db8::2]:80"][usize::from(n)])
}

/// Carries a step out as the server does, if its checks pass; whether it was refused.
fn carry_out(store: &mut dyn Store, step: &Step) -> Option<Result<(), Errno>> {
    let service_options = |o: u8| options(["rr", "wlc", "sh"][usize::from(o % 3)], u32::from(o / 3));
    let dest_options = |o: u8| DestOptions { method: Method(o % 4), ..weighing(o.into()) };
    let exists = |store: &dyn Store, s: u8| store.service(&any_service(s)).is_some();
    match *step {
        Step::AddService(s, o) if !exists(store, s) => {
            Some(store.add_service(any_service(s), service_options(o)))
        }
        Step::SetService(s, o) if exists(store, s) => {
            Some(store.set_service(&any_service(s), service_options(o)))
        }
        Step::RemoveService(s) if exists(store, s) => Some(store.remove_service(&any_service(s))),
        Step::AddDest(s, d, o) if exists(store, s) && !store.has_dest(&any_service(s), &any_dest(d)) => {
            Some(store.add_dest(&any_service(s), any_dest(d), dest_options(o)))
        }
        Step::SetDest(s, d, o) if store.has_dest(&any_service(s), &any_dest(d)) => {
            Some(store.set_dest(&any_service(s), &any_dest(d), dest_options(o)))
        }
        Step::RemoveDest(s, d) if store.has_dest(&any_service(s), &any_dest(d)) => {
            Some(store.remove_dest(&any_service(s), &any_dest(d)))
        }
        Step::Flush => Some(store.flush()),
        _ => None,
    }
}

proptest! {
    /// Any commands: the listing is the plainest store's, and the registry has exactly what can be forwarded of it.
    #[test]
    fn it_lists_as_the_plainest_store_and_forwards_what_it_can(steps in steps()) {
        let mut world = World::new("");
        let mut plain = MemoryStore::default();
        for step in &steps {
            let ours = carry_out(&mut world.store(), step);
            if ours == Some(Err(Errno::NOMEM)) {
                continue;
            }
            prop_assert_eq!(ours, carry_out(&mut plain, step));
        }
        let expected: Vec<(Service, Vec<Dest>)> =
            plain.services().map(|s| (s.clone(), plain.dests(&s.key).collect())).collect();
        prop_assert_eq!(world.listed(), expected);

        let mut forwarded: Vec<_> = world.registry.rows().map(|row| {
            let mut dests: Vec<_> = row.dests.iter()
                .map(|d| (format!("{}:{}", d.dest.addr, d.dest.port), d.dest.method, d.dest.weight)).collect();
            dests.sort();
            (row.service.key.to_string(), dests)
        }).collect();
        forwarded.sort();
        let mut wanted: Vec<_> = world.table.entries().filter(|entry| entry.is_forwarded()).map(|entry| {
            let mut dests: Vec<_> = entry.dests.iter().filter_map(|dest| dest.destination().ok())
                .map(|d| (d.key.to_string(), d.method, d.weight)).collect();
            dests.sort();
            (entry.key.to_string(), dests)
        }).collect();
        wanted.sort();
        prop_assert_eq!(forwarded, wanted);
    }
}

//! Properties of the command line: whatever the words, it ends in one of ipvsadm's ways; what is saved restores to
//! the same; lines sent ahead do what lines one by one do.

mod weiradm_common;

use std::cell::RefCell;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::rc::Rc;

use control::ipvs::{
    DestKey, DestOptions, Family, Method, ServiceKey, ServiceOptions, Store, Tunnel, flag, tunnel_type,
};
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use weiradm_common::{World, ipvsadm, ipvsadm_reading, words};

const INTERFACES: &[(&str, u32)] = &[("eth0", 1500)];

/// Words of the grammar, right and wrong values, and what is near them.
#[rustfmt::skip]
const WORDS: &[&str] = &[
    "-A", "-E", "-D", "-C", "-L", "-l", "-Z", "-a", "-e", "-d", "-S", "-h", "-v", "--set", "--start-daemon",
    "--stop-daemon", "master", "backup", "-t", "-u", "--sctp-service", "-f", "-6", "-s", "rr", "sh", "-p", "-p9",
    "-M", "64", "255.255.0.0", "--pe", "sip", "-o", "-b", "sh-port", "flag-1,flag-3", ",", "-r", "-g", "-i", "-m",
    "-w", "-x", "-y", "0", "1", "7", "65536", "--tun-type", "gue", "gre", "--tun-port", "--tun-csum",
    "--tun-nocsum", "--tun-remcsum", "-n", "-c", "--timeout", "--daemon", "--stats", "--rate", "--thresholds",
    "--persistent-conn", "--tun-info", "--nosort", "--sort", "-X", "--mcast-interface", "eth0", "--syncid",
    "--sync-maxlen", "--mcast-group", "224.0.0.1", "ff02::1", "--mcast-port", "--mcast-ttl", "10.0.0.1:80",
    "10.0.0.1", "[2001:db8::1]:80", "2001:db8::1", "[", "]", "[]:1", ":", "::", "-", "--", "--=", "-=", "=", "",
    "--persistent=5", "ä", "-ä",
];

proptest! {
    #[test]
    fn any_words_end_in_one_of_ipvsadms_ways(
        arguments in vec(prop_oneof![9 => select(WORDS).prop_map(str::to_owned), 1 => "\\PC{0,12}"], 1..9),
        input in "(\\PC{0,20}\n){0,3}",
    ) {
        let world = World::new(INTERFACES);
        let outcome = ipvsadm(&world, &arguments, &input);
        prop_assert!([0, 1, 2, 255].contains(&outcome.exit), "{outcome:?}");
        prop_assert_eq!(outcome.exit == 0, outcome.stderr.is_empty(), "{:?}", outcome);
        if outcome.exit == 2 {
            prop_assert!(world.borrow().requests.is_empty(), "wrong usage, and yet: {:?}", world.borrow().requests);
        }
    }

    #[test]
    fn what_is_saved_restores_to_the_same(table in btree_map(key(), (options(), dests()), 0..8)) {
        let world = World::new(INTERFACES);
        for (key, (options, dests)) in table {
            let mut world = world.borrow_mut();
            let store = world.server.store_mut();
            let netmask = if options.netmask == 0 { key.family().full_netmask() } else { options.netmask };
            let netmask = if key.family() == Family::V6 { netmask.clamp(1, 128) } else { netmask };
            store.add_service(key, ServiceOptions { netmask, ..options }).unwrap();
            for (dest, options) in dests {
                // Only a tunnel leads to another family, and only a masqueraded destination has a port of its own.
                let tunnel = options.method == Method::TUNNEL;
                if tunnel || Family::of(dest.address) == key.family() {
                    let own_port = options.method == Method::MASQUERADE || key.mark() != 0;
                    let dest = DestKey { port: if own_port { dest.port } else { key.port() }, ..dest };
                    if !store.has_dest(&key, &dest) {
                        store.add_dest(&key, dest, options).unwrap();
                    }
                }
            }
        }
        let saved = ipvsadm(&world, &words("-S -n --save-all"), "");
        let copy = World::new(INTERFACES);
        let restored = ipvsadm(&copy, &words("-R"), &saved.stdout);
        prop_assert_eq!((restored.exit, restored.stderr.as_str()), (0, ""), "{}", saved.stdout);
        // In another order, perhaps: ipvsadm's order of addresses is none, and depends on what was there before.
        let again = ipvsadm(&copy, &words("-S -n --save-all"), "");
        prop_assert_eq!(sorted_lines(&again.stdout), sorted_lines(&saved.stdout));
    }

    #[test]
    fn lines_sent_ahead_do_what_lines_one_by_one_do(lines in vec(line(), 0..100)) {
        let (together, one_by_one) = (World::new(INTERFACES), World::new(INTERFACES));
        let restored = ipvsadm(&together, &words("-R"), &lines.join("\n"));
        let mut last = 0;
        let (mut stdout, mut stderr) = (String::new(), String::new());
        for line in &lines {
            let outcome = ipvsadm(&one_by_one, &words(line), "");
            stdout.push_str(&outcome.stdout);
            stderr.push_str(&outcome.stderr);
            last = outcome.exit;
        }
        prop_assert_eq!((restored.stdout, restored.stderr, restored.exit), (stdout, stderr, last));
        let listing = |world| ipvsadm(world, &words("-L -n --nosort"), "").stdout;
        prop_assert_eq!(listing(&together), listing(&one_by_one));
        prop_assert_eq!(&together.borrow().requests, &one_by_one.borrow().requests);
    }
}

/// A person types the next line only when the last has been answered.
#[test]
fn a_line_is_answered_before_the_next_is_waited_for() {
    let world = World::new(INTERFACES);
    let lines = ["-A -t 10.0.0.1:80\n", "-A -t 10.0.0.1:80\n", "-C\n"];
    let mut typed = Typed { world: world.clone(), lines: lines.into_iter() };
    let outcome = ipvsadm_reading(&world, &words("-R"), &mut typed);
    assert_eq!((outcome.exit, outcome.stderr.as_str()), (0, "Service already exists\n"));
    assert_eq!(typed.lines.len(), 0);
}

struct Typed {
    world: Rc<RefCell<World>>,
    lines: std::array::IntoIter<&'static str, 3>,
}

impl Read for Typed {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        assert_eq!(self.world.borrow().unread, 0, "answers that the program has not looked at");
        let line = self.lines.next().unwrap_or_default();
        buffer[..line.len()].copy_from_slice(line.as_bytes());
        Ok(line.len())
    }
}

fn sorted_lines(text: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    lines
}

/// A line that succeeds or is refused by the server, on few objects.
fn line() -> impl Strategy<Value = String> {
    let service = || select(vec!["-t 10.0.0.1:80", "-u 10.0.0.1:53", "-f 7"]);
    let dest = || select(vec!["192.168.0.1:80", "192.168.0.2:80", "224.0.0.1:80"]);
    prop_oneof![
        (service(), select(vec!["rr", "wlc", "?"]))
            .prop_map(|(s, scheduler)| format!("-A {s} -s {scheduler}")),
        service().prop_map(|s| format!("-D {s}")),
        (select(vec!["-a", "-e"]), service(), dest(), 0..3)
            .prop_map(|(command, s, d, weight)| format!("{command} {s} -r {d} -m -w {weight}")),
        (service(), dest()).prop_map(|(s, d)| format!("-d {s} -r {d}")),
        Just("-L -n".to_owned()),
        Just("-A -t 10.0.0.9:1 -q".to_owned()),
    ]
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        (1u8..224, any::<[u8; 3]>()).prop_map(|(a, [b, c, d])| Ipv4Addr::new(a, b, c, d).into()),
        any::<[u16; 4]>().prop_map(|[a, b, c, d]| Ipv6Addr::new(0x2001, 0xdb8, 0, a, 0, b, c, d).into()),
    ]
}

fn key() -> impl Strategy<Value = ServiceKey> {
    let family = select(vec![Family::V4, Family::V6]);
    prop_oneof![
        (select(vec![6, 17, 132]), address(), 1u16..)
            .prop_map(|(protocol, address, port)| ServiceKey::Address { protocol, address, port }),
        (family, 1u32..).prop_map(|(family, mark)| ServiceKey::Mark { family, mark }),
    ]
}

/// Options; a netmask of 0 stands for the full one.
fn options() -> impl Strategy<Value = ServiceOptions> {
    let flags = prop_oneof![Just(0), Just(flag::SCHEDULER[0]), Just(flag::SCHEDULER[0] | flag::SCHEDULER[1])];
    let persistent = proptest::option::of((1u32..2_678_400, prop_oneof![Just(0), 1u32..]));
    (select(vec!["rr", "wlc", "sh", "mh"]), flags, persistent, proptest::option::of(Just("sip"))).prop_map(
        |(scheduler, flags, persistent, engine)| ServiceOptions {
            scheduler: scheduler.to_owned(),
            engine: engine.map(str::to_owned),
            flags: flags | persistent.map_or(0, |_| flag::PERSISTENT),
            timeout_seconds: persistent.map_or(0, |(timeout, _)| timeout),
            netmask: persistent.map_or(0, |(_, netmask)| netmask),
        },
    )
}

fn dests() -> impl Strategy<Value = Vec<(DestKey, DestOptions)>> {
    let method = select(vec![Method::MASQUERADE, Method::DIRECT_ROUTE, Method::TUNNEL]);
    let tunnel = prop_oneof![
        Just(Tunnel::default()),
        (1u16.., 0u16..3).prop_map(|(port, flags)| Tunnel { kind: tunnel_type::GUE, port, flags }),
        (0u16..2).prop_map(|flags| Tunnel { kind: tunnel_type::GRE, port: 0, flags }),
    ];
    let thresholds = prop_oneof![0u32..3, 0u32..1 << 31].prop_flat_map(|upper| (Just(upper), 0..=upper));
    vec(
        (address(), 1u16.., method, 0i32.., thresholds, tunnel).prop_map(
            |(address, port, method, weight, (upper, lower), tunnel)| {
                let tunnel = if method == Method::TUNNEL { tunnel } else { Tunnel::default() };
                (DestKey { address, port }, DestOptions { method, weight, upper, lower, tunnel })
            },
        ),
        0..4,
    )
}

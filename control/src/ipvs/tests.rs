//! Round trips, the order of checks, and that no input is answered with a panic.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use netlink_packet_core::Emitable;
use proptest::collection::vec;
use proptest::prelude::*;
use rustix::io::Errno;

use super::daemon::DaemonRequest;
use super::message::FAMILY_ID;
use super::reply::{Object, Reply};
use super::request::Call;
use super::*;
use crate::api::codec::Incoming;

const SEQUENCE: u32 = 77;

proptest! {
    #[test]
    fn listed_services_read_back_as_they_are(service in service()) {
        let mut server = Server::new(MemoryStore::default());
        server.store_mut().add_service(service.key, service.options.clone()).unwrap();
        server.store_mut().entry_mut(&service.key).unwrap().0.stats = service.stats;
        let objects = ask(&mut server, Call::dump(Command::GetService));
        prop_assert_eq!(objects[0].service(), Some(service.clone()));
        let one = ask(&mut server, Call::service(Command::GetService, &service.key, &service.options));
        prop_assert_eq!(one[0].service(), Some(service));
    }

    #[test]
    fn listed_dests_read_back_as_they_are(dests in vec(dest(), 0..60)) {
        let mut server = Server::new(MemoryStore::default());
        let service = http();
        server.store_mut().add_service(service.key, service.options).unwrap();
        server.store_mut().entry_mut(&service.key).unwrap().1.clone_from(&dests);
        let objects = ask(&mut server, Call::dests(&service.key));
        let read: Vec<Dest> = objects.iter().map(|o| o.dest(Family::V4).unwrap()).collect();
        prop_assert_eq!(read, dests.into_iter().rev().collect::<Vec<_>>());
    }

    #[test]
    fn requests_are_understood_as_they_were_meant(service in service(), dest in dest()) {
        let key = service.key;
        let options = &service.options;
        let edit = ServiceEdit { options: options.clone(), mask: u32::MAX };
        prop_assert_eq!(
            understood(Call::service(Command::NewService, &key, options)),
            Request::NewService(key, edit)
        );
        prop_assert_eq!(
            understood(Call::dest(Command::SetDest, (&key, options), &dest.key, &dest.options)),
            Request::SetDest(key, Ok((dest.key, dest.options)))
        );
        prop_assert_eq!(
            understood(Call::dest(Command::DelDest, (&key, options), &dest.key, &dest.options)),
            Request::DelDest(key, Ok(dest.key))
        );
        prop_assert_eq!(understood(Call::dests(&key)), Request::ListDests(Some(key)));
    }

    #[test]
    fn daemons_are_understood_and_listed_as_they_were_meant(request in daemon_request()) {
        let call = Call::daemon(Command::NewDaemon, &request);
        prop_assert_eq!(understood(call.clone()), Request::NewDaemon(request.clone()));
        let mut server = server();
        ask(&mut server, call);
        let listed = ask(&mut server, Call::dump(Command::GetDaemon))[0].daemon();
        let state = DaemonState::from_number(request.state).unwrap();
        prop_assert_eq!(listed, Some(request.resolve(state, 1500)));
    }

    #[test]
    fn no_bytes_make_it_panic(bytes in vec(any::<u8>(), 0..300)) {
        server().answer_datagram(&bytes, Rights::Write);
        Reply::split(&bytes);
        for command in Command::ALL {
            for dump in [false, true] {
                if command.allows(dump) {
                    let _ = Request::decode(command, dump, &bytes);
                }
            }
        }
    }

    #[test]
    fn a_damaged_request_is_answered_once_at_most_and_with_its_own_sequence(
        service in service(), dest in dest(), command in 0..Command::ALL.len(),
        at in 16usize..300, byte in any::<u8>(), cut in 16usize..300,
    ) {
        let command = Command::ALL[command];
        let call = Call::dest(command, (&service.key, &service.options), &dest.key, &dest.options);
        let mut bytes = call.encode(SEQUENCE);
        let length = cut.min(bytes.len());
        bytes.truncate(length);
        bytes[..4].copy_from_slice(&(length as u32).to_ne_bytes());
        if let Some(place) = bytes.get_mut(at) {
            *place = byte;
        }
        let replies: Vec<_> = server()
            .answer_datagram(&bytes, Rights::Write)
            .iter()
            .flat_map(|datagram| Reply::split(datagram))
            .collect();
        let ends = replies.iter().filter(|(_, reply)| !matches!(reply, Reply::Object(_))).count();
        prop_assert_eq!(ends, 1);
        prop_assert!(replies.iter().all(|(sequence, _)| *sequence == SEQUENCE));
    }
}

/// Every error number, and which of two faults counts: the table as a sequence on one server.
#[test]
fn checks_come_in_the_kernels_order() {
    let mut server = server();
    let http = http();
    let missing = ServiceKey::Address { protocol: 6, address: v4(192, 0, 2, 9), port: 80 };
    let v6 = ServiceKey::Address { protocol: 6, address: Ipv6Addr::LOCALHOST.into(), port: 80 };
    let with = |scheduler: &str, engine: Option<&str>, netmask: u32| ServiceOptions {
        scheduler: scheduler.to_owned(),
        engine: engine.map(str::to_owned),
        netmask,
        ..http.options.clone()
    };
    let service = |command, key: &ServiceKey, options: &ServiceOptions| Call::service(command, key, options);
    let good =
        DestOptions { method: Method::MASQUERADE, weight: 1, upper: 0, lower: 0, tunnel: Tunnel::default() };
    let dest = |command, of: &ServiceKey, address: IpAddr, options: DestOptions| {
        Call::dest(command, (of, &http.options), &DestKey { address, port: 80 }, &options)
    };
    let real = v4(198, 51, 100, 1);
    let real6: IpAddr = "2001:db8::1".parse().unwrap();
    let tunnel = DestOptions { method: Method::TUNNEL, ..good };
    let gue = Tunnel { kind: tunnel_type::GUE, port: 0, flags: 0 };
    let daemon = |state, interface: &str, group: Option<IpAddr>| {
        let request = DaemonRequest { state, group, ..DaemonRequest::named(interface) };
        Call::daemon(Command::NewDaemon, &request)
    };
    let stop = |state| Call::daemon(Command::DelDaemon, &DaemonRequest { state, ..DaemonRequest::named("") });
    let timeouts = |tcp| Call::set_timeouts(&Timeouts { tcp, tcp_fin: 0, udp: 0 });
    use Command::*;
    let table: Vec<(&str, Call, Option<Errno>)> = vec![
        (
            "set: missing before scheduler",
            service(SetService, &missing, &with("?", None, 0)),
            Some(Errno::SRCH),
        ),
        ("new: scheduler", service(NewService, &http.key, &with("?", None, u32::MAX)), Some(Errno::NOENT)),
        ("new: engine", service(NewService, &http.key, &with("rr", Some("?"), u32::MAX)), Some(Errno::NOENT)),
        ("new: no scheduler by name", service(NewService, &missing, &with("none", None, u32::MAX)), None),
        ("del", service(DelService, &missing, &http.options), None),
        ("new: scheduler before prefix", service(NewService, &v6, &with("?", None, 129)), Some(Errno::NOENT)),
        ("new: prefix too long", service(NewService, &v6, &with("rr", None, 129)), Some(Errno::INVAL)),
        ("new: prefix 0", service(NewService, &v6, &with("rr", None, 0)), Some(Errno::INVAL)),
        ("new", service(NewService, &http.key, &http.options), None),
        (
            "new: exists before scheduler",
            service(NewService, &http.key, &with("?", None, 0)),
            Some(Errno::EXIST),
        ),
        ("set", service(SetService, &http.key, &with("wrr", Some("sip"), u32::MAX)), None),
        ("del: missing", service(DelService, &missing, &http.options), Some(Errno::SRCH)),
        ("get: missing", service(GetService, &missing, &http.options), Some(Errno::SRCH)),
        ("zero: missing", service(Zero, &missing, &http.options), Some(Errno::SRCH)),
        (
            "dest: service first",
            dest(NewDest, &missing, real, DestOptions { weight: -1, ..good }),
            Some(Errno::SRCH),
        ),
        (
            "dest: family before weight",
            dest(NewDest, &http.key, real6, DestOptions { weight: -1, ..good }),
            Some(Errno::INVAL),
        ),
        (
            "dest: weight",
            dest(NewDest, &http.key, real, DestOptions { weight: -1, ..good }),
            Some(Errno::RANGE),
        ),
        (
            "dest: thresholds",
            dest(NewDest, &http.key, real, DestOptions { upper: 1, lower: 2, ..good }),
            Some(Errno::RANGE),
        ),
        (
            "dest: gue without port",
            dest(NewDest, &http.key, real, DestOptions { tunnel: gue, ..good }),
            Some(Errno::INVAL),
        ),
        ("dest: set missing", dest(SetDest, &http.key, real, good), Some(Errno::NOENT)),
        ("dest: del missing", dest(DelDest, &http.key, real, good), Some(Errno::NOENT)),
        ("dest: not unicast", dest(NewDest, &http.key, v4(224, 0, 0, 1), good), Some(Errno::INVAL)),
        ("dest", dest(NewDest, &http.key, real, good), None),
        ("dest: exists, method is no part", dest(NewDest, &http.key, real, tunnel), Some(Errno::EXIST)),
        ("dest: set the method", dest(SetDest, &http.key, real, tunnel), None),
        ("dest: other family in a tunnel", dest(NewDest, &http.key, real6, tunnel), None),
        ("daemon: mixed before interface", daemon(1, "nope0", None), Some(Errno::INVAL)),
        ("dest: del", dest(DelDest, &http.key, real6, tunnel), None),
        ("daemon: group before interface", daemon(1, "nope0", Some(real)), Some(Errno::INVAL)),
        ("daemon: interface before state", daemon(3, "nope0", None), Some(Errno::NODEV)),
        ("daemon: state", daemon(3, "eth0", None), Some(Errno::INVAL)),
        ("daemon", daemon(2, "eth0", None), None),
        ("daemon: interface before runs", daemon(2, "nope0", None), Some(Errno::NODEV)),
        ("daemon: runs", daemon(2, "eth0", None), Some(Errno::EXIST)),
        ("dest: other family beside a daemon", dest(NewDest, &http.key, real6, tunnel), Some(Errno::INVAL)),
        ("daemon: stop what does not run", stop(1), Some(Errno::SRCH)),
        ("daemon: stop what is none", stop(0), Some(Errno::INVAL)),
        ("daemon: stop", stop(2), None),
        ("timeouts: longest", timeouts(8_589_934), None),
        ("timeouts: too long", timeouts(8_589_935), Some(Errno::INVAL)),
        ("timeouts: negative", timeouts(u32::MAX), Some(Errno::INVAL)),
        ("not asked as a dump", Call::plain(GetDest), Some(Errno::OPNOTSUPP)),
        ("asked as a dump", Call::dump(Flush), Some(Errno::OPNOTSUPP)),
        ("no service at all", Call::plain(NewService), Some(Errno::INVAL)),
        ("flush", Call::plain(Flush), None),
    ];
    for (name, call, expected) in table {
        let replies = replies(&mut server, &call.encode(SEQUENCE), Rights::Write);
        let expected = expected.map_or(Reply::Ack, Reply::Refused);
        assert_eq!(replies.last().map(|(_, reply)| reply), Some(&expected), "{name}");
    }
    assert_eq!(server.store().timeouts(), Timeouts { tcp: 8_589_934, ..Timeouts::default() });
}

/// What clients of other kinds send, and what cannot be built with [`Call`].
#[test]
fn raw_requests_are_read_as_the_kernel_reads_them() {
    const V4_SERVICE: &str =
        "06000100020000000600020006000000140003000a0000010000000000000000000000000600040000500000";
    let new = |nest: &str| format!("01010000{:02x}000180{nest}", nest.len() / 2 + 4);
    let options = "07000600727200000c00070000000000ffffffff080008000000000008000900ffffffff";
    let table: Vec<(&str, String, Option<Errno>)> = vec![
        ("unknown command", "0e010000".into(), Some(Errno::OPNOTSUPP)),
        ("unknown command", "12010000".into(), Some(Errno::OPNOTSUPP)),
        ("no generic header", "0f01".into(), Some(Errno::INVAL)),
        ("no options", new(V4_SERVICE), Some(Errno::INVAL)),
        ("new", new(&format!("{V4_SERVICE}{options}")), None),
        ("new again", new(&format!("{V4_SERVICE}{options}")), Some(Errno::EXIST)),
        (
            "family before options",
            new(&V4_SERVICE.replace("060001000200", "060001000300")),
            Some(Errno::AFNOSUPPORT),
        ),
        ("no family", new(&V4_SERVICE[16..]), Some(Errno::INVAL)),
        (
            "port of one byte",
            new(&V4_SERVICE.replace("0600040000500000", "0500040000000000")),
            Some(Errno::INVAL),
        ),
        ("nest of two bytes", "010100000600010000000000".into(), Some(Errno::RANGE)),
        ("timeout of two bytes", "0c0100000600040000000000".into(), Some(Errno::RANGE)),
        // An address of 4 bytes and no flag bit on nests, as Go programs write them; 8 bytes of ADDR are fine too.
        (
            "short address",
            format!("100100002400010006000100020000000600020006000000080003000a000001{}", "0600040000500000"),
            None,
        ),
        (
            "mark 0 is the service tcp 0.0.0.0:0",
            "100100001400018006000100020000000800050000000000".into(),
            Some(Errno::SRCH),
        ),
        ("zero all", "10010000".into(), None),
        (
            "name without NUL",
            new(&format!("{V4_SERVICE}0600060072720000{}", &options[16..])),
            Some(Errno::INVAL),
        ),
    ];
    let mut server = server();
    for (name, content, expected) in table {
        let content = hex(&content);
        let mut message = (16 + content.len() as u32).to_ne_bytes().to_vec();
        message.extend(FAMILY_ID.to_ne_bytes());
        message.extend(5u16.to_ne_bytes());
        message.extend(SEQUENCE.to_ne_bytes());
        message.extend([0; 4]);
        message.extend(content);
        let replies = replies(&mut server, &message, Rights::Write);
        let expected = expected.map_or(Reply::Ack, Reply::Refused);
        assert_eq!(replies.last().map(|(_, reply)| reply), Some(&expected), "{name}");
    }
}

#[test]
fn readers_may_read_and_others_only_look_the_family_up() {
    let mut server = server();
    let service = http();
    let change = || Call::service(Command::NewService, &service.key, &service.options);
    let read = || Call::plain(Command::GetInfo);
    let refused = Reply::Refused(Errno::PERM);
    for (rights, call, expected) in [
        (Rights::None, Call::lookup(), Reply::Ack),
        (Rights::None, read(), refused.clone()),
        (Rights::None, Call::dump(Command::GetInfo), refused.clone()),
        (Rights::Read, read(), Reply::Ack),
        (Rights::Read, Call::dump(Command::GetService), Reply::Done),
        (Rights::Read, change(), refused),
        (Rights::Write, change(), Reply::Ack),
    ] {
        let replies = replies(&mut server, &call.encode(SEQUENCE), rights);
        assert_eq!(replies.last().map(|(_, reply)| reply), Some(&expected), "{rights:?}");
    }
}

#[test]
fn a_reply_and_its_acknowledgement_and_the_end_of_a_dump_are_datagrams_of_their_own() {
    let mut server = server();
    for port in 0..100 {
        let key = ServiceKey::Address { protocol: 17, address: v4(192, 0, 2, 1), port };
        server.store_mut().add_service(key, http().options).unwrap();
    }
    assert_eq!(server.answer_datagram(&Call::lookup().encode(1), Rights::None).len(), 2);
    assert_eq!(server.answer_datagram(&Call::plain(Command::GetInfo).encode(1), Rights::Write).len(), 2);
    let dump = server.answer_datagram(&Call::dump(Command::GetService).encode(1), Rights::Write);
    // 25 services of 320 bytes fit 8 KiB.
    assert_eq!(dump.iter().map(|d| Reply::split(d).len()).collect::<Vec<_>>(), [25, 25, 25, 25, 1]);
}

/// Old programs read these: low bits, byte counters apart.
#[test]
fn the_old_statistics_keep_the_low_32_bits() {
    let n = |low: u64| (7 << 32) + low;
    let stats = Stats {
        conns: n(1),
        in_packets: n(2),
        out_packets: n(3),
        in_bytes: n(4),
        out_bytes: n(5),
        conns_per_second: n(6),
        in_packets_per_second: n(7),
        out_packets_per_second: n(8),
        in_bytes_per_second: n(9),
        out_bytes_per_second: n(10),
    };
    let mut nest = vec![0; 92];
    stats::legacy(10, &stats).emit(&mut nest);
    let mut expected = hex("5c000a00");
    for number in 1..=10u16 {
        let value = n(u64::from(number)).to_ne_bytes();
        let kept = if number == 4 || number == 5 { &value[..] } else { &value[..4] };
        expected.extend((4 + kept.len() as u16).to_ne_bytes());
        expected.extend(number.to_ne_bytes());
        expected.extend(kept);
    }
    assert_eq!(nest, expected);
}

#[test]
fn only_the_flags_of_the_mask_change() {
    let options = ServiceOptions { flags: 0x3f, ..http().options };
    let edit = |mask| ServiceEdit { options: options.clone(), mask };
    assert_eq!(edit(0x08).over(0x11).flags, 0x19);
    assert_eq!(edit(u32::MAX).over(0).flags, 0x3d, "the hashed flag cannot be set");
}

fn http() -> Service {
    Service {
        key: ServiceKey::Address { protocol: 6, address: v4(192, 0, 2, 1), port: 80 },
        options: ServiceOptions {
            scheduler: "rr".to_owned(),
            engine: None,
            flags: 0,
            timeout_seconds: 0,
            netmask: u32::MAX,
        },
        stats: Stats::default(),
    }
}

fn server() -> Server<MemoryStore> {
    let mut store = MemoryStore::default();
    store.interfaces.insert("eth0".to_owned(), 1500);
    Server::new(store)
}

fn v4(a: u8, b: u8, c: u8, d: u8) -> IpAddr {
    Ipv4Addr::new(a, b, c, d).into()
}

fn hex(text: &str) -> Vec<u8> {
    (0..text.len()).step_by(2).map(|i| u8::from_str_radix(&text[i..i + 2], 16).unwrap()).collect()
}

fn replies(server: &mut Server<MemoryStore>, request: &[u8], rights: Rights) -> Vec<(u32, Reply)> {
    server.answer_datagram(request, rights).iter().flat_map(|datagram| Reply::split(datagram)).collect()
}

/// The objects that answer a call.
fn ask(server: &mut Server<MemoryStore>, call: Call) -> Vec<Object> {
    replies(server, &call.encode(SEQUENCE), Rights::Write)
        .into_iter()
        .filter_map(|(_, reply)| match reply {
            Reply::Object(object) => Some(object),
            _ => None,
        })
        .collect()
}

fn understood(call: Call) -> Request {
    let bytes = call.encode(SEQUENCE);
    let message = Incoming::split(&bytes).remove(0);
    let dump = message.header.flags & 0x300 == 0x300;
    let command = Command::from_number(message.raw[16]).unwrap();
    Request::decode(command, dump, &message.raw[20..]).unwrap()
}

fn address() -> impl Strategy<Value = IpAddr> {
    prop_oneof![
        any::<u32>().prop_map(|bits| Ipv4Addr::from_bits(bits).into()),
        any::<u128>().prop_map(|bits| Ipv6Addr::from_bits(bits).into()),
    ]
}

fn key() -> impl Strategy<Value = ServiceKey> {
    prop_oneof![
        (any::<u16>(), address(), any::<u16>()).prop_map(|(protocol, address, port)| ServiceKey::Address {
            protocol,
            address,
            port
        }),
        (any::<bool>(), 1..u32::MAX).prop_map(|(v6, mark)| ServiceKey::Mark {
            family: if v6 { Family::V6 } else { Family::V4 },
            mark
        }),
    ]
}

fn service() -> impl Strategy<Value = Service> {
    let options =
        ("[a-z]{0,15}", proptest::option::of("[a-z]{1,16}"), any::<u32>(), any::<u32>(), any::<u32>())
            .prop_map(|(scheduler, engine, flags, timeout_seconds, netmask)| ServiceOptions {
                scheduler,
                engine,
                flags: flags & !flag::HASHED,
                timeout_seconds,
                netmask,
            });
    (key(), options, stats()).prop_map(|(key, options, stats)| Service { key, options, stats })
}

fn dest() -> impl Strategy<Value = Dest> {
    let options = (0u8..8, any::<i32>(), any::<u32>(), any::<u32>(), any::<(u8, u16, u16)>()).prop_map(
        |(method, weight, upper, lower, (kind, port, flags))| DestOptions {
            method: Method(method),
            weight,
            upper,
            lower,
            tunnel: Tunnel { kind, port, flags },
        },
    );
    (address(), any::<u16>(), options, any::<[u32; 3]>(), stats()).prop_map(
        |(address, port, options, [active, inactive, persistent], stats)| Dest {
            key: DestKey { address, port },
            options,
            active,
            inactive,
            persistent,
            stats,
        },
    )
}

fn stats() -> impl Strategy<Value = Stats> {
    any::<[u64; 10]>().prop_map(|n| Stats {
        conns: n[0],
        in_packets: n[1],
        out_packets: n[2],
        in_bytes: n[3],
        out_bytes: n[4],
        conns_per_second: n[5],
        in_packets_per_second: n[6],
        out_packets_per_second: n[7],
        in_bytes_per_second: n[8],
        out_bytes_per_second: n[9],
    })
}

fn daemon_request() -> impl Strategy<Value = DaemonRequest> {
    let group = prop_oneof![
        Just(None),
        any::<[u8; 3]>().prop_map(|[a, b, c]| Some(v4(224, a, b, c))),
        any::<u64>().prop_map(|low| Some(Ipv6Addr::from_bits(0xff02 << 112 | u128::from(low)).into())),
    ];
    let small = (proptest::option::of(1u16..), proptest::option::of(1u16..), proptest::option::of(1u8..));
    (1u32..=2, any::<u32>(), group, small).prop_map(|(state, sync_id, group, (max_bytes, port, ttl))| {
        DaemonRequest { state, interface: "eth0".to_owned(), sync_id, max_bytes, group, port, ttl }
    })
}

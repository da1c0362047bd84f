//! Structures in and out, and each error number.

use super::*;
use crate::ipvs::MemoryStore;

fn service(protocol: u16, address: [u8; 4], port: u16, mark: u32, scheduler: &[u8]) -> Vec<u8> {
    let mut bytes = vec![0; SERVICE_BYTES];
    put(&mut bytes, 0, &protocol.to_ne_bytes());
    put(&mut bytes, 4, &address);
    put(&mut bytes, 8, &port.to_be_bytes());
    put(&mut bytes, 12, &mark.to_ne_bytes());
    put(&mut bytes, 16, scheduler);
    put(&mut bytes, 40, &[255; 4]);
    bytes
}

fn dest(address: [u8; 4], port: u16, numbers: [u32; 4]) -> Vec<u8> {
    let mut bytes = vec![0; DEST_BYTES];
    put(&mut bytes, 0, &address);
    put(&mut bytes, 4, &port.to_be_bytes());
    for (at, number) in (8..).step_by(4).zip(numbers) {
        put(&mut bytes, at, &number.to_ne_bytes());
    }
    bytes
}

fn head(bytes: &mut Vec<u8>, count: u32) {
    bytes.resize(DESTS_HEAD_BYTES, 0);
    put(bytes, 16, &count.to_ne_bytes());
}

fn server() -> Server<MemoryStore> {
    let mut store = MemoryStore::default();
    store.interfaces.insert("eth0".to_owned(), 1500);
    Server::new(store)
}

#[test]
fn a_table_is_made_and_read_back() {
    let mut server = server();
    let tcp = service(6, [192, 0, 2, 1], 80, 0, b"wrr");
    let mut persistent = service(17, [192, 0, 2, 1], 53, 0, b"rr");
    put(&mut persistent, 32, &flag::PERSISTENT.to_ne_bytes());
    put(&mut persistent, 36, &300_u32.to_ne_bytes());
    put(&mut persistent, 40, &[255, 255, 255, 0]);
    let mark = service(6, [0; 4], 0, 7, b"rr");
    let to = |service: &[u8], dest: Vec<u8>| [service.to_vec(), dest].concat();
    let mut set =
        |command: u32, data: &[u8]| server.set_option(FIRST + command, data, Rights::Write).unwrap();
    for each in [&tcp, &persistent, &mark] {
        set(set::ADD, each);
    }
    set(set::ADD_DEST, &to(&tcp, dest([10, 0, 0, 1], 8080, [0, 3, 9, 4])));
    set(set::ADD_DEST, &to(&tcp, dest([10, 0, 0, 2], 80, [3, 1, 0, 0])));
    set(set::EDIT_DEST, &to(&tcp, dest([10, 0, 0, 2], 80, [2, 5, 0, 0])));
    set(set::ADD_DEST, &to(&mark, dest([10, 0, 0, 3], 0, [3, 1, 0, 0])));
    set(set::DELETE_DEST, &to(&mark, dest([10, 0, 0, 3], 0, [0; 4])));
    set(set::TIMEOUTS, &[600_u32, 0, 30].map(u32::to_ne_bytes).concat());
    let mut daemon = [1_u32.to_ne_bytes().to_vec(), vec![0; 20]].concat();
    put(&mut daemon, 4, b"eth0");
    put(&mut daemon, 20, &5_u32.to_ne_bytes());
    set(set::START_DAEMON, &daemon);
    // A service of IPv6 is there and not seen.
    let key = ServiceKey::Address { protocol: 6, address: std::net::Ipv6Addr::LOCALHOST.into(), port: 80 };
    let v6 =
        ServiceOptions { scheduler: "rr".into(), engine: None, flags: 0, timeout_seconds: 0, netmask: 128 };
    server.store.add_service(key, v6).unwrap();
    server.store.entry_mut(&key_at(&tcp, 6, 12)).unwrap().0.stats =
        Stats { conns: 1 << 32 | 9, out_bytes: 1 << 40, out_bytes_per_second: 77, ..Stats::default() };

    let get =
        |command: u32, room: usize, data: &[u8]| server.option(FIRST + command, room, data, Rights::Read);
    assert_eq!(get(get::VERSION, 64, &[]).unwrap(), b"IP Virtual Server version 1.2.1 (size=4096)\0");
    let info = get(get::INFO, 12, &[]).unwrap();
    assert_eq!([0, 4, 8].map(|at| u32_at(&info, at)), [0x01_02_01, 4096, 3]);
    let mut room = 3_u32.to_ne_bytes().to_vec();
    room.resize(SERVICES_HEAD_BYTES, 0);
    let services = get(get::SERVICES, 8 + 3 * 104, &room).unwrap();
    assert_eq!(services.len(), 8 + 3 * 104);
    let first = &services[8..8 + 104];
    assert_eq!(get(get::SERVICE, 104, &tcp).unwrap(), first);
    assert_eq!((&first[..16], name_at(first, 16)), (&tcp[..16], "wrr".to_owned()));
    let flags_netmask_dests = [32, 40, 44].map(|at| u32_at(first, at));
    assert_eq!(flags_netmask_dests, [flag::HASHED, u32::MAX, 2]);
    let out_bytes = u64::from_ne_bytes(array(first, 48 + 24));
    assert_eq!((u32_at(first, 48), out_bytes, u32_at(first, 48 + 48)), (9, 1 << 40, 77));
    assert_eq!(&services[8 + 104 + 36..8 + 104 + 44], [300_u32.to_ne_bytes(), [255, 255, 255, 0]].concat());
    assert_eq!(services[8 + 208..8 + 208 + 16], mark[..16], "a mark service is TCP inside");

    let mut room = tcp[..16].to_vec();
    head(&mut room, 2);
    let dests = get(get::DESTS, 24 + 2 * 96, &room).unwrap();
    assert_eq!(dests[24..48], dest([10, 0, 0, 2], 80, [2, 5, 0, 0]), "the newest first");
    assert_eq!(dests[120..144], dest([10, 0, 0, 1], 8080, [0, 3, 9, 4]));
    assert_eq!(get(get::TIMEOUTS, 12, &[]).unwrap(), [600_u32, 120, 30].map(u32::to_ne_bytes).concat());
    assert_eq!(get(get::DAEMONS, 48, &[]).unwrap(), [daemon.clone(), vec![0; 24]].concat());
}

#[test]
fn each_mistake_has_the_kernels_number() {
    let mut server = server();
    let known = service(6, [192, 0, 2, 1], 80, 0, b"rr");
    server.set_option(FIRST + set::ADD, &known, Rights::Write).unwrap();
    let unknown = service(6, [192, 0, 2, 9], 80, 0, b"rr");
    let good = dest([10, 0, 0, 1], 80, [0, 1, 0, 0]);
    let add = |service: &[u8], dest: Vec<u8>| [service.to_vec(), dest].concat();
    let state = |number: u32| [number.to_ne_bytes().to_vec(), b"eth9".to_vec(), vec![0; 16]].concat();
    server.set_option(FIRST + set::ADD_DEST, &add(&known, good.clone()), Rights::Write).unwrap();
    for (command, data, errno) in [
        (set::ADD, known.clone(), Errno::EXIST),
        (set::ADD, known[1..].to_vec(), Errno::INVAL),
        (set::ADD, service(47, [192, 0, 2, 9], 0, 0, b"rr"), Errno::FAULT),
        (set::ADD, service(0, [0; 4], 0, 7, b"rr"), Errno::FAULT),
        (set::ADD, service(6, [192, 0, 2, 9], 80, 0, &[b'r'; 16]), Errno::INVAL),
        (set::ADD, service(6, [192, 0, 2, 9], 80, 0, b"nonesuch"), Errno::NOENT),
        (set::EDIT, unknown.clone(), Errno::SRCH),
        (set::DELETE, unknown.clone(), Errno::SRCH),
        (set::ZERO, unknown.clone(), Errno::SRCH),
        (set::ADD_DEST, add(&unknown, good.clone()), Errno::SRCH),
        (set::ADD_DEST, add(&known, good), Errno::EXIST),
        (set::ADD_DEST, add(&known, dest([10, 0, 0, 2], 80, [0, u32::MAX, 0, 0])), Errno::RANGE),
        (set::ADD_DEST, add(&known, dest([224, 0, 0, 2], 80, [0, 1, 0, 0])), Errno::INVAL),
        (set::EDIT_DEST, add(&known, dest([10, 0, 0, 2], 80, [0, 1, 0, 0])), Errno::NOENT),
        (set::DELETE_DEST, add(&known, dest([10, 0, 0, 2], 80, [0; 4])), Errno::NOENT),
        (set::START_DAEMON, state(1), Errno::NODEV),
        (set::STOP_DAEMON, state(1), Errno::SRCH),
        (set::STOP_DAEMON, state(3), Errno::INVAL),
        (set::TIMEOUTS, vec![0xff; 12], Errno::INVAL),
        (set::FLUSH, vec![0], Errno::INVAL),
        (1, vec![], Errno::INVAL),
        (99, vec![], Errno::INVAL),
    ] {
        let answer = server.set_option(FIRST + command, &data, Rights::Write);
        assert_eq!(answer, Err(errno), "{command} {data:?}");
    }
    assert_eq!(server.set_option(FIRST + set::FLUSH, &[], Rights::Read), Err(Errno::PERM));
    assert_eq!(server.set_option(0, &[], Rights::Write), Err(Errno::INVAL));
    let mut dests_of_unknown = unknown[..16].to_vec();
    head(&mut dests_of_unknown, 0);
    for (command, room, data, errno) in [
        (get::VERSION, 63, vec![], Errno::INVAL),
        (get::INFO, 11, vec![], Errno::INVAL),
        (get::SERVICES, 8, vec![1, 0, 0, 0, 0, 0, 0, 0], Errno::INVAL),
        (get::SERVICES, 8, vec![], Errno::INVAL),
        (get::SERVICES, usize::MAX, vec![0xff; 8], Errno::INVAL),
        (get::SERVICE, 103, known, Errno::INVAL),
        (get::SERVICE, 104, unknown, Errno::SRCH),
        (get::DESTS, 24, dests_of_unknown, Errno::SRCH),
        (get::DAEMONS, 47, vec![], Errno::INVAL),
        (5, 4096, vec![], Errno::INVAL),
        (8, 4096, vec![], Errno::INVAL),
    ] {
        assert_eq!(
            server.option(FIRST + command, room, &data, Rights::Write),
            Err(errno),
            "{command} {data:?}"
        );
    }
    assert_eq!(server.option(FIRST, 64, &[], Rights::None), Err(Errno::PERM));
    server.set_option(FIRST + set::ZERO, &service(0, [0; 4], 0, 0, b""), Rights::Write).unwrap();
}

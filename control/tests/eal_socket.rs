//! The control socket of a running daemon under people who do not behave: who may do what, crowds, readers that
//! do not read, clients that die. Meanwhile an operator's command is answered in time.
#![forbid(unsafe_code)]

mod common;

use std::os::fd::OwnedFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use common::Site;
use control::api::client::Client;
use control::api::codec::{self, Request};
use control::api::rows::HelloRow;
use control::api::server::{CLIENTS_MAX, CLIENTS_OF_OTHERS_MAX, CLIENTS_PER_USER_MAX};
use control::ipvs::reply::Reply;
use control::ipvs::request::{Call, Command};
use control::ipvs::{ServiceKey, ServiceOptions};
use rustix::fs::{Gid, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, Uid};

/// Connects of each crowd.
const CROWD: usize = 10_000;
/// Services that are listed by those who do not read: about 1.3 MB of answer.
const SERVICES: u32 = 4_000;
/// No command may take longer: the machine may be busy with other things, so this is no figure to be proud of.
const LATENCY_LIMIT: Duration = Duration::from_millis(500);

#[test]
fn eal_whoever_connects_the_operator_is_answered() {
    let site = Site::start(
        "socket_group = \"50001\"\nsocket_mode = \"0666\"\nwrite_users = [\"50002\"]\nread_groups = [\"50003\"]\n\
         write_rate = 1\nwrite_burst = 40",
        "[connections]\nmax = 4096\n",
    );
    let root = rustix::process::geteuid().is_root();
    if root {
        let limit = Rlimit { current: Some(20_000), maximum: Some(20_000) };
        rustix::process::setrlimit(Resource::Nofile, limit).unwrap();
        rights(&site);
        others_change_so_much_and_no_more(&site);
    } else {
        println!("not root: no other users to try");
    }
    fill(&site);
    readers_that_do_not_read(&site);
    clients_that_die(&site);
    if root {
        crowd_of_others(&site);
    }
    crowd(&site);
    let status = site.status();
    assert_eq!(status["workers"][0]["alive"], true);
    println!("worker afterwards: {}", status["workers"][0]);
    site.stop();
}

/// User, group and further groups, what they may do, and the answers to: lookup, reading, changing.
type Case = (u32, u32, &'static [u32], &'static str, [Option<Errno>; 2]);

fn rights(site: &Site) {
    use Command::{GetInfo, Zero};
    let file = rustix::fs::stat(site.socket()).unwrap();
    assert_eq!((file.st_gid, Mode::from_raw_mode(file.st_mode).bits() & 0o777), (50_001, 0o666));
    const CASES: &[Case] = &[
        (0, 0, &[], "write", [None, None]),
        (60_000, 50_001, &[], "write", [None, None]),
        (60_000, 60_000, &[60_007, 50_001], "write", [None, None]),
        (50_002, 60_000, &[], "write", [None, None]),
        (60_000, 50_003, &[], "read", [None, Some(Errno::PERM)]),
        (60_000, 60_000, &[50_003], "read", [None, Some(Errno::PERM)]),
        (60_000, 60_000, &[], "none", [Some(Errno::PERM), Some(Errno::PERM)]),
    ];
    for (uid, gid, groups, class, expected) in CASES {
        let path = site.socket();
        as_user(*uid, *gid, groups, || {
            let hello = Client::connect(&path).unwrap().collect::<HelloRow>(&Request::Hello).unwrap();
            assert_eq!(&hello[0].rights, class, "{uid} {gid} {groups:?}");
            for (command, errno) in [GetInfo, Zero].into_iter().zip(expected) {
                let raw = connect(&path).unwrap();
                assert_eq!(exchange(&raw, &Call::lookup().encode(1), 2), None, "the lookup is for everybody");
                let answers = if command == GetInfo { 2 } else { 1 };
                assert_eq!(exchange(&raw, &Call::plain(command).encode(2), answers), *errno);
                let closed = *class == "none";
                let answer = send(&raw, &Call::lookup().encode(3)).and_then(|()| receive(&raw));
                let ended = answer.map_or(true, |answer| answer.is_empty());
                assert_eq!(ended, closed, "{uid} {gid} {groups:?}");
            }
        });
    }
}

/// The bucket of 40 changes was taken from by nobody of this user before.
fn others_change_so_much_and_no_more(site: &Site) {
    let path = site.socket();
    as_user(50_002, 60_000, &[], || {
        let raw = connect(&path).unwrap();
        let mut zero = || exchange(&raw, &Call::plain(Command::Zero).encode(1), 1);
        let done = std::iter::repeat_with(&mut zero).take_while(Option::is_none).count();
        assert!((39..=41).contains(&done), "{done} changes, one of them in `rights`");
        assert_eq!(zero(), Some(Errno::BUSY));
        assert_eq!(exchange(&raw, &Call::plain(Command::GetInfo).encode(1), 2), None, "reading is free");
    });
}

fn fill(site: &Site) {
    let raw = connect(&site.socket()).unwrap();
    let options = ServiceOptions {
        scheduler: "rr".to_owned(),
        engine: None,
        flags: 0,
        timeout_seconds: 0,
        netmask: u32::MAX,
    };
    for first in (0..SERVICES).step_by(50) {
        let call = |n: u32| {
            let address = std::net::Ipv4Addr::from(0x0a14_0000 + n).into();
            let key = ServiceKey::Address { protocol: 6, address, port: 80 };
            Call::service(Command::NewService, &key, &options).encode(n)
        };
        let datagram: Vec<u8> = (first..first + 50).flat_map(call).collect();
        assert_eq!(exchange(&raw, &datagram, 50), None);
    }
}

/// The list is asked for by as many as there is room for, again and again, and nobody takes an answer.
fn readers_that_do_not_read(site: &Site) {
    let before = resident_bytes(site);
    let readers: Vec<OwnedFd> = (0..CLIENTS_MAX - 8).map(|_| connect(&site.socket()).unwrap()).collect();
    responsive(site, "with 248 readers that do not read", || {
        for reader in &readers {
            send(reader, &Call::dump(Command::GetService).encode(1)).unwrap();
            send(reader, &codec::encode_request(2, &Request::List)).unwrap();
        }
        std::thread::sleep(Duration::from_secs(1));
    });
    let grown = resident_bytes(site).saturating_sub(before) >> 20;
    println!("the daemon has grown by {grown} MiB for them");
    assert!(grown < 1024, "{grown} MiB");
}

/// Clients that take one datagram of a list and are gone.
fn clients_that_die(site: &Site) {
    responsive(site, "while clients die in the midst of a list", || {
        for _ in 0..500 {
            let raw = connect(&site.socket()).unwrap();
            send(&raw, &Call::dump(Command::GetService).encode(1)).unwrap();
            send(&raw, &codec::encode_request(2, &Request::List)).unwrap();
            receive(&raw).unwrap();
        }
    });
    connected(site, 0);
}

/// As many users as fill the socket twice over, each with more connections than it may have.
fn crowd_of_others(site: &Site) {
    let users = 2 * CLIENTS_MAX / CLIENTS_PER_USER_MAX;
    let path = site.socket();
    let mut held = Vec::new();
    responsive(site, "while 16 users connect ten thousand times", || {
        std::thread::scope(|scope| {
            let crowd = |user: usize| {
                let path = &path;
                move || as_user(61_000 + user as u32, 50_003, &[], || hold(path, CROWD / users))
            };
            let users: Vec<_> = (0..users).map(|user| scope.spawn(crowd(user))).collect();
            held = users.into_iter().map(|user| user.join().unwrap()).collect();
        });
    });
    assert!(held.iter().all(|of_user| of_user.len() <= CLIENTS_PER_USER_MAX));
    let all = held.iter().map(Vec::len).sum::<usize>();
    assert_eq!(all, CLIENTS_OF_OTHERS_MAX);
    connected(site, all);
    let of_root = hold(&path, CLIENTS_MAX - all - 8);
    assert_eq!(of_root.len(), CLIENTS_MAX - all - 8, "what is left is root's");
    // Said once a second.
    let begun = Instant::now();
    while !site.log().contains("turned away") {
        assert!(begun.elapsed() < Duration::from_secs(5), "{}", site.log());
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The operator is connected before the crowd comes.
fn crowd(site: &Site) {
    connected(site, 0);
    let mut held = Vec::new();
    responsive(site, "while root connects ten thousand times", || held = hold(&site.socket(), CROWD));
    assert_eq!(held.len(), CLIENTS_MAX - 1, "the operator's is the last");
    drop(held);
    connected(site, 0);
}

/// Connects so many times; the connections that are served. The others are closed at once.
fn hold(path: &Path, times: usize) -> Vec<OwnedFd> {
    let served = |raw: &OwnedFd| {
        let sent = send(raw, &codec::encode_request(1, &Request::Hello));
        sent.is_ok() && receive(raw).is_ok_and(|answer| !answer.is_empty())
    };
    (0..times).filter_map(|_| connect(path).ok().filter(served)).collect()
}

/// Waits until the daemon has so many clients, the one that asks not counted.
fn connected(site: &Site, clients: usize) {
    let begun = Instant::now();
    loop {
        let status = site.status();
        let tables = status["tables"].as_array().unwrap();
        let used = tables.iter().find(|row| row["table"] == "clients").unwrap()["used"].as_u64().unwrap();
        if used as usize <= clients + 1 {
            return;
        }
        assert!(begun.elapsed() < Duration::from_secs(5), "{used} clients, not {clients}");
    }
}

/// Runs `load` while an operator asks for the timeouts every two milliseconds; prints and checks how long that took.
fn responsive(site: &Site, what: &str, load: impl FnOnce()) {
    let raw = connect(&site.socket()).unwrap();
    exchange(&raw, &Call::plain(Command::GetConfig).encode(1), 2);
    let over = AtomicBool::new(false);
    let mut taken: Vec<Duration> = std::thread::scope(|scope| {
        let operator = scope.spawn(|| {
            let mut taken = Vec::new();
            while !over.load(Ordering::Relaxed) {
                let begun = Instant::now();
                assert_eq!(exchange(&raw, &Call::plain(Command::GetConfig).encode(1), 2), None);
                taken.push(begun.elapsed());
                std::thread::sleep(Duration::from_millis(2));
            }
            taken
        });
        load();
        over.store(true, Ordering::Relaxed);
        operator.join().unwrap()
    });
    taken.sort();
    let (median, longest) = (taken[taken.len() / 2], taken[taken.len() - 1]);
    println!("{what}: {} commands of an operator, median {median:?}, longest {longest:?}", taken.len());
    assert!(longest < LATENCY_LIMIT, "{what}: {longest:?}");
}

/// Memory of the daemon in RAM.
fn resident_bytes(site: &Site) -> u64 {
    site.status()["daemon"]["resident_bytes"].as_u64().unwrap()
}

/// Runs `action` on a thread with these credentials.
fn as_user<T: Send>(uid: u32, gid: u32, groups: &[u32], action: impl FnOnce() -> T + Send) -> T {
    let become_user = || {
        let groups: Vec<_> = groups.iter().copied().map(Gid::from_raw).collect();
        rustix::thread::set_thread_groups(&groups).unwrap();
        rustix::thread::set_thread_gid(Gid::from_raw(gid)).unwrap();
        rustix::thread::set_thread_uid(Uid::from_raw(uid)).unwrap();
        action()
    };
    std::thread::scope(|scope| scope.spawn(become_user).join()).unwrap()
}

fn connect(path: &Path) -> Result<OwnedFd, Errno> {
    let fd =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
    Ok(fd)
}

fn send(raw: &OwnedFd, datagram: &[u8]) -> Result<(), Errno> {
    rustix::net::send(raw, datagram, SendFlags::NOSIGNAL).map(drop)
}

fn receive(raw: &OwnedFd) -> Result<Vec<u8>, Errno> {
    let mut buffer = vec![0; 64 * 1024];
    let (length, _) = rustix::net::recv(raw, &mut buffer, RecvFlags::empty())?;
    buffer.truncate(length);
    Ok(buffer)
}

/// Sends a datagram and takes so many messages in answer, or up to the first refusal, which it returns.
fn exchange(raw: &OwnedFd, datagram: &[u8], answers: usize) -> Option<Errno> {
    send(raw, datagram).unwrap();
    let mut seen = 0;
    while seen < answers {
        for (_, reply) in Reply::split(&receive(raw).unwrap()) {
            if let Reply::Refused(errno) = reply {
                return Some(errno);
            }
            seen += 1;
        }
    }
    None
}

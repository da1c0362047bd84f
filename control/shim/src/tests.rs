//! The functions as a program with threads and children uses them, against a server that acknowledges.

use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;

use crate::wire::{self, HEADER_BYTES, Header};
use crate::{changed, link, names, receive, send};

const THREADS: usize = 8;
const ROUNDS: u32 = 40;

static ACCEPTED: AtomicUsize = AtomicUsize::new(0);

/// Acknowledges every message on every connection.
fn serve(listener: &OwnedFd) {
    loop {
        // SAFETY: system calls on descriptors of our own, with buffers that live meanwhile.
        let peer = unsafe {
            let fd = libc::accept(listener.as_raw_fd(), std::ptr::null_mut(), std::ptr::null_mut());
            assert!(fd >= 0);
            OwnedFd::from_raw_fd(fd)
        };
        ACCEPTED.fetch_add(1, Ordering::SeqCst);
        thread::spawn(move || {
            let mut buffer = [0; 4096];
            loop {
                // SAFETY: as above.
                let got =
                    unsafe { libc::recv(peer.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
                if got <= 0 {
                    return;
                }
                for (_, request, _) in wire::messages(&buffer[..got as usize]) {
                    let answer = wire::refusal(&request, request.port, 0);
                    // SAFETY: as above.
                    unsafe {
                        libc::send(peer.as_raw_fd(), answer.as_ptr().cast(), answer.len(), libc::MSG_NOSIGNAL)
                    };
                }
            }
        });
    }
}

fn listen(path: &str) -> OwnedFd {
    // SAFETY: system calls with values that live meanwhile; a Unix address is plain data.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        let mut address: libc::sockaddr_un = std::mem::zeroed();
        address.sun_family = libc::AF_UNIX as u16;
        for (to, from) in address.sun_path.iter_mut().zip(path.bytes()) {
            *to = from as libc::c_char;
        }
        let size = size_of::<libc::sockaddr_un>() as u32;
        assert_eq!(libc::bind(fd, (&raw const address).cast(), size), 0);
        assert_eq!(libc::listen(fd, 128), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

/// A netlink socket on which nothing is waited for longer than 10 s, which the change is to keep.
fn netlink() -> OwnedFd {
    let patience = libc::timeval { tv_sec: 10, tv_usec: 0 };
    // SAFETY: system calls with a value that lives meanwhile.
    unsafe {
        let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW | libc::SOCK_CLOEXEC, libc::NETLINK_GENERIC);
        let (at, size) = ((&raw const patience).cast(), size_of::<libc::timeval>() as u32);
        assert_eq!(libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, size), 0);
        OwnedFd::from_raw_fd(fd)
    }
}

fn get_info(sequence: u32) -> [u8; HEADER_BYTES + 4] {
    let mut message = [0; HEADER_BYTES + 4];
    let header = Header { length: 20, kind: wire::FAMILY_IPVS, flags: 5, sequence, port: 0 };
    message[..HEADER_BYTES].copy_from_slice(&header.bytes());
    message[HEADER_BYTES..].copy_from_slice(&[15, 1, 0, 0]);
    message
}

fn ask(socket: &OwnedFd, sequence: u32) {
    let message = get_info(sequence);
    // SAFETY: the message lives meanwhile.
    let sent = unsafe { send::write(socket.as_raw_fd(), message.as_ptr().cast(), message.len()) };
    assert_eq!(sent, message.len() as isize);
}

/// Header and error number of the next message.
fn answer(socket: &OwnedFd) -> (Header, i32) {
    let mut buffer = [0; 64];
    // SAFETY: the buffer lives meanwhile.
    let got = unsafe { receive::recv(socket.as_raw_fd(), buffer.as_mut_ptr().cast(), buffer.len(), 0) };
    assert_eq!(got, wire::ERROR_BYTES as isize);
    let error = i32::from_ne_bytes(*buffer[HEADER_BYTES..].first_chunk().unwrap());
    (Header::read(buffer.first_chunk().unwrap()), error)
}

fn port_of(socket: &OwnedFd) -> u32 {
    // SAFETY: room for an address and its size.
    unsafe {
        let mut address: libc::sockaddr_nl = std::mem::zeroed();
        let mut length = size_of::<libc::sockaddr_nl>() as u32;
        let got = names::getsockname(socket.as_raw_fd(), (&raw mut address).cast(), &raw mut length);
        assert_eq!((got, length, address.nl_family), (0, 12, libc::AF_NETLINK as u16));
        address.nl_pid
    }
}

#[test]
fn threads_and_children_change_sockets_at_the_same_time() {
    let path = format!("{}/weir-shim-{}", std::env::temp_dir().display(), std::process::id());
    // SAFETY: no other thread of this process reads or writes the environment yet.
    unsafe { std::env::set_var("WEIR_SOCKET", &path) };
    link::read_environment();
    changed::watch_forks();

    // Nobody listens: the family is not there, then nothing more is, and nothing was asked of the kernel.
    let alone = netlink();
    ask(&alone, 1);
    let (header, error) = answer(&alone);
    assert_eq!((header.sequence, error), (1, -libc::ENOENT));
    // SAFETY: a buffer of no bytes but one.
    let got = unsafe { receive::recv(alone.as_raw_fd(), [0_u8; 1].as_mut_ptr().cast(), 1, 0) };
    assert_eq!((got, crate::errno::get()), (-1, libc::ENOBUFS));
    ask(&alone, 2);
    let (header, error) = answer(&alone);
    assert_eq!((header.sequence, error), (2, -libc::EBUSY));

    let listener = listen(&path);
    thread::spawn(move || serve(&listener));
    ask(&alone, 3);
    let (header, error) = answer(&alone);
    assert_eq!((header.sequence, header.port, error), (3, port_of(&alone), 0), "the daemon is back");

    // One socket, first used by all threads at once, is changed once.
    let before = ACCEPTED.load(Ordering::SeqCst);
    let (shared, start) = (netlink(), Barrier::new(THREADS));
    thread::scope(|scope| {
        for n in 0..THREADS as u32 {
            let (shared, start) = (&shared, &start);
            scope.spawn(move || {
                start.wait();
                ask(shared, 100 + n);
            });
        }
    });
    let mut sequences: Vec<u32> = (0..THREADS).map(|_| answer(&shared).0.sequence).collect();
    sequences.sort_unstable();
    assert_eq!(sequences, (100..100 + THREADS as u32).collect::<Vec<_>>());
    assert_eq!(ACCEPTED.load(Ordering::SeqCst), before + 1);

    // A socket of its own for each round of each thread, and children that do the same meanwhile.
    thread::scope(|scope| {
        for _ in 0..THREADS {
            scope.spawn(|| {
                for sequence in 0..ROUNDS {
                    let socket = netlink();
                    ask(&socket, sequence);
                    let (header, error) = answer(&socket);
                    assert_eq!((header.sequence, header.port, error), (sequence, port_of(&socket), 0));
                }
            });
        }
        for _ in 0..ROUNDS {
            child_changes_a_socket();
        }
    });
    std::fs::remove_file(&path).unwrap();
}

fn child_changes_a_socket() {
    let message = get_info(9);
    // SAFETY: the child of a process with threads makes nothing but system calls before it ends, and an alarm
    // ends it if it hangs; buffers live meanwhile.
    unsafe {
        let child = libc::fork();
        if child == 0 {
            libc::alarm(10);
            let fd = libc::socket(libc::AF_NETLINK, libc::SOCK_RAW, libc::NETLINK_GENERIC);
            let sent = send::write(fd, message.as_ptr().cast(), message.len());
            let mut buffer = [0_u8; 64];
            let got = receive::recv(fd, buffer.as_mut_ptr().cast(), buffer.len(), 0);
            libc::_exit(i32::from((sent, got) != (20, wire::ERROR_BYTES as isize)));
        }
        let mut status = 0;
        assert_eq!(libc::waitpid(child, &raw mut status, 0), child);
        assert_eq!(status, 0);
    }
}

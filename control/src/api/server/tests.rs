//! A real socket with the server on a thread: answers, streaming, limits, and readers that misbehave.

use std::fs::File;
use std::os::fd::OwnedFd;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;

use rustix::io::Errno;
use rustix::net::{SendFlags, SocketFlags};

use super::super::client::Client;
use super::super::codec::{self, Incoming, Refusal, Request};
use super::super::handler::{Next, Outcome, Rows};
use super::super::listener::{address, seqpacket};
use super::super::session::{DATAGRAM_BYTES_MAX, MESSAGES_MAX};
use super::*;
use crate::failure::Exit;
use crate::ipvs;

/// Rows `0..n` as JSON numbers; every hundredth is not ready at the first look.
struct Numbers {
    next: usize,
    end: usize,
    waited: bool,
    pulled: Arc<AtomicUsize>,
}

impl Rows for Numbers {
    fn next(&mut self) -> Result<Next, Refusal> {
        if self.next % 100 == 99 && !std::mem::replace(&mut self.waited, true) {
            return Ok(Next::Wait);
        }
        if self.next == self.end {
            return Ok(Next::End);
        }
        self.waited = false;
        self.next += 1;
        self.pulled.fetch_add(1, Ordering::Relaxed);
        Ok(Next::Row((self.next - 1).to_string().into_bytes()))
    }
}

struct Fake {
    rows: usize,
    pulled: Arc<AtomicUsize>,
    written: Arc<Mutex<Vec<String>>>,
}

impl Handler for Fake {
    fn answer(&mut self, request: Request, peer: Peer) -> Result<Outcome, Refusal> {
        let numbers = || Numbers { next: 0, end: self.rows, waited: false, pulled: self.pulled.clone() };
        match request {
            Request::Hello => {
                Ok(Outcome::Rows(Box::new(vec![peer.uid.to_string().into_bytes()].into_iter())))
            }
            Request::List => Ok(Outcome::Rows(Box::new(numbers()))),
            Request::Drops { .. } => {
                Ok(Outcome::Rows(Box::new(vec![vec![b'1'; codec::ROW_BYTES_MAX + 1]].into_iter())))
            }
            Request::TextOpen { write: true, name } => Ok(Outcome::Knob(name)),
            Request::TextOpen { write: false, name } if name == "short" => {
                Ok(Outcome::Text(b"text\n".to_vec()))
            }
            Request::TextOpen { .. } => Ok(Outcome::Stream(Box::new(numbers()))),
            Request::SysctlSet { .. } => Ok(Outcome::Done),
            _ => Err(Refusal::new(Errno::INVAL, "not here")),
        }
    }

    fn write_knob(&mut self, knob: &str, value: &str, _: Peer) {
        self.written.lock().unwrap().push(format!("{knob}={value}"));
    }

    /// The table of services is new for each datagram.
    fn ipvs(&mut self, messages: &[Incoming], _: Peer) -> Vec<ipvs::Answer> {
        let mut server = ipvs::Server::new(ipvs::MemoryStore::default());
        messages.iter().map(|message| server.answer(message, ipvs::Rights::Write)).collect()
    }
}

struct Daemon {
    path: PathBuf,
    pulled: Arc<AtomicUsize>,
    written: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    thread: Option<JoinHandle<usize>>,
    _dir: tempfile::TempDir,
}

impl Daemon {
    fn start(rows: usize) -> Daemon {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let stop = Arc::new(AtomicBool::new(false));
        let pulled = Arc::new(AtomicUsize::new(0));
        let written = Arc::<Mutex<Vec<String>>>::default();
        let (stopping, counter, values) = (stop.clone(), pulled.clone(), written.clone());
        let (opened, is_open) = std::sync::mpsc::channel();
        let at = path.clone();
        let thread = std::thread::spawn(move || {
            let mut server = Server::open(&at, Access::default()).unwrap();
            opened.send(()).unwrap();
            let mut handler = Fake { rows, pulled: counter, written: values };
            while !stopping.load(Ordering::Relaxed) {
                let mut fds = server.interests();
                let now = Instant::now();
                let until = server
                    .deadline(now)
                    .map_or(20_000_000, |d| d.duration_since(now).as_nanos().min(20_000_000));
                let timeout = rustix::event::Timespec { tv_sec: 0, tv_nsec: until as i64 };
                rustix::event::poll(&mut fds, Some(&timeout)).unwrap();
                let ready: Vec<PollFlags> = fds.iter().map(PollFd::revents).collect();
                server.serve(&ready, Instant::now(), &mut handler);
            }
            server.clients()
        });
        is_open.recv().unwrap();
        Daemon { path, pulled, written, stop, thread: Some(thread), _dir: dir }
    }

    fn client(&self) -> Client {
        Client::connect(&self.path).unwrap()
    }

    fn raw(&self) -> OwnedFd {
        let fd = seqpacket(SocketFlags::empty()).unwrap();
        rustix::net::connect(&fd, &address(&self.path).unwrap()).unwrap();
        fd
    }

    /// Stops the thread; the number of clients it still had.
    fn stop(mut self) -> usize {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.take().unwrap().join().unwrap()
    }
}

#[test]
fn answers_come_in_order_and_a_long_listing_streams() {
    let daemon = Daemon::start(50_000);
    let mut client = daemon.client();
    let uid = rustix::process::geteuid().as_raw();
    assert_eq!(client.collect::<u32>(&Request::Hello).unwrap(), [uid]);
    let rows = client.collect::<usize>(&Request::List).unwrap();
    assert!(rows.into_iter().eq(0..50_000));
    assert_eq!(client.collect::<u32>(&Request::Hello).unwrap(), [uid]);
}

#[test]
fn refusals_carry_their_reason_and_the_connection_goes_on() {
    let daemon = Daemon::start(1);
    let mut client = daemon.client();
    let refused = client.collect::<u32>(&Request::Status).unwrap_err();
    assert_eq!((refused.exit, refused.why.as_str()), (Exit::Failed, "not here"));
    let too_long = client.collect::<u32>(&Request::Drops { all: false }).unwrap_err();
    assert_eq!(too_long.why, "a row does not fit a message");
    assert_eq!(client.collect::<usize>(&Request::List).unwrap(), [0]);
}

#[test]
fn both_families_in_one_datagram_are_answered_in_order() {
    use ipvs::request::{Call, Command};
    let daemon = Daemon::start(1);
    let raw = daemon.raw();
    let datagram = [
        Call::lookup().encode(1),
        Call::plain(Command::GetInfo).encode(2),
        codec::encode_request(3, &Request::Hello),
        Call::dump(Command::GetService).encode(4),
        Call::plain(Command::Flush).encode(5),
    ];
    rustix::net::send(&raw, &datagram.concat(), SendFlags::empty()).unwrap();
    let mut buffer = [0; 1024];
    // An object and its acknowledgement are two datagrams; an empty dump and a command are one each.
    for sequence in [1, 1, 2, 2, 3, 3, 4, 5] {
        let (n, _) = rustix::net::recv(&raw, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
        let [message] = &Incoming::split(&buffer[..n])[..] else { panic!("not one message") };
        assert_eq!(message.header.sequence_number, sequence);
    }
}

#[test]
fn a_reader_that_stalls_holds_back_its_own_rows_only() {
    let daemon = Daemon::start(10_000_000);
    let stalled = daemon.raw();
    rustix::net::send(&stalled, &codec::encode_request(1, &Request::List), SendFlags::empty()).unwrap();
    let mut others = daemon.client();
    let mut settled = 0;
    for _ in 0..200 {
        assert_eq!(others.collect::<u32>(&Request::Hello).unwrap().len(), 1);
        settled = daemon.pulled.load(Ordering::Relaxed);
    }
    std::thread::sleep(std::time::Duration::from_millis(100));
    let later = daemon.pulled.load(Ordering::Relaxed);
    assert!(settled > 0 && later < 1_000_000, "pulled {later} rows for a client that reads none");
    drop(stalled);
    while others.collect::<u32>(&Request::Hello).is_err() {}
    std::thread::sleep(std::time::Duration::from_millis(50));
    assert_eq!(daemon.stop(), 1, "the stalled client is gone");
}

#[test]
fn datagrams_beyond_the_limits_are_refused_and_closed() {
    let request = codec::encode_request(7, &Request::Hello);
    let many = request.repeat(MESSAGES_MAX + 1);
    let mut long = request.clone();
    long.resize(DATAGRAM_BYTES_MAX + 1, 0);
    for datagram in [many, long] {
        let daemon = Daemon::start(1);
        let raw = daemon.raw();
        rustix::net::send(&raw, &datagram, SendFlags::empty()).unwrap();
        let mut buffer = [0; 1024];
        let (n, _) = rustix::net::recv(&raw, &mut buffer, rustix::net::RecvFlags::empty()).unwrap();
        let replies = codec::Reply::split(&buffer[..n]).unwrap();
        assert!(
            matches!(&replies[..], [(7, codec::Reply::Refused(r))] if r.errno == Errno::MSGSIZE && r.text.contains("64 messages")),
            "{replies:?}"
        );
        assert_eq!(rustix::net::recv(&raw, &mut buffer, rustix::net::RecvFlags::empty()).unwrap().0, 0);
    }
}

#[test]
fn garbage_and_sudden_ends_leave_the_daemon_serving() {
    let daemon = Daemon::start(1_000_000);
    for datagram in [&[][..], &[0xff; 40], &codec::encode_request(1, &Request::List)] {
        let raw = daemon.raw();
        let _ = rustix::net::send(&raw, datagram, SendFlags::empty());
    }
    assert_eq!(daemon.client().collect::<u32>(&Request::Hello).unwrap().len(), 1);
}

#[test]
fn more_clients_than_the_limit_are_turned_away() {
    let daemon = Daemon::start(1);
    let first = daemon.client();
    let crowd: Vec<OwnedFd> = (0..CLIENTS_MAX).map(|_| daemon.raw()).collect();
    let mut late = daemon.client();
    assert_eq!(late.collect::<u32>(&Request::Hello).unwrap_err().exit, Exit::Environment);
    drop(crowd);
    drop(first);
    std::thread::sleep(std::time::Duration::from_millis(100));
    assert_eq!(daemon.client().collect::<u32>(&Request::Hello).unwrap().len(), 1);
}

#[test]
fn without_a_daemon_the_command_says_so() {
    let dir = tempfile::tempdir().unwrap();
    let failure = Client::connect(&dir.path().join("none.sock")).unwrap_err();
    assert_eq!((failure.exit, failure.why.as_str()), (Exit::Environment, "no daemon listens there"));
}

#[test]
fn texts_and_knobs_are_handed_over_as_files() {
    let daemon = Daemon::start(20_000);
    let mut client = daemon.client();
    let read = |fd: OwnedFd| std::io::read_to_string(File::from(fd)).unwrap();
    let short = client.open("short", false).unwrap();
    assert_eq!(rustix::io::write(&short, b"x").unwrap_err(), Errno::PERM, "it is sealed");
    assert_eq!(read(short), "text\n");
    let long: String = (0..20_000).map(|n| n.to_string()).collect();
    assert_eq!(read(client.open("long", false).unwrap()), long);

    let knob = client.open("sys/x", true).unwrap();
    for value in [&b"1\n"[..], b"22\n"] {
        rustix::io::write(&knob, value).unwrap();
    }
    client.collect::<()>(&Request::SysctlSet { name: "x".into(), text: "1".into() }).unwrap();
    let begun = Instant::now();
    while daemon.written.lock().unwrap().len() < 2 {
        assert!(begun.elapsed().as_secs() < 10, "the values do not arrive");
        std::thread::yield_now();
    }
    assert_eq!(*daemon.written.lock().unwrap(), ["sys/x=1\n", "sys/x=22\n"]);
    // No more than there is room for; each of those is read to its end, and then there is room again.
    drop(knob);
    let begun = Instant::now();
    let mut many = Vec::new();
    let refused = loop {
        match client.open("long", false) {
            Ok(file) => many.push(file),
            Err(refused) => break refused,
        }
    };
    assert_eq!(refused.why, "too many files of the daemon are open");
    assert!((OPEN_MAX - 1..=OPEN_MAX).contains(&many.len()), "{}", many.len());
    assert!(many.into_iter().map(read).all(|text| text == long));
    while client.open("long", false).is_err() {
        assert!(begun.elapsed().as_secs() < 10, "no room again");
    }
}

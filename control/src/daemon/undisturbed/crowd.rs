//! Clients that do not behave: connects by the thousand, readers that do not read, clients that die in the midst of a
//! listing. They are a process of their own, this test binary run again for the one test below: what a process does
//! to its memory is felt by all its threads, and the worker's is one of ours.

use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
use rustix::process::{Resource, Rlimit, setrlimit};

use crate::api::codec::{self, ConnFilterText, Request};
use crate::api::server::CLIENTS_MAX;
use crate::ipvs::request::{Call, Command as Kernel};

/// Names the socket to the process.
const SOCKET: &str = "WEIR_TEST_CROWD_SOCKET";
/// Connects.
const CONNECTS: usize = 10_000;
/// Clients that die.
const DEAD: usize = 60;
/// How long the readers do not read.
const SLOW: Duration = Duration::from_secs(1);

/// Lets the crowd loose on the daemon; returns when it is through.
pub fn attack(socket: &Path) {
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "daemon::undisturbed::crowd::as_a_process", "--nocapture"]);
    let output = command.env(SOCKET, socket).output().unwrap();
    let told = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success() && told.contains("1 passed"), "{output:?}");
    told.lines().filter(|line| line.starts_with("crowd: ")).for_each(|line| println!("{line}"));
}

/// Not a test by itself: what [`attack`] starts.
#[test]
fn as_a_process() {
    let Some(socket) = std::env::var_os(SOCKET).map(PathBuf::from) else { return };
    let limit = Rlimit { current: Some(20_000), maximum: Some(20_000) };
    setrlimit(Resource::Nofile, limit).unwrap();
    let begun = Instant::now();
    let held: Vec<_> = (0..CONNECTS).filter_map(|_| connect(&socket).ok().filter(is_served)).collect();
    println!("\ncrowd: {CONNECTS} connects in {:?}, {} of them served", begun.elapsed(), held.len());
    assert!((1..=CLIENTS_MAX).contains(&held.len()), "{}", held.len());
    held.iter().for_each(ask_for_everything);
    std::thread::sleep(SLOW);
    println!("crowd: {} that asked for everything have read nothing for {SLOW:?}", held.len());
    drop(held);
    let begun = Instant::now();
    let died = (0..DEAD).filter(|number| dies(&socket, *number).is_ok()).count();
    println!("crowd: {died} died in the midst of a listing in {:?}", begun.elapsed());
    assert!(died > DEAD / 2, "{died}");
}

fn connect(socket: &Path) -> Result<OwnedFd, Errno> {
    let raw =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
    rustix::net::connect(&raw, &SocketAddrUnix::new(socket)?)?;
    Ok(raw)
}

fn send(raw: &OwnedFd, datagram: &[u8]) -> Result<usize, Errno> {
    rustix::net::send(raw, datagram, SendFlags::NOSIGNAL)
}

fn receive(raw: &OwnedFd) -> Result<usize, Errno> {
    let mut buffer = [0; 64 * 1024];
    rustix::net::recv(raw, &mut buffer, RecvFlags::empty()).map(|(length, _)| length)
}

fn is_served(raw: &OwnedFd) -> bool {
    send(raw, &codec::encode_request(1, &Request::Hello)).is_ok()
        && receive(raw).is_ok_and(|length| length > 0)
}

fn ask_for_everything(raw: &OwnedFd) {
    for number in 0..3 {
        // Whoever is closed meanwhile cannot ask.
        let _ = send(raw, &listing(number));
    }
}

/// A listing of services, of the table, of connections.
fn listing(number: usize) -> Vec<u8> {
    match number % 3 {
        0 => Call::dump(Kernel::GetService).encode(2),
        1 => codec::encode_request(3, &Request::List),
        _ => codec::encode_request(4, &Request::Conns(ConnFilterText::default())),
    }
}

/// Asks for a listing, takes the first of it and is gone.
fn dies(socket: &Path, number: usize) -> Result<(), Errno> {
    let raw = connect(socket)?;
    send(&raw, &listing(number))?;
    let length = receive(&raw)?;
    (length > 0).then_some(()).ok_or(Errno::CONNRESET)
}

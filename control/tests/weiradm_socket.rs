//! The program `weiradm` itself, over a socket, against a server on a store in memory.

use std::fmt::Write as _;
use std::io::Write as _;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Command, Output, Stdio};
use std::thread;

use control::ipvs::{MemoryStore, Rights, Server};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

/// Services of the long run; enough for many datagrams and many requests ahead.
const SERVICES: usize = 2_000;

#[test]
fn two_thousand_services_are_restored_listed_and_saved() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("weir.sock");
    serve(&socket);
    let mut lines = String::new();
    for n in 0..SERVICES {
        let service = format!("10.{}.{}.1:80", n / 250, n % 250);
        let _ = write!(lines, "-A -t {service} -s rr\n-a -t {service} -r 192.168.0.1:8080 -m -w 1\n");
    }
    let run = |arguments: &[&str], input: &str| {
        let output = weiradm(Path::new(env!("CARGO_BIN_EXE_weiradm")), Some(&socket), arguments, input);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), ""), "{arguments:?}");
        text(&output.stdout).to_owned()
    };
    assert_eq!(run(&["-R"], &lines), "");
    assert_eq!(run(&["-S", "-n"], ""), lines);
    let listing = run(&["-L", "-n"], "");
    assert_eq!(listing.lines().count(), 3 + 2 * SERVICES);
    assert!(listing.starts_with("IP Virtual Server version 1.2.1 (size=4096)\n"), "{}", &listing[..100]);
    run(&["-C"], "");
    assert_eq!(run(&["-S", "-n"], ""), "");
}

#[test]
fn without_a_daemon_only_help_and_version_work() {
    let dir = tempfile::tempdir().unwrap();
    let nowhere = dir.path().join("none.sock");
    let program = Path::new(env!("CARGO_BIN_EXE_weiradm"));
    let output = weiradm(program, Some(&nowhere), &["-L"], "");
    assert_eq!(output.status.code(), Some(2));
    assert_eq!(
        text(&output.stderr),
        "Can't initialize ipvs: Protocol not available\n\
         Are you sure that IP Virtual Server is built in the kernel or as module?\n"
    );
    let help = weiradm(program, Some(&nowhere), &["--help"], "");
    assert_eq!(help.status.code(), Some(0));
    let usage = format!("\n  {} -D virtual-service\n", program.display());
    assert!(text(&help.stdout).contains(&usage), "{}", text(&help.stdout));
    let version = weiradm(program, Some(&nowhere), &["-v"], "");
    assert!(text(&version.stdout).starts_with("weiradm v"), "{}", text(&version.stdout));

    let other_name = dir.path().join("ipvsadm");
    std::os::unix::fs::symlink(program, &other_name).unwrap();
    let version = weiradm(&other_name, Some(&nowhere), &["-v"], "");
    assert!(text(&version.stdout).starts_with("ipvsadm v1.31 "), "{}", text(&version.stdout));
}

#[test]
fn the_socket_is_named_by_option_or_environment() {
    let dir = tempfile::tempdir().unwrap();
    let socket = dir.path().join("weir.sock");
    serve(&socket);
    let program = Path::new(env!("CARGO_BIN_EXE_weiradm"));
    let named = ["--socket", socket.to_str().unwrap(), "-L", "-n"];
    let glued = [&format!("--socket={}", socket.display()), "-L", "-n"];
    for arguments in [&named[..], &glued[..]] {
        assert_eq!(weiradm(program, None, arguments, "").status.code(), Some(0), "{arguments:?}");
    }
}

fn weiradm(program: &Path, socket: Option<&Path>, arguments: &[&str], input: &str) -> Output {
    let mut command = Command::new(program);
    command.args(arguments).env_remove("WEIR_SOCKET");
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    if let Some(socket) = socket {
        command.env("WEIR_SOCKET", socket);
    }
    let mut child = command.spawn().unwrap();
    let mut stdin = child.stdin.take().unwrap();
    // A program that does not read its input closes it.
    let _ = stdin.write_all(input.as_bytes());
    drop(stdin);
    child.wait_with_output().unwrap()
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).unwrap()
}

/// Listens on the path and serves one client after the other, on a thread that ends with the test.
fn serve(path: &Path) {
    let listener =
        rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)
            .unwrap();
    rustix::net::bind(&listener, &SocketAddrUnix::new(path).unwrap()).unwrap();
    rustix::net::listen(&listener, 8).unwrap();
    thread::spawn(move || {
        let mut server = Server::new(MemoryStore::default());
        while let Ok(client) = rustix::net::accept(&listener) {
            serve_client(&client, &mut server);
        }
    });
}

fn serve_client(client: &OwnedFd, server: &mut Server<MemoryStore>) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok((_, length)) = rustix::net::recv(client, &mut buffer[..], RecvFlags::empty())
        && length > 0
    {
        for datagram in server.answer_datagram(&buffer[..length], Rights::Write) {
            if rustix::net::send(client, &datagram, SendFlags::NOSIGNAL).is_err() {
                return;
            }
        }
    }
}

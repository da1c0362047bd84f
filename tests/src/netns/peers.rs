//! Clients and servers for test networks: UDP echo, a TCP server of lines, nginx.
//!
//! Every server answers with its own name, so that a client sees who served it.

use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Write};
use std::net::{TcpListener, TcpStream, UdpSocket};
use std::os::unix::process::CommandExt;
use std::process::Stdio;
use std::thread;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};

use super::{Host, Net, Process, wait_for};

/// Answers every datagram with "NAME: " in front of it, for ever.
///
/// # Errors
/// When the socket fails for good; a client that went away (port unreachable) is not such a failure.
pub fn serve_udp(socket: &UdpSocket, name: &str) -> io::Result<()> {
    let mut datagram = [0; 65536];
    loop {
        match socket.recv_from(&mut datagram) {
            Ok((length, client)) => {
                let mut answer = format!("{name}: ").into_bytes();
                answer.extend_from_slice(&datagram[..length]);
                socket.send_to(&answer, client)?;
            }
            Err(error) if error.kind() == ErrorKind::ConnectionRefused => {}
            Err(error) => return Err(error),
        }
    }
}

/// Sends one datagram from a new socket and returns the answer.
///
/// # Errors
/// No answer within two seconds, or the socket's own.
pub fn ask_udp(server: &str, question: &str) -> io::Result<String> {
    let socket = UdpSocket::bind("0.0.0.0:0")?;
    socket.set_read_timeout(Some(Duration::from_secs(2)))?;
    socket.connect(server)?;
    socket.send(question.as_bytes())?;
    let mut answer = [0; 65536];
    let length = socket.recv(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer[..length]).into_owned())
}

/// Starts a UDP echo server on a host; it ends with the test process.
pub fn start_udp_echo(host: &Host, port: u16, name: &str) {
    let name = name.to_owned();
    host.run(move || {
        let socket = UdpSocket::bind(("0.0.0.0", port)).expect("the port is free");
        thread::spawn(move || serve_udp(&socket, &name));
    });
}

/// Starts a TCP server on a host that answers each line with "NAME: LINE"; it ends with the test process.
pub fn start_line_server(host: &Host, port: u16, name: &str) {
    let name = name.to_owned();
    host.run(move || {
        let listener = TcpListener::bind(("0.0.0.0", port)).expect("the port is free");
        thread::spawn(move || {
            for client in listener.incoming().flatten() {
                let name = name.clone();
                thread::spawn(move || serve_lines(&client, &name));
            }
        });
    });
}

fn serve_lines(client: &TcpStream, name: &str) -> io::Result<()> {
    for line in BufReader::new(client).lines() {
        let answer = format!("{name}: {}\n", line?);
        { client }.write_all(answer.as_bytes())?;
    }
    Ok(())
}

/// A TCP connection to a line server.
#[derive(Debug)]
pub struct LineClient {
    stream: BufReader<TcpStream>,
}

impl LineClient {
    /// Connects from a host.
    ///
    /// # Errors
    /// Those of connecting; three seconds at most.
    pub fn connect(host: &Host, server: &str) -> io::Result<LineClient> {
        let server = server.parse().expect("an address with a port");
        let stream = host.run(|| TcpStream::connect_timeout(&server, Duration::from_secs(3)))?;
        stream.set_nodelay(true)?;
        Ok(LineClient { stream: BufReader::new(stream) })
    }

    /// Sends a line and returns the name of the server that answered it.
    ///
    /// # Errors
    /// `WouldBlock` when no answer came within `limit`; else those of the connection.
    pub fn ask(&mut self, question: &str, limit: Duration) -> io::Result<String> {
        self.stream.get_mut().write_all(format!("{question}\n").as_bytes())?;
        self.answer(limit)
    }

    /// Waits for the answer to a question already asked.
    ///
    /// # Errors
    /// As [`LineClient::ask`]; `UnexpectedEof` when the server closed.
    pub fn answer(&mut self, limit: Duration) -> io::Result<String> {
        self.stream.get_mut().set_read_timeout(Some(limit))?;
        let mut answer = String::new();
        self.stream.read_line(&mut answer)?;
        match answer.split_once(':') {
            Some((name, _)) => Ok(name.to_owned()),
            None => Err(io::Error::new(ErrorKind::UnexpectedEof, "closed without an answer")),
        }
    }
}

/// An nginx on one server of a network, answering its name on `/` and storing what is PUT under `/files/`. Killed when
/// dropped, all its processes at once.
#[derive(Debug)]
pub struct Nginx {
    process: Process,
    /// Directory behind `/files/`.
    pub files: std::path::PathBuf,
}

impl Nginx {
    /// Starts it on server `number` by the name `rsNUMBER`, port 8080, and waits until it listens.
    pub fn start(net: &Net, number: usize) -> Nginx {
        Nginx::start_as(net, number, &format!("rs{number}"), 8080)
    }

    /// [`Nginx::start`] with a name and L4 port of one's own.
    pub fn start_as(net: &Net, number: usize, name: &str, port: u16) -> Nginx {
        let dir = net.dir().join(name);
        let files = dir.join("files");
        fs::create_dir_all(&files).expect("a directory of our own");
        let config = include_str!("../../demo/nginx.conf")
            .replace("@dir@", &dir.display().to_string())
            .replace("@name@", name)
            .replace("@port@", &port.to_string());
        fs::write(dir.join("nginx.conf"), config).expect("a directory of our own");
        let host = net.server(number);
        let mut command = host.command("nginx");
        command.process_group(0).stderr(Stdio::null());
        command.arg("-e").arg(dir.join("error.log")).arg("-c").arg(dir.join("nginx.conf"));
        let process = Process::start("nginx", &mut command);
        wait_for("nginx listens", Duration::from_secs(5), || {
            host.run(|| TcpStream::connect(("127.0.0.1", port)).ok())
        });
        Nginx { process, files }
    }

    /// Sends a signal to all its processes.
    pub fn signal(&self, signal: Signal) {
        let group = Pid::from_raw(self.process.id().cast_signed()).expect("a process id is not 0");
        kill_process_group(group, signal).expect("its first process has not been waited for");
    }
}

impl Drop for Nginx {
    fn drop(&mut self) {
        self.signal(Signal::KILL);
    }
}

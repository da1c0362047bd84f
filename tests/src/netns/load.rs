//! A web client that asks all the time, and keeps record of every request.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use super::Host;

/// A request fails that is not answered within this time.
const PATIENCE: Duration = Duration::from_millis(500);
const PAUSE: Duration = Duration::from_millis(10);

/// One request on a connection of its own.
#[derive(Debug)]
pub struct Request {
    /// When it began.
    pub begun: Instant,
    /// Name of the server that answered.
    pub answer: io::Result<String>,
}

/// A running client.
#[derive(Debug)]
pub struct Load {
    over: Arc<AtomicBool>,
    client: Option<JoinHandle<Vec<Request>>>,
}

impl Load {
    /// Asks a server for `/`, from a host, until it is stopped.
    pub fn start(host: &Host, server: &str) -> Load {
        let server = server.parse().expect("an address with a port");
        let over = Arc::new(AtomicBool::new(false));
        let seen = Arc::clone(&over);
        let client = host.run(move || {
            thread::spawn(move || {
                let mut requests = Vec::new();
                while !seen.load(Ordering::Relaxed) {
                    requests.push(Request { begun: Instant::now(), answer: fetch(server) });
                    thread::sleep(PAUSE);
                }
                requests
            })
        });
        Load { over, client: Some(client) }
    }

    /// Ends it after its last request; all requests in order.
    pub fn stop(mut self) -> Vec<Request> {
        self.over.store(true, Ordering::Relaxed);
        self.client.take().expect("it is stopped once").join().expect("the client does not panic")
    }
}

impl Drop for Load {
    fn drop(&mut self) {
        self.over.store(true, Ordering::Relaxed);
    }
}

fn fetch(server: SocketAddr) -> io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&server, PATIENCE)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.write_all(b"GET / HTTP/1.1\r\nHost: test\r\nConnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    match response.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.trim().to_owned()),
        _ => Err(io::Error::other(response)),
    }
}

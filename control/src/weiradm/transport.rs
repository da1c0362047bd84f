//! What carries messages to the server and back.

use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::Errno;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

use super::conns::Entry;
use crate::api::client;
use crate::api::codec::{ConnFilterText, Transaction};
use crate::api::rows::TransactionRow;
use crate::failure::Failure;

/// How long the daemon may take for the next part of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// Longest datagram of the daemon; it packs up to 8 KiB, and one larger object is sent alone.
const DATAGRAM_BYTES_MAX: usize = 64 * 1024;

/// Carries datagrams of netlink messages to a server of the IPVS family, and back, in order.
pub trait Transport {
    /// Sends a datagram.
    ///
    /// # Errors
    /// The system's error number.
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno>;

    /// Takes the next datagram of the server.
    ///
    /// # Errors
    /// The system's error number; ECONNRESET when the server is gone.
    fn receive(&mut self) -> Result<Vec<u8>, Errno>;

    /// Gives every connection to `each`, until it breaks off.
    ///
    /// # Errors
    /// The connections cannot be read.
    fn connections(&mut self, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Failure>;

    /// Makes a transaction; what it changes.
    ///
    /// # Errors
    /// It is refused.
    fn transact(&mut self, transaction: Transaction) -> Result<Vec<TransactionRow>, Failure>;
}

/// The control socket of the daemon.
#[derive(Debug)]
pub struct SocketTransport {
    fd: OwnedFd,
    path: PathBuf,
    buffer: Vec<u8>,
}

impl SocketTransport {
    /// Connects to the daemon that listens on `path`.
    ///
    /// # Errors
    /// No daemon, or no right to connect.
    pub fn connect(path: &Path) -> Result<SocketTransport, Errno> {
        let fd =
            rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?;
        rustix::net::connect(&fd, &SocketAddrUnix::new(path)?)?;
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&fd, side, Some(PATIENCE))?;
        }
        Ok(SocketTransport { fd, path: path.to_owned(), buffer: vec![0; DATAGRAM_BYTES_MAX] })
    }
}

impl Transport for SocketTransport {
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno> {
        rustix::net::send(&self.fd, datagram, SendFlags::NOSIGNAL).map(drop)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Errno> {
        loop {
            match rustix::net::recv(&self.fd, &mut self.buffer[..], RecvFlags::empty()) {
                Ok((_, 0)) => return Err(Errno::CONNRESET),
                Ok((length, _)) => return Ok(self.buffer[..length].to_vec()),
                Err(Errno::INTR) => {}
                Err(error) => return Err(error),
            }
        }
    }

    /// Over a connection of its own, in our own family: the kernel's has no word for connections.
    fn connections(&mut self, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Failure> {
        client::Client::connect(&self.path)?
            .connections(ConnFilterText::default(), |row| Ok(each(Entry::from(row))))
    }

    /// Likewise: the kernel's family has no word for transactions.
    fn transact(&mut self, transaction: Transaction) -> Result<Vec<TransactionRow>, Failure> {
        client::Client::connect(&self.path)?.transact(transaction)
    }
}

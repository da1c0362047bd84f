//! The commands' end of the control socket: one request, its rows, blocking.

use std::io::IoSliceMut;
use std::mem::MaybeUninit;
use std::ops::ControlFlow;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::io::{Errno, retry_on_intr};
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendFlags, SocketFlags};
use serde::de::DeserializeOwned;

use super::codec::{self, ConnFilterText, Refusal, Reply, Request, Transaction};
use super::conns;
use super::listener::{address, seqpacket, shown};
use super::rows::{ConnRow, TransactionRow};
use crate::failure::Failure;

/// How long the daemon may take for the next part of an answer.
const PATIENCE: Duration = Duration::from_secs(10);
/// The same for a transaction: 100 000 services with ten destinations each are parsed, compared and written in it.
const TRANSACTION_PATIENCE: Duration = Duration::from_secs(120);
/// Longest datagram of the daemon: one row of the greatest length, with headers.
const DATAGRAM_BYTES_MAX: usize = codec::ROW_BYTES_MAX + 64;

/// A connection to the daemon.
#[derive(Debug)]
pub struct Client {
    fd: OwnedFd,
    path: PathBuf,
    sequence: u32,
}

impl Client {
    /// Connects to the daemon that listens on `path`.
    ///
    /// # Errors
    /// No daemon, or no right to connect: exit status 3.
    pub fn connect(path: &Path) -> Result<Client, Failure> {
        let broken = |error: Errno| Failure::environment(shown(path), error);
        let address = address(path)?;
        let fd = seqpacket(SocketFlags::empty()).map_err(broken)?;
        rustix::net::connect(&fd, &address).map_err(|error| match error {
            Errno::NOENT | Errno::CONNREFUSED => Failure::environment(shown(path), "no daemon listens there")
                .hint("start one with `weir run --config FILE`, or name its socket with --socket PATH or WEIR_SOCKET"),
            Errno::ACCESS => Failure::environment(shown(path), "no right to use this socket")
                .hint("run as root or as a member of the group that owns it (`ls -l` shows it)"),
            other => broken(other),
        })?;
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&fd, side, Some(PATIENCE)).map_err(broken)?;
        }
        Ok(Client { fd, path: path.to_owned(), sequence: 0 })
    }

    /// Asks, and gives every row to `each` as it comes.
    ///
    /// # Errors
    /// The daemon refuses (exit status 1), is gone or silent (3), or speaks another language (1); or `each`
    /// fails. After that, or when `each` breaks off, the rest of the answer is on its way: the client is used up.
    pub fn rows<T: DeserializeOwned>(
        &mut self,
        request: &Request,
        mut each: impl FnMut(T) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.replies(request, |client, json| {
            each(serde_json::from_slice(json).map_err(|error| client.not_understood(&error))?)
        })
    }

    /// Asks for connections, and gives every one to `each` as it comes.
    ///
    /// # Errors
    /// As [`Client::rows`].
    pub fn connections(
        &mut self,
        filter: ConnFilterText,
        mut each: impl FnMut(&ConnRow) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.replies(&Request::Conns(filter), |client, message| {
            let torn = || client.not_understood(&"connection records of another form");
            for record in conns::decode(message).ok_or_else(torn)? {
                if each(&record.row())?.is_break() {
                    return Ok(ControlFlow::Break(()));
                }
            }
            Ok(ControlFlow::Continue(()))
        })
    }

    /// Asks, and gives what each reply carries to `each`.
    fn replies(
        &mut self,
        request: &Request,
        mut each: impl FnMut(&Client, &[u8]) -> Result<ControlFlow<()>, Failure>,
    ) -> Result<(), Failure> {
        self.sequence += 1;
        rustix::net::send(&self.fd, &codec::encode_request(self.sequence, request), SendFlags::NOSIGNAL)
            .map_err(|error| self.lost(error))?;
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        loop {
            let (length, _) = match rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::empty()) {
                Err(Errno::INTR) => continue,
                received => received.map_err(|error| self.lost(error))?,
            };
            if length == 0 {
                return Err(self.lost(Errno::CONNRESET));
            }
            let replies = Reply::split(&buffer[..length]).map_err(|error| self.not_understood(&error))?;
            for (_, reply) in replies.into_iter().filter(|(sequence, _)| *sequence == self.sequence) {
                match reply {
                    Reply::Row(row) => {
                        if each(self, &row)?.is_break() {
                            return Ok(());
                        }
                    }
                    Reply::Done | Reply::Ack => return Ok(()),
                    Reply::Refused(refusal) => return Err(refused(refusal)),
                }
            }
        }
    }

    /// Sends the content of a transaction and the transaction; what it changes.
    ///
    /// # Errors
    /// As [`Client::rows`].
    pub fn transact(&mut self, mut transaction: Transaction) -> Result<Vec<TransactionRow>, Failure> {
        for side in [Timeout::Recv, Timeout::Send] {
            set_socket_timeout(&self.fd, side, Some(TRANSACTION_PATIENCE))
                .map_err(|error| self.lost(error))?;
        }
        let content = std::mem::take(&mut transaction.content);
        for piece in content.chunks(codec::CONTENT_BYTES_MAX) {
            self.collect::<()>(&Request::Content(piece.to_vec()))?;
        }
        self.collect(&Request::Transact(transaction))
    }

    /// Asks and collects the rows.
    ///
    /// # Errors
    /// As [`Client::rows`].
    pub fn collect<T: DeserializeOwned>(&mut self, request: &Request) -> Result<Vec<T>, Failure> {
        let mut rows = Vec::new();
        self.rows(request, |row| {
            rows.push(row);
            Ok(ControlFlow::Continue(()))
        })?;
        Ok(rows)
    }

    /// Has the daemon do something that has no answer but "done".
    ///
    /// # Errors
    /// As [`Client::rows`].
    pub fn order(&mut self, request: &Request) -> Result<(), Failure> {
        self.collect::<()>(request).map(drop)
    }

    /// Opens a file of the kernel's /proc as the daemon has it: to read its text, or to write values of a knob.
    ///
    /// # Errors
    /// As [`Client::rows`].
    pub fn open(&mut self, name: &str, write: bool) -> Result<OwnedFd, Failure> {
        self.sequence += 1;
        let request =
            codec::encode_request(self.sequence, &Request::TextOpen { name: name.to_owned(), write });
        rustix::net::send(&self.fd, &request, SendFlags::NOSIGNAL).map_err(|error| self.lost(error))?;
        let mut buffer = vec![0; DATAGRAM_BYTES_MAX];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let received = retry_on_intr(|| {
            let vector = &mut [IoSliceMut::new(&mut buffer)];
            rustix::net::recvmsg(&self.fd, vector, &mut control, RecvFlags::CMSG_CLOEXEC)
        })
        .map_err(|error| self.lost(error))?;
        if received.bytes == 0 {
            return Err(self.lost(Errno::CONNRESET));
        }
        let replies = Reply::split(&buffer[..received.bytes]).map_err(|error| self.not_understood(&error))?;
        for (_, reply) in replies {
            if let Reply::Refused(refusal) = reply {
                return Err(refused(refusal));
            }
        }
        let file = control.drain().find_map(|message| match message {
            RecvAncillaryMessage::ScmRights(mut files) => files.next(),
            _ => None,
        });
        file.ok_or_else(|| self.not_understood(&"no file came along"))
    }

    fn lost(&self, error: Errno) -> Failure {
        let why = match error {
            Errno::AGAIN => format!("the daemon did not answer within {} s", PATIENCE.as_secs()),
            Errno::CONNRESET | Errno::PIPE => "the daemon closed the connection".to_owned(),
            other => format!("connection lost: {other}"),
        };
        Failure::environment(shown(&self.path), why).hint("look at the daemon's log")
    }

    fn not_understood(&self, error: &dyn std::fmt::Display) -> Failure {
        Failure::run(shown(&self.path), format!("the answer is not understood: {error}"))
            .hint("the daemon is another version than this program, or no weir daemon")
    }
}

fn refused(refusal: Refusal) -> Failure {
    if refusal.text.is_empty() {
        Failure::run("the daemon refused", refusal.errno)
    } else {
        Failure::run("the daemon refused", refusal.text)
    }
}

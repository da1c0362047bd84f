//! Serving the control socket: requests in, rows out, one thread, no wait.
//!
//! Model: [`Server`] owns the listener and its clients; the control thread polls their descriptors, calls
//! [`Server::serve`] with what is ready, and gives it a [`Handler`] that turns a request into [`Rows`]. Rows
//! are pulled only while the client's socket takes them, so a slow reader holds its own answer back and
//! nothing else, and the memory of a client is one datagram. Its requests are answered in order, one at a
//! time. A reader that takes nothing for [`STALL`](super::session::STALL) is closed.
//!
//! Nothing here knows what a row means.

use std::path::Path;
use std::time::Instant;

use rustix::event::{PollFd, PollFlags};

use super::codec::{Incoming, Refusal, Request};
use super::listener::Listener;
use super::session::Session;
use super::text::{OPEN_MAX, Open};
use crate::failure::Failure;
use crate::ipvs;

/// Clients together.
pub const CLIENTS_MAX: usize = 256;
/// Clients of one user other than root.
pub const CLIENTS_PER_USER_MAX: usize = 32;

/// Who is on the other end, as of the moment of connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Process id.
    pub pid: i32,
}

/// The next row of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A row, JSON.
    Row(Vec<u8>),
    /// None yet; ask again in a millisecond.
    Wait,
    /// No more rows.
    End,
}

/// The rows of one answer, pulled as the client takes them.
pub trait Rows {
    /// Next row; never blocks.
    ///
    /// # Errors
    /// The answer ends with this refusal; rows already sent stay sent.
    fn next(&mut self) -> Result<Next, Refusal>;
}

/// Rows that need no waiting, made as they are taken.
impl<I: Iterator<Item = Vec<u8>>> Rows for I {
    fn next(&mut self) -> Result<Next, Refusal> {
        Ok(Iterator::next(self).map_or(Next::End, Next::Row))
    }
}

/// What a request comes to.
pub enum Outcome {
    /// Rows, sent as the client takes them.
    Rows(Box<dyn Rows>),
    /// It is done; nothing but the acknowledgement.
    Done,
    /// A text, handed over as a file.
    Text(Vec<u8>),
    /// Lines of a text, handed over as a file that is filled as it is read.
    Stream(Box<dyn Rows>),
    /// The knob of this name, handed over as a file to write values to.
    Knob(String),
}

impl std::fmt::Debug for Outcome {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Outcome::Rows(_) => "Rows",
            Outcome::Done => "Done",
            Outcome::Text(_) => "Text",
            Outcome::Stream(_) => "Stream",
            Outcome::Knob(_) => "Knob",
        })
    }
}

/// What the daemon does with a request.
pub trait Handler {
    /// Carries out the request. Runs on the control thread and must not block.
    ///
    /// # Errors
    /// The request is refused.
    fn answer(&mut self, request: Request, peer: Peer) -> Result<Outcome, Refusal>;

    /// Takes a value that was written to a knob's file. Nobody waits for the result.
    fn write_knob(&mut self, knob: &str, value: &str, peer: Peer);

    /// Answers to messages of the IPVS family that came in one datagram, in order; what they change is in force
    /// when this returns. Runs on the control thread.
    fn ipvs(&mut self, messages: &[Incoming], peer: Peer) -> Vec<ipvs::Answer>;
}

/// The control socket's serving end.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    clients: Vec<Session>,
    /// Files that clients have open.
    open: Vec<Open>,
}

impl Server {
    /// Takes the path and listens.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(path: &Path) -> Result<Server, Failure> {
        Ok(Server { listener: Listener::open(path)?, clients: Vec::new(), open: Vec::new() })
    }

    /// Descriptors to poll, the listener first; [`Server::serve`] takes the results in the same order.
    pub fn interests(&self) -> Vec<PollFd<'_>> {
        let listener = PollFd::new(&self.listener, PollFlags::IN);
        let clients = self.clients.iter().map(|c| PollFd::new(c, c.interest()));
        let open = self.open.iter().map(|file| PollFd::new(file, file.interest()));
        std::iter::once(listener).chain(clients).chain(open).collect()
    }

    /// When [`Server::serve`] must run even if no descriptor is ready.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        let clients = self.clients.iter().filter_map(|client| client.deadline(now));
        clients.chain(self.open.iter().filter_map(|file| file.deadline(now))).min()
    }

    /// Serves what is ready. Never blocks.
    pub fn serve(&mut self, ready: &[PollFlags], now: Instant, handler: &mut dyn Handler) {
        let [listener, clients @ ..] = ready else { return };
        let mut flags = clients.iter();
        self.clients.retain_mut(|client| {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            client.turn(flags, now, handler).is_ok()
        });
        self.open.retain_mut(|file| {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            file.turn(flags, now, handler).is_ok()
        });
        let opened: Vec<_> = self.clients.iter_mut().filter_map(Session::take_opened).collect();
        opened.into_iter().for_each(|file| self.keep(file, now));
        if listener.contains(PollFlags::IN) {
            self.accept(now, handler);
        }
    }

    /// Clients now connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    fn accept(&mut self, now: Instant, handler: &mut dyn Handler) {
        while let Some(fd) = self.listener.accept() {
            let Ok(credentials) = rustix::net::sockopt::socket_peercred(&fd) else { continue };
            let peer = Peer { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_pid() };
            let mut client = Session::new(fd, peer, now);
            if self.has_room_for(peer) && client.turn(PollFlags::IN, now, handler).is_ok() {
                client.take_opened().into_iter().for_each(|file| self.keep(file, now));
                self.clients.push(client);
            }
        }
    }

    /// Keeps our end of a file. Beyond the limit the one that was left longest is closed.
    fn keep(&mut self, file: Open, now: Instant) {
        if self.open.len() >= OPEN_MAX {
            let oldest = (0..self.open.len()).max_by_key(|at| self.open[*at].idle(now));
            oldest.map(|at| self.open.swap_remove(at));
        }
        self.open.push(file);
    }

    fn has_room_for(&self, peer: Peer) -> bool {
        let of_user = self.clients.iter().filter(|c| c.peer().uid == peer.uid).count();
        self.clients.len() < CLIENTS_MAX && (peer.uid == 0 || of_user < CLIENTS_PER_USER_MAX)
    }
}

#[cfg(test)]
mod tests;

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

/// What the daemon does with a request.
pub trait Handler {
    /// The answer's rows. Runs on the control thread and must not block.
    ///
    /// # Errors
    /// The request is refused.
    fn answer(&mut self, request: Request, peer: Peer) -> Result<Box<dyn Rows>, Refusal>;

    /// Answers to messages of the IPVS family that came in one datagram, in order; what they change is in force
    /// when this returns. Runs on the control thread.
    fn ipvs(&mut self, messages: &[Incoming], peer: Peer) -> Vec<ipvs::Answer>;
}

/// The control socket's serving end.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    clients: Vec<Session>,
}

impl Server {
    /// Takes the path and listens.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(path: &Path) -> Result<Server, Failure> {
        Ok(Server { listener: Listener::open(path)?, clients: Vec::new() })
    }

    /// Descriptors to poll, the listener first; [`Server::serve`] takes the results in the same order.
    pub fn interests(&self) -> Vec<PollFd<'_>> {
        let listener = PollFd::new(&self.listener, PollFlags::IN);
        std::iter::once(listener).chain(self.clients.iter().map(|c| PollFd::new(c, c.interest()))).collect()
    }

    /// When [`Server::serve`] must run even if no descriptor is ready.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        self.clients.iter().filter_map(|client| client.deadline(now)).min()
    }

    /// Serves what is ready. Never blocks.
    pub fn serve(&mut self, ready: &[PollFlags], now: Instant, handler: &mut dyn Handler) {
        let [listener, clients @ ..] = ready else { return };
        let mut flags = clients.iter();
        self.clients.retain_mut(|client| {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            client.turn(flags, now, handler).is_ok()
        });
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
                self.clients.push(client);
            }
        }
    }

    fn has_room_for(&self, peer: Peer) -> bool {
        let of_user = self.clients.iter().filter(|c| c.peer().uid == peer.uid).count();
        self.clients.len() < CLIENTS_MAX && (peer.uid == 0 || of_user < CLIENTS_PER_USER_MAX)
    }
}

#[cfg(test)]
mod tests;

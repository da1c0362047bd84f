//! Serving the control socket: requests in, rows out, one thread, no wait.
//!
//! Model: [`Server`] owns the listener and its clients; the control thread polls their descriptors, calls
//! [`Server::serve`] with what is ready, and gives it a [`Handler`] that turns a request into [`Rows`]. Rows
//! are pulled only while the client's socket takes them, so a slow reader holds its own answer back and
//! nothing else, and the memory of a client is one datagram. Its requests are answered in order, one at a
//! time. A reader that takes nothing for [`STALL`] is closed.
//!
//! A turn is bounded: so many steps of each client, a slice of time for all of them, so many new clients, one
//! listing of the whole table begun. Whoever connects beyond the limits is closed at once; whoever wants a listing
//! beyond the limits waits. Of both, some places are root's alone.
//!
//! Nothing here knows what a row means.

use std::path::Path;
use std::time::{Duration, Instant};

use rustix::event::{PollFd, PollFlags};
use rustix::io::Errno;

use super::access::Access;
use super::codec::{Incoming, Refusal, Request};
use super::listener::Listener;
use super::session::{STALL, Session};
use super::text::{OPEN_MAX, Open};
use crate::failure::Failure;
use crate::ipvs::{self, Rights};

/// Clients together.
pub const CLIENTS_MAX: usize = 256;
/// Clients of one user other than root.
pub const CLIENTS_PER_USER_MAX: usize = 32;
/// Clients of all users other than root: a quarter of the places is left to root, however many users there are.
pub const CLIENTS_OF_OTHERS_MAX: usize = 192;
/// Listings of the whole table under way: each holds a copy, about 250 bytes a service.
const LISTINGS_MAX: usize = 16;
/// Of these, those of users other than root, and of one such user; who comes later waits.
const LISTINGS_OF_OTHERS_MAX: usize = 12;
const LISTINGS_PER_USER_MAX: usize = 4;
/// Clients are served so long before the loop looks again who is ready, ticks and signals among them.
const SLICE: Duration = Duration::from_millis(2);
/// New clients taken or turned away in one turn; those that connect meanwhile wait for the next.
const ACCEPTS_PER_TURN: usize = 64;

/// Who is on the other end, as of the moment of connect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// User id.
    pub uid: u32,
    /// Process id.
    pub pid: i32,
    /// What it may do.
    pub rights: Rights,
}

impl Peer {
    /// That it may change things.
    ///
    /// # Errors
    /// EPERM.
    pub fn require_write(self) -> Result<(), Refusal> {
        let may = self.rights == Rights::Write;
        may.then_some(()).ok_or_else(|| Refusal::new(Errno::PERM, "this user may not change things"))
    }
}

/// The next row of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Next {
    /// A row: JSON, or a piece of a connection listing.
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

    /// Answers to messages of the IPVS family that one client sent in sequence, in order; what they change is in force
    /// when this returns. Runs on the control thread.
    fn ipvs(&mut self, messages: &[Incoming], peer: Peer) -> Vec<ipvs::Answer>;
}

/// The control socket's serving end.
#[derive(Debug)]
pub struct Server {
    listener: Listener,
    access: Access,
    clients: Vec<Session>,
    /// Files that clients have open.
    open: Vec<Open>,
    turned_away: u64,
}

impl Server {
    /// Takes the path and listens.
    ///
    /// # Errors
    /// As [`Listener::open`].
    pub fn open(path: &Path, access: Access) -> Result<Server, Failure> {
        let listener = Listener::open(path, &access)?;
        Ok(Server { listener, access, clients: Vec::new(), open: Vec::new(), turned_away: 0 })
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
        let (clients, files) = clients.split_at(self.clients.len().min(clients.len()));
        self.serve_clients(clients, now, handler);
        let mut flags = files.iter();
        self.open.retain_mut(|file| {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            file.turn(flags, now, handler).is_ok()
        });
        let opened: Vec<_> = self.clients.iter_mut().filter_map(Session::take_opened).collect();
        self.open.extend(opened);
        if listener.contains(PollFlags::IN) {
            self.accept(now);
        }
        self.make_room_for_files(now);
    }

    /// Gives those that are due their turn, as long as the slice lasts; the next call begins with those left over.
    fn serve_clients(&mut self, ready: &[PollFlags], now: Instant, handler: &mut dyn Handler) {
        let begun = Instant::now();
        let mut listings: Vec<u32> =
            self.clients.iter().filter(|c| c.is_listing()).map(|c| c.peer().uid).collect();
        let (mut started, mut over, mut served) = (false, false, 0);
        let mut flags = ready.iter();
        self.clients.retain_mut(|client| {
            let flags = flags.next().copied().unwrap_or(PollFlags::empty());
            over = over || begun.elapsed() > SLICE;
            if over {
                return true;
            }
            served += 1;
            if !client.is_due(flags, now) {
                return true;
            }
            let (uid, was_listing) = (client.peer().uid, client.is_listing());
            let may_list = !started && has_listing_for(&listings, uid);
            let goes_on = client.turn(flags, now, may_list, handler).is_ok();
            served -= usize::from(!goes_on);
            if client.is_listing() && !was_listing {
                started = true;
                listings.push(uid);
            }
            goes_on
        });
        let first = if over { served } else { 1 };
        let clients = self.clients.len().max(1);
        self.clients.rotate_left(first % clients);
    }

    /// Clients now connected.
    pub fn clients(&self) -> usize {
        self.clients.len()
    }

    /// Clients ever closed for want of a place.
    pub fn turned_away(&self) -> u64 {
        self.turned_away
    }

    fn accept(&mut self, now: Instant) {
        for _ in 0..ACCEPTS_PER_TURN {
            let Some(fd) = self.listener.accept() else { return };
            match self.access.peer(&fd) {
                Some(peer) if has_room_for(&self.clients, peer) => {
                    self.clients.push(Session::new(fd, peer, now));
                }
                _ => self.turned_away += 1,
            }
        }
    }

    /// At the limit, closes our end of the file that was left longest, if it was left at all; without room
    /// clients open no further one.
    fn make_room_for_files(&mut self, now: Instant) {
        if self.open.len() >= OPEN_MAX {
            let left = (0..self.open.len()).filter(|at| self.open[*at].idle(now) > STALL);
            let oldest = left.max_by_key(|at| self.open[*at].idle(now));
            oldest.map(|at| self.open.swap_remove(at));
        }
        let room = self.open.len() < OPEN_MAX;
        self.clients.iter_mut().for_each(|client| client.let_open(room));
    }
}

fn has_listing_for(listings: &[u32], uid: u32) -> bool {
    let count = |counts: &dyn Fn(u32) -> bool| listings.iter().filter(|of| counts(**of)).count();
    let others_fit =
        || count(&|of| of == uid) < LISTINGS_PER_USER_MAX && count(&|of| of != 0) < LISTINGS_OF_OTHERS_MAX;
    listings.len() < LISTINGS_MAX && (uid == 0 || others_fit())
}

fn has_room_for(clients: &[Session], peer: Peer) -> bool {
    let count = |counts: &dyn Fn(u32) -> bool| clients.iter().filter(|c| counts(c.peer().uid)).count();
    let others_fit = || {
        count(&|uid| uid == peer.uid) < CLIENTS_PER_USER_MAX && count(&|uid| uid != 0) < CLIENTS_OF_OTHERS_MAX
    };
    clients.len() < CLIENTS_MAX && (peer.uid == 0 || others_fit())
}

#[cfg(test)]
mod tests;

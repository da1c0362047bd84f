//! Serving the control socket: requests in, rows out, one thread, no wait.
//!
//! Model: [`Server`] owns the listener and its clients; the control thread polls their descriptors, calls
//! [`Server::serve`] with what is ready, and gives it a [`Handler`] that turns a request into rows. Rows
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

use super::access::Access;
use super::handler::{Handler, Peer};
use super::listener::Listener;
use super::session::{STALL, Session};
use super::text::{OPEN_MAX, Open};
use crate::failure::Failure;

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

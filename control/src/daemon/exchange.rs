//! Connection listings: pieces of a worker's table, fetched through its mailbox as a client takes them.
//!
//! Model: a worker fills one piece at a time, some records a poll. [`Exchange`] is control's side of one
//! worker's mailbox: one piece is on its way at most, and belongs to one listing. [`ConnRows`] walks the
//! workers, asks for the next piece only when the last is sent, and gives the mailbox up between pieces, so
//! listings take turns and a client that stalls holds nobody up. Control thread only.

use std::cell::RefCell;
use std::net::{Ipv4Addr, SocketAddr};
use std::rc::Rc;
use std::sync::Arc;

use config::{Proto, ServiceKey};
use crossbeam::channel::{Receiver, Sender};
use dataplane::conn::{TICK_NS, flag, state};
use dataplane::mailbox::{ConnRow, Dump, FromWorker, ToWorker};
use rustix::io::Errno;

use super::worker_thread::Life;
use crate::api::codec::Refusal;
use crate::api::rows;
use crate::api::server::{Next, Rows};
use crate::conn_filter::ConnFilter;

/// Rows of one piece: about 200 KiB, filled in 64 idle polls or 512 busy ones; a million connections take 250 pieces.
const PIECE_ROWS: usize = 4096;

/// Control's side of one worker's mailbox.
pub struct Exchange {
    to: Sender<ToWorker>,
    from: Receiver<FromWorker>,
    life: Arc<Life>,
    /// A piece is with the worker.
    away: bool,
    /// The listing that the piece is for, unless it was given up.
    owner: Option<Rc<()>>,
    /// The piece, back from the worker.
    back: Option<Box<Dump>>,
}

impl Exchange {
    /// Of the channels to and from the worker.
    pub fn new(to: Sender<ToWorker>, from: Receiver<FromWorker>, life: Arc<Life>) -> Exchange {
        Exchange { to, from, life, away: false, owner: None, back: None }
    }

    /// Has the worker end connections whose destination is gone. Never waits; false when its mailbox is full.
    pub fn end_unavailable(&self) -> bool {
        self.to.try_send(ToWorker::EndUnavailable).is_ok()
    }

    /// Sends a piece for `listing`, if none is on its way.
    fn send(&mut self, listing: &Rc<()>, dump: Box<Dump>) -> Result<(), Box<Dump>> {
        self.collect();
        if self.away || self.back.is_some() {
            return Err(dump);
        }
        match self.to.try_send(ToWorker::Dump(dump)) {
            Ok(()) => {
                self.away = true;
                self.owner = Some(Rc::clone(listing));
                Ok(())
            }
            Err(refused) => match refused.into_inner() {
                ToWorker::Dump(dump) => Err(dump),
                ToWorker::EndUnavailable => unreachable!("a dump was sent"),
            },
        }
    }

    /// The piece of `listing`, if it is back.
    fn take(&mut self, listing: &Rc<()>) -> Option<Box<Dump>> {
        self.collect();
        if !self.owner.as_ref().is_some_and(|owner| Rc::ptr_eq(owner, listing)) {
            return None;
        }
        let dump = self.back.take()?;
        self.owner = None;
        Some(dump)
    }

    /// Forgets the piece of `listing`.
    fn give_up(&mut self, listing: &Rc<()>) {
        if self.owner.as_ref().is_some_and(|owner| Rc::ptr_eq(owner, listing)) {
            self.owner = None;
            self.back = None;
        }
    }

    fn collect(&mut self) {
        if let Ok(FromWorker::Dump(dump)) = self.from.try_recv() {
            self.away = false;
            self.back = self.owner.is_some().then_some(dump);
        }
    }
}

/// What a connection is printed as.
type Render = Box<dyn Fn(&rows::ConnRow) -> Vec<u8>>;

/// The rows of one connection listing.
pub struct ConnRows {
    /// Whose pieces are ours.
    listing: Rc<()>,
    workers: Vec<Rc<RefCell<Exchange>>>,
    filter: ConnFilter,
    /// Worker whose table is read.
    worker: usize,
    /// The piece, while it is ours.
    piece: Option<Box<Dump>>,
    /// Next row of it.
    next: usize,
    render: Render,
}

impl ConnRows {
    /// Connections of all `workers` that pass the filter.
    pub fn new(workers: Vec<Rc<RefCell<Exchange>>>, filter: ConnFilter) -> ConnRows {
        ConnRows {
            listing: Rc::new(()),
            workers,
            filter,
            worker: 0,
            piece: Some(Dump::new(PIECE_ROWS)),
            next: 0,
            render: Box::new(rows::to_json),
        }
    }

    /// The same with each connection printed so, not as JSON.
    pub fn printed(mut self, render: impl Fn(&rows::ConnRow) -> Vec<u8> + 'static) -> ConnRows {
        self.render = Box::new(render);
        self
    }

    /// The next row of the piece that passes.
    fn next_of_piece(&mut self) -> Option<rows::ConnRow> {
        let piece = self.piece.as_ref()?;
        while let Some(conn) = piece.rows.get(self.next) {
            self.next += 1;
            if let Some(row) = row(self.worker, conn, &self.filter) {
                return Some(row);
            }
        }
        None
    }

    /// Makes the used-up piece ready for what comes next: the rest of the table, or the next worker's.
    fn recycle(&mut self) {
        let Some(piece) = &mut self.piece else { return };
        if piece.done {
            self.worker += 1;
            piece.cursor = 0;
            piece.done = false;
        }
        piece.rows.clear();
        self.next = 0;
    }
}

impl Rows for ConnRows {
    fn next(&mut self) -> Result<Next, Refusal> {
        if let Some(row) = self.next_of_piece() {
            return Ok(Next::Row((self.render)(&row)));
        }
        self.recycle();
        let Some(exchange) = self.workers.get(self.worker) else { return Ok(Next::End) };
        let mut exchange = exchange.borrow_mut();
        if !exchange.life.is_alive() {
            return Err(Refusal::new(Errno::IO, format!("worker {} is gone", self.worker)));
        }
        match self.piece.take() {
            Some(piece) => self.piece = exchange.send(&self.listing, piece).err(),
            None => self.piece = exchange.take(&self.listing),
        }
        drop(exchange);
        Ok(self.next_of_piece().map_or(Next::Wait, |row| Next::Row((self.render)(&row))))
    }
}

impl Drop for ConnRows {
    fn drop(&mut self) {
        if let Some(exchange) = self.workers.get(self.worker) {
            exchange.borrow_mut().give_up(&self.listing);
        }
    }
}

/// The row of a connection, if it passes.
fn row(worker: usize, conn: &ConnRow, filter: &ConnFilter) -> Option<rows::ConnRow> {
    let t = &conn.tuple;
    let socket = |address: u32, port: u16| SocketAddr::from((Ipv4Addr::from_bits(address), port));
    let (client, virtual_address) = (socket(t.caddr, t.cport), socket(t.vaddr, t.vport));
    let dest = socket(t.daddr, t.dport);
    let (proto, protocol, state) = match t.proto {
        17 => (Proto::Udp, "UDP", state::udp_name(conn.state)),
        _ => (Proto::Tcp, "TCP", state::tcp_name(conn.state)),
    };
    let service = ServiceKey::new(proto, virtual_address.ip(), virtual_address.port());
    filter.passes(service, client, dest, state).then(|| rows::ConnRow {
        worker,
        protocol: protocol.to_owned(),
        client,
        service_address: virtual_address,
        dest,
        state: state.to_owned(),
        expires_ms: u64::from(conn.remaining) * TICK_NS / 1_000_000,
        method: method_name(conn.flags).to_owned(),
    })
}

fn method_name(flags: u16) -> &'static str {
    match flags & flag::METHOD {
        flag::NAT => "nat",
        flag::LOCAL => "local",
        flag::TUNNEL => "tunnel",
        flag::DR => "dr",
        _ => "bypass",
    }
}

#[cfg(test)]
mod tests;

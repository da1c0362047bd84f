//! Connection listings: pieces of a worker's table, fetched through its mailbox as a client takes them.
//!
//! Model: a worker fills one piece at a time, some records a poll. [`Exchange`] is control's side of one worker's
//! mailbox: one piece is with the worker at most, the others queue, and a filled one goes to the [`Tray`] of its listing
//! at once. So listings take turns and a client that stalls holds nobody up. [`ConnRows`] walks the workers with two
//! pieces: one is filled while the other is sent. Control thread only.

use std::cell::RefCell;
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::Arc;

use config::{Proto, ServiceKey};
use crossbeam::channel::{Receiver, Sender};
use dataplane::mailbox::{Dump, FromWorker, ToWorker};
use rustix::io::Errno;

use super::worker_thread::Life;
use crate::api::codec::Refusal;
use crate::api::conns::{self, RECORDS_MAX, Record};
use crate::api::handler::{Next, Rows};
use crate::api::rows;
use crate::conn_filter::ConnFilter;

/// Rows of one piece: about 200 KiB, filled in 64 idle polls or 512 busy ones; a million connections take 250 pieces.
const PIECE_ROWS: usize = 4096;

/// Where a listing finds its piece when it is back.
type Tray = Rc<RefCell<Option<Box<Dump>>>>;

/// Control's side of one worker's mailbox.
pub struct Exchange {
    to: Sender<ToWorker>,
    from: Receiver<FromWorker>,
    life: Arc<Life>,
    /// Whose piece is with the worker.
    away: Option<Tray>,
    /// Pieces that wait for their turn.
    queue: VecDeque<(Tray, Box<Dump>)>,
}

impl Exchange {
    /// Of the channels to and from the worker.
    pub fn new(to: Sender<ToWorker>, from: Receiver<FromWorker>, life: Arc<Life>) -> Exchange {
        Exchange { to, from, life, away: None, queue: VecDeque::new() }
    }

    /// Has the worker end connections whose destination is gone. Never waits: of what a full mailbox holds one at most is
    /// a piece, so another such message is among it, and that one, not served yet, is enough.
    pub fn end_unavailable(&self) {
        let _ = self.to.try_send(ToWorker::EndUnavailable);
    }

    /// Has the piece filled when its turn comes.
    fn ask(&mut self, tray: &Tray, piece: Box<Dump>) {
        self.queue.push_back((Rc::clone(tray), piece));
        self.go_on();
    }

    /// Hands out the piece that is back and sends the next.
    fn go_on(&mut self) {
        if let Ok(FromWorker::Dump(piece)) = self.from.try_recv()
            && let Some(tray) = self.away.take()
        {
            *tray.borrow_mut() = Some(piece);
        }
        while self.away.is_none()
            && let Some((tray, piece)) = self.queue.pop_front()
        {
            if Rc::strong_count(&tray) == 1 {
                // Its listing is over.
                continue;
            }
            match self.to.try_send(ToWorker::Dump(piece)).map_err(|refused| refused.into_inner()) {
                Ok(()) => self.away = Some(tray),
                Err(ToWorker::Dump(piece)) => return self.queue.push_front((tray, piece)),
                Err(ToWorker::EndUnavailable) => unreachable!("a dump was sent"),
            }
        }
    }
}

/// What a connection is printed as.
type Line = Box<dyn Fn(&rows::ConnRow) -> Vec<u8>>;

/// How connections are sent.
enum Form {
    /// As records.
    Records,
    /// As text.
    Lines(Line),
}

/// The rows of one connection listing, up to [`RECORDS_MAX`] connections in each.
pub struct ConnRows {
    workers: Vec<Rc<RefCell<Exchange>>>,
    filter: ConnFilter,
    form: Form,
    /// Worker whose table is read, and where it is read on.
    worker: usize,
    cursor: u32,
    /// A piece of it is asked for and comes here.
    asked: bool,
    tray: Tray,
    /// The piece whose rows are sent, the worker that it is from, and the next row.
    piece: Option<Box<Dump>>,
    of: usize,
    next: usize,
    /// A piece not in use.
    spare: Option<Box<Dump>>,
}

impl ConnRows {
    /// Connections of all `workers` that pass the filter.
    pub fn new(workers: Vec<Rc<RefCell<Exchange>>>, filter: ConnFilter) -> ConnRows {
        ConnRows {
            workers,
            filter,
            form: Form::Records,
            worker: 0,
            cursor: 0,
            asked: false,
            tray: Tray::default(),
            piece: None,
            of: 0,
            next: 0,
            spare: None,
        }
    }

    /// The same with each connection printed so.
    pub fn printed(mut self, line: impl Fn(&rows::ConnRow) -> Vec<u8> + 'static) -> ConnRows {
        self.form = Form::Lines(Box::new(line));
        self
    }

    /// The next connections of the piece that pass.
    fn next_of_piece(&mut self) -> Option<Vec<u8>> {
        let piece = self.piece.as_ref()?;
        let (worker, filter, next) = (self.of, &self.filter, &mut self.next);
        let rest = piece.rows[*next..].iter().inspect(|_| *next += 1);
        let passing = rest.map(|conn| Record::new(worker, conn)).filter(|record| passes(filter, record));
        let mut passing = passing.take(RECORDS_MAX).peekable();
        passing.peek()?;
        Some(match &self.form {
            Form::Records => conns::encode(passing),
            Form::Lines(line) => passing.flat_map(|record| line(&record.row())).collect(),
        })
    }

    /// Takes the piece that is back, if it is, and asks for the next at once.
    fn turn_over(&mut self) -> bool {
        let Some(piece) = self.tray.borrow_mut().take() else { return false };
        (self.asked, self.of, self.next, self.cursor) = (false, self.worker, 0, piece.cursor);
        if piece.done {
            (self.worker, self.cursor) = (self.worker + 1, 0);
        }
        self.piece = Some(piece);
        self.ask();
        true
    }

    /// Asks for the next piece, if there is one to come.
    fn ask(&mut self) {
        if !self.asked
            && let Some(exchange) = self.workers.get(self.worker)
        {
            let mut piece = self.spare.take().unwrap_or_else(|| Dump::new(PIECE_ROWS));
            piece.rows.clear();
            (piece.cursor, piece.done) = (self.cursor, false);
            exchange.borrow_mut().ask(&self.tray, piece);
            self.asked = true;
        }
    }
}

impl Rows for ConnRows {
    fn next(&mut self) -> Result<Next, Refusal> {
        loop {
            if let Some(row) = self.next_of_piece() {
                return Ok(Next::Row(row));
            }
            self.spare = self.piece.take().or(self.spare.take());
            if let Some(exchange) = self.workers.get(self.worker) {
                if !exchange.borrow().life.is_alive() {
                    return Err(Refusal::new(Errno::IO, format!("worker {} is gone", self.worker)));
                }
                exchange.borrow_mut().go_on();
            } else {
                return Ok(Next::End);
            }
            self.ask();
            if !self.turn_over() {
                return Ok(Next::Wait);
            }
        }
    }
}

/// Whether a connection passes. Nearly always there is no filter, and millions pass.
fn passes(filter: &ConnFilter, record: &Record) -> bool {
    if filter.is_open() {
        return true;
    }
    let row = record.row();
    let proto = if row.protocol == "UDP" { Proto::Udp } else { Proto::Tcp };
    let service = ServiceKey::new(proto, row.service_address.ip(), row.service_address.port());
    filter.passes(service, row.client, row.dest, row.state)
}

#[cfg(test)]
mod tests;

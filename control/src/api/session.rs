//! One client's connection: datagrams in, answers out, in order and one at a time.
//!
//! Model: a session is in one of four states, told by its fields: the socket is full (`outbox`), an answer is
//! under way (`answer` of our own family, `datagrams` of the IPVS family), messages wait (`inbox`), or it waits for the
//! next datagram. [`Session::turn`] moves it on until it would have to wait, or its turn is over. The next datagram is
//! read only when everything before it is answered; but commands of the IPVS family that change something are taken
//! together with those queued behind them, up to [`MESSAGES_MAX`], since one publication and one line of the journal
//! serve them all. So a client can make us hold no more than that each way. A client without rights may look families
//! up and greet; what else it asks is refused, and that is the end. Control thread only.

use std::collections::VecDeque;
use std::fmt;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use netlink_packet_core::NLM_F_DUMP;
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::RecvFlags;

use super::answer::{Answer, Datagram, Step};
use super::codec::{self, Incoming, Refusal, Request};
use super::handler::{Handler, Outcome, Peer};
use super::text::{self, Open};
use crate::ipvs::{self, Rights};

/// Longest datagram of a client; the longest legal request of the family has about 600 bytes.
pub const DATAGRAM_BYTES_MAX: usize = 16 * 1024;
/// Messages in one datagram of a client.
pub const MESSAGES_MAX: usize = 64;
/// A client that takes nothing of its answer for so long is closed.
pub const STALL: Duration = Duration::from_secs(10);
/// Content of one transaction: a configuration of 100 000 services with ten destinations each has about 100 MB.
const CONTENT_BYTES_MAX: usize = 256 << 20;
/// Rows are packed into datagrams up to this size: netlink readers use buffers of 8 KiB.
const REPLY_BYTES: usize = 8 * 1024;
/// Steps of one session before the others get their turn.
const STEPS_PER_TURN: usize = 16;
/// How soon to look again for rows that were not ready.
const ROW_WAIT: Duration = Duration::from_millis(1);

/// The connection is over: by the client, by an error, or by our limits.
#[derive(Debug)]
pub struct Closed;

/// One client's connection.
pub struct Session {
    fd: OwnedFd,
    peer: Peer,
    inbox: VecDeque<Incoming>,
    /// What a datagram beyond the limits is answered with, once the messages before it are.
    beyond: Option<Vec<Vec<u8>>>,
    /// Content of the transaction to come.
    content: Vec<u8>,
    answer: Option<Answer>,
    /// Answers of the IPVS family under way.
    datagrams: Option<Box<dyn Iterator<Item = Vec<u8>>>>,
    /// What is under way lists the whole table.
    listing: bool,
    outbox: VecDeque<Datagram>,
    /// Our end of a file that the client was given.
    opened: Option<Open>,
    /// Whether the client may be given a file that we have to look after.
    may_open: bool,
    /// The rows of `answer` were not ready, or the listing asked for may not begin yet.
    waiting: bool,
    /// Close when `outbox` is empty.
    closing: bool,
    /// When the socket last took something.
    progress: Instant,
}

impl Session {
    /// Session on an accepted, non-blocking socket.
    pub fn new(fd: OwnedFd, peer: Peer, now: Instant) -> Session {
        Session {
            fd,
            peer,
            inbox: VecDeque::new(),
            beyond: None,
            content: Vec::new(),
            answer: None,
            datagrams: None,
            listing: false,
            outbox: VecDeque::new(),
            opened: None,
            may_open: true,
            waiting: false,
            closing: false,
            progress: now,
        }
    }

    /// Who is on the other end.
    pub fn peer(&self) -> Peer {
        self.peer
    }

    /// What the session waits for. Nothing but hang-up while rows are not ready.
    pub fn interest(&self) -> PollFlags {
        match self {
            _ if !self.outbox.is_empty() => PollFlags::OUT,
            _ if self.waiting => PollFlags::empty(),
            _ if self.answer.is_some() || self.datagrams.is_some() => PollFlags::OUT,
            _ if !self.inbox.is_empty() || self.beyond.is_some() => PollFlags::OUT,
            _ => PollFlags::IN,
        }
    }

    /// When the session must have its turn even if nothing is ready.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        match self {
            _ if !self.outbox.is_empty() => Some(self.progress + STALL),
            _ if self.waiting => Some(now + ROW_WAIT),
            _ => None,
        }
    }

    /// Whether there is something to do: what it waits for is ready, or its deadline is over.
    pub fn is_due(&self, ready: PollFlags, now: Instant) -> bool {
        !ready.is_empty() || self.waiting || self.deadline(now).is_some_and(|deadline| deadline <= now)
    }

    /// Whether a listing of the whole table is under way.
    pub fn is_listing(&self) -> bool {
        self.listing
    }

    /// Moves on until it would block, or for a bounded number of steps. A listing of the whole table begins only
    /// if it `may_list`.
    pub fn turn(
        &mut self,
        ready: PollFlags,
        now: Instant,
        may_list: bool,
        handler: &mut dyn Handler,
    ) -> Result<(), Closed> {
        if std::mem::take(&mut self.waiting) && ready.intersects(PollFlags::HUP | PollFlags::ERR) {
            return Err(Closed);
        }
        for _ in 0..STEPS_PER_TURN {
            if !self.flush(now)? {
                return Ok(());
            }
            if self.closing {
                return Err(Closed);
            }
            if self.answer.is_some() {
                if !self.pull() {
                    return Ok(());
                }
            } else if let Some(datagrams) = &mut self.datagrams {
                match Iterator::next(datagrams) {
                    Some(datagram) => self.outbox.push_back(datagram.into()),
                    None => (self.datagrams, self.listing) = (None, false),
                }
            } else if self.inbox.front().is_some_and(|message| self.is_forbidden(message)) {
                self.refuse_client();
            } else if !may_list && self.wants_listing() {
                self.waiting = true;
                return Ok(());
            } else if self.inbox.front().is_some_and(Session::is_ipvs) {
                self.gather();
                self.listing = self.wants_listing();
                let messages: Vec<_> = self.inbox.drain(..self.together()).collect();
                self.datagrams = Some(Box::new(handler.ipvs(&messages, self.peer).into_iter().flatten()));
            } else if let Some(message) = self.inbox.pop_front() {
                self.listing = Session::lists_table(&message);
                self.start(message, now, handler);
                self.listing &= self.answer.is_some();
                if self.opened.is_some() {
                    // The server takes it before another can come.
                    self.flush(now)?;
                    return Ok(());
                }
            } else if let Some(refusal) = self.beyond.take() {
                self.outbox.extend(refusal.into_iter().map(Datagram::from));
                self.closing = true;
            } else if !self.receive()? {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Sends what is queued; false when the socket is full.
    fn flush(&mut self, now: Instant) -> Result<bool, Closed> {
        while let Some(datagram) = self.outbox.front() {
            match datagram.send(&self.fd) {
                Ok(_) => {
                    self.outbox.pop_front();
                    self.progress = now;
                }
                Err(Errno::AGAIN) if now.duration_since(self.progress) < STALL => return Ok(false),
                Err(Errno::INTR) => {}
                Err(_) => return Err(Closed),
            }
        }
        self.progress = now;
        Ok(true)
    }

    /// Takes commands that are queued behind those of the inbox, if all of these change something. Whether the client
    /// has gone shows at the next look.
    fn gather(&mut self) {
        let is_open = |session: &Session| {
            session.beyond.is_none()
                && session.inbox.len() < MESSAGES_MAX
                && session.inbox.iter().all(ipvs::is_change)
        };
        while is_open(self) && matches!(self.receive(), Ok(true)) {}
    }

    /// Reads the next datagram; false when there is none.
    fn receive(&mut self) -> Result<bool, Closed> {
        let mut buffer = [0; DATAGRAM_BYTES_MAX];
        match rustix::net::recv(&self.fd, &mut buffer[..], RecvFlags::DONTWAIT | RecvFlags::TRUNC) {
            Ok((_, 0)) => Err(Closed),
            Ok((filled, length)) => {
                let messages = Incoming::split(&buffer[..filled.min(length)]);
                if length > DATAGRAM_BYTES_MAX || messages.len() > MESSAGES_MAX {
                    self.refuse_datagram(&buffer[..filled]);
                } else {
                    self.inbox.extend(messages);
                }
                Ok(true)
            }
            Err(Errno::AGAIN) => Ok(false),
            Err(Errno::INTR) => Ok(true),
            Err(_) => Err(Closed),
        }
    }

    /// Answers a datagram beyond the limits by its first header, after what came before it, and ends the session.
    fn refuse_datagram(&mut self, bytes: &[u8]) {
        let why = format!("over {DATAGRAM_BYTES_MAX} bytes or {MESSAGES_MAX} messages in one datagram");
        let refusal = Refusal::new(Errno::MSGSIZE, why);
        let first = Incoming::head_only(bytes);
        self.beyond = Some(first.map(|first| codec::encode_refusal(&first, &refusal)).into_iter().collect());
    }

    /// Whether the client has no right to ask this or anything like it.
    fn is_forbidden(&self, message: &Incoming) -> bool {
        let is_hello = || matches!(message.request(), Ok(Request::Hello));
        let is_open = || message.header.message_type == ipvs::LOOKUP || is_hello();
        self.peer.rights == Rights::None && message.is_request() && !is_open()
    }

    /// Refuses the next message and ends the session.
    fn refuse_client(&mut self) {
        let message = self.inbox.pop_front();
        let refusal = message.into_iter().flat_map(|m| ipvs::Answer::refused(&m, Errno::PERM));
        self.outbox.extend(refusal.map(Datagram::from));
        self.closing = true;
    }

    /// Whether the IPVS family answers the message: its own, and the search for its number.
    fn is_ipvs(message: &Incoming) -> bool {
        message.is_request() && ipvs::FAMILIES.contains(&message.header.message_type)
    }

    /// How many messages of the IPVS family go to the handler together: up to one of another kind, and no
    /// more than one dump, since a dump holds a copy of the table until it is taken.
    fn together(&self) -> usize {
        let ours = |message: &&Incoming| Session::is_ipvs(message) && !self.is_forbidden(message);
        let family = self.inbox.iter().take_while(ours);
        let dump = family.clone().position(|message| message.header.flags & NLM_F_DUMP == NLM_F_DUMP);
        dump.map_or_else(|| family.count(), |at| at + 1)
    }

    /// Whether what is executed next lists the whole table.
    fn wants_listing(&self) -> bool {
        match self.inbox.front() {
            Some(message) if Session::is_ipvs(message) => {
                self.inbox.iter().take(self.together()).any(ipvs::lists_services)
            }
            message => message.is_some_and(Session::lists_table),
        }
    }

    fn lists_table(message: &Incoming) -> bool {
        message.is_request() && matches!(message.request(), Ok(Request::List | Request::Conns(_)))
    }

    /// Begins to answer one message of our own family.
    fn start(&mut self, message: Incoming, now: Instant, handler: &mut dyn Handler) {
        if !message.is_request() {
            if message.wants_ack() {
                self.outbox.push_back(codec::encode_ack(&message).into());
            }
            return;
        }
        let begun = message.request().and_then(|mut request| {
            match &mut request {
                Request::Content(piece) => {
                    self.keep(piece)?;
                    return self.acknowledge(&message, Outcome::Done, now);
                }
                Request::Transact(transaction) => transaction.content = std::mem::take(&mut self.content),
                _ => {}
            }
            let command = request.command();
            match handler.answer(request, self.peer)? {
                Outcome::Rows(rows) => {
                    self.answer = Some(Answer { to: message.clone(), command, rows });
                    Ok(())
                }
                outcome => self.acknowledge(&message, outcome, now),
            }
        });
        if let Err(refusal) = begun {
            self.outbox.push_back(codec::encode_refusal(&message, &refusal).into());
        }
    }

    /// Queues the acknowledgement, with the file that the request is about.
    fn acknowledge(&mut self, message: &Incoming, outcome: Outcome, now: Instant) -> Result<(), Refusal> {
        let failed = |errno: Errno| Refusal::new(errno, "no file can be opened");
        let looked_after = matches!(outcome, Outcome::Stream(_) | Outcome::Knob(_));
        if looked_after && !self.may_open {
            return Err(Refusal::new(Errno::NFILE, "too many files of the daemon are open"));
        }
        let opened = match outcome {
            Outcome::Rows(_) | Outcome::Done => None,
            Outcome::Text(text) => Some((None, text::sealed(&text)?)),
            Outcome::Stream(rows) => {
                let (ours, theirs) = Open::reading(rows, now).map_err(failed)?;
                Some((Some(ours), theirs))
            }
            Outcome::Knob(knob) => {
                let (ours, theirs) = Open::writing(knob, self.peer, now).map_err(failed)?;
                Some((Some(ours), theirs))
            }
        };
        if opened.is_some() || message.wants_ack() {
            let (ours, file) = opened.unzip();
            self.opened = ours.flatten();
            self.outbox.push_back(Datagram { bytes: codec::encode_ack(message), file });
        }
        Ok(())
    }

    /// Whether the client may open a file that the server has to look after, from now on.
    pub fn let_open(&mut self, may_open: bool) {
        self.may_open = may_open;
    }

    /// Our end of a file that was opened in the last turn, for the server to look after.
    pub fn take_opened(&mut self) -> Option<Open> {
        self.opened.take()
    }

    /// Keeps a piece of content for the transaction to come.
    fn keep(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        self.peer.require_write()?;
        if self.content.len() + piece.len() > CONTENT_BYTES_MAX {
            self.content = Vec::new();
            return Err(Refusal::new(
                Errno::FBIG,
                format!("larger than {} MiB, no transaction", CONTENT_BYTES_MAX >> 20),
            ));
        }
        self.content.extend_from_slice(piece);
        Ok(())
    }

    /// Queues the next datagram of the answer; false when its rows are not ready.
    fn pull(&mut self) -> bool {
        let Some(answer) = &mut self.answer else { return true };
        let mut datagram = Vec::new();
        self.waiting = false;
        let ending = loop {
            match answer.next_message() {
                Ok(Step::Message(message)) => {
                    let full = !datagram.is_empty() && datagram.len() + message.len() > REPLY_BYTES;
                    if full {
                        self.outbox.push_back(datagram.into());
                        datagram = message;
                        break None;
                    }
                    datagram.extend(message);
                }
                Ok(Step::Wait) => {
                    self.waiting = true;
                    break None;
                }
                Ok(Step::End(end)) => break Some(end),
                Err(refusal) => break Some(Some(codec::encode_refusal(&answer.to, &refusal))),
            }
        };
        let moved = !datagram.is_empty() || ending.is_some();
        if !datagram.is_empty() {
            self.outbox.push_back(datagram.into());
        }
        if let Some(end) = ending {
            self.outbox.extend(end.map(Datagram::from));
            (self.answer, self.listing) = (None, false);
        }
        moved
    }
}

impl AsFd for Session {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session")
            .field("peer", &self.peer)
            .field("outbox", &self.outbox.len())
            .finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;

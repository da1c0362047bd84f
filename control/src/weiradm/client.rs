//! The asking end: requests sent ahead of their answers, answers taken in order.
//!
//! Requests are collected and go as one datagram when an answer is waited for, since the daemon publishes what one
//! datagram changes at once.

use std::collections::VecDeque;

use rustix::io::Errno;

use super::transport::Transport;
use crate::api::session::{DATAGRAM_BYTES_MAX, MESSAGES_MAX};
use crate::ipvs::reply::{Object, Reply};
use crate::ipvs::request::Call;

/// Requests that may be sent ahead of their answers: far below what a socket's buffer takes, so that a send
/// never waits for a server that waits for us to read.
pub const AHEAD_MAX: usize = MESSAGES_MAX;
/// At that many, half of the answers are taken before more is sent: the server works on one half while the other
/// is made, and neither goes request by request.
pub const AHEAD_LOW: usize = AHEAD_MAX / 2;

/// A number that tells a request's answer from others.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ticket(u32);

/// A client of the family.
#[derive(Debug)]
pub struct Client<T> {
    transport: T,
    sequence: u32,
    /// Requests to send.
    unsent: Vec<u8>,
    received: VecDeque<(u32, Reply)>,
}

impl<T: Transport> Client<T> {
    /// Client over this transport.
    pub fn new(transport: T) -> Client<T> {
        Client { transport, sequence: 0, unsent: Vec::new(), received: VecDeque::new() }
    }

    /// What carries the messages.
    pub fn transport(&mut self) -> &mut T {
        &mut self.transport
    }

    /// Sends a request, at the latest when an answer is waited for; its answer is taken with [`Client::finish`], in the
    /// order of sending. No more than `AHEAD_MAX` may wait for theirs.
    ///
    /// # Errors
    /// The system's error number.
    pub fn send(&mut self, call: Call) -> Result<Ticket, Errno> {
        self.sequence = self.sequence.wrapping_add(1);
        let request = call.encode(self.sequence);
        if self.unsent.len() + request.len() > DATAGRAM_BYTES_MAX {
            self.flush()?;
        }
        self.unsent.extend(request);
        Ok(Ticket(self.sequence))
    }

    /// Sends what was collected.
    fn flush(&mut self) -> Result<(), Errno> {
        let unsent = std::mem::take(&mut self.unsent);
        if unsent.is_empty() { Ok(()) } else { self.transport.send(&unsent) }
    }

    /// Waits for the whole answer of a request.
    ///
    /// # Errors
    /// The server's error number, or the system's.
    pub fn finish(&mut self, ticket: Ticket) -> Result<Vec<Object>, Errno> {
        let mut objects = Vec::new();
        loop {
            let Some((sequence, reply)) = self.received.pop_front() else {
                self.flush()?;
                let datagram = self.transport.receive()?;
                self.received.extend(Reply::split(&datagram));
                continue;
            };
            if sequence != ticket.0 {
                continue;
            }
            match reply {
                Reply::Object(object) => objects.push(object),
                Reply::Ack | Reply::Done => return Ok(objects),
                Reply::Refused(errno) => return Err(errno),
            }
        }
    }

    /// Sends a request and waits for its answer.
    ///
    /// # Errors
    /// As [`Client::finish`].
    pub fn ask(&mut self, call: Call) -> Result<Vec<Object>, Errno> {
        let ticket = self.send(call)?;
        self.finish(ticket)
    }
}

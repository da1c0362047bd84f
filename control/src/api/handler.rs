//! What stands between the socket and the daemon: who asks, what a request comes to, and the rows of its answer.

use rustix::io::Errno;

use super::codec::{Incoming, Refusal, Request};
use crate::ipvs::{self, Rights};

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

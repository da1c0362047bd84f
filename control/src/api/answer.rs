//! Answers on their way out of a session: datagrams, and rows that become messages.

use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::{AsFd, OwnedFd};

use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags};

use super::codec::{self, Command, Incoming, Refusal};
use super::handler::{Next, Rows};

/// A datagram to send, with the file that goes along.
pub struct Datagram {
    /// What is sent.
    pub bytes: Vec<u8>,
    /// Given to the reader with it.
    pub file: Option<OwnedFd>,
}

impl From<Vec<u8>> for Datagram {
    fn from(bytes: Vec<u8>) -> Datagram {
        Datagram { bytes, file: None }
    }
}

impl Datagram {
    /// Sends it, if the socket takes it now.
    pub fn send(&self, to: &OwnedFd) -> Result<usize, Errno> {
        let flags = SendFlags::DONTWAIT | SendFlags::NOSIGNAL;
        let Some(file) = &self.file else { return rustix::net::send(to, &self.bytes, flags) };
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        let files = [file.as_fd()];
        control.push(SendAncillaryMessage::ScmRights(&files));
        rustix::net::sendmsg(to, &[IoSlice::new(&self.bytes)], &mut control, flags)
    }
}

/// An answer under way.
pub struct Answer {
    /// The request.
    pub to: Incoming,
    /// Its command.
    pub command: Command,
    /// Rows that are still to come.
    pub rows: Box<dyn Rows>,
}

/// What comes next of an answer.
pub enum Step {
    /// A row, as a message.
    Message(Vec<u8>),
    /// Nothing yet.
    Wait,
    /// The end, with the datagram that says so.
    End(Option<Vec<u8>>),
}

impl Answer {
    /// What comes next; never blocks.
    ///
    /// # Errors
    /// The answer ends with this refusal.
    pub fn next_message(&mut self) -> Result<Step, Refusal> {
        let part = self.command.is_listing();
        Ok(match self.rows.next()? {
            Next::Row(row) => Step::Message(
                codec::encode_row(&self.to.header, self.command, part, row)
                    .ok_or_else(|| Refusal::new(Errno::MSGSIZE, "a row does not fit a message"))?,
            ),
            Next::Wait => Step::Wait,
            Next::End if part => Step::End(Some(codec::encode_done(&self.to.header))),
            Next::End => Step::End(self.to.wants_ack().then(|| codec::encode_ack(&self.to))),
        })
    }
}

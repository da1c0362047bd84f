//! Files that are handed to clients: texts they read with `read`, and knobs they set with `write`.
//!
//! Model: a client that asks for a file of the kernel's /proc gets a descriptor in the datagram of the
//! acknowledgement and needs nothing of us to use it. A short text is a sealed file in memory. A long one is a stream
//! that is filled as it is read, so a million connections take the memory of one piece. A knob opened for writing is a
//! socket from which each datagram is one value. The server polls our ends; control thread only.

use std::fs::File;
use std::io::{Seek, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::time::{Duration, Instant};

use rustix::event::PollFlags;
use rustix::fs::{MemfdFlags, SealFlags};
use rustix::io::Errno;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, Shutdown, SocketFlags, SocketType};

use super::codec::Refusal;
use super::handler::{Handler, Next, Peer, Rows};

/// Opened files that are not used up.
pub const OPEN_MAX: usize = 32;
/// Bytes made ready for a reader at a time.
const PIECE_BYTES: usize = 32 * 1024;
/// Pieces sent to one reader before the others get their turn.
const PIECES_PER_TURN: usize = 8;
/// Longest value of a knob that is looked at.
const VALUE_BYTES_MAX: usize = 4096;
/// How soon to look again for rows that were not ready.
const ROW_WAIT: Duration = Duration::from_millis(1);

/// The text as a file in memory that nobody can change, to be read from its beginning.
///
/// # Errors
/// The system's, when memory or descriptors are short.
pub fn sealed(text: &[u8]) -> Result<OwnedFd, Refusal> {
    let made = || -> std::io::Result<OwnedFd> {
        let fd = rustix::fs::memfd_create(c"weir", MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING)?;
        let mut file = File::from(fd);
        file.write_all(text)?;
        file.rewind()?;
        let all = SealFlags::SEAL | SealFlags::SHRINK | SealFlags::GROW | SealFlags::WRITE;
        rustix::fs::fcntl_add_seals(&file, all)?;
        Ok(file.into())
    };
    made().map_err(|error| Refusal::new(Errno::from_io_error(&error).unwrap_or(Errno::IO), error.to_string()))
}

/// Our end of a file that a client has open.
pub struct Open {
    fd: OwnedFd,
    use_: Use,
    /// When the other end last took or gave something.
    progress: Instant,
}

enum Use {
    /// Rows are lines of text; `ready` is what the socket has not taken.
    Read {
        rows: Box<dyn Rows>,
        ready: Vec<u8>,
        waiting: bool,
        ended: bool,
    },
    Write {
        knob: String,
        peer: Peer,
    },
}

/// The other end has closed, or everything was read.
#[derive(Debug)]
pub struct UsedUp;

impl Open {
    /// A stream of these rows, one after the other, and the end for the client.
    ///
    /// # Errors
    /// The system's, when descriptors are short.
    pub fn reading(rows: Box<dyn Rows>, now: Instant) -> Result<(Open, OwnedFd), Errno> {
        let (ours, theirs) = pair(SocketType::STREAM)?;
        rustix::net::shutdown(&ours, Shutdown::Read)?;
        let use_ = Use::Read { rows, ready: Vec::new(), waiting: false, ended: false };
        Ok((Open { fd: ours, use_, progress: now }, theirs))
    }

    /// The knob, to be written by `peer`, and the end for the client.
    ///
    /// # Errors
    /// The system's, when descriptors are short.
    pub fn writing(knob: String, peer: Peer, now: Instant) -> Result<(Open, OwnedFd), Errno> {
        let (ours, theirs) = pair(SocketType::SEQPACKET)?;
        rustix::net::shutdown(&ours, Shutdown::Write)?;
        Ok((Open { fd: ours, use_: Use::Write { knob, peer }, progress: now }, theirs))
    }

    /// What is waited for.
    pub fn interest(&self) -> PollFlags {
        match &self.use_ {
            Use::Read { waiting: true, .. } => PollFlags::empty(),
            Use::Read { .. } => PollFlags::OUT,
            Use::Write { .. } => PollFlags::IN,
        }
    }

    /// When it must have its turn even if nothing is ready.
    pub fn deadline(&self, now: Instant) -> Option<Instant> {
        matches!(self.use_, Use::Read { waiting: true, .. }).then(|| now + ROW_WAIT)
    }

    /// How long the other end has done nothing.
    pub fn idle(&self, now: Instant) -> Duration {
        now.duration_since(self.progress)
    }

    /// Sends or takes what can be without waiting.
    pub fn turn(&mut self, ready: PollFlags, now: Instant, handler: &mut dyn Handler) -> Result<(), UsedUp> {
        match &mut self.use_ {
            Use::Read { waiting: true, .. } if ready.intersects(PollFlags::HUP | PollFlags::ERR) => {
                Err(UsedUp)
            }
            Use::Read { .. } => (0..PIECES_PER_TURN).try_for_each(|_| self.fill(now)),
            Use::Write { .. } if ready.is_empty() => Ok(()),
            Use::Write { knob, peer } => {
                let mut value = [0; VALUE_BYTES_MAX];
                match rustix::net::recv(&self.fd, &mut value[..], RecvFlags::DONTWAIT) {
                    Ok((_, 0)) => Err(UsedUp),
                    Ok((length, _)) => {
                        self.progress = now;
                        // The writer has gone on; a refused value is in the log.
                        handler.write_knob(knob, &String::from_utf8_lossy(&value[..length]), *peer);
                        Ok(())
                    }
                    Err(Errno::AGAIN | Errno::INTR) => Ok(()),
                    Err(_) => Err(UsedUp),
                }
            }
        }
    }

    /// One piece for the reader.
    fn fill(&mut self, now: Instant) -> Result<(), UsedUp> {
        let Use::Read { rows, ready, waiting, ended } = &mut self.use_ else { return Ok(()) };
        *waiting = false;
        while ready.len() < PIECE_BYTES && !*ended {
            match rows.next() {
                Ok(Next::Row(line)) => ready.extend(line),
                Ok(Next::Wait) => {
                    *waiting = ready.is_empty();
                    break;
                }
                Ok(Next::End) | Err(_) => *ended = true,
            }
        }
        if ready.is_empty() {
            return if *ended { Err(UsedUp) } else { Ok(()) };
        }
        match rustix::net::send(&self.fd, ready, SendFlags::DONTWAIT | SendFlags::NOSIGNAL) {
            Ok(sent) => {
                ready.drain(..sent);
                self.progress = now;
                Ok(())
            }
            Err(Errno::AGAIN | Errno::INTR) => Ok(()),
            Err(_) => Err(UsedUp),
        }
    }
}

impl AsFd for Open {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl std::fmt::Debug for Open {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Open").field("fd", &self.fd).finish_non_exhaustive()
    }
}

fn pair(kind: SocketType) -> Result<(OwnedFd, OwnedFd), Errno> {
    rustix::net::socketpair(AddressFamily::UNIX, kind, SocketFlags::CLOEXEC, None)
}

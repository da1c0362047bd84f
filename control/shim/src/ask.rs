//! Requests to the daemon in its own family: files of /proc, knobs, the old socket options.
//!
//! Each is one datagram on a connection of its own and one answer: an acknowledgement, with a descriptor where
//! there is something to read or write, or an error number. Plain system calls only.

use std::mem::{MaybeUninit, size_of};

use libc::{c_int, iovec, msghdr, timeval};

use crate::{errno, link, next, wire};

/// Longest request, bytes: that with the longest value of a knob.
const QUESTION_BYTES: usize = 4608;
/// Longest value of a knob, bytes.
pub const VALUE_BYTES_MAX: usize = 4096;
/// Room for the control message of one descriptor; `CMSG_SPACE(sizeof(int))` is 24.
const CONTROL_BYTES: usize = 64;
/// How long the daemon may take to answer.
const ANSWER_PATIENCE: timeval = timeval { tv_sec: 10, tv_usec: 0 };
/// Sequence number of the one request on a connection.
const SEQUENCE: u32 = 1;

/// Commands of the family.
#[derive(Clone, Copy)]
#[repr(u8)]
pub enum Command {
    /// Sets an old socket option.
    OptionSet = 2,
    /// Reads one.
    OptionGet = 3,
    /// Opens a file.
    TextOpen = 4,
    /// Sets a knob.
    SysctlSet = 6,
}

/// Attributes of the family.
pub mod attribute {
    /// Name of a file or knob, a text.
    pub const NAME: u16 = 7;
    /// Value of a knob, a text.
    pub const TEXT: u16 = 8;
    /// Whether the file is to be written, a number.
    pub const MODE: u16 = 9;
    /// Number of an option.
    pub const NUMBER: u16 = 10;
    /// Structure of an option.
    pub const DATA: u16 = 11;
    /// Room for one.
    pub const LENGTH: u16 = 12;
}

/// What became of a request.
pub enum Answer {
    /// Nobody answers, and whether it was executed is not known (`true`) or it was not (`false`).
    Nobody(bool),
    /// It was refused with this error number.
    Refused(c_int),
    /// It was executed.
    Done,
    /// It was executed, and this came along.
    File(c_int),
}

/// A request under construction. What does not fit makes it none.
pub struct Question {
    bytes: [u8; QUESTION_BYTES],
    length: usize,
    fits: bool,
}

impl Question {
    /// Request without attributes.
    pub fn new(command: Command) -> Question {
        let mut question = Question { bytes: [0; QUESTION_BYTES], length: wire::HEADER_BYTES, fits: true };
        question.put(&[command as u8, 1, 0, 0]);
        question
    }

    /// The same with a number.
    #[must_use]
    pub fn number(self, kind: u16, value: u32) -> Question {
        self.bytes(kind, &value.to_ne_bytes(), 0)
    }

    /// The same with a text, whose NUL is added.
    #[must_use]
    pub fn text(self, kind: u16, value: &[u8]) -> Question {
        self.bytes(kind, value, 1)
    }

    /// The same with bytes as they are.
    #[must_use]
    pub fn data(self, kind: u16, value: &[u8]) -> Question {
        self.bytes(kind, value, 0)
    }

    fn bytes(mut self, kind: u16, value: &[u8], zeroes: usize) -> Question {
        let length = 4 + value.len() + zeroes;
        let room = QUESTION_BYTES - self.length;
        if length.next_multiple_of(4) > room {
            self.fits = false;
            return self;
        }
        self.put(&(length as u16).to_ne_bytes());
        self.put(&kind.to_ne_bytes());
        self.put(value);
        self.length = (self.length + zeroes).next_multiple_of(4);
        self
    }

    fn put(&mut self, value: &[u8]) {
        self.bytes[self.length..self.length + value.len()].copy_from_slice(value);
        self.length += value.len();
    }

    /// Asks, and waits for the answer. `errno` is kept.
    pub fn ask(mut self) -> Answer {
        let _errno = errno::Kept::now();
        if !self.fits {
            return Answer::Refused(libc::EINVAL);
        }
        let Some(link) = link::connected() else { return Answer::Nobody(false) };
        link.set_patience(ANSWER_PATIENCE);
        let header = wire::Header::request(self.length, wire::FAMILY_WEIR, SEQUENCE);
        self.bytes[..wire::HEADER_BYTES].copy_from_slice(&header.bytes());
        let question = &self.bytes[..self.length];
        // SAFETY: the bytes live meanwhile.
        let sent =
            unsafe { next::send(link.fd(), question.as_ptr().cast(), question.len(), libc::MSG_NOSIGNAL) };
        if sent < 0 {
            return Answer::Nobody(false);
        }
        receive(&link)
    }
}

fn receive(link: &link::Link) -> Answer {
    let mut bytes = [0; QUESTION_BYTES + 512];
    // Aligned as control messages have to be.
    let mut control = [MaybeUninit::<u64>::uninit(); CONTROL_BYTES / size_of::<u64>()];
    let mut vector = iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    // SAFETY: a message header is plain data; what it points at lives meanwhile.
    let (got, file) = unsafe {
        let mut message: msghdr = std::mem::zeroed();
        message.msg_iov = &raw mut vector;
        message.msg_iovlen = 1;
        message.msg_control = control.as_mut_ptr().cast();
        message.msg_controllen = CONTROL_BYTES as _;
        let mut got = next::recvmsg(link.fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        while got < 0 && errno::get() == libc::EINTR {
            message.msg_controllen = CONTROL_BYTES as _;
            got = next::recvmsg(link.fd(), &raw mut message, libc::MSG_CMSG_CLOEXEC);
        }
        (got, if got > 0 { file_of(&message) } else { None })
    };
    let answer = usize::try_from(got).ok().and_then(|got| wire::result(bytes.get(..got)?));
    match (answer, file) {
        (Some(0), Some(file)) => Answer::File(file),
        (Some(0), None) => Answer::Done,
        (other, file) => {
            if let Some(file) = file {
                // SAFETY: the descriptor came to us and to nobody else.
                unsafe { libc::close(file) };
            }
            other.map_or(Answer::Nobody(true), Answer::Refused)
        }
    }
}

/// The descriptor that came with a message; of more than one, the others are closed.
///
/// # Safety
/// The message was received, with its control data in place.
unsafe fn file_of(message: &msghdr) -> Option<c_int> {
    // SAFETY: the caller's promise; the macros stay within the control data, and a message of this type holds as
    // many descriptors as its length says. They came to us and to nobody else.
    unsafe {
        let first = libc::CMSG_FIRSTHDR(message);
        let head = first.as_ref()?;
        if head.cmsg_level != libc::SOL_SOCKET || head.cmsg_type != libc::SCM_RIGHTS {
            return None;
        }
        let bytes = (head.cmsg_len as usize).saturating_sub(libc::CMSG_LEN(0) as usize);
        let files = libc::CMSG_DATA(first).cast::<c_int>();
        let count = bytes / size_of::<c_int>();
        for more in 1..count {
            libc::close(files.add(more).read_unaligned());
        }
        (count > 0).then(|| files.read_unaligned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_laid_out_as_netlink_has_it() {
        let question =
            Question::new(Command::TextOpen).text(attribute::NAME, b"net/ip_vs").number(attribute::MODE, 1);
        let expected = [&[4, 1, 0, 0][..], &[14, 0, 7, 0], b"net/ip_vs\0\0\0", &[8, 0, 9, 0], &[1, 0, 0, 0]];
        assert_eq!(question.bytes[wire::HEADER_BYTES..question.length], expected.concat());
        assert!(question.fits);
        let long = Question::new(Command::SysctlSet).text(attribute::TEXT, &[b'1'; QUESTION_BYTES]);
        assert!(!long.fits);
        assert!(matches!(long.ask(), Answer::Refused(libc::EINVAL)));
    }

    /// What is made of an answer of these bytes with these files.
    fn received(bytes: Option<&[u8]>, files: &[c_int]) -> Answer {
        let mut pair = [-1; 2];
        // SAFETY: system calls on descriptors of our own, with values that live meanwhile.
        unsafe {
            let made = libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET, 0, pair.as_mut_ptr());
            assert_eq!(made, 0);
            if let Some(bytes) = bytes {
                let mut control = [0_u64; 8];
                let mut vector = iovec { iov_base: bytes.as_ptr().cast_mut().cast(), iov_len: bytes.len() };
                let mut message: msghdr = std::mem::zeroed();
                (message.msg_iov, message.msg_iovlen) = (&raw mut vector, 1);
                if !files.is_empty() {
                    let length = size_of_val(files) as u32;
                    message.msg_control = control.as_mut_ptr().cast();
                    message.msg_controllen = libc::CMSG_SPACE(length) as _;
                    let head = libc::CMSG_FIRSTHDR(&raw const message);
                    ((*head).cmsg_level, (*head).cmsg_type) = (libc::SOL_SOCKET, libc::SCM_RIGHTS);
                    (*head).cmsg_len = libc::CMSG_LEN(length) as _;
                    std::ptr::copy_nonoverlapping(files.as_ptr(), libc::CMSG_DATA(head).cast(), files.len());
                }
                assert!(libc::sendmsg(pair[1], &raw const message, 0) >= 0);
            }
            libc::close(pair[1]);
        }
        receive(&link::Link::of(pair[0]))
    }

    #[test]
    fn whatever_a_server_answers_is_one_of_four_things() {
        let request = wire::Header::request(20, wire::FAMILY_WEIR, SEQUENCE);
        let acknowledged = |number: i32| wire::refusal(&request, 0, number);
        let mut negative = acknowledged(0);
        negative[16..20].copy_from_slice(&5_i32.to_ne_bytes());
        let mut other_type = acknowledged(0);
        other_type[4] = 3;
        for bad in [
            None,
            Some(&[][..]),
            Some(&[0; 16]),
            Some(&acknowledged(0)[..19]),
            Some(&negative),
            Some(&other_type),
        ] {
            assert!(matches!(received(bad, &[]), Answer::Nobody(true)), "{bad:?}");
        }
        assert!(matches!(received(Some(&acknowledged(0)), &[]), Answer::Done));
        assert!(matches!(received(Some(&acknowledged(libc::EINVAL)), &[0]), Answer::Refused(libc::EINVAL)));
        let open_files = || std::fs::read_dir("/proc/self/fd").unwrap().count();
        let before = open_files();
        let Answer::File(file) = received(Some(&acknowledged(0)), &[0, 0, 0]) else { panic!("no file") };
        // SAFETY: the descriptor came to us.
        unsafe { libc::close(file) };
        assert_eq!(open_files(), before, "the others are closed");
    }
}

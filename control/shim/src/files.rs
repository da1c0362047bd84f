//! Files of the kernel's IPVS: they are the daemon's.
//!
//! What the daemon hands over is an ordinary descriptor, so reading needs nothing of us. A value written to a knob
//! by one of the functions of `send` is set before the call returns, with the kernel's error number; one that the C
//! library writes by itself (`fwrite`) reaches the daemon through the descriptor, and a refusal is in its log. Without
//! a daemon the files are not there, as without the kernel's module.

use std::sync::atomic::{AtomicU8, AtomicU64, AtomicUsize, Ordering};

use libc::{c_char, c_int, iovec, ssize_t};

use crate::ask::{self, Answer, Command, Question, attribute};
use crate::changed::{self, Lock};
use crate::paths::{self, File, NAME_BYTES_MAX};
use crate::{errno, vectors};

/// Knobs that a process has open for writing at a time; of more, values are set without an answer.
const SLOTS: usize = 32;

static OPEN: [Open; SLOTS] = [const { Open::new() }; SLOTS];
/// Slots from the first on that were ever given away.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A knob that is open for writing, known by its descriptor's inode as changed sockets are.
struct Open {
    inode: AtomicU64,
    name: [AtomicU8; NAME_BYTES_MAX],
    length: AtomicUsize,
}

impl Open {
    const fn new() -> Open {
        Open {
            inode: AtomicU64::new(0),
            name: [const { AtomicU8::new(0) }; NAME_BYTES_MAX],
            length: AtomicUsize::new(0),
        }
    }
}

/// Opens the file if it is one of IPVS; `None` if the kernel is to do it.
///
/// # Safety
/// `path` is a C string or null.
pub unsafe fn open_ours(path: *const c_char, flags: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let file = unsafe { paths::named(path) }?;
    if flags & libc::O_DIRECTORY != 0 {
        return Some(failed(libc::ENOTDIR));
    }
    let write = flags & libc::O_ACCMODE != libc::O_RDONLY;
    let fd = match file.open(write) {
        Answer::File(fd) => fd,
        Answer::Refused(number) => return Some(failed(number)),
        Answer::Done | Answer::Nobody(_) => return Some(failed(libc::ENOENT)),
    };
    let _errno = errno::Kept::now();
    // SAFETY: system calls on a descriptor of ours.
    unsafe {
        if flags & libc::O_CLOEXEC == 0 {
            libc::fcntl(fd, libc::F_SETFD, 0);
        }
        if flags & libc::O_NONBLOCK != 0 {
            libc::fcntl(fd, libc::F_SETFL, libc::O_NONBLOCK);
        }
    }
    if let (true, File::Knob(name)) = (write, file) {
        remember(fd, name);
    }
    Some(fd)
}

/// Notes which knob a descriptor is.
fn remember(fd: c_int, name: &[u8]) {
    let Some(inode) = changed::inode_of(fd) else { return };
    let _lock = Lock::take();
    // Written round and round: who opens so many at once has the first ones set without an answer.
    let at = USED.load(Ordering::Relaxed);
    let slot = &OPEN[at % SLOTS];
    slot.inode.store(0, Ordering::Release);
    for (to, from) in slot.name.iter().zip(name) {
        to.store(*from, Ordering::Relaxed);
    }
    slot.length.store(name.len().min(NAME_BYTES_MAX), Ordering::Relaxed);
    slot.inode.store(inode, Ordering::Release);
    USED.store(at + 1, Ordering::Release);
}

/// Sets the knob that `fd` is, if it is one; `None` if it is something else.
///
/// # Safety
/// Each vector is readable.
pub unsafe fn set_knob(fd: c_int, data: &[iovec]) -> Option<ssize_t> {
    let used = USED.load(Ordering::Acquire);
    if used == 0 {
        return None;
    }
    let inode = changed::inode_of(fd)?;
    let slot = OPEN[..used.min(SLOTS)].iter().find(|slot| slot.inode.load(Ordering::Acquire) == inode)?;
    let mut name = [0; NAME_BYTES_MAX];
    for (to, from) in name.iter_mut().zip(&slot.name) {
        *to = from.load(Ordering::Relaxed);
    }
    let name = &name[..slot.length.load(Ordering::Relaxed).min(NAME_BYTES_MAX)];
    if slot.inode.load(Ordering::Acquire) != inode {
        return None; // given away meanwhile
    }
    let total = vectors::total(data);
    if total == 0 {
        return Some(0);
    }
    let mut value = [0; ask::VALUE_BYTES_MAX];
    // SAFETY: the caller's promise.
    let length = unsafe { vectors::gather(data, 0, &mut value) };
    if total > length {
        return Some(failed(libc::EINVAL) as ssize_t);
    }
    let question =
        Question::new(Command::SysctlSet).text(attribute::NAME, name).text(attribute::TEXT, &value[..length]);
    Some(match question.ask() {
        Answer::Done | Answer::File(_) => total as ssize_t,
        Answer::Refused(number) => failed(number) as ssize_t,
        Answer::Nobody(_) => failed(libc::EIO) as ssize_t,
    })
}

fn failed(number: c_int) -> c_int {
    errno::set(number);
    -1
}

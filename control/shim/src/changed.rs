//! The descriptors whose socket was changed: which they are, and what is known of each.
//!
//! Model: a changed socket is known by its inode, not by its number, so that `close`, `dup` and `fork` need
//! no watching: another socket under the old number has another inode and is nobody. A fixed table, found
//! without a lock: fields are atomics, a slot is written whole before its inode is. Slots are given away
//! under [`Lock`] only. A slot is given away again once its descriptor is no longer that socket.

use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering};

use libc::c_int;

use crate::errno;
use crate::wire::{HEADER_BYTES, Header};

/// Changed sockets of a process at a time. ipvsadm has one, keepalived one a process.
const SLOTS: usize = 256;

static TABLE: [Changed; SLOTS] = [const { Changed::new() }; SLOTS];
/// Slots from the first on that were ever given away.
static USED: AtomicUsize = AtomicUsize::new(0);

/// A changed socket.
pub struct Changed {
    /// Inode of the socket towards the daemon; 0 nobody's.
    inode: AtomicU64,
    /// Number it was changed under.
    fd: AtomicI32,
    /// Port id of the netlink socket that was there.
    port: AtomicU32,
    /// Whether the answer to `request` has not come to its end.
    pending: AtomicBool,
    /// Header of the last request.
    request: [AtomicU32; HEADER_BYTES / 4],
}

impl Changed {
    const fn new() -> Changed {
        Changed {
            inode: AtomicU64::new(0),
            fd: AtomicI32::new(-1),
            port: AtomicU32::new(0),
            pending: AtomicBool::new(false),
            request: [const { AtomicU32::new(0) }; HEADER_BYTES / 4],
        }
    }

    /// Port id that the program knows its socket by.
    pub fn port(&self) -> u32 {
        self.port.load(Ordering::Relaxed)
    }

    /// A request goes out: its answer is awaited.
    pub fn ask(&self, request: &Header) {
        let bytes = request.bytes();
        for (word, bytes) in self.request.iter().zip(bytes.chunks_exact(4)) {
            word.store(u32::from_ne_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]), Ordering::Relaxed);
        }
        self.pending.store(true, Ordering::Release);
    }

    /// The request whose answer is awaited.
    pub fn pending(&self) -> Option<Header> {
        if !self.pending.load(Ordering::Acquire) {
            return None;
        }
        let mut bytes = [0; HEADER_BYTES];
        for (word, bytes) in self.request.iter().zip(bytes.chunks_exact_mut(4)) {
            bytes.copy_from_slice(&word.load(Ordering::Relaxed).to_ne_bytes());
        }
        Some(Header::read(&bytes))
    }

    /// Nothing is awaited any more.
    pub fn settle(&self) {
        self.pending.store(false, Ordering::Relaxed);
    }

    /// Another connection takes the place of the lost one.
    pub fn renew(&self, inode: u64, _lock: &Lock) {
        self.inode.store(inode, Ordering::Release);
    }
}

/// The changed socket under this descriptor.
pub fn find(fd: c_int) -> Option<&'static Changed> {
    let used = USED.load(Ordering::Acquire);
    if used == 0 {
        return None;
    }
    let inode = inode_of(fd)?;
    TABLE[..used.min(SLOTS)].iter().find(|slot| slot.inode.load(Ordering::Acquire) == inode)
}

/// Gives a slot to the socket that is about to be under `fd`; `None` if there are too many.
pub fn place(fd: c_int, inode: u64, port: u32, _lock: &Lock) -> Option<&'static Changed> {
    let gone = |slot: &Changed| {
        let inode = slot.inode.load(Ordering::Relaxed);
        inode == 0 || inode_of(slot.fd.load(Ordering::Relaxed)) != Some(inode)
    };
    let at = TABLE.iter().position(gone)?;
    let slot = &TABLE[at];
    slot.inode.store(0, Ordering::Release);
    slot.fd.store(fd, Ordering::Relaxed);
    slot.port.store(port, Ordering::Relaxed);
    slot.settle();
    slot.inode.store(inode, Ordering::Release);
    USED.fetch_max(at + 1, Ordering::AcqRel);
    Some(slot)
}

/// Inode of a socket; `None` for anything else.
pub fn inode_of(fd: c_int) -> Option<u64> {
    let _errno = errno::Kept::now();
    // SAFETY: `stat` is plain data, for which zeroes are a value; fstat writes no more than that.
    let stat = unsafe {
        let mut stat: libc::stat = std::mem::zeroed();
        if libc::fstat(fd, &raw mut stat) != 0 {
            return None;
        }
        stat
    };
    (stat.st_mode & libc::S_IFMT == libc::S_IFSOCK).then_some(stat.st_ino)
}

static LOCKED: AtomicBool = AtomicBool::new(false);

/// The right to change sockets. All signals are blocked meanwhile: a handler may send, too.
pub struct Lock(libc::sigset_t);

impl Lock {
    /// Waits for it.
    pub fn take() -> Lock {
        // SAFETY: signal sets are plain data, and filled in by the two calls.
        let before = unsafe {
            let (mut all, mut before): (libc::sigset_t, libc::sigset_t) = std::mem::zeroed();
            libc::sigfillset(&raw mut all);
            libc::pthread_sigmask(libc::SIG_SETMASK, &raw const all, &raw mut before);
            before
        };
        take_word();
        Lock(before)
    }
}

impl Drop for Lock {
    fn drop(&mut self) {
        LOCKED.store(false, Ordering::Release);
        // SAFETY: the set is the one that was in force.
        unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, &raw const self.0, std::ptr::null_mut()) };
    }
}

/// A fork happens with the lock in the hand of the thread that forks: no child finds it taken for ever.
pub fn watch_forks() {
    extern "C" fn before() {
        take_word();
    }
    extern "C" fn after() {
        LOCKED.store(false, Ordering::Release);
    }
    // SAFETY: the three functions live as long as the library, which is never unloaded.
    unsafe { libc::pthread_atfork(Some(before), Some(after), Some(after)) };
}

fn take_word() {
    while LOCKED.compare_exchange_weak(false, true, Ordering::Acquire, Ordering::Relaxed).is_err() {
        // SAFETY: a plain system call.
        unsafe { libc::sched_yield() };
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsRawFd;
    use std::os::unix::net::UnixDatagram;

    use super::*;

    #[test]
    fn a_socket_is_known_by_its_inode_until_it_is_closed() {
        let (a, b) = UnixDatagram::pair().unwrap();
        let inode = inode_of(a.as_raw_fd()).unwrap();
        assert!(find(a.as_raw_fd()).is_none());
        place(a.as_raw_fd(), inode, 7, &Lock::take()).unwrap();
        let other = a.try_clone().unwrap();
        assert_eq!(find(a.as_raw_fd()).map(Changed::port), Some(7));
        assert_eq!(find(other.as_raw_fd()).map(Changed::port), Some(7));
        assert!(find(b.as_raw_fd()).is_none());
        assert!(inode_of(std::io::stdin().as_raw_fd().max(1 << 20)).is_none());

        let slot = find(a.as_raw_fd()).unwrap();
        let request = Header { length: 24, kind: 0x3ff, flags: 5, sequence: 3, port: 7 };
        assert_eq!(slot.pending(), None);
        slot.ask(&request);
        assert_eq!(slot.pending(), Some(request));
        slot.settle();
        assert_eq!(slot.pending(), None);

        // Twice as many one after the other as there are slots: closed ones are given away again.
        drop((a, other));
        for _ in 0..2 * SLOTS {
            let (a, _b) = UnixDatagram::pair().unwrap();
            let inode = inode_of(a.as_raw_fd()).unwrap();
            place(a.as_raw_fd(), inode, 1, &Lock::take()).unwrap();
        }
    }
}

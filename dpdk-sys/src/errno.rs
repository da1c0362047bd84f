//! Error numbers and the crate's error type.
//!
//! This is the only place that reads `rte_errno` (I10): a wrapper calls [`last`] as the very next
//! thing after the call that failed, on the same thread, or [`check`] on a returned `-errno`.

use std::fmt;

use crate::raw;

/// A positive error number of the system or of DPDK.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(i32);

impl Errno {
    /// The number itself, always positive.
    pub fn code(self) -> i32 {
        self.0
    }
}

impl fmt::Display for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        std::io::Error::from_raw_os_error(self.0).fmt(f)
    }
}

impl fmt::Debug for Errno {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Errno({}: {self})", self.0)
    }
}

/// Why a call of this crate failed. The environment or the caller is at fault, never a packet.
///
/// Unless a variant says otherwise nothing has changed when one is returned.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DpdkError {
    /// The EAL can be started once in the life of a process, even if the first try failed.
    #[error("DPDK was already started in this process")]
    EalAlreadyStarted,

    /// `rte_eal_init` refused; its reasons are in the lines of log target `weir::eal`.
    #[error("DPDK did not start with `{args}`: {errno}")]
    EalStart {
        /// The argument line given to the EAL.
        args: String,
        /// What `rte_errno` said.
        errno: Errno,
    },

    /// Hugepages were demanded and too few are free.
    #[error("{wanted_mb} MB of hugepages wanted, {free_mb} MB free")]
    Hugepages {
        /// Memory asked for, in MB.
        wanted_mb: u32,
        /// Free hugepage memory of all sizes, in MB.
        free_mb: u64,
    },

    /// A value that DPDK would misread or refuse.
    #[error("{what} `{value}` {reason}")]
    BadArgument {
        /// Which argument.
        what: &'static str,
        /// The value given.
        value: String,
        /// What is wrong with it, as the end of a sentence.
        reason: &'static str,
    },

    /// No memory for a pool, or a pool of that name exists.
    #[error("cannot create mempool `{name}` of {count} mbufs with {data_room} bytes each: {errno}")]
    Mempool {
        /// Name of the pool.
        name: String,
        /// Number of mbufs asked for.
        count: u32,
        /// Data room of each, in bytes, headroom included.
        data_room: u16,
        /// What `rte_errno` said.
        errno: Errno,
    },

    /// No Ethernet port has this name. A virtual device that failed to probe ends here too.
    #[error("no port `{name}`: the device is absent or failed to probe")]
    PortNotFound {
        /// The name looked for.
        name: String,
    },

    /// The port is already owned by another handle.
    #[error("port `{name}` is already in use")]
    PortInUse {
        /// Name of the port.
        name: String,
    },

    /// A port has fewer queues than asked for.
    #[error("port `{name}`: {requested} {kind} queues wanted, {capacity} possible")]
    TooManyQueues {
        /// Name of the port.
        name: String,
        /// `rx` or `tx`.
        kind: &'static str,
        /// Number asked for.
        requested: u16,
        /// What the driver offers.
        capacity: u16,
    },

    /// A queue that was not configured, or was taken before.
    #[error("port `{name}`: {kind} queue {queue} {reason}")]
    Queue {
        /// Name of the port.
        name: String,
        /// `rx` or `tx`.
        kind: &'static str,
        /// Index of the queue.
        queue: u16,
        /// What is wrong, as the end of a sentence.
        reason: &'static str,
    },

    /// The pool's mbufs cannot hold a frame of the port's MTU.
    #[error("port `{name}`: a frame of {frame} bytes does not fit the pool's {room} bytes")]
    PoolTooSmall {
        /// Name of the port.
        name: String,
        /// Largest frame for the MTU, in bytes.
        frame: u32,
        /// Bytes an mbuf of the pool has after its headroom.
        room: u32,
    },

    /// A port refused a request.
    #[error("port `{name}`: cannot {action}: {errno}")]
    Port {
        /// Name of the port.
        name: String,
        /// What was tried.
        action: &'static str,
        /// The driver's answer.
        errno: Errno,
    },

    /// No memory for a ring, a bad size, or a ring of that name exists.
    #[error("cannot create ring `{name}` of {size} entries: {errno}")]
    Ring {
        /// Name of the ring.
        name: String,
        /// Entries asked for.
        size: u32,
        /// What `rte_errno` said.
        errno: Errno,
    },

    /// The thread is an lcore already.
    #[error("the thread is lcore {id} already")]
    LcoreAlready {
        /// Its id.
        id: u32,
    },

    /// All lcore ids are taken.
    #[error("cannot register the thread with DPDK: {errno}")]
    Lcore {
        /// What `rte_errno` said.
        errno: Errno,
    },
}

/// `rte_errno` of this thread, to be read right after the call that failed.
pub(crate) fn last() -> Errno {
    // SAFETY: I10; reads a thread-local integer, valid at any time.
    Errno(unsafe { raw::shim_rte_errno() })
}

/// Splits the usual return value of DPDK, a count or a negative error number.
pub(crate) fn check(ret: i32) -> Result<i32, Errno> {
    if ret < 0 { Err(Errno(-ret)) } else { Ok(ret) }
}

/// A string for C, or an error that names the argument.
pub(crate) fn c_string(what: &'static str, value: &str) -> Result<std::ffi::CString, DpdkError> {
    std::ffi::CString::new(value).map_err(|_| DpdkError::BadArgument {
        what,
        value: value.escape_debug().to_string(),
        reason: "holds a zero byte",
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn negative_returns_are_error_numbers() {
        assert_eq!(check(3), Ok(3));
        assert_eq!(check(0), Ok(0));
        let errno = check(-libc::ENODEV).unwrap_err();
        assert_eq!(errno.code(), libc::ENODEV);
        assert_eq!(errno.to_string(), "No such device (os error 19)");
    }
}

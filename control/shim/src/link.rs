//! The connection to the daemon, and how it gets under the descriptor of a netlink socket.
//!
//! The netlink socket is the program's until the first datagram about IPVS. Then a connection to the daemon
//! takes its place under the same number. Without a daemon the place is taken all the same, by one end of a
//! pair whose other end left a refusal and is closed: nothing about IPVS ever goes to the kernel.

use std::mem::size_of;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering};

use libc::{c_int, c_void, sockaddr_nl, sockaddr_un, socklen_t, timeval};

use crate::changed::{self, Changed, Lock};
use crate::{errno, next, wire};

/// Where the daemon listens unless `WEIR_SOCKET` says otherwise.
const DEFAULT_SOCKET: &[u8] = b"/run/weir/weir.sock";
/// Environment variable that names the socket.
const VARIABLE: &std::ffi::CStr = c"WEIR_SOCKET";
/// Set, the family is never there, so that programs use the old socket options.
const VARIABLE_NO_NETLINK: &std::ffi::CStr = c"WEIR_NO_NETLINK";
/// How long a daemon may take to accept.
static CONNECT_PATIENCE: timeval = timeval { tv_sec: 5, tv_usec: 0 };

/// Settings of the program's socket that are carried over.
const CARRIED: [c_int; 2] = [libc::SO_RCVTIMEO, libc::SO_SNDTIMEO];

static NO_NETLINK: AtomicBool = AtomicBool::new(false);
static ADDRESS: OnceLock<Option<sockaddr_un>> = OnceLock::new();

/// Whether the descriptor is a socket of generic netlink.
pub fn is_generic_netlink(fd: c_int) -> bool {
    let _errno = errno::Kept::now();
    option(fd, libc::SO_PROTOCOL) == Some(libc::NETLINK_GENERIC)
        && option(fd, libc::SO_DOMAIN) == Some(libc::AF_NETLINK)
}

/// Changes the netlink socket under `fd`, on which `datagram` is about to be sent.
///
/// Returns the socket and whether there is a daemon behind it; without, the refusal of every message of the
/// datagram is there to be received. `Err` is an error number for the caller.
pub fn change(fd: c_int, datagram: &[u8]) -> Result<(&'static Changed, bool), c_int> {
    let _errno = errno::Kept::now();
    let lock = Lock::take();
    if let Some(known) = changed::find(fd) {
        return Ok((known, true)); // another thread was faster
    }
    let port = port_of(fd);
    let daemon = if NO_NETLINK.load(Ordering::Relaxed) { None } else { connected() };
    let (link, live) = match daemon {
        Some(link) => (link, true),
        None => (refusing(datagram, port)?, false),
    };
    let inode = changed::inode_of(link.0).ok_or(libc::ENOBUFS)?;
    let slot = changed::place(fd, inode, port, &lock).ok_or(libc::ENOBUFS)?;
    link.take_place_of(fd)?;
    Ok((slot, live))
}

/// Puts a new connection in the place of a lost one; whether there is a daemon.
pub fn renew(fd: c_int, slot: &Changed) -> bool {
    let _errno = errno::Kept::now();
    let lock = Lock::take();
    let Some(link) = connected() else { return false };
    let Some(inode) = changed::inode_of(link.0) else { return false };
    if link.take_place_of(fd).is_err() {
        return false;
    }
    slot.renew(inode, &lock);
    true
}

/// Reads the variables.
pub fn read_environment() {
    ADDRESS.get_or_init(address);
    NO_NETLINK.store(variable(VARIABLE_NO_NETLINK).is_some(), Ordering::Relaxed);
}

/// A descriptor of ours, closed when this ends.
pub struct Link(c_int);

impl Link {
    /// Of a descriptor that nobody else closes.
    #[cfg(test)]
    pub fn of(fd: c_int) -> Link {
        Link(fd)
    }

    /// Its number.
    pub fn fd(&self) -> c_int {
        self.0
    }

    /// Nothing is waited for longer than this.
    pub fn set_patience(&self, patience: timeval) {
        let (at, length) = ((&raw const patience).cast(), size_of::<timeval>() as socklen_t);
        // SAFETY: a system call with a value that lives meanwhile.
        unsafe { next::setsockopt(self.0, libc::SOL_SOCKET, libc::SO_RCVTIMEO, at, length) };
    }

    /// Under the number `fd`, with the settings of the socket that is there.
    fn take_place_of(self, fd: c_int) -> Result<(), c_int> {
        // SAFETY: system calls on two descriptors, with room for the values they write.
        let done = unsafe {
            for name in CARRIED {
                let mut value = timeval { tv_sec: 0, tv_usec: 0 };
                let mut length = size_of::<timeval>() as socklen_t;
                let at = (&raw mut value).cast::<c_void>();
                if next::getsockopt(fd, libc::SOL_SOCKET, name, at, &raw mut length) == 0 {
                    next::setsockopt(self.0, libc::SOL_SOCKET, name, at, length);
                }
            }
            let status = libc::fcntl(fd, libc::F_GETFL);
            libc::fcntl(self.0, libc::F_SETFL, status & libc::O_NONBLOCK);
            let close_on_exec = libc::fcntl(fd, libc::F_GETFD) & libc::FD_CLOEXEC != 0;
            libc::dup3(self.0, fd, if close_on_exec { libc::O_CLOEXEC } else { 0 })
        };
        if done < 0 { Err(errno::get()) } else { Ok(()) }
    }
}

impl Drop for Link {
    fn drop(&mut self) {
        // SAFETY: the descriptor is ours and nobody else has its number.
        unsafe { libc::close(self.0) };
    }
}

/// A connection to the daemon.
pub fn connected() -> Option<Link> {
    let address = ADDRESS.get_or_init(address).as_ref()?;
    // SAFETY: system calls with addresses and sizes of values that live meanwhile.
    unsafe {
        let fd = libc::socket(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0);
        if fd < 0 {
            return None;
        }
        let link = Link(fd);
        let patience = (&raw const CONNECT_PATIENCE).cast();
        let length = size_of::<timeval>() as socklen_t;
        next::setsockopt(fd, libc::SOL_SOCKET, libc::SO_SNDTIMEO, patience, length);
        let size = size_of::<sockaddr_un>() as socklen_t;
        while next::connect(fd, std::ptr::from_ref(address).cast(), size) != 0 {
            if errno::get() != libc::EINTR {
                return None;
            }
        }
        Some(link)
    }
}

/// A socket on which every message of the datagram has been refused as the kernel does without its module.
fn refusing(datagram: &[u8], port: u32) -> Result<Link, c_int> {
    let mut pair = [-1; 2];
    // SAFETY: room for two descriptors.
    let made = unsafe {
        libc::socketpair(libc::AF_UNIX, libc::SOCK_SEQPACKET | libc::SOCK_CLOEXEC, 0, pair.as_mut_ptr())
    };
    if made != 0 {
        return Err(errno::get());
    }
    let (ours, theirs) = (Link(pair[0]), Link(pair[1]));
    for (_, request, _) in wire::messages(datagram) {
        let answer = wire::refusal(&request, port, libc::ENOENT);
        let flags = libc::MSG_NOSIGNAL | libc::MSG_DONTWAIT;
        // SAFETY: the answer lives meanwhile.
        unsafe { next::send(ours.0, answer.as_ptr().cast(), answer.len(), flags) };
    }
    Ok(theirs)
}

/// Port id of a netlink socket; one that has none gets one, as its first send would give it.
fn port_of(fd: c_int) -> u32 {
    // SAFETY: addresses and sizes of values that live meanwhile; netlink addresses are plain data.
    unsafe {
        let mut address: sockaddr_nl = std::mem::zeroed();
        address.nl_family = libc::AF_NETLINK as u16;
        let mut length = size_of::<sockaddr_nl>() as socklen_t;
        next::getsockname(fd, (&raw mut address).cast(), &raw mut length);
        if address.nl_pid == 0 {
            next::bind(fd, (&raw const address).cast(), length);
            next::getsockname(fd, (&raw mut address).cast(), &raw mut length);
        }
        address.nl_pid
    }
}

/// An integer socket option.
fn option(fd: c_int, name: c_int) -> Option<c_int> {
    let mut value: c_int = 0;
    let mut length = size_of::<c_int>() as socklen_t;
    // SAFETY: room for an int and its size.
    let got =
        unsafe { next::getsockopt(fd, libc::SOL_SOCKET, name, (&raw mut value).cast(), &raw mut length) };
    (got == 0).then_some(value)
}

/// The socket's address; `None` if its path is too long for one.
fn address() -> Option<sockaddr_un> {
    let path = variable(VARIABLE).unwrap_or(DEFAULT_SOCKET);
    // SAFETY: a Unix address is plain data.
    let mut address = unsafe { std::mem::zeroed::<sockaddr_un>() };
    address.sun_family = libc::AF_UNIX as u16;
    if path.len() >= address.sun_path.len() {
        return None;
    }
    for (to, from) in address.sun_path.iter_mut().zip(path) {
        *to = *from as libc::c_char;
    }
    Some(address)
}

/// A variable that is set to something; not heeded by set-user-id programs.
fn variable(name: &std::ffi::CStr) -> Option<&'static [u8]> {
    // SAFETY: the variable's name is a C string, and so is its value, which nobody changes at the start of the
    // program.
    let value = unsafe {
        let heeded = libc::getauxval(libc::AT_SECURE) == 0;
        let value = if heeded { libc::getenv(name.as_ptr()) } else { std::ptr::null_mut() };
        if value.is_null() { &[] } else { std::ffi::CStr::from_ptr(value).to_bytes() }
    };
    (!value.is_empty()).then_some(value)
}

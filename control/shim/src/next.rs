//! The functions behind ours: the next definition of each name, usually the C library's.
//!
//! Looked up once, by the constructor, or on first use by what runs before it. They are called outside any
//! `catch_unwind` where a call is only passed on: a thread may be cancelled there, which unwinds.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    FILE, c_char, c_int, c_uint, c_void, iovec, mmsghdr, mode_t, msghdr, off_t, pid_t, size_t, sockaddr,
    socklen_t, ssize_t, stat as Status, statx as Statx, timespec,
};

/// What a function returns that has set `errno`.
trait Failed {
    const FAILED: Self;
}

impl Failed for c_int {
    const FAILED: c_int = -1;
}

impl Failed for ssize_t {
    const FAILED: ssize_t = -1;
}

impl Failed for *mut c_char {
    const FAILED: *mut c_char = null_mut();
}

impl Failed for *mut FILE {
    const FAILED: *mut FILE = null_mut();
}

macro_rules! next {
    ($($name:ident($($argument:ident: $type:ty),*) -> $result:ty;)*) => {
        $(
            /// The next function of this name.
            ///
            /// # Safety
            /// As that function's.
            pub unsafe fn $name($($argument: $type),*) -> $result {
                let address = address_of::$name();
                if address.is_null() {
                    crate::errno::set(libc::ENOSYS);
                    return Failed::FAILED;
                }
                // SAFETY: the address is that of the C library's function of this name, whose prototype is
                // this one; what the arguments must be is the caller's promise.
                unsafe {
                    let function: unsafe extern "C-unwind" fn($($type),*) -> $result =
                        std::mem::transmute::<*mut c_void, _>(address);
                    function($($argument),*)
                }
            }
        )*

        mod address_of {
            use super::*;
            $(
                pub fn $name() -> *mut c_void {
                    static ADDRESS: AtomicPtr<c_void> = AtomicPtr::new(null_mut());
                    let known = ADDRESS.load(Ordering::Relaxed);
                    if !known.is_null() {
                        return known;
                    }
                    let name = concat!(stringify!($name), "\0");
                    // SAFETY: the name is a C string.
                    let found = unsafe { libc::dlsym(libc::RTLD_NEXT, name.as_ptr().cast()) };
                    ADDRESS.store(found, Ordering::Relaxed);
                    found
                }
            )*
        }

        /// Looks all of them up.
        pub fn resolve() {
            $(address_of::$name();)*
        }
    };
}

next! {
    sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t;
    sendmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int) -> c_int;
    sendto(fd: c_int, data: *const c_void, length: size_t, flags: c_int,
           address: *const sockaddr, address_length: socklen_t) -> ssize_t;
    send(fd: c_int, data: *const c_void, length: size_t, flags: c_int) -> ssize_t;
    write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t;
    writev(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t;
    recvmmsg(fd: c_int, messages: *mut mmsghdr, count: c_uint, flags: c_int, timeout: *mut timespec) -> c_int;
    recvfrom(fd: c_int, data: *mut c_void, length: size_t, flags: c_int,
             address: *mut sockaddr, address_length: *mut socklen_t) -> ssize_t;
    recv(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> ssize_t;
    read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t;
    readv(fd: c_int, vectors: *const iovec, count: c_int) -> ssize_t;
    getsockname(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    getpeername(fd: c_int, address: *mut sockaddr, length: *mut socklen_t) -> c_int;
    bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int;
    getsockopt(fd: c_int, level: c_int, name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int;
    setsockopt(fd: c_int, level: c_int, name: c_int, value: *const c_void, length: socklen_t) -> c_int;
    execv(path: *const c_char, words: *const *const c_char) -> c_int;
    execve(path: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    execvp(file: *const c_char, words: *const *const c_char) -> c_int;
    execvpe(file: *const c_char, words: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawn(pid: *mut pid_t, path: *const c_char, actions: *const c_void, attributes: *const c_void,
                words: *const *const c_char, environment: *const *const c_char) -> c_int;
    posix_spawnp(pid: *mut pid_t, file: *const c_char, actions: *const c_void, attributes: *const c_void,
                 words: *const *const c_char, environment: *const *const c_char) -> c_int;
    pwrite(fd: c_int, data: *const c_void, length: size_t, offset: off_t) -> ssize_t;
    open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int;
    realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char;
    __realpath_chk(path: *const c_char, resolved: *mut c_char, room: size_t) -> *mut c_char;
    fopen(path: *const c_char, mode: *const c_char) -> *mut FILE;
    access(path: *const c_char, mode: c_int) -> c_int;
    faccessat(dir: c_int, path: *const c_char, mode: c_int, flags: c_int) -> c_int;
    stat(path: *const c_char, status: *mut Status) -> c_int;
    lstat(path: *const c_char, status: *mut Status) -> c_int;
    fstatat(dir: c_int, path: *const c_char, status: *mut Status, flags: c_int) -> c_int;
    statx(dir: c_int, path: *const c_char, flags: c_int, mask: c_uint, status: *mut Statx) -> c_int;
}

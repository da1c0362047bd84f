//! The functions behind ours: the next definition of each name, usually the C library's.
//!
//! Looked up once, by the constructor, or on first use by what runs before it. They are called outside any
//! `catch_unwind` where a call is only passed on: a thread may be cancelled there, which unwinds.

use std::ptr::null_mut;
use std::sync::atomic::{AtomicPtr, Ordering};

use libc::{
    c_char, c_int, c_uint, c_void, iovec, mmsghdr, msghdr, pid_t, size_t, sockaddr, socklen_t, ssize_t,
    timespec,
};

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
                    return -1;
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
}

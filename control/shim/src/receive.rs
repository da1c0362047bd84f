//! The functions that receive.

use std::mem::size_of;

use libc::{
    c_int, c_uint, c_void, iovec, mmsghdr, msghdr, size_t, sockaddr, sockaddr_nl, socklen_t, ssize_t,
    timespec,
};

use crate::changed::{self, Changed};
use crate::wire::{self, HEADER_BYTES, Header};
use crate::{errno, names, next, ours, send, vectors};

/// Receives from the daemon: the result and the flags of the message. Where the daemon is gone, a request that
/// awaits an answer gets one of our own: EBUSY, a number that clients report for what it is. It may or may not
/// have been executed, and is not repeated.
///
/// # Safety
/// Each vector is writable.
unsafe fn receive_ours(fd: c_int, slot: &Changed, vectors: &[iovec], flags: c_int) -> (ssize_t, c_int) {
    let capacity = vectors::total(vectors);
    // SAFETY: a message header is plain data; the vectors live meanwhile.
    let (got, message_flags) = unsafe {
        let mut message: msghdr = std::mem::zeroed();
        message.msg_iov = vectors.as_ptr().cast_mut();
        message.msg_iovlen = vectors.len() as _;
        let got = next::recvmsg(fd, &raw mut message, flags);
        (got, message.msg_flags)
    };
    let peek = flags & libc::MSG_PEEK != 0;
    match got {
        1.. => {
            if !peek {
                // SAFETY: the caller's promise; so much was received into them.
                unsafe { settle(slot, vectors, capacity.min(got as usize)) };
            }
            (got, message_flags)
        }
        0 if capacity == 0 => (0, message_flags),
        _ if got < 0 && !send::is_gone(errno::get()) => (got, message_flags),
        _ => {
            let Some(request) = slot.pending() else {
                errno::set(libc::ENOBUFS);
                return (-1, 0);
            };
            let answer = wire::refusal(&request, slot.port(), libc::EBUSY);
            // SAFETY: the caller's promise.
            let copied = unsafe { vectors::scatter(vectors, &answer) };
            if !peek {
                slot.settle();
            }
            let cut = if copied < answer.len() { libc::MSG_TRUNC } else { 0 };
            let length = if flags & libc::MSG_TRUNC != 0 { answer.len() } else { copied };
            (length as ssize_t, cut)
        }
    }
}

/// Notes the end of the awaited answer, if it is in the first `length` bytes.
///
/// # Safety
/// Each vector is readable.
unsafe fn settle(slot: &Changed, vectors: &[iovec], length: usize) {
    let Some(request) = slot.pending() else { return };
    let mut at = 0;
    while at + HEADER_BYTES <= length {
        let mut bytes = [0; HEADER_BYTES];
        // SAFETY: the caller's promise.
        unsafe { vectors::gather(vectors, at, &mut bytes) };
        let header = Header::read(&bytes);
        if header.ends(&request) {
            return slot.settle();
        }
        if (header.length as usize) < HEADER_BYTES {
            return;
        }
        at = at.saturating_add((header.length as usize).next_multiple_of(4));
    }
}

/// [`receive_ours`] into one buffer, on a changed socket.
unsafe fn receive_buffer(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> Option<ssize_t> {
    let slot = changed::find(fd)?;
    let vector = iovec { iov_base: data, iov_len: length };
    // SAFETY: the program says that the buffer has room for so many bytes.
    unsafe { Some(receive_ours(fd, slot, vectors::at(&raw const vector, 1)?, flags).0) }
}

/// Fills in a message that was received: it comes from the kernel, as far as the program knows.
unsafe fn receive_message(fd: c_int, message: *mut msghdr, flags: c_int) -> Option<ssize_t> {
    let slot = changed::find(fd)?;
    // SAFETY: the program says that a message with such vectors, and room for an address, is there.
    unsafe {
        let message = message.as_mut()?;
        let vectors = vectors::at(message.msg_iov, message.msg_iovlen)?;
        let (got, message_flags) = receive_ours(fd, slot, vectors, flags);
        if got >= 0 {
            message.msg_flags = message_flags;
            message.msg_controllen = 0;
            let mut length = message.msg_namelen;
            names::write_address(message.msg_name.cast(), &raw mut length, 0);
            message.msg_namelen =
                if message.msg_name.is_null() { 0 } else { size_of::<sockaddr_nl>() as socklen_t };
        }
        Some(got)
    }
}

/// `recvmsg(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmsg(fd: c_int, message: *mut msghdr, flags: c_int) -> ssize_t {
    // SAFETY: the program's own message.
    let result = ours(-1, || unsafe { receive_message(fd, message, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::recvmsg(fd, message, flags) })
}

/// `recvmmsg(2)`; from the daemon one message at a time.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
    timeout: *mut timespec,
) -> c_int {
    let result = ours(-1, || {
        if count == 0 || messages.is_null() {
            return None;
        }
        let flags = flags & !libc::MSG_WAITFORONE;
        // SAFETY: the program says that at least one message is there.
        unsafe {
            let got = receive_message(fd, &raw mut (*messages).msg_hdr, flags)?;
            if got < 0 {
                return Some(-1);
            }
            (*messages).msg_len = got as c_uint;
            Some(1)
        }
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::recvmmsg(fd, messages, count, flags, timeout) })
}

/// `recvfrom(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recvfrom(
    fd: c_int,
    data: *mut c_void,
    length: size_t,
    flags: c_int,
    address: *mut sockaddr,
    address_length: *mut socklen_t,
) -> ssize_t {
    // SAFETY: the program's own buffer and room for an address.
    let result = ours(-1, || unsafe {
        let got = receive_buffer(fd, data, length, flags)?;
        if got >= 0 {
            names::write_address(address, address_length, 0);
        }
        Some(got)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::recvfrom(fd, data, length, flags, address, address_length) })
}

/// `recv(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn recv(fd: c_int, data: *mut c_void, length: size_t, flags: c_int) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result = ours(-1, || unsafe { receive_buffer(fd, data, length, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::recv(fd, data, length, flags) })
}

/// `read(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn read(fd: c_int, data: *mut c_void, length: size_t) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result = ours(-1, || unsafe { receive_buffer(fd, data, length, 0) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::read(fd, data, length) })
}

/// `readv(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn readv(fd: c_int, first: *const iovec, count: c_int) -> ssize_t {
    let result = ours(-1, || {
        let slot = changed::find(fd)?;
        // SAFETY: the program says that so many vectors are there.
        unsafe {
            let vectors = vectors::at(first, usize::try_from(count).ok()?)?;
            Some(receive_ours(fd, slot, vectors, 0).0)
        }
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::readv(fd, first, count) })
}

//! The functions that send.

use libc::{c_int, c_uint, c_void, iovec, mmsghdr, msghdr, off_t, size_t, sockaddr, socklen_t, ssize_t};

use crate::changed::{self, Changed};
use crate::wire::{self, HEADER_BYTES, Header};
use crate::{errno, files, link, next, ours, vectors};

/// Longest datagram to the daemon, bytes: it takes no longer one.
const DATAGRAM_BYTES_MAX: usize = 16 * 1024;

/// Sends `vectors` if they are for the daemon; `None` if the kernel's function is to do it.
///
/// # Safety
/// Each vector is readable.
unsafe fn send_ours(fd: c_int, vectors: &[iovec], flags: c_int) -> Option<ssize_t> {
    let known = changed::find(fd);
    // SAFETY: the caller's promise.
    if known.is_none() && !unsafe { may_concern(fd, vectors) } {
        return None;
    }
    let mut buffer = [0; DATAGRAM_BYTES_MAX];
    // SAFETY: the caller's promise.
    let length = unsafe { vectors::gather(vectors, 0, &mut buffer) };
    let datagram = &mut buffer[..length];
    let (slot, live) = match known {
        Some(slot) => (slot, true),
        None => {
            if !wire::concerns_ipvs(datagram) {
                return None;
            }
            match link::change(fd, datagram) {
                Ok(changed) => changed,
                Err(number) => return Some(failed(number)),
            }
        }
    };
    let total = vectors::total(vectors);
    if total > length {
        return Some(failed(libc::EMSGSIZE));
    }
    Some(if live { deliver(fd, slot, datagram, flags) } else { total as ssize_t })
}

/// Whether it is worth a look: the beginning of a message to a generic family, on such a socket.
///
/// # Safety
/// Each vector is readable.
unsafe fn may_concern(fd: c_int, vectors: &[iovec]) -> bool {
    let total = vectors::total(vectors);
    let mut first = [0; HEADER_BYTES];
    // SAFETY: the caller's promise.
    total >= HEADER_BYTES
        && unsafe { vectors::gather(vectors, 0, &mut first) } == HEADER_BYTES
        && Header::read(&first).plausible(total)
        && link::is_generic_netlink(fd)
}

/// Sends a datagram to the daemon. If it is gone, to the one that listens now; without any it counts as sent,
/// and the answer will be that nobody can say what became of it.
fn deliver(fd: c_int, slot: &Changed, datagram: &mut [u8], flags: c_int) -> ssize_t {
    wire::stamp(datagram, slot.port());
    let flags = flags | libc::MSG_NOSIGNAL;
    let before = slot.pending();
    if let Some((_, request, _)) = wire::messages(datagram).last() {
        slot.ask(&request);
    }
    // SAFETY: the datagram lives meanwhile.
    let send = || unsafe { next::send(fd, datagram.as_ptr().cast(), datagram.len(), flags) };
    let mut sent = send();
    if sent < 0 && is_gone(errno::get()) {
        if !link::renew(fd, slot) {
            return datagram.len() as ssize_t;
        }
        sent = send();
    }
    if sent < 0 {
        match before {
            Some(request) => slot.ask(&request),
            None => slot.settle(),
        }
    }
    sent
}

/// Whether an error number says that nobody is at the other end.
pub fn is_gone(number: c_int) -> bool {
    matches!(number, libc::EPIPE | libc::ECONNRESET | libc::ENOTCONN | libc::ECONNREFUSED)
}

fn failed(number: c_int) -> ssize_t {
    errno::set(number);
    -1
}

/// [`send_ours`] of one buffer.
unsafe fn send_buffer(fd: c_int, data: *const c_void, length: size_t, flags: c_int) -> Option<ssize_t> {
    let vector = iovec { iov_base: data.cast_mut(), iov_len: length };
    // SAFETY: the program says that the buffer has so many bytes to read.
    unsafe { send_ours(fd, vectors::at(&raw const vector, 1)?, flags) }
}

/// [`files::set_knob`] from one buffer.
unsafe fn write_knob(fd: c_int, data: *const c_void, length: size_t) -> Option<ssize_t> {
    let vector = iovec { iov_base: data.cast_mut(), iov_len: length };
    // SAFETY: the program says that the buffer has so many bytes to read.
    unsafe { files::set_knob(fd, vectors::at(&raw const vector, 1)?) }
}

/// `sendmsg(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmsg(fd: c_int, message: *const msghdr, flags: c_int) -> ssize_t {
    let result = ours(-1, || {
        // SAFETY: the program says that a message with such vectors is there.
        unsafe {
            let message = message.as_ref()?;
            send_ours(fd, vectors::at(message.msg_iov, message.msg_iovlen)?, flags)
        }
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::sendmsg(fd, message, flags) })
}

/// `sendmmsg(2)`; messages for the daemon are sent one by one.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendmmsg(
    fd: c_int,
    messages: *mut mmsghdr,
    count: c_uint,
    flags: c_int,
) -> c_int {
    let one_by_one = ours(false, || {
        (!messages.is_null() && (changed::find(fd).is_some() || link::is_generic_netlink(fd))).then_some(true)
    });
    if one_by_one != Some(true) {
        // SAFETY: the program's own call.
        return unsafe { next::sendmmsg(fd, messages, count, flags) };
    }
    for done in 0..count {
        // SAFETY: the program says that so many messages are there.
        let sent = unsafe {
            let message = messages.add(done as usize);
            let sent = sendmsg(fd, &raw const (*message).msg_hdr, flags);
            if sent >= 0 {
                (*message).msg_len = sent as c_uint;
            }
            sent
        };
        if sent < 0 {
            return if done > 0 { done as c_int } else { -1 };
        }
    }
    count as c_int
}

/// `sendto(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn sendto(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
    address: *const sockaddr,
    address_length: socklen_t,
) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result = ours(-1, || unsafe { send_buffer(fd, data, length, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::sendto(fd, data, length, flags, address, address_length) })
}

/// `send(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn send(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    flags: c_int,
) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result = ours(-1, || unsafe { send_buffer(fd, data, length, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::send(fd, data, length, flags) })
}

/// `write(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn write(fd: c_int, data: *const c_void, length: size_t) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result =
        ours(-1, || unsafe { write_knob(fd, data, length).or_else(|| send_buffer(fd, data, length, 0)) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::write(fd, data, length) })
}

/// `pwrite(2)`: a knob is set whatever the place.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the program's own buffer.
    let result = ours(-1, || unsafe { write_knob(fd, data, length) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::pwrite(fd, data, length, offset) })
}

/// `pwrite(2)` by its other name.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn pwrite64(
    fd: c_int,
    data: *const c_void,
    length: size_t,
    offset: off_t,
) -> ssize_t {
    // SAFETY: the program's own call.
    unsafe { pwrite(fd, data, length, offset) }
}

/// `writev(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn writev(fd: c_int, first: *const iovec, count: c_int) -> ssize_t {
    let result = ours(-1, || {
        // SAFETY: the program says that so many vectors are there.
        unsafe {
            let vectors = vectors::at(first, usize::try_from(count).ok()?)?;
            files::set_knob(fd, vectors).or_else(|| send_ours(fd, vectors, 0))
        }
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::writev(fd, first, count) })
}

//! Addresses and options: a changed socket answers as the netlink socket that it was, and the old socket
//! options of IPVS, on whatever socket, are the daemon's; without a daemon they are not there.

use std::mem::size_of;

use libc::{c_int, c_void, sockaddr, sockaddr_nl, socklen_t};

use crate::ask::{Answer, Command, Question, attribute};
use crate::{changed, errno, next, ours};

/// The old socket options of IPVS, `IP_VS_BASE_CTL` to `IP_VS_SO_SET_MAX`, at level `IPPROTO_IP`.
const OLD_OPTIONS: std::ops::RangeInclusive<c_int> = 1152..=1167;

/// What of an option's structure the daemon is told, bytes: the longest that is set has 68.
const OPTION_BYTES_MAX: usize = 128;

/// Writes a netlink address with this port id as far as there is room; its whole length.
///
/// # Safety
/// `length` is null or has the room at `address`, which is null or writable so far.
pub unsafe fn write_address(address: *mut sockaddr, length: *mut socklen_t, port: u32) {
    if address.is_null() || length.is_null() {
        return;
    }
    // SAFETY: the caller's promise; a netlink address is plain data.
    unsafe {
        let mut full: sockaddr_nl = std::mem::zeroed();
        full.nl_family = libc::AF_NETLINK as u16;
        full.nl_pid = port;
        let size = size_of::<sockaddr_nl>();
        let room = size.min(*length as usize);
        std::ptr::copy_nonoverlapping((&raw const full).cast::<u8>(), address.cast::<u8>(), room);
        *length = size as socklen_t;
    }
}

/// `getsockname(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockname(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own room.
    let result = ours(-1, || unsafe {
        write_address(address, length, changed::find(fd)?.port());
        Some(0)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::getsockname(fd, address, length) })
}

/// `getpeername(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getpeername(
    fd: c_int,
    address: *mut sockaddr,
    length: *mut socklen_t,
) -> c_int {
    // SAFETY: the program's own room.
    let result = ours(-1, || unsafe {
        changed::find(fd)?;
        write_address(address, length, 0);
        Some(0)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::getpeername(fd, address, length) })
}

/// `bind(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn bind(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let result = ours(-1, || changed::find(fd).map(|_| 0));
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::bind(fd, address, length) })
}

/// `connect(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn connect(fd: c_int, address: *const sockaddr, length: socklen_t) -> c_int {
    let result = ours(-1, || changed::find(fd).map(|_| 0));
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::connect(fd, address, length) })
}

/// `getsockopt(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn getsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *mut c_void,
    length: *mut socklen_t,
) -> c_int {
    let result = ours(-1, || {
        if is_old_option(level, name) {
            // SAFETY: the program says that there is room for so many bytes.
            return Some(unsafe { get_option(name, value, length) });
        }
        let answer = match (level, name) {
            (libc::SOL_NETLINK, _) => 0,
            (libc::SOL_SOCKET, libc::SO_DOMAIN) => libc::AF_NETLINK,
            (libc::SOL_SOCKET, libc::SO_PROTOCOL) => libc::NETLINK_GENERIC,
            (libc::SOL_SOCKET, libc::SO_TYPE) => libc::SOCK_RAW,
            _ => return None,
        };
        changed::find(fd)?;
        if value.is_null() || length.is_null() {
            return None;
        }
        // SAFETY: the program says that there is room for so many bytes.
        unsafe {
            let room = size_of::<c_int>().min(*length as usize);
            std::ptr::copy_nonoverlapping((&raw const answer).cast::<u8>(), value.cast::<u8>(), room);
            *length = room as socklen_t;
        }
        Some(0)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::getsockopt(fd, level, name, value, length) })
}

/// `setsockopt(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn setsockopt(
    fd: c_int,
    level: c_int,
    name: c_int,
    value: *const c_void,
    length: socklen_t,
) -> c_int {
    let result = ours(-1, || {
        if is_old_option(level, name) {
            // SAFETY: the program says that so many bytes are there.
            return Some(unsafe { set_option(name, value, length) });
        }
        (level == libc::SOL_NETLINK && changed::find(fd).is_some()).then_some(0)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::setsockopt(fd, level, name, value, length) })
}

fn is_old_option(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && OLD_OPTIONS.contains(&name)
}

/// Sets an old option of IPVS at the daemon.
///
/// # Safety
/// `value` is null or has `length` bytes.
unsafe fn set_option(name: c_int, value: *const c_void, length: socklen_t) -> c_int {
    let length = length as usize;
    if length > OPTION_BYTES_MAX {
        return failed(libc::EINVAL);
    }
    if value.is_null() && length > 0 {
        return failed(libc::EFAULT);
    }
    let data = match length {
        0 => &[],
        // SAFETY: the caller's promise.
        length => unsafe { std::slice::from_raw_parts(value.cast::<u8>(), length) },
    };
    let question = Question::new(Command::OptionSet).number(attribute::NUMBER, name as u32);
    match question.data(attribute::DATA, data).ask() {
        Answer::Done | Answer::File(_) => 0,
        Answer::Refused(number) => failed(number),
        Answer::Nobody(false) => failed(libc::ENOPROTOOPT),
        Answer::Nobody(true) => failed(libc::EBUSY),
    }
}

/// Reads an old option of IPVS from the daemon. Only the text of the version changes the length, as in the kernel.
///
/// # Safety
/// `length` is null or a number, and `value` null or writable so far.
unsafe fn get_option(name: c_int, value: *mut c_void, length: *mut socklen_t) -> c_int {
    if value.is_null() || length.is_null() {
        return failed(libc::EFAULT);
    }
    // SAFETY: the caller's promise.
    let (room, head) = unsafe {
        let room = *length as usize;
        if room > c_int::MAX as usize {
            return failed(libc::EINVAL);
        }
        (room, std::slice::from_raw_parts(value.cast::<u8>(), room.min(OPTION_BYTES_MAX)))
    };
    let question = Question::new(Command::OptionGet)
        .number(attribute::NUMBER, name as u32)
        .number(attribute::LENGTH, room as u32)
        .data(attribute::DATA, head);
    let file = match question.ask() {
        Answer::File(file) => file,
        Answer::Refused(number) => return failed(number),
        Answer::Done | Answer::Nobody(_) => return failed(libc::ENOPROTOOPT),
    };
    let _errno = errno::Kept::now();
    let mut filled = 0;
    // SAFETY: reads go into the room behind what was read before; the descriptor is ours.
    unsafe {
        while filled < room {
            let got = next::read(file, value.byte_add(filled), room - filled);
            if got <= 0 {
                break;
            }
            filled += got as usize;
        }
        libc::close(file);
        if name == *OLD_OPTIONS.start() {
            *length = filled as socklen_t;
        }
    }
    0
}

fn failed(number: c_int) -> c_int {
    errno::set(number);
    -1
}

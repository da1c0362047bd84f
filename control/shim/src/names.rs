//! Addresses and options: a changed socket answers as the netlink socket that it was, and the old socket
//! options of IPVS are not there.

use std::mem::size_of;

use libc::{c_int, c_void, sockaddr, sockaddr_nl, socklen_t};

use crate::{changed, errno, next, ours};

/// The old socket options of IPVS, `IP_VS_BASE_CTL` to `IP_VS_SO_SET_MAX`, at level `IPPROTO_IP`.
const OLD_OPTIONS: std::ops::RangeInclusive<c_int> = 1152..=1167;

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
            return Some(not_there());
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
            return Some(not_there());
        }
        (level == libc::SOL_NETLINK && changed::find(fd).is_some()).then_some(0)
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::setsockopt(fd, level, name, value, length) })
}

fn is_old_option(level: c_int, name: c_int) -> bool {
    level == libc::IPPROTO_IP && OLD_OPTIONS.contains(&name)
}

fn not_there() -> c_int {
    errno::set(libc::ENOPROTOOPT);
    -1
}

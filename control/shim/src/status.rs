//! The functions that ask about files by name: those of IPVS are there if the daemon has them.

use libc::{c_char, c_int, c_uint, stat as Status, statx as Statx};

use crate::ask::Answer;
use crate::paths::{self, File};
use crate::{errno, next, ours};

/// Rights of a text and of a knob, as the kernel shows them.
const TEXT_MODE: libc::mode_t = libc::S_IFREG | 0o444;
const KNOB_MODE: libc::mode_t = libc::S_IFREG | 0o644;

/// The mode of the file if it is one of IPVS: `Err` an error number. `None` if the kernel is to say.
///
/// # Safety
/// `path` is a C string or null.
unsafe fn mode_of(path: *const c_char, write: bool) -> Option<Result<libc::mode_t, c_int>> {
    // SAFETY: the caller's promise.
    let file = unsafe { paths::named(path) }?;
    Some(match file.open(write) {
        Answer::File(fd) => {
            let _errno = errno::Kept::now();
            // SAFETY: the descriptor came to us and to nobody else.
            unsafe { libc::close(fd) };
            Ok(if matches!(file, File::Knob(_)) { KNOB_MODE } else { TEXT_MODE })
        }
        Answer::Refused(number) => Err(number),
        Answer::Done | Answer::Nobody(_) => Err(libc::ENOENT),
    })
}

/// Answers `access`.
///
/// # Safety
/// As [`mode_of`].
unsafe fn access_ours(path: *const c_char, mode: c_int) -> Option<c_int> {
    // SAFETY: the caller's promise.
    let found = unsafe { mode_of(path, mode & libc::W_OK != 0) }?;
    let runs = if mode & libc::X_OK == 0 { Ok(()) } else { Err(libc::EACCES) };
    Some(result(found.and(runs)))
}

/// Answers `stat`.
///
/// # Safety
/// As [`mode_of`]; `status` is null or writable.
unsafe fn stat_ours(path: *const c_char, status: *mut Status) -> Option<c_int> {
    // SAFETY: the caller's promise; a status is plain data.
    unsafe {
        let found = mode_of(path, false)?;
        let status = status.as_mut()?;
        Some(result(found.map(|mode| {
            *status = std::mem::zeroed();
            status.st_mode = mode;
            status.st_nlink = 1;
            status.st_blksize = 1024;
        })))
    }
}

fn result(of: Result<(), c_int>) -> c_int {
    match of {
        Ok(()) => 0,
        Err(number) => {
            errno::set(number);
            -1
        }
    }
}

/// `access(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn access(path: *const c_char, mode: c_int) -> c_int {
    // SAFETY: the program's own string.
    let result = ours(-1, || unsafe { access_ours(path, mode) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::access(path, mode) })
}

/// `faccessat(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn faccessat(
    dir: c_int,
    path: *const c_char,
    mode: c_int,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own string.
    let result = ours(-1, || unsafe { access_ours(path, mode) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::faccessat(dir, path, mode, flags) })
}

/// `stat(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn stat(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: the program's own string and room.
    let result = ours(-1, || unsafe { stat_ours(path, status) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::stat(path, status) })
}

/// `stat(2)` by its other name: the structure is the same on 64-bit machines.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn stat64(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: the program's own call.
    unsafe { stat(path, status) }
}

/// `lstat(2)`; none of our names is a link.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn lstat(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: the program's own string and room.
    let result = ours(-1, || unsafe { stat_ours(path, status) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::lstat(path, status) })
}

/// `lstat(2)` by its other name.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn lstat64(path: *const c_char, status: *mut Status) -> c_int {
    // SAFETY: the program's own call.
    unsafe { lstat(path, status) }
}

/// `fstatat(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fstatat(
    dir: c_int,
    path: *const c_char,
    status: *mut Status,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own string and room.
    let result = ours(-1, || unsafe { stat_ours(path, status) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::fstatat(dir, path, status, flags) })
}

/// `fstatat(2)` by its other name.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fstatat64(
    dir: c_int,
    path: *const c_char,
    status: *mut Status,
    flags: c_int,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { fstatat(dir, path, status, flags) }
}

/// `statx(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn statx(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mask: c_uint,
    status: *mut Statx,
) -> c_int {
    // SAFETY: the program's own string and room; a status is plain data.
    let result_ours = ours(-1, || unsafe {
        let found = mode_of(path, false)?;
        let status = status.as_mut()?;
        Some(result(found.map(|mode| {
            *status = std::mem::zeroed();
            status.stx_mask = libc::STATX_TYPE | libc::STATX_MODE | libc::STATX_NLINK | libc::STATX_SIZE;
            status.stx_mode = mode as u16;
            status.stx_nlink = 1;
        })))
    });
    // SAFETY: the program's own call.
    result_ours.unwrap_or_else(|| unsafe { next::statx(dir, path, flags, mask, status) })
}

/// `realpath(3)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn realpath(path: *const c_char, resolved: *mut c_char) -> *mut c_char {
    // SAFETY: the program's own string and room.
    let result = ours(std::ptr::null_mut(), || unsafe { realpath_ours(path, resolved) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::realpath(path, resolved) })
}

/// `realpath(3)` of programs built with `_FORTIFY_SOURCE`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __realpath_chk(
    path: *const c_char,
    resolved: *mut c_char,
    room: usize,
) -> *mut c_char {
    // SAFETY: the program's own string and room.
    let result = ours(std::ptr::null_mut(), || unsafe { realpath_ours(path, resolved) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::__realpath_chk(path, resolved, room) })
}

/// Answers `realpath`: the whole name without its detours. It is shorter than the room there has to be.
///
/// # Safety
/// As [`mode_of`]; `resolved` is null or has room for the longest name of a file.
unsafe fn realpath_ours(path: *const c_char, resolved: *mut c_char) -> Option<*mut c_char> {
    // SAFETY: the caller's promise; the name ends with NUL.
    unsafe {
        if let Err(number) = mode_of(path, false)? {
            errno::set(number);
            return Some(std::ptr::null_mut());
        }
        let mut name = [0; paths::NAME_ROOM];
        paths::named(path)?.write_name(&mut name)?;
        let name = name.as_ptr().cast();
        Some(if resolved.is_null() { libc::strdup(name) } else { libc::strcpy(resolved, name) })
    }
}

//! The functions that open files.
//!
//! `open` and `openat` take their third argument only with some flags; where a program gives none, what is in its
//! place is passed on and not looked at, as in the C library.

use libc::{FILE, c_char, c_int, mode_t};

use crate::{errno, files, next, ours};

/// `open(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn open(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's own string.
    let result = ours(-1, || unsafe { files::open_ours(path, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::open(path, flags, mode) })
}

/// `openat(2)`; our names are whole ones, from the root.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn openat(dir: c_int, path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's own string.
    let result = ours(-1, || unsafe { files::open_ours(path, flags) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::openat(dir, path, flags, mode) })
}

/// `open(2)` by its other name: files may be large on 64-bit machines anyway.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn open64(path: *const c_char, flags: c_int, mode: mode_t) -> c_int {
    // SAFETY: the program's own call.
    unsafe { open(path, flags, mode) }
}

/// `openat(2)` by its other name.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn openat64(
    dir: c_int,
    path: *const c_char,
    flags: c_int,
    mode: mode_t,
) -> c_int {
    // SAFETY: the program's own call.
    unsafe { openat(dir, path, flags, mode) }
}

/// `open(2)` of programs built with `_FORTIFY_SOURCE`, without a third argument.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __open_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { open(path, flags, 0) }
}

/// `open(2)`, likewise.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __open64_2(path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { open(path, flags, 0) }
}

/// `openat(2)`, likewise.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __openat_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { openat(dir, path, flags, 0) }
}

/// `openat(2)`, likewise.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn __openat64_2(dir: c_int, path: *const c_char, flags: c_int) -> c_int {
    // SAFETY: the program's own call.
    unsafe { openat(dir, path, flags, 0) }
}

/// `fopen(3)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fopen(path: *const c_char, mode: *const c_char) -> *mut FILE {
    let result = ours(std::ptr::null_mut(), || {
        // SAFETY: the program's own strings; the descriptor is ours until the stream has it.
        unsafe {
            let fd = files::open_ours(path, flags_of(mode)?)?;
            if fd < 0 {
                return Some(std::ptr::null_mut());
            }
            let stream = libc::fdopen(fd, mode);
            if stream.is_null() {
                let _errno = errno::Kept::now();
                libc::close(fd);
            }
            Some(stream)
        }
    });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::fopen(path, mode) })
}

/// `fopen(3)` by its other name.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn fopen64(path: *const c_char, mode: *const c_char) -> *mut FILE {
    // SAFETY: the program's own call.
    unsafe { fopen(path, mode) }
}

/// Flags that a stream's mode stands for.
///
/// # Safety
/// `mode` is a C string or null.
unsafe fn flags_of(mode: *const c_char) -> Option<c_int> {
    if mode.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    let mode = unsafe { std::ffi::CStr::from_ptr(mode) }.to_bytes();
    let access = match mode.first()? {
        _ if mode.contains(&b'+') => libc::O_RDWR,
        b'r' => libc::O_RDONLY,
        _ => libc::O_WRONLY,
    };
    Some(access | if mode.contains(&b'e') { libc::O_CLOEXEC } else { 0 })
}

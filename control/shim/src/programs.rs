//! The functions that start programs: `modprobe ip_vs` is not run, which would bring the kernel's IPVS to life.
//!
//! Programs that clients start otherwise inherit the library with the environment.

use std::ffi::CStr;

use libc::{c_char, c_int, c_void, pid_t};

use crate::{errno, next, ours};

/// `Some` failure if this would load the kernel's IPVS.
///
/// # Safety
/// `file` is a C string or null, `words` a list of them that ends with null, or null.
unsafe fn blocked(file: *const c_char, words: *const *const c_char) -> Option<c_int> {
    if file.is_null() || words.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    unsafe {
        let name = CStr::from_ptr(file).to_bytes();
        if name != b"modprobe" && !name.ends_with(b"/modprobe") {
            return None;
        }
        let mut word = words;
        while !(*word).is_null() {
            if CStr::from_ptr(*word).to_bytes().starts_with(b"ip_vs") {
                errno::set(libc::ENOENT);
                return Some(-1);
            }
            word = word.add(1);
        }
    }
    None
}

/// `execv(3)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execv(path: *const c_char, words: *const *const c_char) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(-1, || unsafe { blocked(path, words) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::execv(path, words) })
}

/// `execve(2)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execve(
    path: *const c_char,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(-1, || unsafe { blocked(path, words) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::execve(path, words, environment) })
}

/// `execvp(3)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvp(file: *const c_char, words: *const *const c_char) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(-1, || unsafe { blocked(file, words) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::execvp(file, words) })
}

/// `execvpe(3)`.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn execvpe(
    file: *const c_char,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(-1, || unsafe { blocked(file, words) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::execvpe(file, words, environment) })
}

/// `posix_spawn(3)`: the error number is the result.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawn(
    pid: *mut pid_t,
    path: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(libc::EIO, || unsafe { blocked(path, words).map(|_| libc::ENOENT) });
    // SAFETY: the program's own call.
    result.unwrap_or_else(|| unsafe { next::posix_spawn(pid, path, actions, attributes, words, environment) })
}

/// `posix_spawnp(3)`: the error number is the result.
///
/// # Safety
/// As the C library's function.
#[cfg_attr(not(test), unsafe(no_mangle))]
pub unsafe extern "C-unwind" fn posix_spawnp(
    pid: *mut pid_t,
    file: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    words: *const *const c_char,
    environment: *const *const c_char,
) -> c_int {
    // SAFETY: the program's own strings.
    let result = ours(libc::EIO, || unsafe { blocked(file, words).map(|_| libc::ENOENT) });
    result
        // SAFETY: the program's own call.
        .unwrap_or_else(|| unsafe { next::posix_spawnp(pid, file, actions, attributes, words, environment) })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_modprobe_of_ipvs_is_blocked() {
        for (line, expected) in [
            (&[c"/sbin/modprobe", c"--", c"ip_vs"][..], true),
            (&[c"modprobe", c"-s", c"--", c"ip_vs_wrr"], true),
            (&[c"/sbin/modprobe", c"nf_tables"], false),
            (&[c"/usr/bin/echo", c"ip_vs"], false),
            (&[c"/opt/notmodprobe", c"ip_vs"], false),
        ] {
            let mut words: Vec<_> = line.iter().map(|word| word.as_ptr()).collect();
            words.push(std::ptr::null());
            // SAFETY: the list ends with null and its strings live.
            let blocked = unsafe { blocked(line[0].as_ptr(), words.as_ptr()) };
            assert_eq!(blocked.is_some(), expected, "{line:?}");
        }
    }
}

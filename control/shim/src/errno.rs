//! The calling thread's `errno`.

use libc::c_int;

/// Its value.
pub fn get() -> c_int {
    // SAFETY: the C library's pointer to the thread's own variable, valid as long as the thread runs.
    unsafe { *libc::__errno_location() }
}

/// Sets it.
pub fn set(value: c_int) {
    // SAFETY: as in `get`; nobody else writes it.
    unsafe { *libc::__errno_location() = value }
}

/// Puts it back as it was when this ends: what we ask on the side must not be seen.
pub struct Kept(c_int);

impl Kept {
    /// From here on.
    pub fn now() -> Kept {
        Kept(get())
    }
}

impl Drop for Kept {
    fn drop(&mut self) {
        set(self.0);
    }
}

//! `libweir_ipvs.so`: makes unmodified programs that speak the kernel's IPVS messages speak to Weir.
//!
//! Model: preloaded, the library stands before the C library's functions for sockets. A program opens its
//! generic netlink socket, binds it and reads its port id undisturbed. When it first **sends** something about
//! IPVS (asks for the family by name, or sends to its number), a connection to Weir's control socket takes
//! the netlink socket's place under the same descriptor; Weir speaks the same messages. From then on poll,
//! select, close, dup and fork see an ordinary descriptor, and the functions here only keep up appearances:
//! port ids, addresses, and never an end of file, which libnl would wait on for ever. Sockets that never
//! mention IPVS are never touched.
//!
//! The old socket options of IPVS and the files of `/proc` that the kernel's IPVS has are asked of the daemon too, each
//! with one request on a connection of its own; a file is a descriptor that the daemon hands over.
//!
//! It fails closed: without a daemon the family does not exist, the old socket options and the files do not exist,
//! and modprobe is not run for it. Nothing about IPVS reaches the kernel.
//!
//! | module | part |
//! |---|---|
//! | `send`, `receive`, `names`, `programs` | the functions that programs call in place of the C library's |
//! | `opens`, `status` | likewise, for files |
//! | `files`, `paths`, `ask` | which files are the daemon's; requests for them and for options |
//! | `link` | connection to the daemon, change of the socket |
//! | `changed` | which descriptors were changed |
//! | `wire` | netlink messages |
//! | `vectors`, `next`, `errno` | buffers of a call, the functions behind ours, `errno` |
//!
//! Runs on whatever thread calls, also in signal handlers: plain system calls, no allocation, no thread, no
//! lock but for the change itself. `errno` is kept. A fault of ours becomes EIO for the caller. Where a call
//! is only passed on, the program's buffers are not looked into beyond the first 16 bytes of what is sent.
#![cfg_attr(test, expect(dead_code, reason = "what is called from outside only"))]

mod ask;
mod changed;
mod errno;
mod files;
mod link;
mod names;
mod next;
mod opens;
mod paths;
mod programs;
mod receive;
mod send;
mod status;
#[cfg(test)]
mod tests;
mod vectors;
mod wire;

use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs when the library is loaded, before the program.
#[cfg_attr(not(test), used, unsafe(link_section = ".init_array"))]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn construct() {
        // Nobody reads what a library writes to stderr of a program whose texts are parsed.
        let _ = catch_unwind(|| {
            std::panic::set_hook(Box::new(|_| {}));
            next::resolve();
            link::read_environment();
            changed::watch_forks();
        });
    }
    construct
};

/// What `body` says about a call: `Some` result, or `None` for one that is to be passed on. A panic in it is
/// EIO. Calls are passed on outside, where a thread may be cancelled.
fn ours<R>(failed: R, body: impl FnOnce() -> Option<R>) -> Option<R> {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|_| {
        errno::set(libc::EIO);
        Some(failed)
    })
}

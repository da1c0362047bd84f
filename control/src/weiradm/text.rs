//! Texts: help, versions, and what an error number means for a command.

use std::io;

use rustix::io::Errno;

use super::grammar::Command;

/// Name of the program whose command line this is, and what it says of itself.
const IPVSADM: &str = "ipvsadm";
const IPVSADM_VERSION: &str = "ipvsadm v1.31 2019/12/24 (compiled with popt and IPVS v1.2.1)";

/// First line of the help, and the version. Called as `ipvsadm`, ipvsadm's own.
pub(super) fn version(program: &str) -> String {
    match file_name(program) {
        IPVSADM => format!("{IPVSADM_VERSION}\n"),
        own => format!("{own} v{} (command line of ipvsadm v1.31, IPVS v1.2.1)\n", env!("CARGO_PKG_VERSION")),
    }
}

/// The help. Called as `ipvsadm`, ipvsadm's own.
pub fn help(program: &str) -> String {
    let mut help = version(program);
    help.push_str(&include_str!("help.txt").replace("PROGRAM", program));
    if file_name(program) != IPVSADM {
        help.push_str(include_str!("help_own.txt"));
    }
    help
}

/// The last part of the path that a program was called by.
fn file_name(program: &str) -> &str {
    program.rsplit('/').next().unwrap_or(program)
}

/// The warning about a kernel that is too old; one empty line at its end.
pub(super) fn version_mismatch(version: u32) -> String {
    let [_, major, minor, patch] = version.to_be_bytes();
    format!(
        "Warning: IPVS version mismatch: \n  Kernel compiled with IPVS version {major}.{minor}.{patch}\n  \
         ipvsadm v1.31  requires minimum IPVS version 1.1.4\n\n"
    )
}

/// Why the family cannot be used.
pub(super) fn no_family(errno: Errno) -> String {
    format!(
        "Can't initialize ipvs: {}\n\
         Are you sure that IP Virtual Server is built in the kernel or as module?\n",
        error(None, errno)
    )
}

/// What an error number means, for a command.
pub(super) fn error(command: Option<Command>, errno: Errno) -> String {
    use Command::{AddServer, AddService, DeleteServer, EditServer, EditService, StartDaemon, StopDaemon};
    let special = match (errno, command) {
        (Errno::EXIST, Some(AddService)) => Some("Service already exists"),
        (Errno::EXIST, Some(AddServer)) => Some("Destination already exists"),
        (Errno::EXIST, Some(StartDaemon)) => Some("Daemon has already run"),
        (Errno::NOENT, Some(AddService | EditService)) => Some("Scheduler or persistence engine not found"),
        (Errno::NOENT, Some(EditServer | DeleteServer)) => Some("No such destination"),
        (Errno::SRCH, Some(AddServer | EditServer | DeleteServer)) => Some("Service not defined"),
        (Errno::SRCH, Some(StopDaemon)) => Some("No daemon is running"),
        (Errno::SRCH, Some(_)) => Some("No such service"),
        (Errno::PERM, _) => Some("Permission denied (you must be root)"),
        (Errno::INVAL, _) => {
            Some("Invalid operation.  Possibly wrong module version, address not unicast, ...")
        }
        (Errno::NOPROTOOPT, _) => Some("Protocol not available"),
        (Errno::NOMEM, _) => Some("Memory allocation problem"),
        (Errno::OPNOTSUPP, _) => Some("Operation not supported with IPv6"),
        (Errno::AFNOSUPPORT, _) => Some("Operation not supported with specified address family"),
        (Errno::MSGSIZE, _) => Some("Module is wrong version"),
        _ => None,
    };
    special.map_or_else(|| system_text(errno), str::to_owned)
}

/// The C library's text.
fn system_text(errno: Errno) -> String {
    let text = io::Error::from_raw_os_error(errno.raw_os_error()).to_string();
    text.split(" (os error").next().unwrap_or_default().to_owned()
}

//! Names of the kernel's IPVS files, and what the daemon calls them.

use std::ffi::CStr;

use libc::c_char;

use crate::ask::{Answer, Command, Question, attribute};

/// Parts of the longest name that is one.
const PARTS_MAX: usize = 6;
/// Longest name of a knob or file, bytes; the longest there is has 25.
pub const NAME_BYTES_MAX: usize = 48;

/// Room for the whole name of a file, with its NUL.
pub const NAME_ROOM: usize = 80;

/// A file of the kernel's IPVS.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum File<'a> {
    /// `/proc/net/NAME`: a text.
    Text(&'a [u8]),
    /// `/proc/sys/net/ipv4/vs/NAME`: a knob.
    Knob(&'a [u8]),
}

impl File<'_> {
    /// Writes its whole name and a NUL; none if it is too long to be one.
    pub fn write_name(&self, out: &mut [u8; NAME_ROOM]) -> Option<()> {
        let (folder, name) = match self {
            File::Text(name) => (&b"/proc/net/"[..], *name),
            File::Knob(name) => (&b"/proc/sys/net/ipv4/vs/"[..], *name),
        };
        let end = folder.len() + name.len();
        *out.get_mut(end)? = 0;
        out[..folder.len()].copy_from_slice(folder);
        out[folder.len()..end].copy_from_slice(name);
        Some(())
    }

    /// Has the daemon open it.
    pub fn open(&self, write: bool) -> Answer {
        let (folder, name) = match self {
            File::Text(name) => (&b"net/"[..], *name),
            File::Knob(name) => (&b"sys/"[..], *name),
        };
        let mut whole = [0; NAME_BYTES_MAX + 4];
        let Some(place) = whole.get_mut(..4 + name.len()) else { return Answer::Refused(libc::ENOENT) };
        place[..4].copy_from_slice(folder);
        place[4..].copy_from_slice(name);
        Question::new(Command::TextOpen)
            .text(attribute::NAME, place)
            .number(attribute::MODE, u32::from(write))
            .ask()
    }
}

/// The file of this name, if it is one of IPVS.
///
/// # Safety
/// `path` is a C string or null, and outlives the result.
pub unsafe fn named<'a>(path: *const c_char) -> Option<File<'a>> {
    if path.is_null() {
        return None;
    }
    // SAFETY: the caller's promise.
    of(unsafe { CStr::from_ptr(path) }.to_bytes())
}

fn of(path: &[u8]) -> Option<File<'_>> {
    // Almost every name ends here.
    if !path.starts_with(b"/proc/") && !path.starts_with(b"//") && !path.starts_with(b"/./") {
        return None;
    }
    let mut parts = [&b""[..]; PARTS_MAX];
    let mut count = 0;
    for part in path.split(|byte| *byte == b'/').filter(|part| !matches!(part, [] | [b'.'])) {
        *parts.get_mut(count)? = part;
        count += 1;
    }
    match parts[..count] {
        [b"proc", b"net", name] => text(name),
        [b"proc", process, b"net", name] if is_process(process) => text(name),
        [b"proc", b"sys", b"net", b"ipv4", b"vs", name] => Some(File::Knob(name)),
        _ => None,
    }
}

fn text(name: &[u8]) -> Option<File<'_>> {
    name.starts_with(b"ip_vs").then_some(File::Text(name))
}

fn is_process(name: &[u8]) -> bool {
    matches!(name, b"self" | b"thread-self") || name.iter().all(u8::is_ascii_digit)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_files_of_ipvs_are_ours() {
        for (path, expected) in [
            ("/proc/net/ip_vs", Some(File::Text(b"ip_vs"))),
            ("/proc/self/net/ip_vs_conn", Some(File::Text(b"ip_vs_conn"))),
            ("/proc/17/net/ip_vs_stats", Some(File::Text(b"ip_vs_stats"))),
            ("//proc/./net//ip_vs", Some(File::Text(b"ip_vs"))),
            ("/proc/sys/net/ipv4/vs/conntrack", Some(File::Knob(b"conntrack"))),
            ("/proc/sys/net/ipv4/vs", None),
            ("/proc/sys/net/ipv4/vs/a/b", None),
            ("/proc/net/tcp", None),
            ("/proc/self/status", None),
            ("/proc/x/net/ip_vs", None),
            ("proc/net/ip_vs", None),
            ("/etc/passwd", None),
            ("", None),
            ("/", None),
        ] {
            assert_eq!(of(path.as_bytes()), expected, "{path}");
        }
        let mut whole = [0xff; NAME_ROOM];
        of(b"//proc/sys/net/./ipv4/vs/conntrack").unwrap().write_name(&mut whole).unwrap();
        assert!(whole.starts_with(b"/proc/sys/net/ipv4/vs/conntrack\0"));
        assert!(File::Knob(&[b'a'; NAME_ROOM]).write_name(&mut whole).is_none());
    }
}

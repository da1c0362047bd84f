//! `weir exec`: a program that speaks to the kernel's IPVS is run with our library preloaded.
//!
//! The program takes this process's place, so its exit status, signals and terminal are its own. What cannot
//! be preloaded would speak to the kernel unnoticed, and is refused.

use std::env;
use std::ffi::{OsStr, OsString};
use std::fs::{self, File};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::args::{ExecArgs, SOCKET_VARIABLE, socket_path};
use crate::failure::Failure;

const LIBRARY: &str = "libweir_ipvs.so";
/// Where it is, seen from the directory of this program: built (Cargo renews the first, and copies it to the second
/// only when the library itself is asked for), installed.
const PLACES: [&str; 3] = ["deps", "", "../lib/weir"];
/// Where packages put it.
const PACKAGED: &str = "/usr/lib/weir";
const PRELOAD: &str = "LD_PRELOAD";

/// Runs the program. Returns only if that fails.
pub fn exec(args: &ExecArgs) -> Failure {
    let Some((program, rest)) = args.program.split_first() else {
        return Failure::usage("exec", "which program?");
    };
    match prepare(args, program) {
        Ok((path, preload, socket)) => {
            let mut command = Command::new(&path);
            command.arg0(program).args(rest).env(PRELOAD, preload).env(SOCKET_VARIABLE, socket);
            Failure::environment(shown(program), command.exec())
        }
        Err(failure) => failure,
    }
}

/// The program's file, and what the two variables are to be.
fn prepare(args: &ExecArgs, program: &OsStr) -> Result<(PathBuf, OsString, PathBuf), Failure> {
    let path =
        find(program).ok_or_else(|| Failure::environment(shown(program), "no such program on the PATH"))?;
    if let Some(why) = cannot_be_preloaded(&path) {
        return Err(Failure::environment(shown(program), why)
            .hint("it would speak to the kernel's IPVS, not to Weir; `weiradm` has ipvsadm's command line"));
    }
    let socket = socket_path(args.socket.as_deref());
    let socket = std::path::absolute(&socket)
        .map_err(|error| Failure::environment(socket.display().to_string(), error))?;
    Ok((path, preload(&library()?)?, socket))
}

/// The file of a program, as a shell finds it.
fn find(program: &OsStr) -> Option<PathBuf> {
    let runs = |path: &PathBuf| {
        fs::metadata(path).is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0)
    };
    if program.as_bytes().contains(&b'/') {
        return Some(PathBuf::from(program)).filter(runs);
    }
    env::split_paths(&env::var_os("PATH")?).map(|directory| directory.join(program)).find(runs)
}

fn library() -> Result<PathBuf, Failure> {
    let program = env::current_exe().map_err(|error| Failure::environment("exec", error))?;
    let directory = program.parent().unwrap_or(Path::new("/"));
    let places = PLACES.iter().map(|place| directory.join(place)).chain([PathBuf::from(PACKAGED)]);
    let found = places.map(|place| place.join(LIBRARY)).find(|path| path.is_file());
    found.and_then(|path| path.canonicalize().ok()).ok_or_else(|| {
        Failure::environment(LIBRARY, "not found beside this program, in ../lib/weir or in /usr/lib/weir")
            .hint("`make install` puts it there")
    })
}

/// The library before what is preloaded already.
fn preload(library: &Path) -> Result<OsString, Failure> {
    if library.as_os_str().as_bytes().iter().any(|byte| b": ".contains(byte)) {
        let why = "a library whose path has a colon or blank cannot be preloaded";
        return Err(Failure::environment(library.display().to_string(), why));
    }
    let mut value = library.as_os_str().to_owned();
    if let Some(others) = env::var_os(PRELOAD).filter(|others| !others.is_empty()) {
        value.push(":");
        value.push(others);
    }
    Ok(value)
}

/// Why the dynamic linker would leave our library out, if it would.
fn cannot_be_preloaded(path: &Path) -> Option<&'static str> {
    let file = File::open(path).ok()?;
    if file.metadata().ok()?.permissions().mode() & 0o6000 != 0 {
        return Some("a set-user-id or set-group-id program takes no preloaded library");
    }
    if rustix::fs::getxattr(path, "security.capability", &mut [0_u8; 64][..]).is_ok() {
        return Some("a program with file capabilities takes no preloaded library");
    }
    elf_without_linker(&file)
}

/// As [`cannot_be_preloaded`], by the contents. Scripts are left to their interpreter.
fn elf_without_linker(mut file: &File) -> Option<&'static str> {
    // `Elf64_Ehdr`: class at 4, program headers at 32 (u64), their size at 54 and number at 56 (u16).
    let mut head = [0; 64];
    file.read_exact(&mut head).ok()?;
    if !head.starts_with(b"\x7fELF") {
        return None;
    }
    if head[4] != 2 {
        return Some("a 32-bit program takes no 64-bit library");
    }
    let half = |at: usize| u64::from(u16::from_ne_bytes([head[at], head[at + 1]]));
    let start = u64::from_ne_bytes(*head[32..].first_chunk()?);
    let has_linker = (0..half(56)).any(|n| {
        let mut kind = [0; 4];
        let at = start.saturating_add(n * half(54));
        // PT_INTERP, 3
        file.read_exact_at(&mut kind, at).is_ok() && u32::from_ne_bytes(kind) == 3
    });
    (!has_linker).then_some("a static program takes no preloaded library")
}

fn shown(program: &OsStr) -> String {
    program.to_string_lossy().into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_cannot_be_preloaded_is_told_by_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("program");
        let mut this = fs::read(env::current_exe().unwrap()).unwrap();
        this.truncate(4096);
        let judge = |change: fn(&mut Vec<u8>), mode: u32| {
            let mut bytes = this.clone();
            change(&mut bytes);
            fs::write(&path, bytes).unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
            cannot_be_preloaded(&path).unwrap_or("")
        };
        assert_eq!(judge(|_| (), 0o755), "");
        assert!(judge(|_| (), 0o4755).contains("set-user-id"));
        assert!(judge(|bytes| bytes[4] = 1, 0o755).contains("32-bit"));
        assert!(judge(|bytes| bytes[56..58].fill(0), 0o755).contains("static"));
        assert_eq!(judge(|bytes| *bytes = b"#!/bin/sh\n".to_vec(), 0o755), "");
    }

    #[test]
    fn programs_are_found_as_a_shell_finds_them() {
        assert_eq!(find(OsStr::new("/bin/sh")), Some(PathBuf::from("/bin/sh")));
        assert!(find(OsStr::new("sh")).is_some_and(|path| path.ends_with("sh")));
        assert_eq!(find(OsStr::new("no-such-program-anywhere")), None);
        assert_eq!(find(OsStr::new("/etc")), None);
    }
}

//! The socket file: who may own the path, and the listening socket on it.
//!
//! Model: a path belongs to the daemon that listens on it. Whether one does is asked by connecting: a live
//! daemon accepts, a dead one's file refuses and is replaced. Opening is serialised by a lock on the
//! directory, so two daemons that start together cannot both take the path. The file is made for its owner alone
//! and then gets the group and mode of [`Access`]; the kernel checks them at connect. Dropping the
//! listener removes the file, if it is still this listener's. Control thread only.

use std::fs::{self, File};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

use rustix::fs::{FlockOperation, Mode};
use rustix::io::Errno;
use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

use super::access::Access;
use crate::failure::Failure;

/// Connections that wait to be accepted.
const BACKLOG: i32 = 64;

/// A listening control socket.
#[derive(Debug)]
pub struct Listener {
    fd: OwnedFd,
    path: PathBuf,
    /// Device and inode of the socket file, to remove no other one.
    identity: (u64, u64),
    /// Directory made for the socket, to be removed with it.
    made_dir: Option<PathBuf>,
}

impl Listener {
    /// Takes the path and listens.
    ///
    /// # Errors
    /// See [`ensure_free`]; or the file cannot be made. Nothing is left behind.
    pub fn open(path: &Path, access: &Access) -> Result<Listener, Failure> {
        let failed = |error: io::Error| Failure::environment(shown(path), format!("cannot listen: {error}"));
        let made_dir = make_dir(path).map_err(failed)?;
        let listener = Self::open_in_dir(path, made_dir.clone(), access);
        if let (Err(_), Some(dir)) = (&listener, &made_dir) {
            let _ = fs::remove_dir(dir);
        }
        listener
    }

    fn open_in_dir(path: &Path, made_dir: Option<PathBuf>, access: &Access) -> Result<Listener, Failure> {
        let failed = |error: io::Error| Failure::environment(shown(path), format!("cannot listen: {error}"));
        let address = address(path)?;
        let dir = File::open(dir_of(path)).map_err(failed)?;
        rustix::fs::flock(&dir, FlockOperation::LockExclusive).map_err(|e| failed(e.into()))?;
        ensure_free(path)?;
        if fs::symlink_metadata(path).is_ok() {
            fs::remove_file(path).map_err(failed)?;
        }
        let fd = seqpacket(SocketFlags::NONBLOCK).map_err(|e| failed(e.into()))?;
        bind_private(&fd, &address).map_err(|e| failed(e.into()))?;
        let file = fs::symlink_metadata(path).map_err(failed)?;
        let listener = Listener { fd, path: path.to_owned(), identity: (file.dev(), file.ino()), made_dir };
        rustix::net::listen(&listener.fd, BACKLOG).map_err(|e| failed(e.into()))?;
        open_to(path, access).map_err(failed)?;
        Ok(listener)
    }

    /// Next waiting connection, non-blocking.
    pub fn accept(&self) -> Option<OwnedFd> {
        rustix::net::accept_with(&self.fd, SocketFlags::CLOEXEC | SocketFlags::NONBLOCK).ok()
    }
}

impl AsFd for Listener {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.fd.as_fd()
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        let ours =
            fs::symlink_metadata(&self.path).is_ok_and(|file| (file.dev(), file.ino()) == self.identity);
        if ours {
            let _ = fs::remove_file(&self.path);
            if let Some(dir) = &self.made_dir {
                let _ = fs::remove_dir(dir);
            }
        }
    }
}

/// Checks that no live daemon has the path and that what lies there may be replaced. Changes nothing.
///
/// # Errors
/// A daemon listens there, or the file is no socket, or it is another user's, or the path is too long: exit
/// status 3.
pub fn ensure_free(path: &Path) -> Result<(), Failure> {
    let address = address(path)?;
    let Ok(file) = fs::symlink_metadata(path) else { return Ok(()) };
    if !file.file_type().is_socket() {
        return Err(Failure::environment(shown(path), "a file that is no socket is in the way")
            .hint("remove it, or set another path as `socket` in [daemon]"));
    }
    let refused = |why: String| Failure::environment(shown(path), why);
    let probe =
        seqpacket(SocketFlags::NONBLOCK).map_err(|e| refused(format!("cannot make a socket: {e}")))?;
    match rustix::net::connect(&probe, &address) {
        Ok(()) | Err(Errno::AGAIN) => {
            Err(refused("two daemons on one socket: another weir listens there".into())
                .hint("`weir status` shows it; stop it first, or give this one another `socket` in [daemon]"))
        }
        Err(Errno::CONNREFUSED) if file.uid() == rustix::process::geteuid().as_raw() => Ok(()),
        Err(Errno::CONNREFUSED) => {
            Err(refused("a dead socket of another user is in the way".into()).hint("remove it"))
        }
        Err(Errno::NOENT) => Ok(()),
        Err(error) => Err(refused(format!("cannot tell whether a daemon listens there: {error}"))),
    }
}

/// A socket of the control socket's kind.
pub(super) fn seqpacket(flags: SocketFlags) -> rustix::io::Result<OwnedFd> {
    rustix::net::socket_with(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC | flags, None)
}

/// The path as a socket address.
pub(super) fn address(path: &Path) -> Result<SocketAddrUnix, Failure> {
    SocketAddrUnix::new(path).map_err(|_| {
        Failure::environment(shown(path), "not usable as a socket path")
            .hint("a socket path is neither empty nor longer than 107 bytes")
    })
}

pub(super) fn shown(path: &Path) -> String {
    path.display().to_string()
}

/// Binds with a file that nobody else can use yet.
fn bind_private(fd: &OwnedFd, address: &SocketAddrUnix) -> rustix::io::Result<()> {
    let before = rustix::process::umask(Mode::from_raw_mode(0o177));
    let bound = rustix::net::bind(fd, address);
    rustix::process::umask(before);
    bound
}

/// Gives the file its group and mode.
fn open_to(path: &Path, access: &Access) -> io::Result<()> {
    if let Some(gid) = access.file_group() {
        rustix::fs::chown(path, None, Some(gid))?;
    }
    rustix::fs::chmod(path, access.file_mode())?;
    Ok(())
}

/// Makes the socket's directory, one level; returns it if it was made.
fn make_dir(path: &Path) -> io::Result<Option<PathBuf>> {
    let dir = dir_of(path);
    match fs::create_dir(&dir) {
        Ok(()) => Ok(Some(dir)),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(None),
        Err(error) => Err(error),
    }
}

fn dir_of(path: &Path) -> PathBuf {
    match path.parent() {
        Some(dir) if !dir.as_os_str().is_empty() => dir.to_owned(),
        _ => PathBuf::from("."),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::failure::Exit;

    #[test]
    fn a_live_socket_is_left_alone_and_a_dead_one_replaced() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        let first = Listener::open(&path, &Access::default()).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let second = Listener::open(&path, &Access::default()).unwrap_err();
        assert_eq!(second.exit, Exit::Environment);
        assert!(second.why.contains("two daemons"), "{second}");
        assert!(first.accept().is_some(), "the probe of the second daemon");

        drop(first);
        assert!(!path.exists());
        rustix::net::bind(seqpacket(SocketFlags::empty()).unwrap(), &address(&path).unwrap()).unwrap();
        assert!(path.exists(), "left behind by a daemon that was killed");
        let third = Listener::open(&path, &Access::default()).unwrap();
        rustix::net::connect(seqpacket(SocketFlags::empty()).unwrap(), &address(&path).unwrap()).unwrap();
        drop(third);
    }

    #[test]
    fn a_listener_removes_no_file_but_its_own() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("made").join("weir.sock");
        let listener = Listener::open(&path, &Access::default()).unwrap();
        fs::remove_file(&path).unwrap();
        fs::write(&path, "another's").unwrap();
        drop(listener);
        assert!(path.exists());
        fs::remove_file(&path).unwrap();
        drop(Listener::open(&path, &Access::default()).unwrap());
        assert!(path.parent().unwrap().exists(), "this listener did not make the directory");
    }

    #[test]
    fn what_is_no_socket_is_never_removed() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("weir.sock");
        fs::write(&path, "precious").unwrap();
        assert_eq!(Listener::open(&path, &Access::default()).unwrap_err().exit, Exit::Environment);
        assert_eq!(fs::read_to_string(&path).unwrap(), "precious");
    }
}

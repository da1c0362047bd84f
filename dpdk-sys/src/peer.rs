//! Groups of the process at the other end of a Unix socket.

use std::io;
use std::os::fd::{AsFd, AsRawFd};

/// Groups asked for at once; Linux allows a process 65 536 (`NGROUPS_MAX`).
const GROUPS_AT_ONCE: usize = 64;

/// Supplementary groups of the peer, as of the moment it connected. Slow path, any thread.
///
/// # Errors
/// The descriptor is no connected Unix socket.
///
/// Source: socket(7), `SO_PEERGROUPS`.
pub fn peer_groups(socket: impl AsFd) -> io::Result<Vec<u32>> {
    let fd = socket.as_fd().as_raw_fd();
    let mut groups = vec![0_u32; GROUPS_AT_ONCE];
    loop {
        let mut bytes = size_of_val(&groups[..]) as libc::socklen_t;
        // SAFETY: no DPDK here. The kernel writes at most `bytes` bytes, which is the size of `groups`; any
        // bytes are a valid u32.
        let result = unsafe {
            libc::getsockopt(
                fd,
                libc::SOL_SOCKET,
                libc::SO_PEERGROUPS,
                groups.as_mut_ptr().cast(),
                &raw mut bytes,
            )
        };
        let count = bytes as usize / size_of::<u32>();
        if result == 0 {
            groups.truncate(count);
            return Ok(groups);
        }
        let error = io::Error::last_os_error();
        if error.raw_os_error() != Some(libc::ERANGE) || count <= groups.len() {
            return Err(error);
        }
        groups.resize(count, 0);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn a_socket_pair_is_between_a_process_and_itself() {
        let (one, _other) = UnixStream::pair().unwrap();
        let status = std::fs::read_to_string("/proc/self/status").unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap();
        let own: BTreeSet<u32> = line.split_whitespace().map(|n| n.parse().unwrap()).collect();
        assert_eq!(peer_groups(&one).unwrap().into_iter().collect::<BTreeSet<_>>(), own);
        assert!(peer_groups(std::fs::File::open("/dev/null").unwrap()).is_err());
    }
}

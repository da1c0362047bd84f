//! Who may use the control socket, and for what.
//!
//! Model: the file's group and mode decide who connects; the credentials of the moment of connect decide what a
//! client may do ([`Rights`]). Names are looked up once, at the start, in `/etc/passwd` and `/etc/group`.
//! Descriptor passing lets a process hand its connection to another: accepted, as with netlink.

use std::fs;
use std::os::fd::OwnedFd;

use rustix::fs::{Gid, Mode};
use rustix::net::UCred;
use tracing::warn;

use super::handler::Peer;
use crate::ipvs::Rights;

/// Group and mode of the socket file, and whose clients may do what.
#[derive(Clone, Debug)]
pub struct Access {
    /// Group of the socket file; its users may change things. `None`: there is no such group here.
    group: Option<u32>,
    mode: u32,
    write_users: Vec<u32>,
    read_groups: Vec<u32>,
}

impl Default for Access {
    /// Root and the user this runs as, nobody else.
    fn default() -> Access {
        Access { group: None, mode: 0o600, write_users: vec![own_user()], read_groups: Vec::new() }
    }
}

impl Access {
    /// As configured. A name that this machine does not have is logged and counts for nobody.
    pub fn new(settings: &config::Daemon) -> Access {
        let all = |names: &[String], file: &str, kind: &str| {
            let known = |name: &String| {
                let number = number_of(name, file);
                if number.is_none() {
                    warn!(target: "weir::api", name, "no such {kind} on this machine: ignored");
                }
                number
            };
            names.iter().filter_map(known).collect::<Vec<_>>()
        };
        let mut write_users = all(&settings.write_users, "/etc/passwd", "user");
        write_users.push(own_user());
        Access {
            group: number_of(&settings.socket_group, "/etc/group"),
            mode: u32::from_str_radix(&settings.socket_mode, 8)
                .expect("the row of the key admits only modes"),
            write_users,
            read_groups: all(&settings.read_groups, "/etc/group", "group"),
        }
    }

    /// Who is at the other end of an accepted connection; `None` when that cannot be told.
    pub fn peer(&self, fd: &OwnedFd) -> Option<Peer> {
        let credentials = rustix::net::sockopt::socket_peercred(fd).ok()?;
        let groups = dpdk_sys::peer_groups(fd).ok()?;
        let rights = self.rights(&credentials, &groups);
        Some(Peer { uid: credentials.uid.as_raw(), pid: credentials.pid.as_raw_pid(), rights })
    }

    /// What a client with these credentials and supplementary groups may do.
    pub fn rights(&self, credentials: &UCred, groups: &[u32]) -> Rights {
        let uid = credentials.uid.as_raw();
        let is_in = |group: u32| group == credentials.gid.as_raw() || groups.contains(&group);
        if uid == 0 || self.write_users.contains(&uid) || self.group.is_some_and(is_in) {
            Rights::Write
        } else if self.read_groups.iter().copied().any(is_in) {
            Rights::Read
        } else {
            Rights::None
        }
    }

    /// Group that the socket file is given to.
    pub fn file_group(&self) -> Option<Gid> {
        self.group.map(Gid::from_raw)
    }

    /// Mode of the socket file.
    pub fn file_mode(&self) -> Mode {
        Mode::from_raw_mode(self.mode)
    }
}

fn own_user() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// The number, or that of the name in a file of lines `name:password:number:...`.
fn number_of(name: &str, file: &str) -> Option<u32> {
    if let Ok(number) = name.parse() {
        return Some(number);
    }
    let text = fs::read_to_string(file).ok()?;
    let mut fields = text.lines().map(|line| line.split(':'));
    fields.find_map(|mut of| if of.next() == Some(name) { of.nth(1)?.parse().ok() } else { None })
}

#[cfg(test)]
mod tests {
    use rustix::process::{Pid, Uid};

    use super::*;

    #[test]
    fn rights_go_by_user_group_and_supplementary_group() {
        let access = Access { group: Some(50), mode: 0o660, write_users: vec![7], read_groups: vec![60, 61] };
        let of = |uid, gid, groups: &[u32]| {
            let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
            access.rights(&UCred { pid: Pid::INIT, uid, gid }, groups)
        };
        assert_eq!(of(0, 0, &[]), Rights::Write);
        assert_eq!(of(7, 9, &[]), Rights::Write);
        assert_eq!(of(9, 50, &[]), Rights::Write);
        assert_eq!(of(9, 9, &[3, 50]), Rights::Write);
        assert_eq!(of(9, 61, &[]), Rights::Read);
        assert_eq!(of(9, 9, &[60]), Rights::Read);
        assert_eq!(of(9, 9, &[9]), Rights::None);
        assert_eq!(of(9, 0, &[]), Rights::None, "root's group is not root");
    }

    #[test]
    fn names_are_numbers_or_looked_up() {
        assert_eq!(number_of("root", "/etc/passwd"), Some(0));
        assert_eq!(number_of("1234", "/etc/group"), Some(1234));
        assert_eq!(number_of("no such group", "/etc/group"), None);
    }
}

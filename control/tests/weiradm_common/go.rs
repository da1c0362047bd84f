//! Clients written in Go (kube-proxy, docker, telegraf), which no preloaded library reaches, as they would be on the
//! control socket: requests as the library moby/ipvs makes them, answers taken as it takes them.
//!
//! What sets it apart from libnl: addresses of 4 bytes, no family of destinations, port id 0, an empty service
//! attribute in a dump of all. It skips what has another sequence number, and never reads the acknowledgement after
//! a single answer, also when it closes.

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::path::Path;
use std::time::Duration;

use control::api::codec::Incoming;
use rustix::net::sockopt::{Timeout, set_socket_timeout};
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketAddrUnix, SocketFlags, SocketType};

const GENL_ID_CTRL: u16 = 16;
const FAMILY: u16 = 0x3ff;
const NLMSG_ERROR: u16 = 2;
const NLMSG_DONE: u16 = 3;
/// `NLM_F_REQUEST | NLM_F_ACK`, and `NLM_F_DUMP`.
const REQUEST: u16 = 5;
const DUMP: u16 = 0x300;
const MULTI: u16 = 2;

/// `IPVS_CMD_*`.
const NEW_SERVICE: u8 = 1;
const SET_SERVICE: u8 = 2;
const DEL_SERVICE: u8 = 3;
const GET_SERVICE: u8 = 4;
const NEW_DEST: u8 = 5;
const SET_DEST: u8 = 6;
const DEL_DEST: u8 = 7;
const GET_DEST: u8 = 8;
const SET_CONFIG: u8 = 12;
const GET_CONFIG: u8 = 13;
const FLUSH: u8 = 17;

const ENOENT: i32 = 2;
const ESRCH: i32 = 3;
const EEXIST: i32 = 17;

/// What kube-proxy, docker and telegraf do, against the daemon that listens there.
pub fn clients(socket: &Path, weiradm: impl Fn(&str) -> String) {
    for _ in 0..100 {
        assert_eq!(Handle::family(socket), 0x3ff);
    }
    let mut handle = Handle::open(socket);
    assert_eq!(handle.services(None), Ok(vec![]));

    let web = service(6, &[192, 0, 2, 100], 80, "rr", 0, 0);
    let sticky = service(6, &[192, 0, 2, 100], 443, "rr", 1, 10800);
    let v6 = [0x20, 1, 0xd, 0xb8, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1];
    let dns = service(17, &v6, 53, "wrr", 0, 0);
    let swarm = mark(256, "rr");
    for service in [&web, &sticky, &dns, &swarm] {
        assert_eq!(handle.services(Some(service)), Err(ESRCH));
        assert_eq!(handle.command(NEW_SERVICE, service), Ok(()));
        assert_eq!(handle.command(NEW_SERVICE, service), Err(EEXIST));
    }
    let [first, second] = [[10, 9, 0, 11], [10, 9, 0, 12]];
    let to = |service: &[u8], dest: Vec<u8>| [service, &dest].concat();
    assert_eq!(handle.command(NEW_DEST, &to(&web, dest(&first, 8080, 0, 1))), Ok(()));
    assert_eq!(handle.command(NEW_DEST, &to(&web, dest(&second, 8080, 0, 1))), Ok(()));
    assert_eq!(handle.command(NEW_DEST, &to(&web, dest(&second, 8080, 0, 1))), Err(EEXIST));
    assert_eq!(handle.command(SET_DEST, &to(&web, dest(&second, 8080, 0, 300))), Ok(()));
    assert_eq!(handle.command(NEW_DEST, &to(&dns, dest(&v6, 5353, 0, 1))), Ok(()));
    assert_eq!(handle.command(NEW_DEST, &to(&swarm, dest(&first, 0, 3, 1))), Ok(()));
    assert_eq!(handle.command(SET_SERVICE, &service(6, &[192, 0, 2, 100], 80, "wlc", 0, 0)), Ok(()));
    assert_eq!(
        weiradm("-S -n"),
        "-A -t 192.0.2.100:80 -s wlc\n\
         -a -t 192.0.2.100:80 -r 10.9.0.11:8080 -m -w 1\n\
         -a -t 192.0.2.100:80 -r 10.9.0.12:8080 -m -w 300\n\
         -A -t 192.0.2.100:443 -s rr -p 10800\n\
         -A -u [2001:db8::1]:53 -s wrr\n\
         -a -u [2001:db8::1]:53 -r [2001:db8::1]:5353 -m -w 1\n\
         -A -f 256 -s rr\n\
         -a -f 256 -r 10.9.0.11:0 -g -w 1\n"
    );

    // (number of the attribute, value): the hashed flag is what kube-proxy refuses to go on without.
    let all = handle.services(None).unwrap();
    assert_eq!(all.len(), 4);
    let one = handle.services(Some(&sticky)).unwrap().remove(0);
    assert!(all.contains(&one));
    let mut address = vec![192, 0, 2, 100];
    address.resize(16, 0);
    let expected: [(u16, Vec<u8>); 8] = [
        (1, 2_u16.to_ne_bytes().into()),
        (2, 6_u16.to_ne_bytes().into()),
        (3, address),
        (4, 443_u16.to_be_bytes().into()),
        (6, b"rr\0".into()),
        (7, [3_u32.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat()),
        (8, 10800_u32.to_ne_bytes().into()),
        (9, u32::MAX.to_ne_bytes().into()),
    ];
    for (number, value) in expected {
        assert_eq!(one.get(&number), Some(&value), "attribute {number}");
    }
    assert!(one.contains_key(&10), "statistics of 32 bits");
    let dests = handle.dests(&web).unwrap();
    let weights = dests.iter().map(|dest| u16::from_ne_bytes([dest[&4][0], dest[&4][1]])).collect::<Vec<_>>();
    assert_eq!(weights, [300, 1], "the newest first");
    assert!(dests.iter().all(|dest| dest[&11] == 2_u16.to_ne_bytes() && dest[&3] == [0; 4]));
    assert_eq!(handle.dests(&sticky), Ok(vec![]));

    let seconds = |number: u16, seconds: u32| attribute(number, &seconds.to_ne_bytes());
    assert_eq!(
        handle.command(SET_CONFIG, &[seconds(4, 800), seconds(5, 0), seconds(6, 60)].concat()),
        Ok(())
    );
    assert_eq!(handle.timeouts(), [800, 120, 60]);

    assert_eq!(handle.command(DEL_DEST, &to(&web, dest(&first, 8080, 0, 1))), Ok(()));
    assert_eq!(handle.command(DEL_DEST, &to(&web, dest(&first, 8080, 0, 1))), Err(ENOENT));
    assert_eq!(handle.command(DEL_SERVICE, &web), Ok(()));
    assert_eq!(handle.command(DEL_SERVICE, &web), Err(ESRCH));
    assert_eq!(handle.command(FLUSH, &[]), Ok(()));
    assert_eq!(handle.services(None), Ok(vec![]));
}

/// Attributes of an answer by their numbers, as its reader looks them up.
type Attributes = HashMap<u16, Vec<u8>>;

/// A handle of the library.
struct Handle {
    socket: OwnedFd,
    sequence: u32,
}

impl Handle {
    fn open(path: &Path) -> Handle {
        let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
        let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None).unwrap();
        rustix::net::connect(&socket, &SocketAddrUnix::new(path).unwrap()).unwrap();
        set_socket_timeout(&socket, Timeout::Recv, Some(Duration::from_secs(3))).unwrap();
        Handle { socket, sequence: 0 }
    }

    /// Number of the family, asked on a handle of its own that is closed with the acknowledgement unread.
    fn family(path: &Path) -> u16 {
        let mut handle = Handle::open(path);
        let answer = handle.execute(GENL_ID_CTRL, REQUEST, 3, &attribute(2, b"IPVS\0")).unwrap();
        u16::from_ne_bytes(*attributes(&answer[0][4..])[&1].first_chunk().unwrap())
    }

    /// Command without an answer of its own.
    ///
    /// # Errors
    /// The error number.
    fn command(&mut self, command: u8, content: &[u8]) -> Result<(), i32> {
        let answers = self.execute(FAMILY, REQUEST, command, content)?;
        assert!(answers.is_empty(), "{answers:?}");
        Ok(())
    }

    /// Services; all of them, or the one that is asked for.
    ///
    /// # Errors
    /// The error number.
    fn services(&mut self, one: Option<&[u8]>) -> Result<Vec<Attributes>, i32> {
        match one {
            Some(service) => self.nests(REQUEST, GET_SERVICE, service),
            None => self.nests(REQUEST | DUMP, GET_SERVICE, &attribute(1, &[])),
        }
    }

    /// Destinations of a service.
    ///
    /// # Errors
    /// The error number.
    fn dests(&mut self, service: &[u8]) -> Result<Vec<Attributes>, i32> {
        self.nests(REQUEST | DUMP, GET_DEST, service)
    }

    /// The three timeouts, seconds.
    fn timeouts(&mut self) -> [u32; 3] {
        let answer = self.execute(FAMILY, REQUEST, GET_CONFIG, &[]).unwrap();
        let found = attributes(&answer[0][4..]);
        [4, 5, 6].map(|number| u32::from_ne_bytes(*found[&number].first_chunk().unwrap()))
    }

    /// What is in the first attribute of each answer; it looks at no other.
    fn nests(&mut self, flags: u16, command: u8, content: &[u8]) -> Result<Vec<Attributes>, i32> {
        let answers = self.execute(FAMILY, flags, command, content)?;
        let first = |answer: &Vec<u8>| {
            let length = usize::from(u16::from_ne_bytes([answer[4], answer[5]]));
            attributes(&answer[8..4 + length])
        };
        Ok(answers.iter().map(first).collect())
    }

    fn execute(&mut self, kind: u16, flags: u16, command: u8, content: &[u8]) -> Result<Vec<Vec<u8>>, i32> {
        self.sequence += 1;
        let mut request = (20 + content.len() as u32).to_ne_bytes().to_vec();
        request.extend([kind.to_ne_bytes(), flags.to_ne_bytes()].concat());
        request.extend(self.sequence.to_ne_bytes());
        request.extend([0, 0, 0, 0, command, 1, 0, 0]);
        request.extend(content);
        rustix::net::send(&self.socket, &request, SendFlags::NOSIGNAL).unwrap();
        let mut answers = Vec::new();
        loop {
            let mut buffer = vec![0; 64 * 1024];
            let (_, length) = rustix::net::recv(&self.socket, &mut buffer[..], RecvFlags::empty()).unwrap();
            assert!(length > 0, "the daemon closed");
            for message in Incoming::split(&buffer[..length]) {
                let word = |at: usize| u32::from_ne_bytes(*message.raw[at..].first_chunk().unwrap());
                if word(8) != self.sequence {
                    continue;
                }
                assert_eq!(word(12), 0, "the port id is the request's");
                match message.header.message_type {
                    NLMSG_DONE => return Ok(answers),
                    NLMSG_ERROR if word(16) == 0 => return Ok(answers),
                    NLMSG_ERROR => return Err(word(16).cast_signed().wrapping_neg()),
                    _ => answers.push(message.raw[16..].to_vec()),
                }
                if message.header.flags & MULTI == 0 {
                    return Ok(answers);
                }
            }
        }
    }
}

/// A service as kube-proxy describes it, within its attribute.
fn service(protocol: u16, address: &[u8], port: u16, scheduler: &str, flags: u32, timeout: u32) -> Vec<u8> {
    let (family, netmask) = if address.len() == 4 { (2_u16, u32::MAX) } else { (10, 128) };
    let who = [
        attribute(1, &family.to_ne_bytes()),
        attribute(2, &protocol.to_ne_bytes()),
        attribute(3, address),
        attribute(4, &port.to_be_bytes()),
    ];
    attribute(1, &[who.concat(), how(scheduler, flags, timeout, netmask)].concat())
}

/// A service by mark as docker describes it, within its attribute.
fn mark(mark: u32, scheduler: &str) -> Vec<u8> {
    let who = [attribute(1, &2_u16.to_ne_bytes()), attribute(5, &mark.to_ne_bytes())];
    attribute(1, &[who.concat(), how(scheduler, 0, 0, 0)].concat())
}

fn how(scheduler: &str, flags: u32, timeout: u32, netmask: u32) -> Vec<u8> {
    let flags = [flags.to_ne_bytes(), u32::MAX.to_ne_bytes()].concat();
    [
        attribute(6, format!("{scheduler}\0").as_bytes()),
        attribute(7, &flags),
        attribute(8, &timeout.to_ne_bytes()),
        attribute(9, &netmask.to_ne_bytes()),
    ]
    .concat()
}

/// A destination, within its attribute.
fn dest(address: &[u8], port: u16, method: u32, weight: u32) -> Vec<u8> {
    let parts = [
        attribute(1, address),
        attribute(2, &port.to_be_bytes()),
        attribute(3, &method.to_ne_bytes()),
        attribute(4, &weight.to_ne_bytes()),
        attribute(5, &[0; 4]),
        attribute(6, &[0; 4]),
    ];
    attribute(2, &parts.concat())
}

/// One attribute with its value, padded.
fn attribute(number: u16, value: &[u8]) -> Vec<u8> {
    let mut bytes = [(4 + value.len() as u16).to_ne_bytes(), number.to_ne_bytes()].concat();
    bytes.extend(value);
    bytes.resize(bytes.len().next_multiple_of(4), 0);
    bytes
}

fn attributes(mut bytes: &[u8]) -> Attributes {
    let mut found = HashMap::new();
    while bytes.len() >= 4 {
        let [length, number] = [0, 2].map(|at| u16::from_ne_bytes([bytes[at], bytes[at + 1]]));
        found.insert(number, bytes[4..usize::from(length)].to_vec());
        bytes = bytes.get(usize::from(length).next_multiple_of(4)..).unwrap_or_default();
    }
    found
}

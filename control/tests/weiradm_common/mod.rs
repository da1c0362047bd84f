//! A world for `weiradm` without a daemon: a server on a store in memory, in the same process.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::ops::ControlFlow;
use std::rc::Rc;

use control::api::codec::Incoming;
use control::failure::Failure;
use control::ipvs::{MemoryStore, Rights, Server};
use control::weiradm::{Console, Entry, Names, Transport, run};
use rustix::io::Errno;

/// Everything behind the transport.
pub struct World {
    pub server: Server<MemoryStore>,
    pub rights: Rights,
    pub connections: Vec<Entry>,
    /// Commands that are refused whatever they say, by number.
    pub failing: HashMap<u8, Errno>,
    /// Requests after the lookup and GET_INFO: flags, and hexadecimal text from the generic header on.
    pub requests: Vec<String>,
}

/// What a run left: standard output, standard error, exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub exit: u8,
}

impl World {
    pub fn new(interfaces: &[(&str, u32)]) -> Rc<RefCell<World>> {
        let mut store = MemoryStore::default();
        store.interfaces.extend(interfaces.iter().map(|(name, mtu)| ((*name).to_owned(), *mtu)));
        Rc::new(RefCell::new(World {
            server: Server::new(store),
            rights: Rights::Write,
            connections: Vec::new(),
            failing: HashMap::new(),
            requests: Vec::new(),
        }))
    }
}

/// Runs `ipvsadm` with these words (the program's name left out) and this input.
pub fn ipvsadm(world: &Rc<RefCell<World>>, arguments: &[String], input: &str) -> Outcome {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut input = input.as_bytes();
    let mut console = Console { input: &mut input, output: &mut stdout, errors: &mut stderr };
    let transport = InProcess { world: world.clone(), waiting: VecDeque::new() };
    let exit = run("ipvsadm", arguments, &KnownNames, &mut console, || Ok(transport)).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { stdout: text(stdout), stderr: text(stderr), exit }
}

pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

struct InProcess {
    world: Rc<RefCell<World>>,
    waiting: VecDeque<Vec<u8>>,
}

/// Type of a lookup, and command of a request for version and size.
const GENL_ID_CTRL: u16 = 16;
const GET_INFO: u8 = 15;

impl Transport for InProcess {
    fn send(&mut self, datagram: &[u8]) -> Result<(), Errno> {
        let world = &mut *self.world.borrow_mut();
        for message in Incoming::split(datagram) {
            let (kind, command) = (message.header.message_type, message.raw[16]);
            if kind != GENL_ID_CTRL && command != GET_INFO {
                let hex = message.raw[16..].iter().fold(String::new(), |mut hex, byte| {
                    let _ = write!(hex, "{byte:02x}");
                    hex
                });
                world.requests.push(format!("flags={:#x} {hex}", message.header.flags));
            }
            match world.failing.get(&command).filter(|_| kind != GENL_ID_CTRL) {
                Some(errno) => self.waiting.push_back(refusal(&message, *errno)),
                None => self.waiting.extend(world.server.answer(&message, world.rights)),
            }
        }
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>, Errno> {
        self.waiting.pop_front().ok_or(Errno::CONNRESET)
    }

    fn connections(&mut self, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Failure> {
        let entries = self.world.borrow().connections.clone();
        let _ = entries.into_iter().try_for_each(each);
        Ok(())
    }
}

/// An error message that refuses a request.
fn refusal(request: &Incoming, errno: Errno) -> Vec<u8> {
    const NLMSG_ERROR: u16 = 2;
    let mut bytes = (20 + request.raw.len() as u32).to_ne_bytes().to_vec();
    bytes.extend(NLMSG_ERROR.to_ne_bytes());
    bytes.extend([0; 2]);
    bytes.extend(request.header.sequence_number.to_ne_bytes());
    bytes.extend(request.header.port_number.to_ne_bytes());
    bytes.extend((-errno.raw_os_error()).to_ne_bytes());
    bytes.extend(&request.raw);
    bytes
}

/// The names that the recordings depend on.
struct KnownNames;

const SERVICES: [(&str, u16, u16); 5] =
    [("http", 80, 6), ("https", 443, 6), ("tproxy", 8081, 6), ("domain", 53, 6), ("domain", 53, 17)];

impl Names for KnownNames {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        (host == "localhost").then_some(Ipv4Addr::LOCALHOST)
    }

    fn host_of(&self, address: IpAddr) -> Option<String> {
        (address == Ipv4Addr::LOCALHOST).then(|| "localhost".to_owned())
    }

    fn port_of(&self, service: &str, protocol: u16) -> Option<u16> {
        SERVICES.iter().find(|(name, _, of)| (*name, *of) == (service, protocol)).map(|(_, port, _)| *port)
    }

    fn service_of(&self, port: u16, protocol: u16) -> Option<String> {
        let found = SERVICES.iter().find(|(_, number, of)| (*number, *of) == (port, protocol));
        found.map(|(name, ..)| (*name).to_owned())
    }
}

/// A line of the kernel's connection table.
#[allow(dead_code)] // Each test program uses its part of this module.
pub fn connection(line: &str) -> Entry {
    let words: Vec<&str> = line.split_whitespace().collect();
    let endpoint = |at: usize| {
        let port = u16::from_str_radix(words[at + 1], 16).unwrap();
        let address: IpAddr = match u32::from_str_radix(words[at], 16) {
            Ok(bits) => Ipv4Addr::from_bits(bits).into(),
            Err(_) => words[at].parse::<std::net::Ipv6Addr>().unwrap().into(),
        };
        SocketAddr::new(address, port)
    };
    Entry {
        protocol: words[0].to_owned(),
        client: endpoint(1),
        service_address: endpoint(3),
        dest: endpoint(5),
        state: words[7].to_owned(),
        expires_seconds: words[8].parse().unwrap(),
        engine: words.get(9).map(|name| ((*name).to_owned(), words[10].to_owned())),
    }
}

/// Where what we print differs on purpose from a recording: its name, and the parts that replace those recorded.
pub struct Differences(Vec<Difference>);

struct Difference {
    name: String,
    sections: HashMap<String, String>,
    used: bool,
}

impl Differences {
    /// The entries of the list whose names begin so.
    pub fn of(prefix: &str) -> Differences {
        let text = include_str!("../data/differences.txt");
        let entries = text.split("\n== ").skip(1).filter_map(|entry| {
            let (head, body) = entry.split_once('\n')?;
            let name = head.strip_prefix(prefix)?.to_owned();
            assert!(body.starts_with("reason: "), "{head}: a difference has a reason");
            Some(Difference { name, sections: sections(body), used: false })
        });
        Differences(entries.collect())
    }

    /// Replaces what differs; panics when the recorded part is the same.
    pub fn apply(&mut self, name: &str, section: &str, recorded: &mut String) {
        for entry in self.0.iter_mut().filter(|entry| entry.name == name) {
            if let Some(ours) = entry.sections.get(section) {
                assert_ne!(ours, recorded, "{name}: {section} does not differ");
                recorded.clone_from(ours);
                entry.used = true;
            }
        }
    }

    /// Panics when an entry was not used.
    pub fn all_used(&self) {
        for entry in &self.0 {
            assert!(entry.used, "{}: in the list of differences, but not met", entry.name);
        }
    }
}

/// Parts of a text that begin with `--- NAME`; what stands behind the first word of a head is left out.
pub fn sections(text: &str) -> HashMap<String, String> {
    let mut sections = HashMap::new();
    let mut current = None;
    for line in text.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("--- ") {
            let name = head.trim_end().split(" (").next().unwrap_or_default().to_owned();
            sections.insert(name.clone(), String::new());
            current = Some(name);
        } else if let Some(name) = &current {
            sections.get_mut(name).unwrap().push_str(line);
        }
    }
    sections
}

//! A world for `weiradm` without a daemon: a server on a store in memory, in the same process.

use std::cell::RefCell;
use std::collections::{HashMap, VecDeque};
use std::fmt::Write;
use std::io::Read;
use std::ops::ControlFlow;
use std::rc::Rc;

use control::api::codec::{Incoming, Transaction};
use control::api::rows::TransactionRow;
use control::failure::Failure;
use control::ipvs::{Answer, MemoryStore, Rights, Server};
use control::weiradm::{Entry, Transport};
use rustix::io::Errno;

pub mod program;

pub use program::{Outcome, ipvsadm_over, words};

/// Everything behind the transport.
pub struct World {
    pub server: Server<MemoryStore>,
    pub rights: Rights,
    pub connections: Vec<Entry>,
    /// Commands that are refused whatever they say, by number.
    pub failing: HashMap<u8, Errno>,
    /// Requests after the lookup and GET_INFO: flags, and hexadecimal text from the generic header on.
    pub requests: Vec<String>,
    /// Datagrams that the program has not taken yet.
    pub unread: usize,
}

impl World {
    pub fn new(interfaces: &[(&str, u32)]) -> Rc<RefCell<World>> {
        Rc::new(RefCell::new(World::with(interfaces)))
    }

    pub fn with(interfaces: &[(&str, u32)]) -> World {
        let mut store = MemoryStore::default();
        store.interfaces.extend(interfaces.iter().map(|(name, mtu)| ((*name).to_owned(), *mtu)));
        World {
            server: Server::new(store),
            rights: Rights::Write,
            connections: Vec::new(),
            failing: HashMap::new(),
            requests: Vec::new(),
            unread: 0,
        }
    }

    /// Notes a request, but for the lookup and GET_INFO.
    pub fn note(&mut self, message: &Incoming) {
        if message.header.message_type != GENL_ID_CTRL && message.raw[16] != GET_INFO {
            let hex = message.raw[16..].iter().fold(String::new(), |mut hex, byte| {
                let _ = write!(hex, "{byte:02x}");
                hex
            });
            self.requests.push(format!("flags={:#x} {hex}", message.header.flags));
        }
    }

    /// Why the request is refused whatever it says, if it is.
    pub fn refusal_of(&self, message: &Incoming) -> Option<Errno> {
        self.failing.get(&message.raw[16]).copied().filter(|_| message.header.message_type != GENL_ID_CTRL)
    }
}

/// Runs `ipvsadm` with these words (the program's name left out) and this input.
pub fn ipvsadm(world: &Rc<RefCell<World>>, arguments: &[String], input: &str) -> Outcome {
    ipvsadm_reading(world, arguments, &mut input.as_bytes())
}

/// The same, reading its input from anywhere.
pub fn ipvsadm_reading(world: &Rc<RefCell<World>>, arguments: &[String], input: &mut dyn Read) -> Outcome {
    ipvsadm_over(|| Ok(InProcess { world: world.clone(), waiting: VecDeque::new() }), arguments, input)
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
            world.note(&message);
            match world.refusal_of(&message) {
                Some(errno) => self.waiting.extend(Answer::refused(&message, errno)),
                None => self.waiting.extend(world.server.answer(&message, world.rights)),
            }
        }
        world.unread = self.waiting.len();
        Ok(())
    }

    fn receive(&mut self) -> Result<Vec<u8>, Errno> {
        let datagram = self.waiting.pop_front().ok_or(Errno::CONNRESET)?;
        self.world.borrow_mut().unread = self.waiting.len();
        Ok(datagram)
    }

    fn connections(&mut self, each: &mut dyn FnMut(Entry) -> ControlFlow<()>) -> Result<(), Failure> {
        let entries = self.world.borrow().connections.clone();
        let _ = entries.into_iter().try_for_each(each);
        Ok(())
    }

    fn transact(&mut self, _transaction: Transaction) -> Result<Vec<TransactionRow>, Failure> {
        Err(Failure::run("transaction", "this server has the kernel's family only"))
    }
}

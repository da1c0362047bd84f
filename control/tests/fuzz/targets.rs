//! What is fuzzed, and what has to hold whatever the input.

use std::collections::BTreeSet;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::os::fd::OwnedFd;
use std::time::Instant;

use control::api::codec::{self, Incoming, Refusal, Request};
use control::api::handler::{Handler, Outcome, Peer};
use control::api::session::Session;
use control::ipvs::reply::{Object, Reply};
use control::ipvs::request::{Call, Command};
use control::ipvs::{self, Family, MemoryStore, Rights, Server};
use rustix::event::PollFlags;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType};

use super::weiradm_common::{World, ipvsadm, words};
use super::wire;

/// Something that takes any input.
pub trait Target {
    /// Takes it; panics if something does not hold. What it came to, as a number: an input that came to something
    /// new is worth mutating.
    fn run(&mut self, input: &[u8]) -> u64;
}

/// A server is given up after so many inputs: what went before may matter, but not for ever.
const LIFE: u32 = 200;
/// Services that the store takes; what is beyond is ENOMEM.
const SERVICES_MAX: usize = 12;

/// Datagrams on a session: framing, both families, every command on a table that goes on from input to input.
pub struct Requests {
    world: FuzzHandler,
    sessions: Vec<(Session, OwnedFd)>,
    age: u32,
    state: u64,
    /// Error numbers of refusals.
    pub errnos: BTreeSet<i32>,
}

struct FuzzHandler(Server<MemoryStore>);

impl Handler for FuzzHandler {
    fn answer(&mut self, request: Request, peer: Peer) -> Result<Outcome, Refusal> {
        let refused = |errno: rustix::io::Errno| Refusal::new(errno, "refused");
        match request {
            Request::OptionSet { number, data } => {
                self.0.set_option(number, &data, peer.rights).map(|()| Outcome::Done).map_err(refused)
            }
            Request::OptionGet { number, length, data } => {
                let answer = self.0.option(number, length as usize, &data, peer.rights);
                answer.map(Outcome::Text).map_err(refused)
            }
            other => Ok(Outcome::Rows(Box::new(vec![format!("{other:?}").into_bytes()].into_iter()))),
        }
    }

    fn write_knob(&mut self, _: &str, _: &str, _: Peer) {}

    fn ipvs(&mut self, messages: &[Incoming], peer: Peer) -> Vec<ipvs::Answer> {
        messages.iter().map(|message| self.0.answer(message, peer.rights)).collect()
    }
}

impl Requests {
    pub fn new() -> Requests {
        let mut requests = Requests {
            world: FuzzHandler(Server::new(MemoryStore::default())),
            sessions: Vec::new(),
            age: LIFE,
            state: 0,
            errnos: BTreeSet::new(),
        };
        requests.renew();
        requests
    }

    fn renew(&mut self) {
        if self.age < LIFE {
            self.age += 1;
            return;
        }
        let mut store = MemoryStore::default();
        store.interfaces.insert("eth0".to_owned(), 1500);
        store.services_max = SERVICES_MAX;
        self.world = FuzzHandler(Server::new(store));
        self.sessions = [Rights::Write, Rights::Read, Rights::None].map(session).into();
        self.age = 0;
        self.state = self.world.state();
    }
}

impl FuzzHandler {
    /// Everything that can be listed.
    fn state(&mut self) -> u64 {
        let mut all = Vec::new();
        let mut ask = |call: Call| self.0.answer_datagram(&call.encode(0), Rights::Write).concat();
        let services = ask(Call::dump(Command::GetService));
        all.extend(ask(Call::dump(Command::GetDaemon)));
        all.extend(ask(Call::plain(Command::GetConfig)));
        for (_, reply) in Reply::split(&services) {
            if let Reply::Object(object) = reply {
                let service = object.service().expect("our own answer");
                all.extend(ask(Call::dests(&service.key)));
            }
        }
        all.extend(services);
        hash(&all)
    }
}

fn session(rights: Rights) -> (Session, OwnedFd) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let pair = rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None);
    let (theirs, ours) = pair.unwrap();
    (Session::new(ours, Peer { uid: 0, pid: 1, rights }, Instant::now()), theirs)
}

impl Target for Requests {
    fn run(&mut self, input: &[u8]) -> u64 {
        self.renew();
        if input.is_empty() {
            return 0; // An empty datagram is the end of a connection.
        }
        // One input in eight goes without the right to change, one of those without any.
        let who = match hash(input) % 16 {
            0 => 1,
            1 => 2,
            _ => 0,
        };
        let (session, client) = &mut self.sessions[who];
        rustix::net::send(&*client, input, SendFlags::empty()).unwrap();
        let mut answers = Vec::new();
        let mut over = false;
        // A turn takes a bounded number of steps; what is left over after many is a fault.
        for _ in 0..100 {
            over |= session.turn(PollFlags::IN, Instant::now(), true, &mut self.world).is_err();
            drop(session.take_opened());
            let mut buffer = [0; 64 * 1024];
            while let Ok((length @ 1.., _)) = rustix::net::recv(&*client, &mut buffer, RecvFlags::empty()) {
                answers.extend(Incoming::split(&buffer[..length]));
                assert_eq!(
                    Incoming::split(&buffer[..length])
                        .iter()
                        .map(|m| m.raw.len().next_multiple_of(4))
                        .sum::<usize>(),
                    length.next_multiple_of(4),
                    "an answer that is not messages all through"
                );
            }
            if over || session.interest() == PollFlags::IN {
                break;
            }
        }
        if over {
            self.sessions[who] = self::session([Rights::Write, Rights::Read, Rights::None][who]);
        }
        let asked = Incoming::split(input);
        let mut came_to = vec![who as i32];
        for answer in &answers {
            assert!(
                over || asked.iter().any(|of| of.header.sequence_number == answer.header.sequence_number)
            );
            came_to.push(match &answer.raw {
                raw if answer.header.message_type == 2 => {
                    i32::from_ne_bytes(*raw[16..].first_chunk().unwrap())
                }
                raw => i32::from(answer.header.message_type) << 8 | i32::from(*raw.get(16).unwrap_or(&0)),
            });
        }
        let refused = came_to[1..].iter().filter(|code| **code < 0).count();
        self.errnos.extend(came_to[1..].iter().filter(|code| **code < 0).map(|code| -code));
        let state = self.world.state();
        if who != 0 || (refused == asked.len() && !over) {
            assert_eq!(state, self.state, "what was refused has changed something");
        }
        self.state = state;
        came_to.truncate(6);
        hash(&(came_to, asked.first().map(|m| (m.header.message_type, m.raw.get(16).copied()))))
    }
}

/// Datagrams of a server, as our own clients and the preloaded library read them.
pub struct Replies;

impl Target for Replies {
    fn run(&mut self, input: &[u8]) -> u64 {
        let read = |object: &Object| {
            let service = object.service();
            (
                object.family_id().is_some(),
                service.is_some(),
                [Family::V4, Family::V6].map(|family| object.dest(family).is_some()),
                object.daemon().is_some(),
                object.timeouts().is_some(),
                object.info().is_some(),
            )
        };
        let mut seen = Vec::new();
        for (_, reply) in Reply::split(input) {
            seen.push(match &reply {
                Reply::Object(object) => hash(&read(object)),
                other => hash(&format!("{other:?}").len()),
            });
        }
        seen.truncate(3);
        let ours =
            codec::Reply::split(input).map(|replies| replies.len().min(4)).map_err(|error| error.to_string());
        let mut stamped = input.to_vec();
        wire::stamp(&mut stamped, 7);
        assert_eq!(stamped.len(), input.len());
        let concerns = wire::concerns_ipvs(input);
        let messages: Vec<_> = wire::messages(input).map(|(_, header, _)| header).collect();
        let errno = messages.first().map(|first| {
            assert!(first.plausible(input.len()) || usize::from(first.kind) > 0x3ff);
            wire::refusal(first, 7, 16).len()
        });
        let own = wire::Header::request(input.len(), wire::FAMILY_WEIR, 7);
        assert_eq!(wire::Header::read(&own.bytes()), own);
        let result = wire::result(input).map(i32::signum);
        let ends = messages.first().is_some_and(|first| messages.iter().any(|of| of.ends(first)));
        hash(&(seen, ours, concerns, ends, errno, result, messages.len().min(4)))
    }
}

/// Lines for `weiradm -R`, or the words of one command line.
pub struct Lines;

impl Target for Lines {
    fn run(&mut self, input: &[u8]) -> u64 {
        let text = String::from_utf8_lossy(input);
        let world = World::new(&[("eth0", 1500)]);
        let (first, rest) = text.split_once('\n').unwrap_or((&text, ""));
        let by_line = ipvsadm(&world, &words("-R"), &text);
        let by_words = ipvsadm(&world, &words(first), rest);
        for outcome in [&by_line, &by_words] {
            assert!([0, 1, 2, 255].contains(&outcome.exit), "{outcome:?}");
            assert!(outcome.exit == 0 || !outcome.stderr.is_empty(), "no word of what is wrong: {outcome:?}");
        }
        // What is saved restores to the same, whatever it was.
        let saved = ipvsadm(&world, &words("-S -n --save-all"), "").stdout;
        let copy = World::new(&[("eth0", 1500)]);
        let restored = ipvsadm(&copy, &words("-R"), &saved);
        assert_eq!((restored.exit, restored.stderr.as_str()), (0, ""), "{saved}");
        let told = |text: &str| text.lines().next().unwrap_or_default().len();
        hash(&(by_line.exit, told(&by_line.stderr), by_words.exit, told(&by_words.stderr), saved.len() / 16))
    }
}

/// Configuration files.
pub struct Files;

impl Target for Files {
    fn run(&mut self, input: &[u8]) -> u64 {
        let text = String::from_utf8_lossy(input);
        match config::parse(&text, "weir.toml") {
            Ok(valid) => {
                let written = valid.to_toml();
                let again = config::parse(&written, "written").unwrap_or_else(|e| panic!("{written}\n{e}"));
                assert_eq!(again.to_toml(), written);
                hash(&written.len())
            }
            Err(error) => {
                let told = error.to_string();
                assert!(!told.trim().is_empty());
                // Which problems: the numbers and names in them are the input's.
                hash(&told.chars().filter(|c| c.is_ascii_lowercase()).take(60).collect::<String>())
            }
        }
    }
}

/// A number for a value, the same in every run.
pub fn hash<T: Hash + ?Sized>(value: &T) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(value)
}

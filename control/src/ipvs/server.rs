//! Executing requests: the kernel's order of checks and its error numbers, on any store.
//!
//! Model: [`Server::answer`] takes one message and gives an [`Answer`], an iterator of datagrams. A single
//! reply and its acknowledgement are two datagrams, and so are the last objects of a dump and its end: libnl
//! throws away what follows in a datagram when its caller has what it wants. A dump is taken from the store
//! at once and encoded as it is pulled.

use std::collections::VecDeque;
use std::fmt;

use netlink_packet_core::NLM_F_DUMP;
use netlink_packet_generic::GenlHeader;
use netlink_packet_generic::constants::GENL_HDRLEN;
use rustix::io::Errno;

use super::attr::Attr;
use super::daemon::DaemonRequest;
use super::message::{self, Body, FAMILY_ID};
use super::request::{self, Command, Request, SET_INFO, number};
use super::store::Store;
use super::types::{
    DaemonState, DestKey, DestOptions, Family, Method, Service, ServiceEdit, ServiceKey, Timeouts,
    tunnel_type,
};
use super::{daemon, dest, lookup, service};
use crate::api::codec::{self, Incoming};

/// Objects of a dump are packed into datagrams up to this size: netlink readers use buffers of 8 KiB.
const DATAGRAM_BYTES: usize = 8 * 1024;
/// Bytes of a netlink header.
const HEADER_BYTES: usize = 16;
/// Longest timeout, seconds: what a signed count of the kernel's 250 ticks a second holds.
const TIMEOUT_MAX: u32 = i32::MAX as u32 / 250;

/// What a client may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rights {
    /// Look the family up, nothing else.
    None,
    /// Read.
    Read,
    /// Everything.
    Write,
}

impl Rights {
    /// The word for them.
    pub fn name(self) -> &'static str {
        match self {
            Rights::None => "none",
            Rights::Read => "read",
            Rights::Write => "write",
        }
    }
}

/// Whether the message is a request that may change something.
pub fn is_change(message: &Incoming) -> bool {
    command(message).is_some_and(|command| !command.is_reading())
}

/// Whether the message asks for all services.
pub fn lists_services(message: &Incoming) -> bool {
    message.header.flags & NLM_F_DUMP == NLM_F_DUMP && command(message) == Some(Command::GetService)
}

/// Whether the message starts a sync daemon.
pub fn starts_daemon(message: &Incoming) -> bool {
    command(message) == Some(Command::NewDaemon)
}

/// Command of a request of the family.
fn command(message: &Incoming) -> Option<Command> {
    if !message.is_request() || message.header.message_type != FAMILY_ID {
        return None;
    }
    Command::from_number(GenlHeader::parse(&message.raw[HEADER_BYTES..]).ok()?.cmd)
}

/// The family, served from a store.
#[derive(Debug)]
pub struct Server<S> {
    pub(super) store: S,
}

impl<S: Store> Server<S> {
    /// Server of this store.
    pub fn new(store: S) -> Server<S> {
        Server { store }
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.store
    }

    /// The store, to change it from elsewhere.
    pub fn store_mut(&mut self) -> &mut S {
        &mut self.store
    }

    /// The store back.
    pub fn into_store(self) -> S {
        self.store
    }

    /// Answers every message of a datagram, in order.
    pub fn answer_datagram(&mut self, datagram: &[u8], rights: Rights) -> Vec<Vec<u8>> {
        Incoming::split(datagram).iter().flat_map(|message| self.answer(message, rights)).collect()
    }

    /// Answers one message. Never blocks.
    pub fn answer(&mut self, message: &Incoming, rights: Rights) -> Answer {
        if !message.is_request() {
            return Answer::accepted(message);
        }
        match self.execute(message, rights) {
            Ok(answer) => answer,
            Err(errno) => Answer::refused(message, errno),
        }
    }

    /// Executes one message that must be a command of the family that changes something.
    ///
    /// # Errors
    /// The error number it would be answered with; EINVAL for any other message.
    pub fn try_change(&mut self, message: &Incoming) -> Result<(), Errno> {
        if !is_change(message) {
            return Err(Errno::INVAL);
        }
        self.execute(message, Rights::Write).map(drop)
    }

    fn execute(&mut self, message: &Incoming, rights: Rights) -> Result<Answer, Errno> {
        let family = message.header.message_type;
        if family != FAMILY_ID && family != lookup::CONTROL_ID {
            return Err(Errno::NOENT);
        }
        let content = &message.raw[HEADER_BYTES..];
        let command = GenlHeader::parse(content).map_err(|_| Errno::INVAL)?.cmd;
        let attributes = &content[GENL_HDRLEN..];
        let dump = message.header.flags & NLM_F_DUMP == NLM_F_DUMP;
        if family == lookup::CONTROL_ID {
            let body = lookup::answer(command, dump, attributes)?;
            return Ok(if dump {
                Answer::dump(message, std::iter::once(body))
            } else {
                Answer::reply(message, body)
            });
        }
        let command = Command::from_number(command).ok_or(Errno::OPNOTSUPP)?;
        let allowed = match rights {
            Rights::None => false,
            Rights::Read => command.is_reading(),
            Rights::Write => true,
        };
        if !allowed {
            return Err(Errno::PERM);
        }
        if !command.allows(dump) {
            return Err(Errno::OPNOTSUPP);
        }
        self.carry_out(message, Request::decode(command, dump, attributes)?)
    }

    fn carry_out(&mut self, message: &Incoming, request: Request) -> Result<Answer, Errno> {
        match request {
            Request::NewService(key, edit) => self.new_service(key, edit)?,
            Request::SetService(key, edit) => self.set_service(&key, edit)?,
            Request::DelService(key) => {
                self.require(&key)?;
                self.store.remove_service(&key)?;
            }
            Request::NewDest(service, dest) => self.new_dest(&service, dest)?,
            Request::SetDest(service, dest) => self.set_dest(&service, dest)?,
            Request::DelDest(service, dest) => self.del_dest(&service, dest)?,
            Request::NewDaemon(wanted) => self.new_daemon(&wanted)?,
            Request::DelDaemon(state) => self.del_daemon(state)?,
            Request::SetTimeouts(timeouts) => self.set_timeouts(timeouts)?,
            Request::Zero(service) => {
                service.map_or(Ok(()), |key| self.require(&key))?;
                self.store.zero(service.as_ref());
            }
            Request::Flush => self.store.flush()?,
            Request::GetService(key) => {
                let service = self.store.service(&key).ok_or(Errno::SRCH)?;
                return Ok(Answer::reply(message, service_body(&service)));
            }
            Request::GetTimeouts => {
                let attributes = request::timeouts_listed(&self.store.timeouts());
                return Ok(Answer::reply(message, Body::ipvs(Command::SetConfig as u8, attributes)));
            }
            Request::GetInfo => {
                let info = self.store.info();
                let attributes = vec![
                    Attr::u32(number::INFO_VERSION, info.version),
                    Attr::u32(number::INFO_TABLE_SIZE, info.table_size),
                ];
                return Ok(Answer::reply(message, Body::ipvs(SET_INFO, attributes)));
            }
            Request::ListServices => {
                let services = self.store.services();
                return Ok(Answer::dump(message, services.map(|service| service_body(&service))));
            }
            Request::ListDests(service) => {
                let dests = service.map(|key| self.store.dests(&key)).into_iter().flatten();
                let body = |attributes| Body::ipvs(Command::NewDest as u8, attributes);
                return Ok(Answer::dump(
                    message,
                    dests.map(move |dest| body(vec![Attr::nest(number::DEST, dest::listed(&dest))])),
                ));
            }
            Request::ListDaemons => {
                let daemons = self.store.daemons().into_iter();
                let body = |attributes| Body::ipvs(Command::NewDaemon as u8, attributes);
                return Ok(Answer::dump(
                    message,
                    daemons
                        .map(move |daemon| body(vec![Attr::nest(number::DAEMON, daemon::listed(&daemon))])),
                ));
            }
        }
        Ok(Answer::accepted(message))
    }

    pub(super) fn require(&self, key: &ServiceKey) -> Result<(), Errno> {
        self.store.service(key).map(drop).ok_or(Errno::SRCH)
    }

    pub(super) fn new_service(&mut self, key: ServiceKey, edit: ServiceEdit) -> Result<(), Errno> {
        if self.store.service(&key).is_some() {
            return Err(Errno::EXIST);
        }
        self.check_edit(&key, &edit)?;
        self.store.add_service(key, edit.over(0))
    }

    pub(super) fn set_service(&mut self, key: &ServiceKey, edit: ServiceEdit) -> Result<(), Errno> {
        let old = self.store.service(key).ok_or(Errno::SRCH)?;
        self.check_edit(key, &edit)?;
        self.store.set_service(key, edit.over(old.options.flags))
    }

    fn check_edit(&self, key: &ServiceKey, edit: &ServiceEdit) -> Result<(), Errno> {
        let options = &edit.options;
        let engine_known = options.engine.as_ref().is_none_or(|name| self.store.knows_engine(name));
        if !self.store.knows_scheduler(&options.scheduler) || !engine_known {
            return Err(Errno::NOENT);
        }
        match key.family() {
            Family::V6 if !(1..=128).contains(&options.netmask) => Err(Errno::INVAL),
            _ => Ok(()),
        }
    }

    pub(super) fn new_dest(
        &mut self,
        service: &ServiceKey,
        dest: Result<(DestKey, DestOptions), Errno>,
    ) -> Result<(), Errno> {
        self.require(service)?;
        let (key, options) = dest?;
        self.check_dest(service, &key, &options)?;
        if self.store.has_dest(service, &key) {
            return Err(Errno::EXIST);
        }
        if !self.store.has_waiting_dest(service, &key) && !self.store.is_unicast(key.address) {
            return Err(Errno::INVAL);
        }
        self.store.add_dest(service, key, options)
    }

    pub(super) fn set_dest(
        &mut self,
        service: &ServiceKey,
        dest: Result<(DestKey, DestOptions), Errno>,
    ) -> Result<(), Errno> {
        self.require(service)?;
        let (key, options) = dest?;
        self.check_dest(service, &key, &options)?;
        if !self.store.has_dest(service, &key) {
            return Err(Errno::NOENT);
        }
        self.store.set_dest(service, &key, options)
    }

    pub(super) fn del_dest(
        &mut self,
        service: &ServiceKey,
        dest: Result<DestKey, Errno>,
    ) -> Result<(), Errno> {
        self.require(service)?;
        let key = dest?;
        if !self.store.has_dest(service, &key) {
            return Err(Errno::NOENT);
        }
        self.store.remove_dest(service, &key)
    }

    fn check_dest(&self, service: &ServiceKey, key: &DestKey, options: &DestOptions) -> Result<(), Errno> {
        let mixed = Family::of(key.address) != service.family();
        if mixed && (options.method != Method::TUNNEL || !self.store.daemons().is_empty()) {
            return Err(Errno::INVAL);
        }
        if options.weight < 0 || options.lower > options.upper {
            return Err(Errno::RANGE);
        }
        if options.tunnel.kind == tunnel_type::GUE && options.tunnel.port == 0 {
            return Err(Errno::INVAL);
        }
        Ok(())
    }

    pub(super) fn new_daemon(&mut self, wanted: &DaemonRequest) -> Result<(), Errno> {
        if self.store.has_mixed_families() {
            return Err(Errno::INVAL);
        }
        let mtu = self.store.interface_mtu(&wanted.interface).ok_or(Errno::NODEV)?;
        let state = DaemonState::from_number(wanted.state)?;
        if self.runs(state) {
            return Err(Errno::EXIST);
        }
        self.store.start_daemon(wanted.resolve(state, mtu))
    }

    pub(super) fn del_daemon(&mut self, state: u32) -> Result<(), Errno> {
        let state = DaemonState::from_number(state)?;
        if !self.runs(state) {
            return Err(Errno::SRCH);
        }
        self.store.stop_daemon(state)
    }

    fn runs(&self, state: DaemonState) -> bool {
        self.store.daemons().iter().any(|daemon| daemon.state == state)
    }

    pub(super) fn set_timeouts(&mut self, wanted: Timeouts) -> Result<(), Errno> {
        if [wanted.tcp, wanted.tcp_fin, wanted.udp].iter().any(|seconds| *seconds > TIMEOUT_MAX) {
            return Err(Errno::INVAL);
        }
        let old = self.store.timeouts();
        let or_old = |wanted: u32, old: u32| if wanted == 0 { old } else { wanted };
        self.store.set_timeouts(Timeouts {
            tcp: or_old(wanted.tcp, old.tcp),
            tcp_fin: or_old(wanted.tcp_fin, old.tcp_fin),
            udp: or_old(wanted.udp, old.udp),
        })
    }
}

fn service_body(service: &Service) -> Body {
    let nest = Attr::nest(number::SERVICE, service::listed(service));
    Body::ipvs(Command::NewService as u8, vec![nest])
}

/// The datagrams that answer one message, in order.
pub struct Answer {
    ready: VecDeque<Vec<u8>>,
    parts: Option<Parts>,
}

/// A dump under way.
struct Parts {
    messages: Box<dyn Iterator<Item = Vec<u8>>>,
    /// The message that did not fit the last datagram.
    held: Option<Vec<u8>>,
    end: Vec<u8>,
}

impl Answer {
    /// The refusal, and nothing else.
    pub fn refused(to: &Incoming, errno: Errno) -> Answer {
        Answer { ready: VecDeque::from([message::refusal(to, errno)]), parts: None }
    }

    /// Nothing but the acknowledgement, if it was asked for.
    fn accepted(to: &Incoming) -> Answer {
        Answer { ready: to.wants_ack().then(|| codec::encode_ack(to)).into_iter().collect(), parts: None }
    }

    /// One message, and the acknowledgement.
    fn reply(to: &Incoming, body: Body) -> Answer {
        let mut answer = Answer::accepted(to);
        answer.ready.push_front(body.reply(&to.header));
        answer
    }

    /// Many messages, and the end; an acknowledgement is not sent even when asked for.
    fn dump(to: &Incoming, bodies: impl Iterator<Item = Body> + 'static) -> Answer {
        let header = to.header;
        let messages = bodies.map(move |body| body.part(&header));
        let parts = Parts { messages: Box::new(messages), held: None, end: codec::encode_done(&to.header) };
        Answer { ready: VecDeque::new(), parts: Some(parts) }
    }
}

impl Iterator for Answer {
    type Item = Vec<u8>;

    fn next(&mut self) -> Option<Vec<u8>> {
        if let Some(datagram) = self.ready.pop_front() {
            return Some(datagram);
        }
        let parts = self.parts.as_mut()?;
        let mut datagram = parts.held.take().unwrap_or_default();
        for message in parts.messages.by_ref() {
            if !datagram.is_empty() && datagram.len() + message.len() > DATAGRAM_BYTES {
                parts.held = Some(message);
                return Some(datagram);
            }
            datagram.extend(message);
        }
        if !datagram.is_empty() {
            return Some(datagram);
        }
        self.parts.take().map(|parts| parts.end)
    }
}

impl fmt::Debug for Answer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Answer").field("ready", &self.ready.len()).finish_non_exhaustive()
    }
}

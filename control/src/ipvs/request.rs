//! Requests of the family: bytes to one typed [`Request`], and back for clients.

use netlink_packet_core::{NLM_F_ACK, NLM_F_DUMP, NLM_F_REQUEST};
use rustix::io::Errno;

use super::attr::{Attr, Attrs, Policy, Shape};
use super::daemon::DaemonRequest;
use super::message::Body;
use super::types::{DestKey, DestOptions, ServiceEdit, ServiceKey, ServiceOptions, Timeouts};
use super::{daemon, dest, lookup, service};

/// Attribute numbers at the top of a message.
pub(super) mod number {
    pub const SERVICE: u16 = 1;
    pub const DEST: u16 = 2;
    pub const DAEMON: u16 = 3;
    pub const TIMEOUT_TCP: u16 = 4;
    pub const TIMEOUT_TCP_FIN: u16 = 5;
    pub const TIMEOUT_UDP: u16 = 6;
    /// In the answer to GET_INFO the first two numbers mean these.
    pub const INFO_VERSION: u16 = 1;
    pub const INFO_TABLE_SIZE: u16 = 2;
}

/// What each attribute at the top may hold.
pub(super) const POLICY: Policy = &[
    (number::SERVICE, Shape::Nest),
    (number::DEST, Shape::Nest),
    (number::DAEMON, Shape::Nest),
    (number::TIMEOUT_TCP, Shape::AtLeast(4)),
    (number::TIMEOUT_TCP_FIN, Shape::AtLeast(4)),
    (number::TIMEOUT_UDP, Shape::AtLeast(4)),
];

/// Commands a request may carry; SET_INFO (14) is in answers only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
#[allow(missing_docs)] // The names are the kernel's (`IPVS_CMD_*`).
pub enum Command {
    NewService = 1,
    SetService = 2,
    DelService = 3,
    GetService = 4,
    NewDest = 5,
    SetDest = 6,
    DelDest = 7,
    GetDest = 8,
    NewDaemon = 9,
    DelDaemon = 10,
    GetDaemon = 11,
    SetConfig = 12,
    GetConfig = 13,
    GetInfo = 15,
    Zero = 16,
    Flush = 17,
}

/// Command number in the answer to GET_INFO.
pub(super) const SET_INFO: u8 = 14;

impl Command {
    /// Every command, by number.
    pub const ALL: [Command; 16] = [
        Command::NewService,
        Command::SetService,
        Command::DelService,
        Command::GetService,
        Command::NewDest,
        Command::SetDest,
        Command::DelDest,
        Command::GetDest,
        Command::NewDaemon,
        Command::DelDaemon,
        Command::GetDaemon,
        Command::SetConfig,
        Command::GetConfig,
        Command::GetInfo,
        Command::Zero,
        Command::Flush,
    ];

    /// The command of this number.
    pub fn from_number(number: u8) -> Option<Command> {
        Command::ALL.into_iter().find(|command| *command as u8 == number)
    }

    /// Whether it changes nothing.
    pub fn is_reading(self) -> bool {
        use Command::{GetConfig, GetDaemon, GetDest, GetInfo, GetService};
        matches!(self, GetService | GetDest | GetDaemon | GetConfig | GetInfo)
    }

    /// Whether it may be asked as a dump (`true`), or otherwise.
    pub(super) fn allows(self, dump: bool) -> bool {
        match self {
            Command::GetService => true,
            Command::GetDest | Command::GetDaemon => dump,
            _ => !dump,
        }
    }
}

/// A request, complete but for what depends on the table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Adds a service.
    NewService(ServiceKey, ServiceEdit),
    /// Changes a service.
    SetService(ServiceKey, ServiceEdit),
    /// Removes a service.
    DelService(ServiceKey),
    /// One service.
    GetService(ServiceKey),
    /// All services.
    ListServices,
    /// Adds a destination. A fault in it counts only if the service exists, hence the result inside.
    NewDest(ServiceKey, Result<(DestKey, DestOptions), Errno>),
    /// Changes a destination.
    SetDest(ServiceKey, Result<(DestKey, DestOptions), Errno>),
    /// Removes a destination.
    DelDest(ServiceKey, Result<DestKey, Errno>),
    /// Destinations of a service; none, and no error, when the service cannot be read.
    ListDests(Option<ServiceKey>),
    /// Starts a sync daemon.
    NewDaemon(DaemonRequest),
    /// Stops the sync daemon with this number of a state.
    DelDaemon(u32),
    /// Running sync daemons.
    ListDaemons,
    /// Sets timeouts; 0 keeps one.
    SetTimeouts(Timeouts),
    /// The timeouts.
    GetTimeouts,
    /// Version and table size.
    GetInfo,
    /// Zeroes the counters of a service, or all.
    Zero(Option<ServiceKey>),
    /// Removes all services.
    Flush,
}

impl Request {
    /// Reads a request. `dump` is one that the command allows.
    ///
    /// # Errors
    /// ERANGE for a malformed attribute at the top, EINVAL for one in a nest or one that is missing,
    /// EAFNOSUPPORT for another family.
    pub fn decode(command: Command, dump: bool, attributes: &[u8]) -> Result<Request, Errno> {
        match (command, dump) {
            (Command::GetService, true) => return Ok(Request::ListServices),
            (Command::GetDaemon, _) => return Ok(Request::ListDaemons),
            (Command::GetDest, _) => {
                let key = Attrs::top(attributes, POLICY).and_then(|top| key(&top));
                return Ok(Request::ListDests(key.ok()));
            }
            _ => {}
        }
        let top = Attrs::top(attributes, POLICY)?;
        Ok(match command {
            Command::NewService => key_and_edit(&top).map(|(key, edit)| Request::NewService(key, edit))?,
            Command::SetService => key_and_edit(&top).map(|(key, edit)| Request::SetService(key, edit))?,
            Command::DelService => Request::DelService(key(&top)?),
            Command::GetService => Request::GetService(key(&top)?),
            Command::NewDest => key(&top).map(|key| Request::NewDest(key, full_dest(&top, &key)))?,
            Command::SetDest => key(&top).map(|key| Request::SetDest(key, full_dest(&top, &key)))?,
            Command::DelDest => key(&top).map(|key| Request::DelDest(key, dest_key(&top, &key)))?,
            Command::NewDaemon => {
                Request::NewDaemon(daemon::read_request(&top.nest(number::DAEMON, daemon::POLICY)?)?)
            }
            Command::DelDaemon => {
                Request::DelDaemon(daemon::read_state(&top.nest(number::DAEMON, daemon::POLICY)?)?)
            }
            Command::SetConfig => Request::SetTimeouts(timeouts(&top)),
            Command::GetConfig => Request::GetTimeouts,
            Command::GetInfo => Request::GetInfo,
            Command::Zero if top.get(number::SERVICE).is_none() => Request::Zero(None),
            Command::Zero => Request::Zero(Some(key(&top)?)),
            Command::Flush => Request::Flush,
            Command::GetDest | Command::GetDaemon => unreachable!("dumps are answered above"),
        })
    }
}

/// A request as ipvsadm writes it: services with options even where only the identity counts.
#[derive(Clone, Debug)]
pub struct Call {
    flags: u16,
    body: Body,
}

impl Call {
    /// The family's number.
    pub fn lookup() -> Call {
        Call { flags: NLM_F_REQUEST | NLM_F_ACK, body: lookup::request() }
    }

    /// A command without attributes.
    pub fn plain(command: Command) -> Call {
        Call::new(command, Vec::new())
    }

    /// All services, or the running daemons.
    pub fn dump(command: Command) -> Call {
        Call { flags: NLM_F_REQUEST | NLM_F_ACK | NLM_F_DUMP, body: Body::ipvs(command as u8, Vec::new()) }
    }

    /// Destinations of a service.
    pub fn dests(service: &ServiceKey) -> Call {
        let nest = Attr::flagged_nest(number::SERVICE, service::identity(service));
        let mut call = Call::dump(Command::GetDest);
        call.body.attributes = vec![nest];
        call
    }

    /// A command on a service.
    pub fn service(command: Command, key: &ServiceKey, options: &ServiceOptions) -> Call {
        Call::new(command, vec![service_nest(key, options)])
    }

    /// A command on a destination.
    pub fn dest(
        command: Command,
        service: (&ServiceKey, &ServiceOptions),
        key: &DestKey,
        options: &DestOptions,
    ) -> Call {
        let dest = Attr::flagged_nest(number::DEST, dest::requested(key, options));
        Call::new(command, vec![service_nest(service.0, service.1), dest])
    }

    /// Starts or stops a daemon.
    pub fn daemon(command: Command, request: &DaemonRequest) -> Call {
        Call::new(command, vec![Attr::flagged_nest(number::DAEMON, daemon::requested(request))])
    }

    /// Sets the timeouts.
    pub fn set_timeouts(timeouts: &Timeouts) -> Call {
        Call::new(Command::SetConfig, timeouts_listed(timeouts))
    }

    /// Bytes of the message.
    pub fn encode(self, sequence: u32) -> Vec<u8> {
        self.body.request(sequence, self.flags)
    }

    fn new(command: Command, attributes: Vec<Attr>) -> Call {
        Call { flags: NLM_F_REQUEST | NLM_F_ACK, body: Body::ipvs(command as u8, attributes) }
    }
}

/// Attributes of the timeouts.
pub(super) fn timeouts_listed(timeouts: &Timeouts) -> Vec<Attr> {
    vec![
        Attr::u32(number::TIMEOUT_TCP, timeouts.tcp),
        Attr::u32(number::TIMEOUT_TCP_FIN, timeouts.tcp_fin),
        Attr::u32(number::TIMEOUT_UDP, timeouts.udp),
    ]
}

/// Reads timeouts; one that is not there is 0.
pub(super) fn timeouts(top: &Attrs<'_>) -> Timeouts {
    Timeouts {
        tcp: top.u32(number::TIMEOUT_TCP).unwrap_or(0),
        tcp_fin: top.u32(number::TIMEOUT_TCP_FIN).unwrap_or(0),
        udp: top.u32(number::TIMEOUT_UDP).unwrap_or(0),
    }
}

fn service_nest(key: &ServiceKey, options: &ServiceOptions) -> Attr {
    Attr::flagged_nest(number::SERVICE, service::requested(key, options))
}

fn key(top: &Attrs<'_>) -> Result<ServiceKey, Errno> {
    service::read_key(&top.nest(number::SERVICE, service::POLICY)?)
}

fn key_and_edit(top: &Attrs<'_>) -> Result<(ServiceKey, ServiceEdit), Errno> {
    let nest = top.nest(number::SERVICE, service::POLICY)?;
    let key = service::read_key(&nest)?;
    Ok((key, service::read_edit(&nest, key.family())?))
}

fn full_dest(top: &Attrs<'_>, service: &ServiceKey) -> Result<(DestKey, DestOptions), Errno> {
    let nest = top.nest(number::DEST, dest::POLICY)?;
    let options = dest::read_options(&nest)?;
    Ok((dest::read_key(&nest, service.family())?, options))
}

fn dest_key(top: &Attrs<'_>, service: &ServiceKey) -> Result<DestKey, Errno> {
    dest::read_key(&top.nest(number::DEST, dest::POLICY)?, service.family())
}

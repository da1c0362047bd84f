//! Carrying an order out and printing what comes of it.

use std::collections::VecDeque;
use std::io::{self, Write};
use std::ops::ControlFlow;

use rustix::io::Errno;

use super::client::{AHEAD_LOW, AHEAD_MAX, Client};
use super::grammar::{Command, Opt, Options};
use super::names::{Names, SystemNames};
use super::order::{Order, Stop, Wanted};
use super::parse::parse;
use super::transport::Transport;
use super::{conns, listing, restore, save, status, text, words_of};
use crate::ipvs::reply::Object;
use crate::ipvs::request::Call;
use crate::ipvs::{self, Dest, Family, Info, Service, ServiceKey, ServiceOptions};

/// Oldest version of IPVS that ipvsadm does not warn about: 1.1.4.
const VERSION_MIN: u32 = 0x01_01_04;
/// File that the connection listing is read from in the kernel's case; messages name it.
const CONNECTION_FILE: &str = "/proc/net/ip_vs_conn";

/// Where a program reads and writes.
pub struct Console<'a> {
    /// Lines for restore.
    pub input: &'a mut dyn io::Read,
    /// Listings.
    pub output: &'a mut dyn Write,
    /// Messages.
    pub errors: &'a mut dyn Write,
}

/// Runs the program: `arguments` without the name or path it was called by, which is `program`. Gives the exit status.
///
/// `connect` is called unless help or version is asked for; its error means that there is no daemon.
///
/// # Errors
/// What is printed cannot be written.
pub fn run<T: Transport>(
    program: &str,
    arguments: &[String],
    names: &dyn Names,
    console: &mut Console<'_>,
    connect: impl FnOnce() -> Result<T, Errno>,
) -> io::Result<u8> {
    if !arguments.is_empty() {
        match parse(program, arguments, names) {
            Ok(Wanted::Help) => return print(console, &text::help(program)),
            Ok(Wanted::Version) => return print(console, &text::version(program)),
            _ => {}
        }
    }
    let opened = connect().map_err(no_daemon).and_then(|transport| Session::open(transport, program, names));
    let mut session = match opened {
        Ok(session) => session,
        Err(errno) => {
            write!(console.errors, "{}", text::no_family(errno))?;
            return Ok(status::USAGE);
        }
    };
    if session.info.version < VERSION_MIN {
        write!(console.errors, "{}", text::version_mismatch(session.info.version))?;
    }
    if arguments.is_empty() {
        return session.list_all(Options::default(), console);
    }
    session.line(arguments, console)
}

/// Writes lines that restore everything: services with thresholds, timeouts, sync daemons; numbers only.
///
/// # Errors
/// The server's error number, or the system's.
pub fn save_all<T: Transport>(transport: T, output: &mut Vec<u8>) -> Result<(), Errno> {
    let mut session = Session::open(transport, "weir", &SystemNames)?;
    let mut options = Options::default();
    options.add(Opt::Numeric);
    options.add(Opt::SaveAll);
    let mut errors = Vec::new();
    let mut console = Console { input: &mut io::empty(), output, errors: &mut errors };
    let ended = session.save(options, &mut console).map_err(|_| Errno::IO)?;
    let timeouts = session.client.ask(Call::plain(ipvs::Command::GetConfig))?;
    let daemons = session.client.ask(Call::dump(ipvs::Command::GetDaemon))?;
    if ended != status::DONE {
        return Err(Errno::IO);
    }
    let lines = timeouts.iter().filter_map(Object::timeouts).map(|timeouts| words_of::timeouts(&timeouts));
    let daemons = daemons.iter().filter_map(Object::daemon).map(|daemon| words_of::start_daemon(&daemon));
    lines.chain(daemons).for_each(|line| output.extend((line + "\n").into_bytes()));
    Ok(())
}

/// No daemon is to the program what a kernel without IPVS is to ipvsadm.
fn no_daemon(errno: Errno) -> Errno {
    match errno {
        Errno::NOENT | Errno::CONNREFUSED => Errno::NOPROTOOPT,
        Errno::ACCESS => Errno::PERM,
        other => other,
    }
}

fn print(console: &mut Console<'_>, text: &str) -> io::Result<u8> {
    write!(console.output, "{text}")?;
    Ok(status::DONE)
}

/// A program that has found the family.
pub(super) struct Session<'a, T> {
    client: Client<T>,
    info: Info,
    program: &'a str,
    names: &'a dyn Names,
}

impl<'a, T: Transport> Session<'a, T> {
    fn open(transport: T, program: &'a str, names: &'a dyn Names) -> Result<Session<'a, T>, Errno> {
        let mut client = Client::new(transport);
        let family = client.ask(Call::lookup()).map_err(|errno| match errno {
            // As ipvsadm says it of a kernel without IPVS.
            Errno::NOENT => Errno::NOPROTOOPT,
            other => other,
        })?;
        if family.first().and_then(Object::family_id) != Some(ipvs::message::FAMILY_ID) {
            return Err(Errno::NOPROTOOPT);
        }
        let info = client.ask(Call::plain(ipvs::Command::GetInfo))?;
        let info = info.first().and_then(Object::info).ok_or(Errno::MSGSIZE)?;
        Ok(Session { client, info, program, names })
    }

    pub(super) fn program(&self) -> &'a str {
        self.program
    }

    pub(super) fn names(&self) -> &'a dyn Names {
        self.names
    }

    pub(super) fn client(&mut self) -> &mut Client<T> {
        &mut self.client
    }

    /// Reads a line outside of a restore.
    pub(super) fn read(&self, arguments: &[String]) -> Result<Wanted, Stop> {
        parse(self.program, arguments, self.names)
    }

    /// Carries one command line out.
    fn line(&mut self, arguments: &[String], console: &mut Console<'_>) -> io::Result<u8> {
        match self.read(arguments) {
            Ok(Wanted::Do(order)) if order.command == Command::Restore => {
                if order.options.has(Opt::Atomic) {
                    restore::restore_whole(self, console)
                } else {
                    restore::restore(self, console)
                }
            }
            Ok(wanted) => self.carry_out(&wanted, console),
            Err(stop) => {
                writeln!(console.errors, "{}", stop.text)?;
                Ok(stop.status)
            }
        }
    }

    /// Carries an order out and waits for its end.
    pub(super) fn carry_out(&mut self, wanted: &Wanted, console: &mut Console<'_>) -> io::Result<u8> {
        let order = match wanted {
            Wanted::Help => return print(console, &text::help(self.program)),
            Wanted::Version => return print(console, &text::version(self.program)),
            Wanted::Do(order) => order,
        };
        match order.command {
            Command::List => self.list(order, console),
            Command::Save => self.save(order.options, console),
            command => match change(order).map(|call| self.client.ask(call)) {
                Some(Err(errno)) => refused(command, errno, console),
                Some(Ok(_)) | None => Ok(status::DONE),
            },
        }
    }

    fn list(&mut self, order: &Order, console: &mut Console<'_>) -> io::Result<u8> {
        let options = order.options;
        if options.has(Opt::Connection) {
            self.list_connections(options, console)
        } else if let Some(key) = &order.service {
            self.list_one(key, options, console)
        } else if options.has(Opt::Timeout) {
            self.list_timeouts(console)
        } else if options.has(Opt::Daemon) {
            self.list_daemons(console)
        } else {
            self.list_all(options, console)
        }
    }

    fn list_all(&mut self, options: Options, console: &mut Console<'_>) -> io::Result<u8> {
        let form = listing::Form::new(options, self.names);
        let mut services = match self.services() {
            Ok(services) => services,
            Err(errno) => return listing_failed(errno, console),
        };
        form.sort_services(&mut services);
        write!(console.output, "{}{}", listing::version_line(&self.info), form.title())?;
        self.print_each(&services, console, |service, dests| form.service(service, dests))
    }

    fn list_one(&mut self, key: &ServiceKey, options: Options, console: &mut Console<'_>) -> io::Result<u8> {
        // Only the identity counts; the rest is what ipvsadm sends.
        let nothing = ServiceOptions {
            scheduler: String::new(),
            engine: None,
            flags: 0,
            timeout_seconds: 0,
            netmask: 0,
        };
        let answer = self.client.ask(Call::service(ipvs::Command::GetService, key, &nothing));
        let service = match answer.map(|objects| objects.first().and_then(Object::service)) {
            Ok(Some(service)) => service,
            Ok(None) => return listing_failed(Errno::MSGSIZE, console),
            Err(errno) => return listing_failed(errno, console),
        };
        let form = listing::Form::new(options, self.names);
        write!(console.output, "{}", form.title())?;
        self.print_each(&[service], console, |service, dests| form.service(service, dests))
    }

    fn save(&mut self, options: Options, console: &mut Console<'_>) -> io::Result<u8> {
        let form = save::Form::new(options, self.names);
        let mut services = match self.services() {
            Ok(services) => services,
            Err(errno) => return listing_failed(errno, console),
        };
        listing::sort_services(&mut services);
        self.print_each(&services, console, |service, dests| form.service(service, dests))
    }

    fn services(&mut self) -> Result<Vec<Service>, Errno> {
        let objects = self.client.ask(Call::dump(ipvs::Command::GetService))?;
        Ok(objects.iter().filter_map(Object::service).collect())
    }

    /// Asks for the destinations of each service, some services ahead, and prints service by service.
    fn print_each(
        &mut self,
        services: &[Service],
        console: &mut Console<'_>,
        print: impl Fn(&Service, Vec<Dest>) -> String,
    ) -> io::Result<u8> {
        let mut waiting = VecDeque::with_capacity(AHEAD_MAX);
        let mut next = services.iter();
        loop {
            let room = if waiting.len() > AHEAD_LOW { 0 } else { AHEAD_MAX - waiting.len() };
            for service in next.by_ref().take(room) {
                match self.client.send(Call::dests(&service.key)) {
                    Ok(ticket) => waiting.push_back((service, ticket)),
                    Err(errno) => return listing_failed(errno, console),
                }
            }
            let Some((service, ticket)) = waiting.pop_front() else {
                return Ok(status::DONE);
            };
            match self.client.finish(ticket) {
                Ok(objects) => {
                    let family: Family = service.key.family();
                    let dests = objects.iter().filter_map(|object| object.dest(family)).collect();
                    write!(console.output, "{}", print(service, dests))?;
                }
                Err(errno) => return listing_failed(errno, console),
            }
        }
    }

    /// Says nothing when it fails, as ipvsadm.
    fn list_timeouts(&mut self, console: &mut Console<'_>) -> io::Result<u8> {
        let answer = self.client.ask(Call::plain(ipvs::Command::GetConfig));
        let Some(timeouts) = answer.ok().and_then(|objects| objects.first().and_then(Object::timeouts))
        else {
            return Ok(status::LISTING);
        };
        let ipvs::Timeouts { tcp, tcp_fin, udp } = timeouts;
        writeln!(console.output, "Timeout (tcp tcpfin udp): {tcp} {tcp_fin} {udp}")?;
        Ok(status::DONE)
    }

    /// Says nothing when it fails, as ipvsadm.
    fn list_daemons(&mut self, console: &mut Console<'_>) -> io::Result<u8> {
        let Ok(objects) = self.client.ask(Call::dump(ipvs::Command::GetDaemon)) else {
            return Ok(status::LISTING);
        };
        for daemon in objects.iter().filter_map(Object::daemon) {
            writeln!(
                console.output,
                "{} sync daemon (mcast={}, syncid={}, maxlen={}, group={}, port={}, ttl={})",
                daemon.state.name(),
                daemon.interface,
                daemon.sync_id,
                daemon.max_bytes,
                daemon.group,
                daemon.port,
                daemon.ttl
            )?;
        }
        Ok(status::DONE)
    }

    fn list_connections(&mut self, options: Options, console: &mut Console<'_>) -> io::Result<u8> {
        let with_engine = options.has(Opt::PersistentConn);
        let texts = listing::Texts::new(options, self.names);
        let mut text = conns::head(with_engine);
        let mut written = Ok(());
        let read = self.client.transport().connections(&mut |entry| {
            conns::push_line(&mut text, &entry, with_engine, &texts);
            written = console.output.write_all(text.as_bytes());
            text.clear();
            if written.is_ok() { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
        written?;
        if let Err(failure) = read {
            writeln!(console.errors, "cannot open file {CONNECTION_FILE}: {}", failure.why)?;
            return Ok(status::LISTING);
        }
        // The head, if no connection followed it.
        console.output.write_all(text.as_bytes())?;
        Ok(status::DONE)
    }
}

/// The request of an order that changes something.
pub(super) fn change(order: &Order) -> Option<Call> {
    let options = &order.service_options;
    let service = |command| order.service.map(|key| Call::service(command, &key, options));
    let dest = |command| {
        order.service.map(|key| Call::dest(command, (&key, options), &order.dest, &order.dest_options))
    };
    match order.command {
        Command::AddService => service(ipvs::Command::NewService),
        Command::EditService => service(ipvs::Command::SetService),
        Command::DeleteService => service(ipvs::Command::DelService),
        Command::Flush => Some(Call::plain(ipvs::Command::Flush)),
        Command::AddServer => dest(ipvs::Command::NewDest),
        Command::EditServer => dest(ipvs::Command::SetDest),
        Command::DeleteServer => dest(ipvs::Command::DelDest),
        Command::Set => Some(Call::set_timeouts(&order.timeouts)),
        Command::StartDaemon => Some(Call::daemon(ipvs::Command::NewDaemon, &order.daemon)),
        Command::StopDaemon => Some(Call::daemon(ipvs::Command::DelDaemon, &order.daemon)),
        Command::Zero => match order.service {
            // To ipvsadm the address without a bit set is no address.
            Some(ServiceKey::Address { address, port: 0, .. }) if address.is_unspecified() => None,
            _ => service(ipvs::Command::Zero),
        }
        .or(Some(Call::plain(ipvs::Command::Zero))),
        Command::List | Command::Restore | Command::Save => None,
    }
}

/// Says why the server refused a command.
pub(super) fn refused(command: Command, errno: Errno, console: &mut Console<'_>) -> io::Result<u8> {
    writeln!(console.errors, "{}", text::error(Some(command), errno))?;
    Ok(status::REFUSED)
}

fn listing_failed(errno: Errno, console: &mut Console<'_>) -> io::Result<u8> {
    writeln!(console.errors, "{}", text::error(Some(Command::List), errno))?;
    Ok(status::LISTING)
}

//! From words to what is wanted, with ipvsadm's checks in ipvsadm's order.

use std::net::{IpAddr, Ipv4Addr};

use super::address::{self, number};
use super::grammar::{self, Command, Opt, Options, TUNNEL_OPTIONS, Word};
use super::names::Names;
use super::order::{Order, Stop, Wanted};
use super::status;
use super::values::{cut, group, scheduler_flags, timeout};
use super::words::Words;
use crate::ipvs::daemon::{DaemonRequest, INTERFACE_NAME_MAX};
use crate::ipvs::service::{ENGINE_NAME_MAX, SCHEDULER_NAME_MAX};
use crate::ipvs::{
    DaemonState, DestKey, DestOptions, Family, Method, ServiceKey, ServiceOptions, Timeouts, Tunnel, flag,
    tunnel_flag,
};

const PROTOCOL_TCP: u16 = 6;
const PROTOCOL_UDP: u16 = 17;
const PROTOCOL_SCTP: u16 = 132;
/// Persistence timeout when `-p` has no value, seconds: ipvsadm's, though its manual says 300.
const DEFAULT_PERSISTENCE: u32 = 360;
const DEFAULT_SCHEDULER: &str = "wlc";
const DEFAULT_INTERFACE: &str = "eth0";
/// Longest sync message that can be asked for: an IPv4 packet less IP and UDP headers.
const SYNC_MAXLEN_MAX: i64 = 65535 - 20 - 8;

/// Reads a command line, without the program's name.
pub(super) fn parse(program: &str, arguments: &[String], names: &dyn Names) -> Result<Wanted, Stop> {
    let mut words = Words::new(arguments);
    let Ok(Some((word, value))) = words.next_option() else {
        return Err(Stop::try_help(program));
    };
    let command = match word {
        Word::Command(command) => command,
        Word::Help => return Ok(Wanted::Help),
        Word::Version => return Ok(Wanted::Version),
        _ => return Err(Stop::try_help(program)),
    };
    let mut reading = Reading::new(command, names);
    reading.state(value)?;
    loop {
        match words.next_option() {
            Ok(Some((word, value))) => {
                reading.word(word, value.unwrap_or_default(), value.is_some(), &words)?
            }
            Ok(None) => break,
            Err(fault) => {
                let text = format!("{}: {}", words.current(), fault.text());
                return Err(Stop { status: status::REFUSED, text, goes_on: true });
            }
        }
    }
    reading.left_over(words.left_over())?;
    reading.finish().map(|order| Wanted::Do(Box::new(order)))
}

/// An order while its words are read: what ipvsadm has seen so far counts for what it makes of the next word.
struct Reading<'a> {
    names: &'a dyn Names,
    command: Command,
    options: Options,
    /// Family of the service; none before it was named.
    family: Option<Family>,
    protocol: u16,
    address: IpAddr,
    port: u16,
    mark: u32,
    service_options: ServiceOptions,
    scheduler_flags: Option<&'a str>,
    dest_family: Option<Family>,
    dest: DestKey,
    dest_options: DestOptions,
    daemon: DaemonRequest,
    timeouts: Timeouts,
}

impl<'a> Reading<'a> {
    fn new(command: Command, names: &'a dyn Names) -> Reading<'a> {
        let nowhere = Family::V4.unspecified();
        Reading {
            names,
            command,
            options: Options::default(),
            family: None,
            protocol: 0,
            address: nowhere,
            port: 0,
            mark: 0,
            service_options: ServiceOptions {
                scheduler: String::new(),
                engine: None,
                flags: 0,
                timeout_seconds: 0,
                netmask: u32::MAX,
            },
            scheduler_flags: None,
            dest_family: None,
            dest: DestKey { address: nowhere, port: 0 },
            dest_options: DestOptions {
                method: Method::DIRECT_ROUTE,
                weight: 1,
                upper: 0,
                lower: 0,
                tunnel: Tunnel::default(),
            },
            daemon: DaemonRequest::named(""),
            timeouts: Timeouts { tcp: 0, tcp_fin: 0, udp: 0 },
        }
    }

    /// The value of a command that starts or stops a daemon.
    fn state(&mut self, value: Option<&str>) -> Result<(), Stop> {
        let wrong = match self.command {
            Command::StartDaemon => "illegal start-daemon parameter specified",
            Command::StopDaemon => "illegal start_daemon specified",
            _ => return Ok(()),
        };
        self.daemon.state = match value {
            Some("master") => DaemonState::Master as u32,
            Some("backup") => DaemonState::Backup as u32,
            _ => return Err(Stop::usage(wrong)),
        };
        Ok(())
    }

    /// One word after the command.
    fn word(&mut self, word: Word, value: &'a str, given: bool, words: &Words<'_>) -> Result<(), Stop> {
        match word {
            Word::Command(_) | Word::Help | Word::Version => {
                return Err(Stop::usage(format!("invalid option `{}'", words.current())));
            }
            Word::TcpService => self.service(PROTOCOL_TCP, value)?,
            Word::UdpService => self.service(PROTOCOL_UDP, value)?,
            Word::SctpService => self.service(PROTOCOL_SCTP, value)?,
            Word::FwmarkService => {
                self.option(Opt::Service)?;
                self.family = Some(Family::V4);
                self.protocol = PROTOCOL_TCP;
                self.mark =
                    number(value, 1, i64::from(u32::MAX))
                        .and_then(|mark| u32::try_from(mark).ok())
                        .ok_or_else(|| Stop::usage(format!("invalid fwmark value `{value}' specified")))?;
            }
            Word::Ipv6 => {
                if self.mark == 0 {
                    return Err(Stop::usage("-6 used before -f\n"));
                }
                self.family = Some(Family::V6);
                self.service_options.netmask = Family::V6.full_netmask();
            }
            Word::Scheduler => {
                self.option(Opt::Scheduler)?;
                cut(value, SCHEDULER_NAME_MAX).clone_into(&mut self.service_options.scheduler);
            }
            Word::Persistent => {
                self.option(Opt::Persistent)?;
                self.service_options.flags |= flag::PERSISTENT;
                self.service_options.timeout_seconds =
                    if given { timeout(value, 1)? } else { DEFAULT_PERSISTENCE };
            }
            Word::Netmask => {
                self.option(Opt::Netmask)?;
                self.service_options.netmask = self.netmask(value)?;
            }
            Word::Engine => {
                self.option(Opt::Engine)?;
                self.service_options.engine =
                    Some(cut(value, ENGINE_NAME_MAX).to_owned()).filter(|name| !name.is_empty());
            }
            Word::Ops => {
                self.option(Opt::Ops)?;
                self.service_options.flags |= flag::ONE_PACKET;
            }
            Word::SchedulerFlags => {
                self.option(Opt::SchedulerFlags)?;
                self.scheduler_flags = Some(value);
            }
            Word::RealServer => self.real_server(value)?,
            Word::Gatewaying => self.method(Method::DIRECT_ROUTE)?,
            Word::Ipip => self.method(Method::TUNNEL)?,
            Word::Masquerading => self.method(Method::MASQUERADE)?,
            Word::Weight => {
                self.dest_options.weight =
                    self.number(Opt::Weight, value, 0, i64::from(i32::MAX), "illegal weight specified")?;
            }
            Word::UpperThreshold => {
                self.dest_options.upper =
                    self.number(Opt::Upper, value, 0, i64::from(i32::MAX), "illegal u_threshold specified")?;
            }
            Word::LowerThreshold => {
                self.dest_options.lower =
                    self.number(Opt::Lower, value, 0, i64::from(i32::MAX), "illegal l_threshold specified")?;
            }
            Word::TunnelType => {
                self.option(Opt::TunnelType)?;
                self.dest_options.tunnel.kind = grammar::tunnel_type(value)
                    .ok_or_else(|| Stop::usage("illegal tunnel type specified"))?;
            }
            Word::TunnelPort => {
                self.dest_options.tunnel.port =
                    self.number(Opt::TunnelPort, value, 1, 65535, "illegal tunnel port specified")?;
            }
            Word::TunnelNoChecksum => self.option(Opt::TunnelNoChecksum)?,
            Word::TunnelChecksum => {
                self.option(Opt::TunnelChecksum)?;
                self.dest_options.tunnel.flags |= tunnel_flag::CHECKSUM;
            }
            Word::TunnelRemoteChecksum => {
                self.option(Opt::TunnelRemoteChecksum)?;
                self.dest_options.tunnel.flags |= tunnel_flag::REMOTE_CHECKSUM;
            }
            Word::McastInterface => {
                self.option(Opt::McastInterface)?;
                cut(value, INTERFACE_NAME_MAX).clone_into(&mut self.daemon.interface);
            }
            Word::SyncId => {
                self.daemon.sync_id = self.number(Opt::SyncId, value, 0, 255, "illegal syncid specified")?;
            }
            Word::SyncMaxlen => {
                let wrong = "illegal sync-maxlen specified";
                self.daemon.max_bytes =
                    Some(self.number(Opt::SyncMaxlen, value, 1, SYNC_MAXLEN_MAX, wrong)?);
            }
            Word::McastGroup => {
                self.option(Opt::McastGroup)?;
                self.daemon.group = Some(group(value)?);
            }
            Word::McastPort => {
                self.daemon.port =
                    Some(self.number(Opt::McastPort, value, 1, 65535, "illegal mcast-port specified")?);
            }
            Word::McastTtl => {
                self.daemon.ttl =
                    Some(self.number(Opt::McastTtl, value, 1, 255, "illegal mcast-ttl specified")?);
            }
            Word::Sort => {}
            Word::Numeric => self.option(Opt::Numeric)?,
            Word::Connection => self.option(Opt::Connection)?,
            Word::Timeout => self.option(Opt::Timeout)?,
            Word::Daemon => self.option(Opt::Daemon)?,
            Word::Stats => self.option(Opt::Stats)?,
            Word::Rate => self.option(Opt::Rate)?,
            Word::Thresholds => self.option(Opt::Thresholds)?,
            Word::PersistentConn => self.option(Opt::PersistentConn)?,
            Word::TunnelInfo => self.option(Opt::TunnelInfo)?,
            Word::NoSort => self.option(Opt::NoSort)?,
            Word::Exact => self.option(Opt::Exact)?,
            Word::SaveAll => self.option(Opt::SaveAll)?,
            Word::Atomic => self.option(Opt::Atomic)?,
        }
        Ok(())
    }

    fn option(&mut self, option: Opt) -> Result<(), Stop> {
        if self.options.add(option) {
            Ok(())
        } else {
            Err(Stop::usage(format!("multiple '{}' options specified", option.word())))
        }
    }

    fn number<T: TryFrom<i64>>(
        &mut self,
        option: Opt,
        value: &str,
        min: i64,
        max: i64,
        wrong: &str,
    ) -> Result<T, Stop> {
        self.option(option)?;
        number(value, min, max).and_then(|n| T::try_from(n).ok()).ok_or_else(|| Stop::usage(wrong))
    }

    fn service(&mut self, protocol: u16, value: &str) -> Result<(), Stop> {
        self.option(Opt::Service)?;
        self.protocol = protocol;
        let endpoint = address::endpoint(value, protocol, self.names)
            .ok_or_else(|| Stop::usage("illegal virtual server address[:port] specified"))?;
        self.family = Some(Family::of(endpoint.address));
        self.address = endpoint.address;
        if endpoint.address.is_ipv6() {
            self.service_options.netmask = Family::V6.full_netmask();
        }
        self.port = endpoint.port.unwrap_or(self.port);
        Ok(())
    }

    fn netmask(&self, value: &str) -> Result<u32, Stop> {
        if self.family == Some(Family::V6) {
            return u32::try_from(address::leading_number(value))
                .ok()
                .filter(|prefix| (1..=128).contains(prefix))
                .ok_or_else(|| Stop::usage("illegal ipv6 netmask specified"));
        }
        address::ipv4_or_host(value, self.names)
            .map(Ipv4Addr::to_bits)
            .ok_or_else(|| Stop::usage("illegal virtual server persistent mask specified"))
    }

    fn real_server(&mut self, value: &str) -> Result<(), Stop> {
        self.option(Opt::Server)?;
        let endpoint = address::endpoint(value, self.protocol, self.names)
            .ok_or_else(|| Stop::usage("illegal real server address[:port] specified"))?;
        self.dest_family = Some(Family::of(endpoint.address));
        // The port of the service as far as it has been read: none yet when -r comes first.
        self.dest = DestKey { address: endpoint.address, port: endpoint.port.unwrap_or(self.port) };
        Ok(())
    }

    fn method(&mut self, method: Method) -> Result<(), Stop> {
        self.option(Opt::Forward)?;
        self.dest_options.method = method;
        Ok(())
    }

    /// Words that are no options: values of `--set`, else none.
    fn left_over(&mut self, left_over: Vec<&str>) -> Result<(), Stop> {
        let mut rest = left_over.into_iter();
        if self.command == Command::Set {
            let (Some(tcp), Some(tcp_fin), Some(udp)) = (rest.next(), rest.next(), rest.next()) else {
                return Err(Stop::usage("--set option requires 3 timeout values"));
            };
            self.timeouts =
                Timeouts { tcp: timeout(tcp, 0)?, tcp_fin: timeout(tcp_fin, 0)?, udp: timeout(udp, 0)? };
        }
        match rest.next() {
            Some(word) => Err(Stop::usage(format!("unexpected argument {word}"))),
            None => Ok(()),
        }
    }

    /// The checks that need everything to be read.
    fn finish(mut self) -> Result<Order, Stop> {
        if let Some(flags) = self.scheduler_flags {
            self.service_options.flags |= scheduler_flags(&self.service_options.scheduler, flags)?;
        }
        grammar::check_command(self.command, self.options).map_err(Stop::usage)?;
        match self.command {
            Command::AddService | Command::EditService => self.finish_service()?,
            Command::AddServer | Command::EditServer => self.finish_dest()?,
            Command::StartDaemon if self.daemon.interface.is_empty() => {
                DEFAULT_INTERFACE.clone_into(&mut self.daemon.interface);
            }
            Command::List => {
                let other = self.options.has_any(&[Opt::Timeout, Opt::Daemon]);
                let any = other || self.options.has(Opt::Connection);
                if any && self.options.has_any(&[Opt::Stats, Opt::Rate, Opt::Thresholds])
                    || other && self.options.has(Opt::PersistentConn)
                {
                    return Err(Stop::usage("options conflicts in the list command"));
                }
            }
            _ => {}
        }
        let key = match self.mark {
            0 => ServiceKey::Address { protocol: self.protocol, address: self.address, port: self.port },
            mark => ServiceKey::Mark { family: self.family.unwrap_or(Family::V4), mark },
        };
        Ok(Order {
            command: self.command,
            service: self.options.has(Opt::Service).then_some(key),
            service_options: self.service_options,
            dest: self.dest,
            dest_options: self.dest_options,
            daemon: self.daemon,
            timeouts: self.timeouts,
            options: self.options,
        })
    }

    fn finish_service(&mut self) -> Result<(), Stop> {
        let flags = self.service_options.flags;
        if self.mark == 0 && self.port == 0 && flags & flag::PERSISTENT == 0 {
            return Err(Stop::usage("Zero port specified for non-persistent service"));
        }
        if flags & flag::ONE_PACKET != 0 && self.mark == 0 && self.protocol != PROTOCOL_UDP {
            return Err(Stop::usage("One-Packet Scheduling is only for UDP virtual services"));
        }
        if self.service_options.scheduler.is_empty() {
            DEFAULT_SCHEDULER.clone_into(&mut self.service_options.scheduler);
        }
        Ok(())
    }

    fn finish_dest(&mut self) -> Result<(), Stop> {
        let method = self.dest_options.method;
        if self.mark == 0 && method != Method::MASQUERADE {
            self.dest.port = self.port;
        }
        if self.dest_family != self.family && method != Method::TUNNEL {
            return Err(Stop::usage("Different address family is allowed only for tunneling servers"));
        }
        if self.options.has_any(TUNNEL_OPTIONS) && method != Method::TUNNEL {
            return Err(Stop::usage("Tunnel options conflict with forward method"));
        }
        grammar::check_tunnel(self.dest_options.tunnel.kind, self.options).map_err(Stop::usage)
    }
}

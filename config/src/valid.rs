//! A configuration as accepted: every default filled in, every rule checked.
//!
//! Model: [`Valid`] is made by [`crate::parse`] only and never changes afterwards; its parts are plain values
//! that can be copied out of it. The control thread owns it, reads it at start, and hands parts of it to the
//! data plane inside [`crate::Change`]s. What is written in several ways in a file has one form here, so two
//! configurations that mean the same compare equal.

use std::net::IpAddr;

use ipnet::IpNet;

use crate::field::words;
use crate::types::{DestKey, Mac, Method, Scheduler, ServiceFlags, ServiceKey};

/// An accepted configuration. Made by [`crate::parse`] or [`Valid::empty`].
#[derive(Clone, Debug, PartialEq)]
pub struct Valid {
    pub(crate) boot: Boot,
    pub(crate) network: Network,
    pub(crate) policy: Policy,
    pub(crate) timeouts: Timeouts,
    pub(crate) knobs: Knobs,
    pub(crate) estimators: Estimators,
    pub(crate) services: Vec<Service>,
    /// Whether it stands for a daemon that has not started.
    pub(crate) blank: bool,
}

impl Valid {
    /// What there is before a start: no ports, no services, every setting at its default.
    ///
    /// [`crate::plan`] from it is what a start has to do.
    pub fn empty() -> Valid {
        let empty = crate::parse("", "").expect("a file without a line has no mistake");
        Valid { blank: true, ..empty }
    }

    /// Settings that only a restart can change.
    pub fn boot(&self) -> &Boot {
        &self.boot
    }

    /// `[daemon]`.
    pub fn daemon(&self) -> &Daemon {
        &self.boot.daemon
    }

    /// `[eal]`.
    pub fn eal(&self) -> &Eal {
        &self.boot.eal
    }

    /// `[[port]]`, the part fixed at start, in file order; a port's index is its position here.
    pub fn ports(&self) -> &[Port] {
        &self.boot.ports
    }

    /// `[workers]`.
    pub fn workers(&self) -> &Workers {
        &self.boot.workers
    }

    /// `[connections]`.
    pub fn connections(&self) -> &Connections {
        &self.boot.connections
    }

    /// `[limits]`.
    pub fn limits(&self) -> &Limits {
        &self.boot.limits
    }

    /// Addresses, routes and static neighbours: what can change while running.
    pub fn network(&self) -> &Network {
        &self.network
    }

    /// `[policy]`: what happens to packets that belong to no connection or service.
    pub fn policy(&self) -> &Policy {
        &self.policy
    }

    /// `[timeouts]`.
    pub fn timeouts(&self) -> &Timeouts {
        &self.timeouts
    }

    /// `[sysctl]`.
    pub fn knobs(&self) -> &Knobs {
        &self.knobs
    }

    /// `[estimators]`.
    pub fn estimators(&self) -> &Estimators {
        &self.estimators
    }

    /// `[[service]]`, in file order.
    pub fn services(&self) -> &[Service] {
        &self.services
    }
}

/// Everything that is fixed when the daemon starts.
#[derive(Clone, Debug, PartialEq)]
pub struct Boot {
    /// `[daemon]`.
    pub daemon: Daemon,
    /// `[eal]`.
    pub eal: Eal,
    /// `[[port]]`: devices, in file order.
    pub ports: Vec<Port>,
    /// `[workers]`.
    pub workers: Workers,
    /// `[connections]`.
    pub connections: Connections,
    /// `[limits]`.
    pub limits: Limits,
}

/// `[daemon]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Daemon {
    /// Path of the control socket.
    pub socket: String,
    /// Directory of the journal.
    pub state_dir: String,
    /// `tracing` filter, e.g. `info,weir::est=debug`.
    pub log: String,
}

/// `[eal]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Eal {
    /// Page size wanted for packet memory.
    pub pages: Pages,
    /// Packet memory, MiB.
    pub memory_mb: u32,
    /// Further EAL arguments, as they are.
    pub args: Vec<String>,
}

words! {
    /// Page size of packet memory.
    pub enum Pages {
        /// Huge pages if there are enough, else ordinary ones.
        Auto = "auto",
        /// Huge pages or no start.
        Huge = "huge",
        /// Ordinary pages.
        Normal = "normal",
    }
}

/// One `[[port]]`: the device part.
#[derive(Clone, Debug, PartialEq)]
pub struct Port {
    /// Our name for it: 1..=32 of letters, digits, `-`, `_`, `.`.
    pub name: String,
    /// PCI address (`0000:3b:00.0`) or virtual device (`net_af_packet0,iface=veth0`).
    pub device: String,
    /// Largest IP packet, bytes; Ethernet header and VLAN tag not counted.
    pub mtu: u16,
    /// MAC address to set instead of the device's own.
    pub mac: Option<Mac>,
    /// Whether the device also receives frames for other MAC addresses.
    pub promiscuous: bool,
}

/// `[workers]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Workers {
    /// CPUs, one worker each, ascending and unique; `None`: the last allowed CPU.
    pub cpus: Option<Vec<usize>>,
    /// How an idle worker waits.
    pub mode: WorkerMode,
    /// What chooses the worker that owns a connection.
    pub steer: Steer,
    /// Whether schedulers keep their cursors per worker or together.
    pub sched_scope: SchedScope,
    /// Nice value of worker threads, -20..=19.
    pub nice: i8,
}

words! {
    /// How an idle worker waits for packets.
    pub enum WorkerMode {
        /// Spin if the CPU is the worker's alone, else sleep.
        Auto = "auto",
        /// Spin.
        Exclusive = "exclusive",
        /// Sleep shortly after some empty polls.
        Shared = "shared",
    }
}

words! {
    /// What chooses the worker that owns a connection.
    pub enum Steer {
        /// Client address.
        Client = "client",
        /// Client address and port.
        ClientPort = "client-port",
    }
}

words! {
    /// Scope of a scheduler's cursor.
    pub enum SchedScope {
        /// Each worker schedules on its own.
        Worker = "worker",
        /// All workers share one cursor.
        Global = "global",
    }
}

/// `[connections]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Connections {
    /// Connections of all workers together.
    pub max: u32,
    /// Connections that need the second table, all workers together.
    pub extras_max: u32,
    /// What a new connection meets when the table is full.
    pub on_full: OnFull,
}

words! {
    /// What a new connection meets when the table is full.
    pub enum OnFull {
        /// The packet is dropped and counted; connections that exist stay.
        Refuse = "refuse",
    }
}

/// `[limits]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Limits {
    /// Services.
    pub services: u32,
    /// Destinations of all services together.
    pub destinations: u32,
    /// Neighbours, static ones included.
    pub neighbours: u32,
    /// Packets we make ourselves (ICMP errors, resets, echo replies), per second and worker.
    pub icmp_rate: u32,
    /// How many of them may leave at once, per worker.
    pub icmp_burst: u32,
}

/// What can change on the network side while running.
#[derive(Clone, Debug, PartialEq)]
pub struct Network {
    /// Addresses of each port, by port index.
    pub ports: Vec<PortAddresses>,
    /// `[[route]]`, in file order.
    pub routes: Vec<Route>,
    /// `[[neighbour]]`, in file order.
    pub neighbours: Vec<Neighbour>,
}

/// Addresses of one port.
#[derive(Clone, Debug, PartialEq)]
pub struct PortAddresses {
    /// Name of the port.
    pub name: String,
    /// Own addresses with the prefix that is on-link there.
    pub addresses: Vec<IpNet>,
    /// Default gateways, on-link at this port, the preferred one first.
    pub gateways: Vec<IpAddr>,
}

/// One `[[route]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Route {
    /// Destinations it covers; host bits are zero.
    pub prefix: IpNet,
    /// Where they are.
    pub via: Via,
}

/// Next hop of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Via {
    /// A router, on-link at the port of that index.
    Gateway {
        /// Address of the router.
        address: IpAddr,
        /// Index of the port it is on.
        port: usize,
    },
    /// On-link at the port of that index.
    Port(usize),
}

/// One `[[neighbour]]`: an address whose MAC is given, not resolved.
#[derive(Clone, Debug, PartialEq)]
pub struct Neighbour {
    /// Address, on-link at the port.
    pub address: IpAddr,
    /// Its MAC address, unicast.
    pub mac: Mac,
    /// Index of the port it is on.
    pub port: usize,
}

/// `[policy]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Policy {
    /// Packets to a service address that neither belong to a connection nor make one.
    pub unmatched: Unmatched,
    /// Packets to addresses that are neither a service's nor ours.
    pub transit: Transit,
    /// Whether ping to service and port addresses is answered.
    pub echo: bool,
}

words! {
    /// Answer to a packet for a service address that no connection or service takes.
    pub enum Unmatched {
        /// TCP reset, ICMP port unreachable for UDP, as a host with a closed port does.
        Reset = "reset",
        /// Silence.
        Drop = "drop",
    }
}

words! {
    /// What happens to packets between others.
    pub enum Transit {
        /// Dropped and counted.
        Drop = "drop",
    }
}

/// `[timeouts]`: idle time after which a connection in that state is gone, seconds.
#[derive(Clone, Debug, PartialEq)]
pub struct Timeouts {
    /// TCP ESTABLISHED.
    pub tcp: u32,
    /// TCP FIN_WAIT.
    pub tcpfin: u32,
    /// UDP.
    pub udp: u32,
    /// TCP SYN_SENT.
    pub synsent: u32,
    /// TCP SYN_RECV.
    pub synrecv: u32,
    /// TCP TIME_WAIT.
    pub timewait: u32,
    /// TCP CLOSE.
    pub close: u32,
    /// TCP CLOSE_WAIT.
    pub closewait: u32,
    /// TCP LAST_ACK.
    pub lastack: u32,
    /// TCP LISTEN.
    pub listen: u32,
    /// TCP SYNACK.
    pub synack: u32,
}

impl Timeouts {
    /// Seconds in state NONE; not settable (kernel IPVS, `tcp_timeouts[IP_VS_TCP_S_NONE]` is 2 s).
    pub const TCP_NONE_S: u32 = 2;

    /// Seconds by TCP state, in the order of kernel IPVS: NONE, ESTABLISHED, SYN_SENT, SYN_RECV, FIN_WAIT,
    /// TIME_WAIT, CLOSE, CLOSE_WAIT, LAST_ACK, LISTEN, SYNACK.
    pub const fn tcp_states(&self) -> [u32; 11] {
        [
            Self::TCP_NONE_S,
            self.tcp,
            self.synsent,
            self.synrecv,
            self.tcpfin,
            self.timewait,
            self.close,
            self.closewait,
            self.lastack,
            self.listen,
            self.synack,
        ]
    }
}

/// `[sysctl]`: the knobs of `net.ipv4.vs`, by the kernel's names and with its values.
///
/// Most take any 32-bit integer, as the kernel does, and ask only "zero or not". [`crate::Valid::unbuilt`]
/// lists those that are set and do nothing yet.
#[derive(Clone, Debug, PartialEq)]
#[allow(missing_docs, reason = "each has its sentence in the table of keys")]
pub struct Knobs {
    pub am_droprate: i32,
    pub amemthresh: i32,
    pub backup_only: i32,
    pub cache_bypass: i32,
    pub conn_reuse_mode: i32,
    pub conntrack: i32,
    pub drop_entry: i32,
    pub drop_packet: i32,
    pub expire_nodest_conn: i32,
    pub expire_quiescent_template: i32,
    pub ignore_tunneled: i32,
    pub lblc_expiration: i32,
    pub lblcr_expiration: i32,
    pub nat_icmp_send: i32,
    pub pmtu_disc: i32,
    pub schedule_icmp: i32,
    pub secure_tcp: i32,
    pub sloppy_sctp: i32,
    pub sloppy_tcp: i32,
    pub snat_reroute: i32,
    pub sync_persist_mode: i32,
    pub sync_ports: i32,
    pub sync_qlen_max: i32,
    pub sync_refresh_period: i32,
    pub sync_retries: i32,
    pub sync_sock_size: i32,
    /// Packets before the first message, and the period after it.
    pub sync_threshold: (i32, i32),
    pub sync_version: i32,
}

/// `[estimators]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Estimators {
    /// CPUs, ascending and unique; `None`: those allowed at start without the workers'; empty: no estimation.
    pub est_cpulist: Option<Vec<usize>>,
    /// Nice value of estimator threads, -20..=19.
    pub est_nice: i8,
    /// Whether rates are computed.
    pub run_estimation: bool,
    /// Share of a CPU that one estimator thread may use, percent.
    pub est_load: u8,
}

/// One `[[service]]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Service {
    /// Identity.
    pub key: ServiceKey,
    /// What can be edited.
    pub settings: ServiceSettings,
    /// Destinations, in file order, each identity once.
    pub destinations: Vec<Destination>,
}

/// What can be edited of a service without touching its connections.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ServiceSettings {
    /// Scheduler.
    pub scheduler: Scheduler,
    /// Flag bits.
    pub flags: ServiceFlags,
    /// Whether we answer ARP for the service address and announce it. One for all services of an address.
    pub announce: bool,
    /// Answer to packets for this service that no connection takes.
    pub unmatched: Unmatched,
}

/// One `[[service.destination]]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Destination {
    /// Identity inside the service.
    pub key: DestKey,
    /// Forwarding method of new connections.
    pub method: Method,
    /// Share of new connections, 0..=2^31-1; 0: no new ones.
    pub weight: u32,
    /// Connections at which it is overloaded; 0: never.
    pub upper: u32,
    /// Connections under which it is not overloaded any more; 0: three quarters of `upper`.
    pub lower: u32,
}

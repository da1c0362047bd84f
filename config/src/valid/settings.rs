//! Settings: the tables that are written once.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

use crate::words::words;

/// `[daemon]`.
#[derive(Clone, Debug, PartialEq)]
pub struct Daemon {
    /// Path of the control socket.
    pub socket: String,
    /// Group of the control socket, name or number.
    pub socket_group: String,
    /// Mode of the control socket, octal.
    pub socket_mode: String,
    /// Users that may change things, names or numbers.
    pub write_users: Vec<String>,
    /// Groups that may read, names or numbers.
    pub read_groups: Vec<String>,
    /// Changes per second of one user other than root.
    pub write_rate: u32,
    /// How many of them at once.
    pub write_burst: u32,
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
    pub conn_lfactor: i32,
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
    pub svc_lfactor: i32,
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
    /// Their scheduling policy.
    pub est_sched: SchedPolicy,
    /// Whether rates are computed.
    pub run_estimation: bool,
    /// Share of a CPU that one estimator thread may use, percent.
    pub est_load: u8,
    /// Threads there may be; 0: four for each CPU.
    pub est_threads_max: u32,
    /// After a pause, take what was counted meanwhile as one period's.
    pub resume_spike: bool,
}

/// How the kernel schedules a thread (sched(7)). Text: `other`, `rr:20`, `fifo:1`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SchedPolicy {
    /// Fair shares by niceness.
    Other,
    /// Real time, taking turns at the priority, 1 to 99.
    RoundRobin(u8),
    /// Real time until it sleeps, at the priority, 1 to 99.
    Fifo(u8),
}

/// A text is no scheduling policy.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("not other, rr:PRIORITY or fifo:PRIORITY")]
pub struct NotAPolicy;

impl FromStr for SchedPolicy {
    type Err = NotAPolicy;

    fn from_str(text: &str) -> Result<Self, NotAPolicy> {
        if text == "other" {
            return Ok(SchedPolicy::Other);
        }
        let (name, priority) = text.split_once(':').ok_or(NotAPolicy)?;
        let digits = priority.bytes().all(|byte| byte.is_ascii_digit());
        let priority = priority.parse().ok().filter(|p| digits && (1..=99).contains(p)).ok_or(NotAPolicy)?;
        match name {
            "rr" => Ok(SchedPolicy::RoundRobin(priority)),
            "fifo" => Ok(SchedPolicy::Fifo(priority)),
            _ => Err(NotAPolicy),
        }
    }
}

impl fmt::Display for SchedPolicy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            SchedPolicy::Other => f.write_str("other"),
            SchedPolicy::RoundRobin(priority) => write!(f, "rr:{priority}"),
            SchedPolicy::Fifo(priority) => write!(f, "fifo:{priority}"),
        }
    }
}

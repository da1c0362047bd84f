//! Rows of the control family: what each reading command returns, and the JSON that `--json` prints.
//!
//! Model: a row is one JSON object; the `row` field names its kind where a listing has several kinds. Names
//! are stable: counters end in `_total`, rates in `_per_second`, sizes and times carry their unit. An object
//! is named by its one identity text (`tcp:198.51.100.1:80`, `10.0.0.11:8080`). The daemon writes rows on the
//! control thread, clients read them; neither keeps them.
//!
//! A new figure is a new field with `#[serde(default)]`, so that an older daemon still answers a newer client.

use std::net::{IpAddr, SocketAddr};

use serde::{Deserialize, Serialize};

/// Answer to HELLO.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct HelloRow {
    /// Name of the daemon, `weir`.
    pub name: String,
    /// Its version.
    pub version: String,
    /// Version of the family's messages.
    pub protocol: u8,
    /// What the caller may do: `none`, `read` or `write`.
    pub rights: String,
}

/// A row of `weir sysctl`: one knob of `net.ipv4.vs`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct KnobRow {
    /// Name, without `net.ipv4.vs.`.
    pub name: String,
    /// Value that runs, as a program reads it.
    pub value: String,
    /// Value while nobody has said anything.
    pub default: String,
    /// What it accepts.
    pub accepts: String,
    /// Unit of the value; empty if it has none.
    pub unit: String,
    /// What it does.
    pub sentence: String,
    /// Whether this version acts on it.
    pub in_effect: bool,
}

/// A row of `weir status`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub enum StatusRow {
    /// The process; always the first row.
    Daemon(DaemonRow),
    /// One Ethernet port.
    Port(PortRow),
    /// One worker.
    Worker(WorkerRow),
    /// The estimators.
    Estimators(EstSummaryRow),
    /// One fixed table.
    Table(TableRow),
    /// Something an operator should know.
    Warning(WarningRow),
}

/// The process.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct DaemonRow {
    /// Version of the program.
    pub version: String,
    /// Process id.
    pub pid: u32,
    /// Time since the start.
    pub uptime_seconds: u64,
    /// Number of the last change of what runs, restarts included; 0: nothing but the first start.
    pub revision: u64,
    /// Bytes of the journal.
    #[serde(default)]
    pub journal_bytes: u64,
    /// Generation of the snapshot that was published last.
    pub generation: u64,
    /// File that the configuration came from.
    pub config: String,
    /// Path of the control socket.
    pub socket: String,
    /// Pages of packet memory: `huge` or `normal`.
    pub pages: String,
    /// Size of one such page.
    pub page_bytes: u64,
    /// Packet memory reserved at start.
    pub memory_bytes: u64,
    /// Memory of the process that is in RAM.
    pub resident_bytes: u64,
}

/// A row of `weir plan`, `apply`, `restore` and `rollback`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "snake_case")]
pub enum TransactionRow {
    /// One change: `+` for what comes, `~` for what is edited, `-` for what goes.
    Change {
        /// The change in a line.
        text: String,
    },
    /// A setting that differs and stays as it is until a restart.
    Restart {
        /// The setting in a line.
        setting: String,
    },
    /// A change of the file that is left out: its object was deleted over the socket.
    LeftOut {
        /// The change in a line.
        change: String,
    },
    /// A line that is refused; nothing was changed. No other row comes.
    Refused {
        /// Number of the line, from 1.
        line: u32,
        /// Error number of the kernel for it.
        errno: i32,
    },
    /// The last row.
    End {
        /// Revision in force.
        revision: u64,
        /// Changes listed.
        changes: u64,
        /// Whether they were made.
        applied: bool,
    },
}

/// A row of `weir log`: one revision.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct LogRow {
    /// Number of the revision.
    pub revision: u64,
    /// When, milliseconds since 1970.
    pub unix_ms: u64,
    /// Who: user id.
    pub uid: u32,
    /// Who: process id.
    pub pid: i32,
    /// Who: name of the program.
    pub program: String,
    /// What.
    pub what: String,
}

/// Lines of a text.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TextRow {
    /// The lines, each with its end.
    pub text: String,
}

/// One Ethernet port.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct PortRow {
    /// Name in the configuration.
    pub port: String,
    /// Device text of the configuration.
    pub device: String,
    /// Driver that serves it.
    pub driver: String,
    /// MAC address.
    pub mac: String,
    /// Whether the link is up.
    pub link_up: bool,
    /// Speed of the link, 0 when unknown.
    pub link_mbps: u32,
    /// Largest IP packet.
    pub mtu_bytes: u16,
    /// Own addresses with prefix.
    pub addresses: Vec<String>,
    /// Packets received by the device.
    pub rx_packets_total: u64,
    /// Packets sent by the device.
    pub tx_packets_total: u64,
    /// Bytes received by the device.
    pub rx_bytes_total: u64,
    /// Bytes sent by the device.
    pub tx_bytes_total: u64,
    /// Packets that were lost before us: the receive queue was full.
    pub rx_missed_total: u64,
    /// Packets that the device refused on receive.
    pub rx_errors_total: u64,
    /// Packets that the device failed to send.
    pub tx_errors_total: u64,
}

/// One worker.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WorkerRow {
    /// Number of the worker.
    pub worker: usize,
    /// CPU it is bound to.
    pub cpu: usize,
    /// `exclusive` or `shared`.
    pub mode: String,
    /// Whether the thread runs.
    pub alive: bool,
    /// Share of the last second that went into work, percent.
    pub load_percent: f64,
    /// Packets received.
    pub rx_packets_total: u64,
    /// Packets sent.
    pub tx_packets_total: u64,
    /// Packets dropped, all reasons.
    pub drops_total: u64,
    /// Connections in its table.
    pub connections: u64,
    /// Packets received or taken over from other workers, over the last second.
    #[serde(default)]
    pub packets_per_second: f64,
    /// Time stamp counter cycles for each such packet, of the turns that had any; 0 without packets.
    #[serde(default)]
    pub cycles_per_packet: f64,
    /// Such packets in each turn of the loop that had any.
    #[serde(default)]
    pub packets_per_poll: f64,
    /// Share of turns without packets, percent.
    #[serde(default)]
    pub empty_polls_percent: f64,
    /// Turns of its loop.
    #[serde(default)]
    pub polls_total: u64,
    /// Packets handed to the workers that own their flows.
    #[serde(default)]
    pub handed_out_total: u64,
    /// Packets taken over from other workers.
    #[serde(default)]
    pub handed_in_total: u64,
    /// Packets dropped because the owner's ring was full.
    #[serde(default)]
    pub ring_drops_total: u64,
}

/// One table of fixed size.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct TableRow {
    /// Which: `connections`, `services`, `destinations`, `neighbours`, `clients`, `mbufs`.
    pub table: String,
    /// Entries in use.
    pub used: u64,
    /// Entries there is room for.
    pub size: u64,
    /// Memory set aside for it; 0 when it is part of another figure.
    pub reserved_bytes: u64,
}

/// Something an operator should know.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct WarningRow {
    /// What is seen.
    pub seen: String,
    /// What it likely means.
    pub meaning: String,
    /// What to do.
    pub remedy: String,
}

/// A row of `weir drops`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DropRow {
    /// Name of the reason.
    pub reason: String,
    /// Packets dropped for it since the start.
    pub drops_total: u64,
    /// The same per second, over the last seconds.
    pub drops_per_second: f64,
    /// What happened, as a sentence.
    pub sentence: String,
}

/// A row of `weir list`: head, then each service followed by its destinations, in the kernel's dump order.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub enum ListRow {
    /// Always the first row.
    Head(ListHead),
    /// One service.
    Service(ServiceRow),
    /// One destination of the service before it.
    Dest(DestRow),
}

/// Facts of the whole listing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ListHead {
    /// Index entries of the connection table, all workers together.
    pub connection_table_size: u64,
}

/// One service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ServiceRow {
    /// Identity.
    pub service: String,
    /// `tcp`, `udp`, `sctp`, else the number.
    pub protocol: String,
    /// Virtual address; absent in a mark service.
    pub address: Option<IpAddr>,
    /// L4 port; 0 in a mark service.
    pub port: u16,
    /// Firewall mark; 0 in an address service.
    #[serde(default)]
    pub fwmark: u32,
    /// Whether a mark service is one for IPv6.
    #[serde(default)]
    pub fwmark_ipv6: bool,
    /// Scheduler, by the kernel's name.
    pub scheduler: String,
    /// Which of the scheduler's flags 1 to 3 are set.
    #[serde(default)]
    pub scheduler_flags: Vec<u8>,
    /// Persistence timeout; 0 when not persistent.
    #[serde(default)]
    pub persistent_seconds: u32,
    /// Persistence mask, when it is not the full one: dotted quad, or prefix length for IPv6.
    #[serde(default)]
    pub persistent_mask: Option<String>,
    /// Persistence engine.
    #[serde(default)]
    pub persistence_engine: Option<String>,
    /// One-packet scheduling.
    #[serde(default)]
    pub one_packet: bool,
    /// Counters.
    #[serde(flatten)]
    pub counters: CounterFields,
    /// Rates.
    #[serde(flatten)]
    pub rates: RateFields,
}

/// One destination.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct DestRow {
    /// Identity of its service.
    pub service: String,
    /// Identity inside the service: address and L4 port.
    pub dest: SocketAddr,
    /// `nat`, `local`, `tunnel`, `dr`, `bypass`.
    pub method: String,
    /// Weight; 0: no new connections.
    pub weight: u32,
    /// Connections at which it is overloaded; 0: never.
    pub upper_connections: u32,
    /// Connections under which it is not overloaded any more.
    pub lower_connections: u32,
    /// Connections in an active state.
    pub active_connections: u32,
    /// Connections in another state.
    pub inactive_connections: u32,
    /// Persistence templates.
    #[serde(default)]
    pub persistent_connections: u32,
    /// Counters.
    #[serde(flatten)]
    pub counters: CounterFields,
    /// Rates.
    #[serde(flatten)]
    pub rates: RateFields,
}

/// The five counters of an object, as of its last pass, at most two seconds ago.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct CounterFields {
    /// Connections scheduled.
    pub connections_total: u64,
    /// Packets from clients.
    pub in_packets_total: u64,
    /// Packets to clients.
    pub out_packets_total: u64,
    /// Bytes from clients, IP length.
    pub in_bytes_total: u64,
    /// Bytes to clients, IP length.
    pub out_bytes_total: u64,
}

/// The five rates of an object, as of its last pass.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateFields {
    /// Connections scheduled.
    pub connections_per_second: u64,
    /// Packets from clients.
    pub in_packets_per_second: u64,
    /// Packets to clients.
    pub out_packets_per_second: u64,
    /// Bytes from clients, IP length.
    pub in_bytes_per_second: u64,
    /// Bytes to clients, IP length.
    pub out_bytes_per_second: u64,
}

/// A row of `weir rates`: the whole box first, then objects, the busiest first.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RateRow {
    /// Identity of the service; absent for the whole box.
    pub service: Option<String>,
    /// Identity of the destination; absent for the service itself.
    pub dest: Option<String>,
    /// Time since the pass that the rates are of; absent before the first.
    pub age_ms: Option<u64>,
    /// Rates.
    #[serde(flatten)]
    pub rates: RateFields,
}

/// A row of `weir est`.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "row", rename_all = "lowercase")]
pub enum EstRow {
    /// All together; always the first row.
    Summary(EstSummaryRow),
    /// One thread.
    Thread(EstThreadRow),
}

/// The estimators all together.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EstSummaryRow {
    /// Whether rates are computed.
    pub running: bool,
    /// The setting; with it on and no CPU nothing runs either.
    pub run_estimation: bool,
    /// CPUs, `0-3,8`.
    pub cpus: String,
    /// Niceness of the threads.
    pub nice: i8,
    /// Their policy: `other`, `rr:20`, `fifo:1`.
    pub policy: String,
    /// Share of a CPU that one thread may use.
    pub load_limit_percent: u8,
    /// Workers whose counters are summed.
    pub workers: usize,
    /// Threads that run.
    pub threads: usize,
    /// Threads there may be.
    pub threads_max: usize,
    /// Estimators that pass in 95 us on the first thread; 0 before it is measured.
    pub chain_max: u64,
    /// Estimators of a full thread as the kernel counts: 48 chains in each of 50 rows.
    pub thread_estimators_max: u64,
    /// Estimators.
    pub estimators: u64,
    /// Blocks of 1024 slots in use.
    pub blocks: usize,
    /// CPU time of all threads as a share of one CPU.
    pub load_percent: f64,
    /// Ticks that rows came late by.
    pub late_ticks_total: u64,
    /// Additions whose first period was short: the rows due last had no room.
    pub short_first_periods_total: u64,
    /// Blocks taken into use though no thread had room.
    pub over_budget_total: u64,
    /// Last calibration: best four hot passes of an estimator; 0 if there was none or no usable run.
    pub calibration_single_ns: u64,
    /// Its chain limit.
    pub calibration_chain_max: u64,
    /// Time since it; absent before the first.
    pub calibration_age_seconds: Option<u64>,
}

/// One estimator thread. Loads are those of its last whole revolution of two seconds.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct EstThreadRow {
    /// Number of the thread.
    pub est_thread: usize,
    /// The system's number; 0 when there is none.
    pub tid: i32,
    /// Whether it runs.
    pub running: bool,
    /// CPUs it may run on.
    pub cpus: String,
    /// Estimators it passes.
    pub estimators: u64,
    /// Blocks of them.
    pub blocks: usize,
    /// CPU time as a share of one CPU.
    pub load_percent: f64,
    /// Longest row, wall time.
    pub worst_row_ns: u64,
    /// Ticks that rows came late by.
    pub late_ticks_total: u64,
    /// Estimators that pass in 95 us at the measured cost.
    pub chain_max: u64,
    /// Estimators that fit the load limit at the measured cost.
    pub estimators_max: u64,
    /// Cost of an estimator over all workers, picoseconds.
    pub cost_ps: u64,
    /// Cost of an estimator for each worker, picoseconds.
    pub cost_per_worker_ps: u64,
    /// Revolutions since it was started.
    pub revolutions_total: u64,
    /// It gives its estimators to others.
    pub draining: bool,
}

/// A connection of `weir conns`, as `--json` prints it; on the wire it is a [`super::conns::Record`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct ConnRow {
    /// Worker that owns the connection.
    pub worker: usize,
    /// Protocol as the kernel prints it: `TCP`, `UDP`, `IP` and so on.
    pub protocol: &'static str,
    /// Client address and port.
    pub client: SocketAddr,
    /// Virtual address and port.
    pub service_address: SocketAddr,
    /// Destination address and port.
    pub dest: SocketAddr,
    /// State, by the kernel's name.
    pub state: &'static str,
    /// Time until it expires if no packet comes.
    pub expires_ms: u64,
    /// `nat`, `dr` and so on.
    pub method: &'static str,
}

/// Bytes of a row on the wire.
pub fn to_json(row: &impl Serialize) -> Vec<u8> {
    serde_json::to_vec(row).expect("rows have string keys and finite numbers")
}

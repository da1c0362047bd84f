//! Keys of the daemon's own settings: process, memory, threads, tables, timeouts, policy.

use super::row::{Key, Kind::*, Preset, Table};
use crate::valid::{OnFull, Pages, SchedScope, Steer, Transit, Unmatched, WorkerMode};

#[rustfmt::skip]
pub(super) const DAEMON: Table = Table {
    name: "daemon", list: false,
    sentence: "The process: where it listens, keeps its state, and how much it says.",
    keys: &[
        Key::new("socket", Text, Preset::Text("/run/weir/weir.sock"), "path",
            "Control socket.",
            "Under /run, where systemd's RuntimeDirectory= puts it."),
        Key::new("socket_group", Text, Preset::Text("ipvs"), "group",
            "Group of the control socket, by name or number; who is in it may change things, as root may. Where there is no such group, root and the daemon's user are alone.",
            "The group's name says whom it is for; a machine without it is closed."),
        Key::new("socket_mode", Word(&["0600", "0660", "0666"]), Preset::Text("0660"), "file mode",
            "Who may connect at all: the owner, the group too, everyone.",
            "0666 is for read_groups, whose users are in another group than the socket's."),
        Key::new("write_users", Texts, Preset::Empty, "users",
            "Further users that may change things, by name or number.",
            "Root, the daemon's user and the socket's group are enough as a rule."),
        Key::new("read_groups", Texts, Preset::Empty, "groups",
            "Groups whose users may look and change nothing, by name or number.",
            "Off: kernel IPVS shows its netlink family to administrators only."),
        Key::new("write_rate", Int(1, 1_000_000), Preset::Int(10_000), "commands/s",
            "Changes that one user other than root may make; what is over it is refused as busy.",
            "A tenth of what the daemon executes, so that no user keeps the others waiting."),
        Key::new("write_burst", Int(1, 100_000_000), Preset::Int(250_000), "commands",
            "How many of them at once after a pause.",
            "A restore of 100 000 services with a destination each passes."),
        Key::new("state_dir", Text, Preset::Text("/var/lib/weir"), "path",
            "Directory of the journal, which outlives a restart.",
            "Under /var/lib, where systemd's StateDirectory= puts it."),
        Key::new("log", Text, Preset::Text("info"), "filter",
            "What is logged: a level, or levels by target like \"info,weir::est=debug\".",
            "info is one line for each action of an operator and nothing for packets."),
    ],
};

#[rustfmt::skip]
pub(super) const EAL: Table = Table {
    name: "eal", list: false,
    sentence: "DPDK's environment: memory and arguments.",
    keys: &[
        Key::new("pages", Word(Pages::NAMES), Preset::Text("auto"), "",
            "Pages of packet memory: huge ones if there are enough (auto), huge ones or no start (huge), ordinary ones (normal).",
            "auto starts on any machine and says in the log what it got."),
        Key::new("memory_mb", Int(64, 1_048_576), Preset::Int(512), "MiB",
            "Packet memory.",
            "Holds the buffers of a few ports with deep rings."),
        Key::new("args", Texts, Preset::Empty, "",
            "Further arguments, handed to DPDK's EAL as they are.",
            "None is needed for the devices that are configured as ports."),
    ],
};

#[rustfmt::skip]
pub(super) const WORKERS: Table = Table {
    name: "workers", list: false,
    sentence: "The threads that forward packets.",
    keys: &[
        Key::new("cpus", Cpus, Preset::Unset("one worker, on the last CPU the daemon may use"), "CPU list",
            "CPUs to forward on, one worker each.",
            "One worker runs on any machine; the last CPU is the one least used for interrupts."),
        Key::new("mode", Word(WorkerMode::NAMES), Preset::Text("auto"), "",
            "How an idle worker waits: spinning (exclusive), sleeping shortly (shared), or chosen by whether the CPU is its alone (auto).",
            "auto spins only where that takes time from nobody."),
        Key::new("steer", Word(Steer::NAMES), Preset::Text("client"), "",
            "What chooses the worker of a connection: the client's address (client), or address and port (client-port).",
            "By address, what one client does is local to one worker."),
        Key::new("sched_scope", Word(SchedScope::NAMES), Preset::Text("worker"), "",
            "Whether a scheduler's turn is kept by each worker or by all together (global).",
            "Workers share nothing that changes with each connection."),
        Key::new("nice", Int(-20, 19), Preset::Int(0), "nice value",
            "Priority of worker threads.",
            "As any process; a CPU of its own needs no priority."),
    ],
};

#[rustfmt::skip]
pub(super) const ESTIMATORS: Table = Table {
    name: "estimators", list: false,
    sentence: "The threads that turn counters into rates.",
    keys: &[
        Key::new("est_cpulist", Cpus, Preset::Unset("the CPUs the daemon may use, without the workers'"), "CPU list",
            "CPUs to estimate on; the empty text stops estimation.",
            "Rates never take time from packets."),
        Key::new("est_nice", Int(-20, 19), Preset::Int(0), "nice value",
            "Priority of estimator threads.",
            "The kernel's."),
        Key::new("est_sched", Policy, Preset::Text("other"), "",
            "Scheduling policy of estimator threads; a real-time one only on CPUs without a worker.",
            "Rates can wait a little; sched(7) says what the others do."),
        Key::new("run_estimation", Bool, Preset::Bool(true), "",
            "Whether rates are computed; counters run anyway.",
            "The kernel's."),
        Key::new("est_load", Int(1, 80), Preset::Int(12), "percent of a CPU",
            "Share of a CPU one estimator thread may use before another is started.",
            "The kernel's share: one eighth."),
        Key::new("est_threads_max", Int(0, 1024), Preset::Int(0), "threads",
            "How many estimator threads there may be; 0 for four for each CPU of est_cpulist.",
            "The kernel's: half of each CPU at most."),
        Key::new("resume_spike", Bool, Preset::Bool(false), "",
            "Whether the first rates after a pause take all that was counted meanwhile for two seconds' worth, as the kernel does.",
            "A pause is no load."),
    ],
};

#[rustfmt::skip]
pub(super) const CONNECTIONS: Table = Table {
    name: "connections", list: false,
    sentence: "The connection table: its memory is taken at start and does not grow.",
    keys: &[
        Key::new("max", Int(1, 268_435_456), Preset::Int(1_048_576), "connections",
            "How many connections all workers may have together.",
            "About 100 bytes each with index: 100 MiB."),
        Key::new("extras_max", Int(0, 268_435_456), Preset::Int(131_072), "connections",
            "Of these, how many may need a second record: IPv6 and rare features.",
            "An eighth of max.").unbuilt(),
        Key::new("on_full", Word(OnFull::NAMES), Preset::Text("refuse"), "",
            "What a new connection meets when the table is full: its packet is dropped and counted.",
            "Connections that exist are worth more than new ones."),
    ],
};

#[rustfmt::skip]
pub(super) const LIMITS: Table = Table {
    name: "limits", list: false,
    sentence: "How many objects there may be; memory for them is reserved at start.",
    keys: &[
        Key::new("services", Int(1, 1_048_576), Preset::Int(131_072), "services",
            "How many services there may be.",
            "100 000 with room; only what is used takes memory."),
        Key::new("destinations", Int(1, 16_777_216), Preset::Int(1_048_576), "destinations",
            "How many destinations all services may have together.",
            "Eight for each service."),
        Key::new("neighbours", Int(16, 1_048_576), Preset::Int(65_536), "neighbours",
            "How many Ethernet neighbours there may be, learned and written.",
            "Every host of a /16, the largest network that is wise on one segment."),
        Key::new("icmp_rate", Int(0, 1_000_000), Preset::Int(1_000), "packets/s for each worker",
            "Packets of our own making: ICMP errors, TCP resets, echo replies.",
            "Linux's icmp_msgs_per_sec."),
        Key::new("icmp_burst", Int(1, 1_000_000), Preset::Int(50), "packets for each worker",
            "How many of those may leave at once after a pause.",
            "Linux's icmp_msgs_burst."),
    ],
};

/// Kernel IPVS takes timeouts up to INT_MAX jiffies; with 1000 jiffies a second that is 24 days.
const TIMEOUT_MAX_S: i64 = 2_147_483;

#[rustfmt::skip]
pub(super) const TIMEOUTS: Table = Table {
    name: "timeouts", list: false,
    sentence: "How long a connection may be idle in each state. A packet starts the time anew.",
    keys: &[
        Key::new("tcp", Int(1, TIMEOUT_MAX_S), Preset::Int(900), "seconds",
            "TCP in ESTABLISHED.", "The kernel's."),
        Key::new("tcpfin", Int(1, TIMEOUT_MAX_S), Preset::Int(120), "seconds",
            "TCP in FIN_WAIT.", "The kernel's."),
        Key::new("udp", Int(1, TIMEOUT_MAX_S), Preset::Int(300), "seconds",
            "UDP, which has no states.", "The kernel's."),
        Key::new("synsent", Int(1, TIMEOUT_MAX_S), Preset::Int(120), "seconds",
            "TCP in SYN_SENT.", "The kernel's, fixed there."),
        Key::new("synrecv", Int(1, TIMEOUT_MAX_S), Preset::Int(60), "seconds",
            "TCP in SYN_RECV.", "The kernel's, fixed there."),
        Key::new("timewait", Int(1, TIMEOUT_MAX_S), Preset::Int(120), "seconds",
            "TCP in TIME_WAIT.", "The kernel's, fixed there."),
        Key::new("close", Int(1, TIMEOUT_MAX_S), Preset::Int(10), "seconds",
            "TCP in CLOSE.", "The kernel's, fixed there."),
        Key::new("closewait", Int(1, TIMEOUT_MAX_S), Preset::Int(60), "seconds",
            "TCP in CLOSE_WAIT.", "The kernel's, fixed there."),
        Key::new("lastack", Int(1, TIMEOUT_MAX_S), Preset::Int(30), "seconds",
            "TCP in LAST_ACK.", "The kernel's, fixed there."),
        Key::new("listen", Int(1, TIMEOUT_MAX_S), Preset::Int(120), "seconds",
            "TCP in LISTEN.", "The kernel's, fixed there."),
        Key::new("synack", Int(1, TIMEOUT_MAX_S), Preset::Int(120), "seconds",
            "TCP in SYNACK.", "The kernel's, fixed there."),
    ],
};

#[rustfmt::skip]
pub(super) const POLICY: Table = Table {
    name: "policy", list: false,
    sentence: "Packets that belong to no connection and make none.",
    keys: &[
        Key::new("unmatched", Word(Unmatched::NAMES), Preset::Text("reset"), "",
            "Packets to a service address that no service or connection takes: refused with TCP reset or port unreachable (reset), or dropped in silence (drop).",
            "What the host behind an IPVS director does: clients learn at once that a connection is gone."),
        Key::new("transit", Word(Transit::NAMES), Preset::Text("drop"), "",
            "Packets to addresses that are neither a service's nor ours.",
            "A balancer is no router."),
        Key::new("echo", Bool, Preset::Bool(true), "",
            "Whether ping to service and port addresses is answered.",
            "What operators and monitors expect of an address that is up."),
    ],
};

//! The command line of `weir`.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use clap::{Args, Parser, Subcommand};
use clap_complete::Shell;

use crate::api::codec::{RATES_TOP, RateOrder};
use crate::manual::{Page, Program};
use crate::show::proc::NAMES as PROC_NAMES;

/// Environment variable that names the control socket.
pub const SOCKET_VARIABLE: &str = "WEIR_SOCKET";
/// Control socket when neither option nor variable names one.
pub const DEFAULT_SOCKET: &str = "/run/weir/weir.sock";

/// A layer 4 load balancer in user space.
#[derive(Debug, Parser)]
#[command(name = "weir", version, max_term_width = 100, arg_required_else_help = true)]
#[command(after_help = "Exit status: 0 done, 1 refused or failed while running, 2 usage or configuration, \
    3 environment (no daemon, no privilege, no device), 10 a dry run found differences.")]
pub struct Cli {
    /// What to do.
    #[command(subcommand)]
    pub command: Command,
}

/// The commands.
#[derive(Debug, Subcommand)]
pub enum Command {
    /// Run the daemon in the foreground; logs go to stderr
    #[command(after_help = "SIGHUP reads the file again and applies what differs; SIGTERM stops.\n\n\
        Example:\n  weir run --config /etc/weir/weir.toml")]
    Run(RunArgs),
    /// Check a configuration and print every problem
    #[command(after_help = "Example:\n  weir check --show /etc/weir/weir.toml")]
    Check(CheckArgs),
    /// Show what a configuration would change of what runs
    #[command(after_help = "Nothing is changed. Exit status: 0 no difference, 10 some.\n\n\
        Example:\n  weir plan /etc/weir/weir.toml")]
    Plan(PlanArgs),
    /// Apply a configuration to what runs, whole or not at all
    #[command(
        after_help = "What was set over the socket stays unless its own line differs from the file as last \
        applied. It counts as one revision. Exit status of a dry run: 0 no difference, 10 some.\n\n\
        Example:\n  weir apply /etc/weir/weir.toml --dry-run"
    )]
    Apply(ApplyArgs),
    /// Make the services those of a file that `weir save` or `ipvsadm -S` wrote, whole or not at all
    #[command(
        after_help = "Services and destinations that stay keep connections and counters. A line that is not \
        understood, or refused, is named, and nothing is changed. Lines may be comments (#) and any of ipvsadm's \
        commands that change something. Exit status of a dry run: 0 no difference, 10 some.\n\n\
        Example:\n  weir restore /var/lib/weir/saved --dry-run"
    )]
    Restore(RestoreArgs),
    /// Print what runs as lines that `weir restore` and `ipvsadm -R` read
    #[command(after_help = "Thresholds, timeouts and sync daemons are among the lines. With --toml it is a \
        configuration file; what has no form there is in its comments.\n\n\
        Example:\n  weir save --toml")]
    Save(SaveArgs),
    /// List the last revisions: when, who, what
    #[command(
        after_help = "The last 64 are kept, over restarts. Times are UTC.\n\nExample:\n  weir log --json"
    )]
    Log(LogArgs),
    /// Go back to a revision
    #[command(
        after_help = "Services, destinations, timeouts, daemons and the settings of the file that was applied \
        then; it is a new revision. The file on disk is not touched: the next reload or start applies where it \
        differs.\n\nExample:\n  weir rollback 41 --dry-run"
    )]
    Rollback(RollbackArgs),
    /// Show ports, workers, tables and warnings
    #[command(after_help = "Example:\n  weir status --watch 5")]
    Status(StatusArgs),
    /// Show what each worker does: load, cycles a packet, bursts, packets handed over
    #[command(after_help = "Example:\n  weir workers --watch 1")]
    Workers(WorkersArgs),
    /// Show the estimator threads and what rates cost
    #[command(after_help = "Example:\n  weir est --watch")]
    Est(EstArgs),
    /// Show the services and destinations with the highest rates
    #[command(after_help = "Bytes, not bits, a second, over about the last 8 seconds.\n\n\
        Example:\n  weir rates --watch --top 10 --sort bytes")]
    Rates(RatesArgs),
    /// Show why packets were dropped
    #[command(after_help = "Example:\n  weir drops --all")]
    Drops(DropsArgs),
    /// List services and destinations as ipvsadm does
    #[command(after_help = "Example:\n  weir list --stats")]
    List(ListArgs),
    /// List connections
    #[command(after_help = "Example:\n  weir conns --service tcp:198.51.100.1:80 --state ESTABLISHED")]
    Conns(ConnsArgs),
    /// Show and set the knobs of net.ipv4.vs, by the kernel's names
    #[command(
        after_help = "Values are read and refused as the kernel's files do it. A reload of the configuration \
        changes only knobs whose own line changed.\n\n\
        Example:\n  weir sysctl conn_reuse_mode=0"
    )]
    Sysctl(SysctlArgs),
    /// Print a text of /proc/net as the kernel's IPVS would
    #[command(
        after_help = "Rows for each CPU are rows for each worker.\n\nExample:\n  weir proc ip_vs_stats"
    )]
    Proc(ProcArgs),
    /// Run the packets of a capture through a configuration
    #[command(after_help = "The same packets give the same result every time: the clock is the capture's. \
        A frame comes in on the port whose MAC address it is for: `mac` in [[port]], \
        else 02:00:00:00:00:01 for the first port, :02 for the second. No device is opened.\n\n\
        Example:\n  weir replay rules.toml in.pcap out.pcap --trace")]
    Replay(ReplayArgs),
    /// Run a program that speaks to the kernel's IPVS, and let it speak to Weir
    #[command(after_help = "The program (ipvsadm, keepalived, ...) runs as it is, with libweir_ipvs.so \
        preloaded. Without a daemon it finds no IPVS; the kernel's is never used. Static, set-user-id and Go \
        programs cannot be run so. The exit status is the program's.\n\n\
        Example:\n  weir exec -- ipvsadm -Ln --stats")]
    Exec(ExecArgs),
    /// Print a shell's completions of our command lines
    #[command(after_help = "Example:\n  weir completions bash --program weiradm")]
    Completions(CompletionsArgs),
    /// Print a manual page, for man(1)
    #[command(hide = true, after_help = "Example:\n  weir manual weir.toml")]
    Manual(ManualArgs),
}

/// `weir run`.
#[derive(Debug, Args)]
pub struct RunArgs {
    /// Configuration file
    #[arg(long, value_name = "FILE")]
    pub config: PathBuf,
}

/// `weir check`.
#[derive(Debug, Args)]
pub struct CheckArgs {
    /// Configuration file
    pub file: PathBuf,
    /// Print the configuration with all defaults filled in
    #[arg(long)]
    pub show: bool,
}

/// What every reading command takes.
#[derive(Debug, Args)]
pub struct Reading {
    /// Control socket of the daemon [default: WEIR_SOCKET, else /run/weir/weir.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// Print JSON
    #[arg(long)]
    pub json: bool,
}

impl Reading {
    /// The socket to use: option, else variable, else default.
    pub fn socket_path(&self) -> PathBuf {
        socket_path(self.socket.as_deref())
    }
}

/// The socket to use: option, else variable, else default.
pub fn socket_path(option: Option<&Path>) -> PathBuf {
    let from_variable = || std::env::var_os(SOCKET_VARIABLE).filter(|v| !v.is_empty()).map(PathBuf::from);
    option.map(Path::to_owned).or_else(from_variable).unwrap_or_else(|| DEFAULT_SOCKET.into())
}

/// Repetition of a command whose figures move.
#[derive(Debug, Args)]
pub struct Watch {
    /// Print again every so many seconds, until interrupted
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=86_400))]
    pub watch: Option<u32>,
}

/// `weir status`.
#[derive(Debug, Args)]
pub struct StatusArgs {
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir workers`.
#[derive(Debug, Args)]
pub struct WorkersArgs {
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir est`.
#[derive(Debug, Args)]
pub struct EstArgs {
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir rates`.
#[derive(Debug, Args)]
pub struct RatesArgs {
    /// So many of them
    #[arg(long, value_name = "N", default_value_t = RATES_TOP)]
    #[arg(value_parser = clap::value_parser!(u32).range(1..))]
    pub top: u32,
    /// The highest of these first, both ways
    #[arg(long, value_enum, default_value_t)]
    pub sort: RateOrder,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir drops`.
#[derive(Debug, Args)]
pub struct DropsArgs {
    /// Also reasons that never happened
    #[arg(long)]
    pub all: bool,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir list`.
#[derive(Debug, Args)]
pub struct ListArgs {
    /// Connections, packets and bytes in place of scheduler and weights
    #[arg(long, group = "figures")]
    pub stats: bool,
    /// Connections, packets and bytes a second in place of scheduler and weights
    #[arg(long, group = "figures")]
    pub rate: bool,
    /// Large numbers in full
    #[arg(long, requires = "figures")]
    pub exact: bool,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir conns`.
#[derive(Debug, Args)]
pub struct ConnsArgs {
    /// Connections of this client
    #[arg(long, value_name = "ADDRESS[:PORT]")]
    pub client: Option<String>,
    /// Connections of this service, e.g. tcp:198.51.100.1:80
    #[arg(long, value_name = "SERVICE")]
    pub service: Option<String>,
    /// Connections to this destination, e.g. 10.0.0.11:8080
    #[arg(long, value_name = "ADDRESS:PORT")]
    pub dest: Option<String>,
    /// Connections in this state, e.g. ESTABLISHED
    #[arg(long, value_name = "STATE")]
    pub state: Option<String>,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir sysctl`.
#[derive(Debug, Args)]
pub struct SysctlArgs {
    /// Knobs to show, or to set first; all when none is named
    #[arg(value_name = "NAME[=VALUE]")]
    pub knobs: Vec<String>,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir plan`.
#[derive(Debug, Args)]
pub struct PlanArgs {
    /// Configuration file
    pub file: PathBuf,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir proc`.
#[derive(Debug, Args)]
pub struct ProcArgs {
    /// The text
    #[arg(value_parser = PROC_NAMES)]
    pub name: String,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
    /// Repetition.
    #[command(flatten)]
    pub watch: Watch,
}

/// `weir apply`.
#[derive(Debug, Args)]
pub struct ApplyArgs {
    /// Configuration file
    pub file: PathBuf,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir restore`.
#[derive(Debug, Args)]
pub struct RestoreArgs {
    /// File with a command in each line; - for standard input
    pub file: PathBuf,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir save`.
#[derive(Debug, Args)]
pub struct SaveArgs {
    /// Print a configuration file
    #[arg(long)]
    pub toml: bool,
    /// Control socket of the daemon [default: WEIR_SOCKET, else /run/weir/weir.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
}

impl SaveArgs {
    /// The socket to use: option, else variable, else default.
    pub fn socket_path(&self) -> PathBuf {
        socket_path(self.socket.as_deref())
    }
}

/// `weir log`.
#[derive(Debug, Args)]
pub struct LogArgs {
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir rollback`.
#[derive(Debug, Args)]
pub struct RollbackArgs {
    /// Revision, as `weir log` lists it
    pub revision: u64,
    /// Only print what would change
    #[arg(long)]
    pub dry_run: bool,
    /// Socket and form.
    #[command(flatten)]
    pub reading: Reading,
}

/// `weir replay`.
#[derive(Debug, Args)]
pub struct ReplayArgs {
    /// Configuration file
    pub rules: PathBuf,
    /// Capture to read
    #[arg(value_name = "IN")]
    pub input: PathBuf,
    /// Capture to write
    #[arg(value_name = "OUT")]
    pub output: PathBuf,
    /// Print what became of every packet
    #[arg(long)]
    pub trace: bool,
}

/// `weir exec`.
#[derive(Debug, Args)]
pub struct ExecArgs {
    /// Control socket of the daemon [default: WEIR_SOCKET, else /run/weir/weir.sock]
    #[arg(long, value_name = "PATH")]
    pub socket: Option<PathBuf>,
    /// The program and its arguments
    #[arg(value_name = "PROGRAM", required = true, trailing_var_arg = true)]
    pub program: Vec<OsString>,
}

/// `weir completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell
    pub shell: Shell,
    /// Program whose words are completed
    #[arg(long, value_name = "PROGRAM", default_value = "weir")]
    pub program: Program,
}

/// `weir manual`.
#[derive(Debug, Args)]
pub struct ManualArgs {
    /// The page
    pub page: Page,
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn every_command_has_an_example_that_parses() {
        Cli::command().debug_assert();
        for command in Cli::command().get_subcommands() {
            let name = command.get_name();
            let help =
                command.get_after_help().unwrap_or_else(|| panic!("{name} has no example")).to_string();
            let example =
                help.lines().find_map(|l| l.strip_prefix("  weir ")).unwrap_or_else(|| panic!("{help}"));
            let words = std::iter::once("weir").chain(example.split_whitespace());
            Cli::try_parse_from(words).unwrap_or_else(|e| panic!("{example}: {e}"));
            assert!(example.starts_with(name), "{example}");
        }
    }
}

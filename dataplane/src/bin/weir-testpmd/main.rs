//! `weir-testpmd`: DPDK's testpmd as far as a balancer's bench needs it, with two modes more: `lb`, Weir's own worker,
//! and `lbgen`, its clients and servers. Command line, prompt and statistics are those of testpmd 22.11.
//!
//! ```text
//! words before -- ─ lcores: who runs where        words behind -- ─ options ─ settings
//!                 └ rest: to the EAL as typed                                  │
//! main ── EAL, pool, ports ── session ── prompt ── commands                    │
//!                                  └ forward: start … stop ── one thread a core ── engine
//! ```
//! The thread of `main` is control: it prints, types and owns the ports. Each forwarding lcore is a thread of ours that
//! lives from `start` to `stop`, owns its queues meanwhile, and shares only counters with control. What is not honoured
//! is refused by name.

#![forbid(unsafe_code)]

mod commands;
mod engine;
mod forward;
mod help;
mod input;
mod lcores;
mod options;
mod output;
mod ports;
mod session;
mod settings;
mod show;
mod stats;
mod view;

use std::process::ExitCode;
use std::time::Duration;

use dpdk_sys::{CALIBRATION, CpuSet, Eal, EalArgs, Mempool, PoolConfig, TscClock, allowed_cpus};

use crate::forward::{Cores, Extra};
use crate::input::{Event, Input};
use crate::lcores::{EalWords, Lcore};
use crate::options::Options;
use crate::output::{complain, print};
use crate::ports::PortSlot;
use crate::session::{After, Session};
use crate::settings::Settings;
use crate::show::CoreName;
use crate::stats::FwdStats;

/// Mbufs that an lcore may keep to itself, as testpmd's.
const CACHE: u32 = 250;
/// Mbufs of the pool when nobody says how many: testpmd's sum of 2048 descriptors each way, a burst of 512 and the
/// caches, for each of the 32 ports there may be.
const fn default_mbufs(cores: u32, cache: u32) -> u32 {
    (2048 + 2048 + 512 + cores * cache) * 32
}

fn main() -> ExitCode {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let (eal_words, own) = match words.iter().position(|word| word == "--") {
        Some(at) => (&words[..at], &words[at + 1..]),
        None => (&words[..], &[][..]),
    };
    // DPDK's lines reach standard error as they are.
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_max_level(tracing_subscriber::filter::LevelFilter::DEBUG)
        .with_ansi(false)
        .with_level(false)
        .with_target(false)
        .without_time()
        .init();
    match start(eal_words, own) {
        Ok(()) => ExitCode::SUCCESS,
        Err(cause) => {
            complain(&cause);
            ExitCode::FAILURE
        }
    }
}

/// What testpmd prints when it gives up.
fn failure(cause: &str) -> String {
    format!("EAL: Error - exiting with code: 1\n  Cause: {cause}\n")
}

fn start(eal_words: &[String], own: &[String]) -> Result<(), String> {
    let allowed = allowed_cpus().map_err(|error| failure(&format!("allowed CPUs: {error}")))?;
    let eal_words = EalWords::read(eal_words, &allowed)
        .and_then(|words| check_cpus(words, &allowed))
        .map_err(|why| format!("EAL: {why}\n{}", failure("Cannot init EAL: Invalid argument")))?;
    let args = EalArgs::as_typed(eal_words.rest.clone()).main_cpu(eal_words.main.cpus[0]);
    let eal = Eal::start(&args).map_err(|error| failure(&format!("Cannot init EAL: {error}")))?;
    let names = eal.port_names();
    let ended = with_eal(&eal, &eal_words, own, &names);
    if ended.is_err() {
        let closed: String = (0..names.len()).map(|id| format!("Port {id} is closed\n")).collect();
        return ended.map_err(|cause| cause + &closed);
    }
    print("\nBye...\n");
    Ok(())
}

fn check_cpus(words: EalWords, allowed: &CpuSet) -> Result<EalWords, String> {
    for lcore in std::iter::once(&words.main).chain(&words.forwarding) {
        if let Some(cpu) = lcore.cpus.iter().find(|cpu| !allowed.contains(**cpu)) {
            return Err(format!(
                "lcore {}: CPU {cpu} is not to be had; this process may use {allowed}",
                lcore.id
            ));
        }
    }
    Ok(words)
}

fn with_eal(eal: &Eal, words: &EalWords, own: &[String], names: &[String]) -> Result<(), String> {
    if names.is_empty() {
        complain("testpmd: No probed ethernet devices\n");
    }
    if words.forwarding.is_empty() {
        return Err(failure("No cores defined for forwarding\nCheck the core mask argument"));
    }
    let options = Options::read(own)
        .map_err(|why| format!("{why}\n{}", failure("Command line is incomplete or incorrect")))?;
    if options.help {
        print(&Options::help());
        return Ok(());
    }
    let settings = options.settings(names.len(), words.forwarding.len()).map_err(|why| failure(&why))?;
    say_options(&options, &settings);
    if options.interactive && options.tx_first {
        return Err(failure("--tx-first cannot be used on interactive mode."));
    }
    if options.interactive && options.stats_period.is_some() {
        return Err(failure("--stats-period cannot be used on interactive mode."));
    }
    let mut session = open(eal, words, &options, settings, names)?;
    session.start_ports().map_err(|error| failure(&format!("Start ports failed: {error}")))?;
    let mut input =
        Input::open(options.interactive).map_err(|error| failure(&format!("standard input: {error}")))?;
    if options.interactive {
        interactive(&mut session, &options, &mut input)?;
    } else {
        at_once(&mut session, &options, &mut input);
    }
    session.shut_down();
    Ok(())
}

/// The lines testpmd prints for options while it reads them.
fn say_options(options: &Options, settings: &Settings) {
    if options.interactive {
        print("Interactive-mode selected\n");
    }
    if options.auto_start {
        print("Auto-start selected\n");
    }
    if options.forward_mode.is_some() {
        print(&format!("Set {} packet forwarding mode\n", settings.mode.name()));
    }
    if options.tx_first {
        print("Ports to start sending a burst of packets first\n");
    }
}

/// Makes the pool and claims the ports.
fn open<'eal>(
    eal: &'eal Eal,
    words: &EalWords,
    options: &Options,
    settings: Settings,
    names: &[String],
) -> Result<Session<'eal>, String> {
    let slots = names.iter().map(|name| PortSlot::claim(eal, name)).collect::<Result<Vec<_>, _>>();
    let slots = slots.map_err(|error| failure(&error.to_string()))?;
    if slots.iter().any(|slot| !slot.knows_socket) {
        complain(
            "Warning: NUMA should be configured manually by using --port-numa-config and --ring-numa-config \
             parameters along with --numa.\n",
        );
    }
    let cache = options.mbcache.unwrap_or(CACHE);
    let count = options.total_num_mbufs.unwrap_or(default_mbufs(words.forwarding.len() as u32, cache));
    let config = PoolConfig { cache, ..PoolConfig::new("mb_pool_0", count) };
    complain(&format!(
        "testpmd: create a new mbuf pool <mb_pool_0>: n={count}, size={}, socket=0\n\
         testpmd: preferred mempool ops selected: {}\n",
        config.data_room,
        Mempool::preferred_ops(eal)
    ));
    let pool = Mempool::create(eal, &config).map_err(|error| {
        failure(&format!("Creation of mbuf pool failed: {error}; see --total-num-mbufs and -m"))
    })?;
    let name = |lcore: &Lcore| CoreName { id: lcore.id, socket: node_of(lcore.cpus[0]) };
    Ok(Session {
        names: words.forwarding.iter().map(name).collect(),
        cores: Cores { lcores: words.forwarding.clone(), eal, pool, clock: TscClock::calibrate(CALIBRATION) },
        fwd: FwdStats::new(slots.len()),
        slots,
        settings,
        extra: Extra::None,
        warned: false,
    })
}

fn interactive(session: &mut Session<'_>, options: &Options, input: &mut Input) -> Result<(), String> {
    if let Some(path) = &options.cmdline_file {
        let text = std::fs::read_to_string(path)
            .map_err(|error| failure(&format!("{}: {error}", path.display())))?;
        input.push(&text);
        print(&format!("Read CLI commands from {}\n", path.display()));
    }
    if options.auto_start {
        print("Start automatic packet forwarding\n");
        if session.run(0, |view| view.interact(input)) == Some(After::Leave) {
            return Ok(());
        }
    }
    session.interact(input);
    Ok(())
}

/// Forwards without a prompt until Enter or a signal.
fn at_once(session: &mut Session<'_>, options: &Options, input: &mut Input) {
    print("No commandline core given, start packet forwarding\n");
    let first = u32::from(options.tx_first);
    match options.stats_period.filter(|period| *period > 0) {
        Some(period) => {
            session.run(first, |view| view.show_periodically(input, Duration::from_secs(period.into())));
        }
        None => {
            session.run(first, |_| {
                print("Press enter to exit\n");
                while input.wait(None) == Event::Nothing {}
            });
        }
    }
}

/// NUMA node of a CPU; 0 where the kernel does not say.
fn node_of(cpu: usize) -> u32 {
    let Ok(folder) = std::fs::read_dir(format!("/sys/devices/system/cpu/cpu{cpu}")) else { return 0 };
    folder
        .filter_map(|entry| entry.ok()?.file_name().to_str()?.strip_prefix("node")?.parse().ok())
        .next()
        .unwrap_or(0)
}

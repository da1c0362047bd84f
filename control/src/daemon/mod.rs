//! `weir run`: the daemon.
//!
//! Threads: `weir-c` (this one) boots, publishes, serves the control socket; `weir-w:N` are the workers,
//! `weir-e:0:N` the estimators; `weir-j` comes and goes with a compaction of the journal.
//!
//! Order of the start: configuration, socket path free, journal, EAL, pool, ports, registry and first snapshot,
//! workers, control socket, READY. Each step undoes itself by drop, so a start that fails leaves nothing:
//! workers end before their queues go, ports stop and close before the EAL cleans up, the socket file goes
//! with its listener. The stop is the same way back.
//!
//! | file | part |
//! |---|---|
//! | `boot` | EAL, pool, ports |
//! | `machine` | workers, control loop, stop |
//! | `cpus`, `worker_thread` | threads |
//! | `spread` | owners of flows, what devices are told of them |
//! | `wiring` | who polls which queue, rings between workers |
//! | `est` | estimator threads |
//! | `state` | what control holds: publications, answers |
//! | `journal`, `recall`, `revise` | changes written down, taken up at the next start, made whole or not at all |
//! | `whole` | a plan reaches the registry whole or not at all |
//! | `table` | what the IPVS family lists: all that was asked for, and what of it is forwarded |
//! | `report`, `exchange` | rows of answers |
//! | `interface` | knobs, /proc texts, old socket options |
//! | `meters`, `facts`, `hints` | figures over time, the classic mistakes |
//! | `signals`, `logging` | the process's surroundings |

mod boot;
mod cpus;
mod est;
mod exchange;
mod facts;
mod hints;
mod interface;
mod journal;
mod logging;
mod machine;
mod meters;
mod recall;
mod report;
mod revise;
mod signals;
mod spread;
mod state;
mod table;
#[cfg(test)]
mod undisturbed;
mod whole;
mod wiring;
mod worker_thread;

use std::path::Path;
use std::time::Instant;

use config::Valid;
use dpdk_sys::{Tid, allowed_cpus, set_thread_name};
use tracing::{info, warn};

use self::cpus::CpuPlan;
use self::machine::Machine;
use self::signals::Signals;
use self::worker_thread::{PortThreads, Threads};
use crate::api::listener::ensure_free;
use crate::args::RunArgs;
use crate::failure::{Exit, Failure};

/// `weir run`.
pub fn run(args: &RunArgs) -> Exit {
    let valid = match crate::check::load(&args.config) {
        Ok(valid) => valid,
        Err(error) => return crate::check::report(&error),
    };
    match logging::install(&valid.daemon().log).and_then(|()| serve(&args.config, &valid, &PortThreads)) {
        Ok(()) => Exit::Done,
        Err(failure) => {
            crate::failure::tell(&failure);
            failure.exit
        }
    }
}

fn serve(config_path: &Path, valid: &Valid, threads: &impl Threads) -> Result<(), Failure> {
    let started = Instant::now();
    info!(target: "weir::boot", version = env!("CARGO_PKG_VERSION"), config = %config_path.display(), "starting");
    ensure_free(valid.daemon().socket.as_ref())?;
    let recalled = recall::recall(valid, config_path)?;
    let mut signals = Signals::install().map_err(|error| Failure::environment("signals", error))?;
    let cpus = plan_cpus(valid)?;
    let runtime_dir = boot::RuntimeDir::new();
    let eal = boot::start_eal(valid, &runtime_dir, cpus.control.iter().next())?;
    let pool = boot::make_pool(&eal, valid, cpus.workers.len())?;
    let (ports, steer) = boot::start_ports(&eal, &pool, valid, cpus.workers.len())?;
    settle_control(&cpus);
    // The socket file stays until the devices are free, so that nobody else takes them for free before.
    let served = std::thread::scope(|scope| {
        let machine = Machine { eal: &eal, pool: &pool, ports: &ports, cpus: &cpus, steer: &steer, started };
        machine.serve(scope, threads, config_path, valid, recalled, &mut signals)
    });
    boot::stop_ports(ports, &pool);
    drop(eal);
    drop(runtime_dir);
    let server = served?;
    info!(target: "weir::boot", uptime_seconds = started.elapsed().as_secs(), "stopped");
    drop(server);
    Ok(())
}

fn plan_cpus(valid: &Valid) -> Result<CpuPlan, Failure> {
    let allowed = allowed_cpus().map_err(|error| Failure::environment("CPUs", error))?;
    CpuPlan::new(valid, &allowed, &cpus::isolated())
}

/// Names this thread and takes it off the workers' CPUs.
fn settle_control(cpus: &CpuPlan) {
    let settled = Tid::current().set_affinity(&cpus.control).and_then(|()| set_thread_name("weir-c"));
    if let Err(error) = settled {
        warn!(target: "weir::boot", cpus = %cpus.control, %error, "cannot take the control thread to its CPUs");
    }
}

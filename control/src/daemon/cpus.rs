//! Which CPU each thread gets, and how an idle worker waits on it.
//!
//! Rule: workers get the CPUs that the configuration names, else the last allowed one; control gets the
//! allowed rest, or everything when nothing is left. A worker spins (`exclusive`) only on a CPU that is its
//! own: in no other list of ours, with control having another one, and isolated from the kernel's scheduler
//! or named by the user. Everywhere else it sleeps shortly when idle (`shared`), so one-CPU machines work.

use std::fmt;

use config::knobs::Cpus;
use config::{Valid, WorkerMode};
use dataplane::limits::WORKERS_MAX;
use dpdk_sys::CpuSet;

use crate::failure::Failure;

/// How an idle worker waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// Polls without pause.
    Exclusive,
    /// Sleeps shortly after some empty polls.
    Shared,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Exclusive => "exclusive",
            Mode::Shared => "shared",
        })
    }
}

/// CPUs of the daemon's threads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CpuPlan {
    /// One worker each.
    pub workers: Vec<(usize, Mode)>,
    /// Where the control thread may run.
    pub control: CpuSet,
    /// What `est_cpulist` may name, and means while it names nothing.
    pub estimators: Cpus,
}

impl CpuPlan {
    /// Distributes the `allowed` CPUs; `isolated` are those the kernel's scheduler leaves alone.
    ///
    /// # Errors
    /// A CPU that is named is not allowed: exit status 3.
    pub fn new(valid: &Valid, allowed: &CpuSet, isolated: &CpuSet) -> Result<CpuPlan, Failure> {
        let named = valid.workers().cpus.as_deref();
        let last = || allowed.iter().next_back().into_iter().collect::<Vec<_>>();
        let workers = named.map_or_else(last, <[usize]>::to_vec);
        if workers.len() > WORKERS_MAX {
            return Err(Failure::usage("workers.cpus", format!("names {} CPUs", workers.len()))
                .hint(format!("one worker runs on each: name at most {WORKERS_MAX}")));
        }
        if let Some(cpu) = workers.iter().find(|cpu| !allowed.contains(**cpu)) {
            return Err(Failure::environment("workers.cpus", format!("CPU {cpu} is not to be had"))
                .hint(format!("this process may use CPUs {allowed}; see taskset(1), cgroups and `nproc`")));
        }
        let rest: CpuSet = allowed.iter().filter(|cpu| !workers.contains(cpu)).collect();
        let estimators = valid.estimators().est_cpulist.as_deref().unwrap_or_default();
        let mode = |cpu: usize| match valid.workers().mode {
            WorkerMode::Exclusive => Mode::Exclusive,
            WorkerMode::Shared => Mode::Shared,
            _ => {
                let own = !rest.is_empty() && !estimators.contains(&cpu);
                let reserved = named.is_some() || isolated.contains(cpu);
                if own && reserved { Mode::Exclusive } else { Mode::Shared }
            }
        };
        let workers = workers.iter().map(|cpu| (*cpu, mode(*cpu))).collect();
        let control = if rest.is_empty() { allowed.clone() } else { rest };
        let estimators = Cpus {
            count: possible().max(allowed.iter().next_back().map_or(1, |last| last + 1)),
            allowed: allowed.iter().collect(),
            preset: control.iter().collect(),
        };
        Ok(CpuPlan { workers, control, estimators })
    }
}

/// CPUs that the kernel was told to schedule nothing on (`isolcpus=`).
pub fn isolated() -> CpuSet {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/isolated").unwrap_or_default();
    parse_list(text.trim())
}

/// How many CPUs the machine can have.
fn possible() -> usize {
    let text = std::fs::read_to_string("/sys/devices/system/cpu/possible").unwrap_or_default();
    parse_list(text.trim()).iter().next_back().map_or(0, |last| last + 1)
}

/// A CPU list as the kernel writes it, `0-3,8`; what is none of it is left out.
fn parse_list(text: &str) -> CpuSet {
    text.split(',')
        .filter_map(|part| {
            let (from, to) = part.split_once('-').unwrap_or((part, part));
            Some(from.parse::<usize>().ok()?..=to.parse().ok()?)
        })
        .flatten()
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(cpus: &[usize]) -> CpuSet {
        cpus.iter().copied().collect()
    }

    fn valid(tables: &str) -> Valid {
        let port = "[[port]]\nname = \"a\"\ndevice = \"net_null0\"\naddresses = [\"10.0.0.1/24\"]\n";
        config::parse(&format!("{tables}\n{port}"), "test").unwrap_or_else(|errors| panic!("{errors}"))
    }

    #[test]
    fn workers_spin_only_on_cpus_of_their_own() {
        use Mode::{Exclusive, Shared};
        let (two, four) = (set(&[0, 1]), set(&[0, 1, 2, 3]));
        // configuration, allowed, isolated, workers, control
        let cases = [
            ("", &set(&[0]), &set(&[]), vec![(0, Shared)], set(&[0])),
            ("", &two, &set(&[]), vec![(1, Shared)], set(&[0])),
            ("", &two, &set(&[1]), vec![(1, Exclusive)], set(&[0])),
            ("[workers]\ncpus = \"1\"", &two, &set(&[]), vec![(1, Exclusive)], set(&[0])),
            ("[workers]\ncpus = \"0-1\"", &two, &set(&[]), vec![(0, Shared), (1, Shared)], set(&[0, 1])),
            (
                "[workers]\ncpus = \"2-3\"",
                &four,
                &set(&[]),
                vec![(2, Exclusive), (3, Exclusive)],
                set(&[0, 1]),
            ),
            (
                "[workers]\ncpus = \"3\"\n[estimators]\nest_cpulist = \"3\"",
                &four,
                &set(&[3]),
                vec![(3, Shared)],
                set(&[0, 1, 2]),
            ),
            ("[workers]\nmode = \"exclusive\"", &set(&[0]), &set(&[]), vec![(0, Exclusive)], set(&[0])),
            ("[workers]\ncpus = \"1\"\nmode = \"shared\"", &two, &set(&[1]), vec![(1, Shared)], set(&[0])),
        ];
        for (text, allowed, isolated, workers, control) in cases {
            let plan = CpuPlan::new(&valid(text), allowed, isolated).unwrap();
            assert_eq!((plan.workers, plan.control), (workers, control), "{text} of {allowed}");
        }
    }

    #[test]
    fn a_cpu_that_is_not_there_is_an_error_of_the_environment() {
        let refused = CpuPlan::new(&valid("[workers]\ncpus = \"7\""), &set(&[0, 1]), &set(&[])).unwrap_err();
        assert_eq!(refused.exit, crate::failure::Exit::Environment);
        assert!(refused.why.contains("CPU 7"), "{refused}");
    }

    #[test]
    fn kernel_lists_are_read() {
        for (text, cpus) in [("", vec![]), ("3", vec![3]), ("0-2,5", vec![0, 1, 2, 5]), ("x", vec![])] {
            assert_eq!(parse_list(text).iter().collect::<Vec<_>>(), cpus, "{text}");
        }
    }
}

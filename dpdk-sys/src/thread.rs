//! What the operating system lets us set on a thread: CPU list, niceness, policy, timer slack, name.
//!
//! A [`Tid`] names a thread of this process, so that control can move or re-nice a worker while it
//! runs; slack and name can be set only by the thread itself.

use std::fmt;
use std::io;

/// A set of CPU numbers, in ascending order. Displays as the kernel writes it: `0-3,8`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CpuSet(Vec<usize>);

/// CPUs a `cpu_set_t` can name; the kernel's default limit on x86-64 is 8192, but a machine with
/// more than 1024 does not exist among ours.
const CPU_LIMIT: usize = libc::CPU_SETSIZE as usize;

impl CpuSet {
    /// The CPUs in ascending order.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = usize> + ExactSizeIterator + '_ {
        self.0.iter().copied()
    }

    /// Whether `cpu` is in the set.
    pub fn contains(&self, cpu: usize) -> bool {
        self.0.binary_search(&cpu).is_ok()
    }

    /// Number of CPUs.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl FromIterator<usize> for CpuSet {
    fn from_iter<I: IntoIterator<Item = usize>>(cpus: I) -> Self {
        let mut cpus: Vec<usize> = cpus.into_iter().collect();
        cpus.sort_unstable();
        cpus.dedup();
        CpuSet(cpus)
    }
}

impl fmt::Display for CpuSet {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut separator = "";
        for run in self.0.chunk_by(|a, b| a + 1 == *b) {
            match run {
                [cpu] => write!(f, "{separator}{cpu}")?,
                _ => write!(f, "{separator}{}-{}", run[0], run[run.len() - 1])?,
            }
            separator = ",";
        }
        Ok(())
    }
}

/// CPUs this thread may run on, which a new thread inherits.
pub fn allowed_cpus() -> io::Result<CpuSet> {
    Tid::current().affinity()
}

/// A thread of this process, by the kernel's number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Tid(libc::pid_t);

impl Tid {
    /// The calling thread.
    pub fn current() -> Self {
        // SAFETY: no arguments, cannot fail.
        Tid(unsafe { libc::gettid() })
    }

    /// The kernel's number, as in `/proc/self/task`.
    pub fn number(self) -> i32 {
        self.0
    }

    /// CPUs the thread may run on.
    pub fn affinity(self) -> io::Result<CpuSet> {
        // SAFETY: `cpu_set_t` is an array of integers, for which zeros are a value.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        // SAFETY: `set` is a valid place of the size given.
        ok(unsafe { libc::sched_getaffinity(self.0, size_of_val(&set), &mut set) })?;
        // SAFETY: each index is below CPU_SETSIZE.
        Ok((0..CPU_LIMIT).filter(|&cpu| unsafe { libc::CPU_ISSET(cpu, &set) }).collect())
    }

    /// Lets the thread run on `cpus` only. At least one must exist and be allowed to the process.
    pub fn set_affinity(self, cpus: &CpuSet) -> io::Result<()> {
        // SAFETY: as in `affinity`.
        let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
        for cpu in cpus.iter() {
            if cpu >= CPU_LIMIT {
                return Err(io::Error::from_raw_os_error(libc::EINVAL));
            }
            // SAFETY: the index was just checked.
            unsafe { libc::CPU_SET(cpu, &mut set) };
        }
        // SAFETY: `set` is valid and of the size given.
        ok(unsafe { libc::sched_setaffinity(self.0, size_of_val(&set), &set) })
    }

    /// Sets the niceness, -20 (favoured) to 19 (yields to all). Below the present one needs
    /// CAP_SYS_NICE.
    pub fn set_nice(self, nice: i32) -> io::Result<()> {
        // SAFETY: plain integers; on Linux the call acts on the one thread named.
        ok(unsafe { libc::setpriority(libc::PRIO_PROCESS, self.0 as libc::id_t, nice) })
    }

    /// Sets the scheduling policy. A real-time one needs CAP_SYS_NICE or RLIMIT_RTPRIO.
    pub fn set_policy(self, policy: Policy) -> io::Result<()> {
        let (policy, priority) = match policy {
            Policy::Other => (libc::SCHED_OTHER, 0),
            Policy::RoundRobin(priority) => (libc::SCHED_RR, priority),
            Policy::Fifo(priority) => (libc::SCHED_FIFO, priority),
        };
        let param = libc::sched_param { sched_priority: priority.into() };
        // SAFETY: `param` is a valid place; on Linux the call acts on the one thread named.
        ok(unsafe { libc::sched_setscheduler(self.0, policy, &param) })
    }

    /// The niceness, -20 to 19.
    pub fn nice(self) -> io::Result<i32> {
        // SAFETY: errno is this thread's own; it tells a result of -1 from a failure.
        unsafe {
            *libc::__errno_location() = 0;
            let nice = libc::getpriority(libc::PRIO_PROCESS, self.0 as libc::id_t);
            match *libc::__errno_location() {
                0 => Ok(nice),
                errno => Err(io::Error::from_raw_os_error(errno)),
            }
        }
    }
}

/// How the kernel's scheduler treats a thread, sched(7). Priorities are 1 to 99, the highest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Policy {
    /// Fair shares by niceness.
    Other,
    /// Real time, in turns with others of the priority.
    RoundRobin(u8),
    /// Real time, until it sleeps.
    Fifo(u8),
}

/// Lets timed sleeps of the calling thread end at most `slack_ns` late by intent. The kernel's
/// default is 50 us; 1 ns makes a sleep of 1 us last about 25 us instead of 66.
pub fn set_timer_slack_ns(slack_ns: u64) -> io::Result<()> {
    // SAFETY: plain integers.
    ok(unsafe { libc::prctl(libc::PR_SET_TIMERSLACK, slack_ns) })
}

/// Names the calling thread as `ps -L` and `top -H` show it: at most 15 bytes, no zero byte.
pub fn set_thread_name(name: &str) -> io::Result<()> {
    let invalid = |_| io::Error::from_raw_os_error(libc::EINVAL);
    let name = std::ffi::CString::new(name).map_err(invalid)?;
    // SAFETY: `name` is a C string and outlives the call.
    match unsafe { libc::pthread_setname_np(libc::pthread_self(), name.as_ptr()) } {
        0 => Ok(()),
        errno => Err(io::Error::from_raw_os_error(errno)),
    }
}

fn ok(ret: i32) -> io::Result<()> {
    if ret == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cpu_set_displays_as_the_kernel_does() {
        for (cpus, text) in
            [(&[][..], ""), (&[3], "3"), (&[1, 0], "0-1"), (&[8, 0, 1, 2, 2, 5, 6], "0-2,5-6,8")]
        {
            assert_eq!(cpus.iter().copied().collect::<CpuSet>().to_string(), text);
        }
    }

    /// Each setting is read back through another door: from /proc, where there is one.
    #[test]
    fn settings_reach_the_kernel() {
        std::thread::spawn(|| {
            let tid = Tid::current();
            let proc = |file| {
                let text = std::fs::read_to_string(format!("/proc/self/task/{}/{file}", tid.number()));
                text.unwrap()
            };
            set_thread_name("weir-w:7").unwrap();
            assert_eq!(proc("comm"), "weir-w:7\n");
            assert_eq!(
                set_thread_name("longer than fifteen").unwrap_err().raw_os_error(),
                Some(libc::ERANGE)
            );

            let last = allowed_cpus().unwrap().iter().next_back().unwrap();
            tid.set_affinity(&[last].into_iter().collect()).unwrap();
            assert!(proc("status").contains(&format!("Cpus_allowed_list:\t{last}\n")));
            assert_eq!(allowed_cpus().unwrap().iter().collect::<Vec<_>>(), [last]);
            assert!(tid.set_affinity(&CpuSet::default()).is_err());
            assert!(tid.set_affinity(&[CPU_LIMIT].into_iter().collect()).is_err());

            tid.set_nice(7).unwrap();
            assert_eq!(tid.nice().unwrap(), 7);
            tid.set_policy(Policy::Other).unwrap();
            assert!(tid.set_policy(Policy::Fifo(0)).is_err());
            if tid.set_policy(Policy::RoundRobin(3)).is_ok() {
                // Field 41 of proc_pid_stat(5), the third from the name in parentheses on being the first.
                let stat = proc("stat");
                let policy = stat.rsplit(')').next().unwrap().split_whitespace().nth(38);
                assert_eq!(policy, Some("2"));
            }
            set_timer_slack_ns(1).unwrap();
        })
        .join()
        .unwrap();
    }
}

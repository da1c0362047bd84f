//! Arguments of the EAL, checked before DPDK sees them.
//!
//! DPDK answers a bad argument with its usage text on standard output and a bare error number, so
//! what can be checked is checked here, by name.

use std::ffi::CString;

use crate::errno::{DpdkError, c_string};
use crate::pages::{PageChoice, Pages};
use crate::thread::Tid;

/// How DPDK starts. A builder; [`Eal::start`](crate::Eal::start) checks the whole.
#[derive(Clone, Debug)]
pub struct EalArgs {
    pub(crate) pages: Pages,
    pub(crate) memory_mb: u32,
    main_cpu: Option<usize>,
    file_prefix: String,
    telemetry: bool,
    no_pci: bool,
    pci: Vec<String>,
    vdevs: Vec<String>,
    extra: Vec<String>,
    typed: Option<Vec<String>>,
}

/// Memory without a wish: holds 65 535 mbufs of 2 KiB with room for rings and queues.
const DEFAULT_MEMORY_MB: u32 = 256;

impl Default for EalArgs {
    fn default() -> Self {
        EalArgs::new()
    }
}

impl EalArgs {
    /// Pages chosen by what is free, 256 MB, all PCI devices, no telemetry socket.
    pub fn new() -> Self {
        EalArgs {
            pages: Pages::Auto,
            memory_mb: DEFAULT_MEMORY_MB,
            main_cpu: None,
            file_prefix: "weir".to_owned(),
            telemetry: false,
            no_pci: false,
            pci: Vec::new(),
            vdevs: Vec::new(),
            extra: Vec::new(),
            typed: None,
        }
    }

    /// The EAL options a person typed, given to DPDK as they are; the lcores alone come from
    /// [`EalArgs::main_cpu`], so `words` hold no `-l`, `-c` or `--lcores`. What the other methods
    /// say does not count. DPDK itself judges the words, and leaves files in hugetlbfs if they ask
    /// for hugepages without `--in-memory`.
    pub fn as_typed(words: Vec<String>) -> Self {
        let normal = words.iter().any(|word| word == "--no-huge");
        let pages = if normal { Pages::Normal } else { Pages::Huge };
        EalArgs { pages, typed: Some(words), ..EalArgs::new() }
    }

    /// Hugepages, normal pages, or whatever there is.
    pub fn pages(mut self, pages: Pages) -> Self {
        self.pages = pages;
        self
    }

    /// Normal pages, whatever is free.
    pub fn no_huge(self) -> Self {
        self.pages(Pages::Normal)
    }

    /// Memory for pools, rings and queues, in MB (2^20 bytes), taken at start.
    pub fn memory_mb(mut self, megabytes: u32) -> Self {
        self.memory_mb = megabytes;
        self
    }

    /// CPU of the main lcore while DPDK starts. Without it, the first CPU the thread may use.
    pub fn main_cpu(mut self, cpu: usize) -> Self {
        self.main_cpu = Some(cpu);
        self
    }

    /// Names DPDK's run-time folder, below `/var/run/dpdk` or `$XDG_RUNTIME_DIR/dpdk`.
    pub fn file_prefix(mut self, prefix: impl Into<String>) -> Self {
        self.file_prefix = prefix.into();
        self
    }

    /// Serves DPDK's own telemetry socket, from a thread of its own. Off by default.
    pub fn telemetry(mut self) -> Self {
        self.telemetry = true;
        self
    }

    /// Leaves all PCI devices alone.
    pub fn no_pci(mut self) -> Self {
        self.no_pci = true;
        self
    }

    /// Takes the PCI device `address[,option=value...]`; once given, no other PCI device is taken.
    pub fn pci_device(mut self, device: impl Into<String>) -> Self {
        self.pci.push(device.into());
        self
    }

    /// Makes the virtual device `driverN[,option=value...]`, such as `net_tap0,iface=weir0`.
    ///
    /// One that fails to probe does not fail the start; look its port up by name.
    pub fn vdev(mut self, device: impl Into<String>) -> Self {
        self.vdevs.push(device.into());
        self
    }

    /// A further argument, given to the EAL as it is.
    pub fn arg(mut self, argument: impl Into<String>) -> Self {
        self.extra.push(argument.into());
        self
    }

    /// The pages these arguments lead to; typed ones are not checked against what is free.
    pub(crate) fn page_choice(&self, free_mb: u64) -> Result<PageChoice, DpdkError> {
        match (&self.typed, self.pages) {
            (None, wish) => PageChoice::decide(wish, self.memory_mb, free_mb),
            (Some(_), Pages::Normal) => Ok(PageChoice::Normal { wanted_mb: self.memory_mb, free_mb }),
            (Some(_), _) => Ok(PageChoice::Huge { wanted_mb: self.memory_mb, free_mb }),
        }
    }

    /// The argument vector, program name first.
    pub(crate) fn to_argv(&self, pages: PageChoice) -> Result<Vec<CString>, DpdkError> {
        self.check()?;
        let main_cpu = self.main_cpu.unwrap_or_else(first_allowed_cpu);
        let mut argv = Argv::default();
        argv.word("program name", "weir")?;
        // The caller's threads register for the other lcore ids.
        argv.pair("--lcores", "main CPU", &format!("0@{main_cpu}"))?;
        if let Some(words) = &self.typed {
            for word in words {
                argv.word("EAL argument", word)?;
            }
            return Ok(argv.0);
        }
        argv.pair("-m", "memory", &self.memory_mb.to_string())?;
        argv.pair("--file-prefix", "file prefix", &self.file_prefix)?;
        // No file survives the process in either mode. DPDK refuses --no-huge with --in-memory.
        let page_words: &[&str] = match pages {
            PageChoice::Huge { .. } => &["--in-memory"],
            PageChoice::Normal { .. } => &["--no-huge", "--no-shconf"],
        };
        for word in page_words {
            argv.word("page option", word)?;
        }
        if !self.telemetry {
            argv.word("telemetry", "--no-telemetry")?;
        }
        if self.no_pci {
            argv.word("PCI option", "--no-pci")?;
        }
        for device in &self.pci {
            argv.pair("-a", "PCI device", device)?;
        }
        for device in &self.vdevs {
            argv.pair("--vdev", "virtual device", device)?;
        }
        for argument in &self.extra {
            argv.word("EAL argument", argument)?;
        }
        Ok(argv.0)
    }

    fn check(&self) -> Result<(), DpdkError> {
        let bad =
            |what, value: &str, reason| Err(DpdkError::BadArgument { what, value: value.to_owned(), reason });
        if self.memory_mb == 0 {
            return bad("memory", "0", "is not enough");
        }
        if self.file_prefix.is_empty() || self.file_prefix.contains(['/', '%']) {
            return bad("file prefix", &self.file_prefix, "is not a plain file name");
        }
        if self.no_pci
            && let Some(device) = self.pci.first()
        {
            return bad("PCI device", device, "is named while PCI is off");
        }
        let devices = self.pci.iter().map(|device| ("PCI device", device));
        for (what, device) in devices.chain(self.vdevs.iter().map(|vdev| ("virtual device", vdev))) {
            if device.is_empty() || device.starts_with(['-', ',']) {
                return bad(what, device, "does not begin with a device name");
            }
        }
        // Words after "--" are the program's own: DPDK would ignore what follows.
        if self.extra.iter().chain(self.typed.iter().flatten()).any(|argument| argument == "--") {
            return bad("EAL argument", "--", "ends the arguments of the EAL");
        }
        Ok(())
    }
}

#[derive(Default)]
struct Argv(Vec<CString>);

impl Argv {
    fn word(&mut self, what: &'static str, word: &str) -> Result<(), DpdkError> {
        self.0.push(c_string(what, word)?);
        Ok(())
    }

    fn pair(&mut self, option: &str, what: &'static str, value: &str) -> Result<(), DpdkError> {
        self.word(what, option)?;
        self.word(what, value)
    }
}

/// CPU 0 stands in if the kernel will not tell; DPDK then reports what is wrong with it.
fn first_allowed_cpu() -> usize {
    Tid::current().affinity().ok().and_then(|cpus| cpus.iter().next()).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: PageChoice = PageChoice::Normal { wanted_mb: 64, free_mb: 0 };
    const HUGE: PageChoice = PageChoice::Huge { wanted_mb: 64, free_mb: 512 };

    fn line(args: &EalArgs, pages: PageChoice) -> Result<String, String> {
        let argv = args.to_argv(pages).map_err(|error| error.to_string())?;
        Ok(argv.iter().map(|arg| arg.to_str().unwrap()).collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn arguments_in_order() {
        let args = EalArgs::new().memory_mb(64).main_cpu(1).no_pci().vdev("net_null0").arg("-v");
        assert_eq!(
            line(&args, NORMAL).unwrap(),
            "weir --lcores 0@1 -m 64 --file-prefix weir --no-huge --no-shconf --no-telemetry \
             --no-pci --vdev net_null0 -v"
        );
        let args = EalArgs::new().main_cpu(0).pci_device("0000:01:00.0").telemetry();
        assert_eq!(
            line(&args, HUGE).unwrap(),
            "weir --lcores 0@0 -m 256 --file-prefix weir --in-memory -a 0000:01:00.0"
        );
    }

    #[test]
    fn typed_arguments_stay_as_they_are() {
        let args = EalArgs::as_typed(vec!["-m".into(), "200".into(), "--in-memory".into()]).main_cpu(1);
        assert_eq!(line(&args, HUGE).unwrap(), "weir --lcores 0@1 -m 200 --in-memory");
        assert!(matches!(args.page_choice(0), Ok(PageChoice::Huge { .. })));
        let args = EalArgs::as_typed(vec!["--no-huge".into()]);
        assert!(matches!(args.page_choice(4096), Ok(PageChoice::Normal { .. })));
        let refused = line(&EalArgs::as_typed(vec!["--".into()]), NORMAL).unwrap_err();
        assert_eq!(refused, "EAL argument `--` ends the arguments of the EAL");
    }

    #[test]
    fn bad_arguments_are_named() {
        let cases = [
            (EalArgs::new().memory_mb(0), "memory `0` is not enough"),
            (EalArgs::new().file_prefix("a/b"), "file prefix `a/b` is not a plain file name"),
            (EalArgs::new().vdev(""), "virtual device `` does not begin with a device name"),
            (EalArgs::new().vdev("-v"), "virtual device `-v` does not begin with a device name"),
            (EalArgs::new().vdev("a\0b"), "virtual device `a\\0b` holds a zero byte"),
            (EalArgs::new().no_pci().pci_device("01:00.0"), "PCI device `01:00.0` is named while PCI is off"),
            (EalArgs::new().arg("--"), "EAL argument `--` ends the arguments of the EAL"),
        ];
        for (args, expected) in cases {
            assert_eq!(line(&args, NORMAL).unwrap_err(), expected);
        }
    }
}

//! Rows `memif.5tswap.*` and `memif.lb.*`: what the balancer forwards between two processes over a memif port, beside the
//! least work that forwards.
//!
//! ```text
//! CPU 0  weir-testpmd lbgen ── memif ── weir-testpmd 5tswap, lb in turns  CPU 1
//! ```
//! Clients send datagrams of so many flows. `lb` forwards them to the servers, which are behind the same port and
//! answer; 5tswap sends them back. Figures are millions of packets a second that the subject sent. A round takes both
//! modes within seconds, as memif has slow spells; a row's ratio is the median of the rounds' ratios. The generator says
//! how much of its time it waited, with nothing to take and no room to send: without that it would have sent so much
//! more, which is its own limit. Where 5tswap is within a tenth of it, `memif.lb` is void.

use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use dpdk_sys::{Eal, PageChoice};

use crate::reference::{Testpmd, number_behind};
use crate::report::{Row, median};
use crate::{Bench, pin};

/// Flows of the rows.
const SIZES: [(&str, u32); 2] = [("1k", 1_000), ("1m", 1_000_000)];
/// Share of the generator's own limit from which on 5tswap's rate says little of 5tswap.
const VOID_FROM: f64 = 0.9;
/// How long a mode may take to forward its first packets, those that make all connections.
const PATIENCE: Duration = Duration::from_secs(30);
/// Samples are so many times as long as other rows'.
const LONGER: u32 = 4;

/// All of them.
pub fn rows(bench: &mut Bench<'_>, eal: &Eal) -> Result<(), String> {
    for (size, flows) in SIZES {
        let (swap, lb) = (format!("memif.5tswap.{size}"), format!("memif.lb.{size}"));
        if !bench.wants(&swap) && !bench.wants(&lb) {
            continue;
        }
        let Some(other_cpu) = bench.other_cpu else {
            eprintln!("bench: {lb} left out: it needs two CPUs");
            return Ok(());
        };
        let program = program()?;
        if !program.exists() {
            eprintln!("bench: {lb} left out: there is no {}, make bench builds it", program.display());
            return Ok(());
        }
        // Processes started from here may use both CPUs.
        pin(&[bench.cpu, other_cpu])?;
        let mut pair = Pair::start(&program, (bench.cpu, other_cpu), flows, eal.pages())?;
        size_rows(bench, &mut pair, &swap, &lb)?;
        pin(&[bench.cpu])?;
    }
    Ok(())
}

fn size_rows(bench: &mut Bench<'_>, pair: &mut Pair, swap: &str, lb: &str) -> Result<(), String> {
    let (mut limits, mut swaps, mut lbs, mut ratios) = (Vec::new(), Vec::new(), Vec::new(), Vec::new());
    for _ in 0..bench.rounds {
        let [swapped, balanced] = ["5tswap", "lb"].map(|mode| pair.sample(mode, LONGER * bench.span));
        let ((swapped, waited), (balanced, _)) = (swapped?, balanced?);
        limits.push(swapped / (1.0 - waited).max(0.01));
        swaps.push(swapped);
        lbs.push(balanced);
        ratios.push(balanced / swapped);
    }
    let (limit, _) = median(&mut limits);
    let (value, spread) = median(&mut swaps);
    bench.push(Row {
        value,
        unit: "Mpps",
        reference: "the generator's own limit, had it not waited".into(),
        reference_value: Some(limit),
        ratio: Some(value / limit),
        spread,
        ..Row::new(swap)
    });
    if value > VOID_FROM * limit {
        eprintln!("bench: {lb} is void: {swap} is within a tenth of what the generator can do");
        return Ok(());
    }
    let (balanced, spread) = median(&mut lbs);
    bench.push(Row {
        value: balanced,
        unit: "Mpps",
        reference: format!("{swap}; generator's limit {limit:.1}"),
        reference_value: Some(value),
        ratio: Some(median(&mut ratios).0),
        spread,
        ..Row::new(lb)
    });
    Ok(())
}

/// The subject and its generator at their prompts.
struct Pair {
    subject: Testpmd,
    generator: Testpmd,
    flows: u32,
}

impl Pair {
    /// The generator is the client of the memif and copies nothing where huge pages allow that.
    fn start(
        program: &Path,
        (cpu, generator_cpu): (usize, usize),
        flows: u32,
        pages: PageChoice,
    ) -> Result<Self, String> {
        const MAC: &str = "02:00:00:00:00:01";
        let socket = format!("weir-bench-{}-{flows}", std::process::id());
        let (memory, sharing, copies) = if matches!(pages, PageChoice::Huge { .. }) {
            ("--in-memory", "--single-file-segments", ",zero-copy=yes")
        } else {
            ("--no-huge --no-shconf", "", "")
        };
        let words = |cpu: usize, memif: &str, own: &str| {
            format!(
                "--lcores 0@{generator_cpu},1@{cpu} {memory} -m 128 --no-pci --no-telemetry \
                 --vdev=net_memif0,id=0,socket={socket},{memif} -- -i --total-num-mbufs=16384 {own}"
            )
        };
        let conns = (flows / 4 * 5).max(4096);
        let subject = words(cpu, &format!("role=server,mac={MAC}"), &format!("--lb-conns={conns}"));
        let generator = words(
            generator_cpu,
            &format!("role=client{copies} {sharing}"),
            &format!("--forward-mode=lbgen --traffic=udp --flows={flows} --eth-peer=0,{MAC}"),
        );
        let mut subject = Testpmd::spawn(program, &subject)?;
        subject.until("io packet forwarding").map_err(|e| format!("the subject: {e}"))?;
        let mut generator = Testpmd::spawn(program, &generator)?;
        generator.until("lbgen packet forwarding").map_err(|e| format!("the generator: {e}"))?;
        Ok(Self { subject, generator, flows })
    }

    /// Millions of packets a second that the subject sends in `mode`, and the share of its time that the generator waits.
    fn sample(&mut self, mode: &str, span: Duration) -> Result<(f64, f64), String> {
        let Pair { subject, generator, flows } = self;
        subject.command(&format!("set fwd {mode}"))?;
        subject.command("start")?;
        let first = subject.count("TX-packets:")?;
        generator.command("start")?;
        // By then every flow was there; each takes two packets of lb's.
        let settled = first + 3 * u64::from(*flows);
        let since = Instant::now();
        while subject.count("TX-packets:")? < settled {
            if since.elapsed() > PATIENCE {
                return Err(format!("memif: {mode} forwards too little: the links of the two are down?"));
            }
            sleep(Duration::from_millis(50));
        }
        let (before, from) = (subject.count("TX-packets:")?, Instant::now());
        sleep(span);
        let (after, elapsed) = (subject.count("TX-packets:")?, from.elapsed());
        generator.command("stop")?;
        let waited = number_behind(&generator.until("Waited:")?, "Waited:");
        let waited = waited.ok_or("memif: the generator does not say how much it waited")? as f64 / 100.0;
        generator.until("Done.")?;
        subject.command("stop")?;
        if mode == "lb" {
            let line = subject.until("Connections:")?;
            let conns = number_behind(&line, "Connections:").unwrap_or(0);
            if conns != u64::from(*flows) {
                return Err(format!("memif: {conns} of {flows} connections made"));
            }
        }
        subject.until("Done.")?;
        Ok(((after - before) as f64 / elapsed.as_secs_f64() / 1e6, waited))
    }
}

/// `weir-testpmd` beside this program.
fn program() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    Ok(own.with_file_name("weir-testpmd"))
}

//! The reference: DPDK's own testpmd forwarding with `5tswap` on `net_null`, on the CPU that the subject runs on, in
//! turns with it. Its figure includes its receive and transmit.

use std::io::{BufRead, BufReader, Write};
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::time::{Duration, Instant};

/// How long an answer of testpmd may take.
const PATIENCE: Duration = Duration::from_secs(20);

/// A testpmd that waits at its prompt.
pub struct Testpmd {
    child: Child,
    stdin: ChildStdin,
    lines: Receiver<String>,
}

impl Testpmd {
    /// Starts one that forwards on `cpu` and types on `main_cpu`. Fails with a sentence on why there is no reference.
    pub fn start(main_cpu: usize, cpu: usize) -> Result<Self, String> {
        let words = format!(
            "-l {main_cpu},{cpu} --in-memory -m 128 --no-pci --no-telemetry --vdev net_null0 -- -i \
             --forward-mode=5tswap --nb-cores=1 --total-num-mbufs=16384"
        );
        let mut testpmd = Self::spawn(Path::new("dpdk-testpmd"), &words)?;
        testpmd.until("5tswap packet forwarding").map_err(|e| format!("dpdk-testpmd: {e} (huge pages?)"))?;
        Ok(testpmd)
    }

    /// Starts `program`, a testpmd or one like it, with `words` on its command line, and asks for its configuration.
    pub fn spawn(program: &Path, words: &str) -> Result<Self, String> {
        let mut child = Command::new("stdbuf")
            .arg("-oL")
            .arg(program)
            .args(words.split_whitespace())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .map_err(|e| format!("{} does not start ({e}); make setup installs it", program.display()))?;
        let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
        let (Some(stdin), Some(stdout)) = (stdin, stdout) else { return Err("no pipes to testpmd".into()) };
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                if sender.send(line).is_err() {
                    return;
                }
            }
        });
        let mut testpmd = Self { child, stdin, lines };
        testpmd.command("show config fwd")?;
        Ok(testpmd)
    }

    /// Nanoseconds a packet over `span`.
    pub fn sample(&mut self, span: Duration) -> Result<f64, String> {
        self.command("start")?;
        std::thread::sleep(Duration::from_millis(50));
        self.count("RX-packets:")?;
        let (before, from) = (self.count("RX-packets:")?, Instant::now());
        std::thread::sleep(span);
        let (after, elapsed) = (self.count("RX-packets:")?, from.elapsed());
        self.command("stop")?;
        self.until("Done.")?;
        if after <= before {
            return Err("dpdk-testpmd forwarded nothing".into());
        }
        Ok(elapsed.as_nanos() as f64 / (after - before) as f64)
    }

    /// A figure of port 0 since the program's start, `RX-packets:` or `TX-packets:`.
    pub fn count(&mut self, name: &str) -> Result<u64, String> {
        self.command("show port stats 0")?;
        let line = self.until(name)?;
        let figure = number_behind(&line, name);
        self.until("Tx-bps:")?;
        figure.ok_or_else(|| format!("testpmd printed no packet count: {line}"))
    }

    /// Types a line.
    pub fn command(&mut self, line: &str) -> Result<(), String> {
        writeln!(self.stdin, "{line}").map_err(|e| format!("testpmd is gone: {e}"))
    }

    /// Waits for a line that contains `text`.
    pub fn until(&mut self, text: &str) -> Result<String, String> {
        let deadline = Instant::now() + PATIENCE;
        loop {
            let left = deadline.saturating_duration_since(Instant::now());
            let line = self.lines.recv_timeout(left).map_err(|_| format!("no line with '{text}'"))?;
            if line.contains(text) {
                return Ok(line);
            }
        }
    }
}

/// The number behind `name` in a line of statistics.
pub fn number_behind(line: &str, name: &str) -> Option<u64> {
    line.split_once(name)?.1.split_whitespace().next()?.parse().ok()
}

impl Drop for Testpmd {
    fn drop(&mut self) {
        let _ = self.command("quit");
        let end = Instant::now() + Duration::from_secs(3);
        while Instant::now() < end {
            if matches!(self.child.try_wait(), Ok(Some(_))) {
                return;
            }
            std::thread::sleep(Duration::from_millis(20));
        }
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

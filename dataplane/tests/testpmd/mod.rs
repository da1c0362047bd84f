//! Recordings of testpmd, and programs that are typed at.

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::OwnedFd;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use rustix::pty::{OpenptFlags, grantpt, openpt, ptsname, unlockpt};

/// An answer takes at most so long, on a machine that does other things too.
const PATIENCE: Duration = Duration::from_secs(60);
/// Pauses of a recording are cut to this: they let packets flow.
const PAUSE: Duration = Duration::from_millis(300);

/// One recording.
pub struct Recording {
    /// Its file without the ending.
    pub name: String,
    command: String,
    /// What was typed, pauses in seconds among it.
    pub typed: Vec<String>,
    /// What was answered.
    pub said: String,
}

impl Recording {
    /// Reads one of `tests/data/testpmd`.
    pub fn read(name: &str) -> Recording {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../tests/data/testpmd/{name}.txt"));
        let text =
            std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
        let (head, said) = text.split_once("# ----\n").expect("a recording has a head");
        let of = |what: &str| {
            let line = head.lines().find_map(|line| line.strip_prefix(what));
            line.unwrap_or_else(|| panic!("{name}: no {what}")).to_owned()
        };
        Recording {
            name: name.to_owned(),
            command: of("# command: "),
            typed: of("# typed lines: ").split('|').map(|line| line.trim().to_owned()).collect(),
            said: said.replace("<ESC>", "\x1b"),
        }
    }

    /// Its arguments, with normal pages instead of huge ones.
    pub fn words(&self) -> Vec<String> {
        let command = self.command.replace("--in-memory -m 200", "--no-huge --no-shconf -m 256");
        let process = std::process::id();
        let command = ["ms", "mc"].iter().fold(command, |command, prefix| {
            command.replace(
                &format!("--file-prefix {prefix} -m 200"),
                &format!("--file-prefix weir-test-{prefix}-{process} --no-huge -m 128"),
            )
        });
        words(&command)[1..].to_vec()
    }
}

/// A line as arguments.
pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The text with addresses and numbers masked, without the EAL's lines.
pub fn masked(text: &str) -> String {
    let lines = text.lines().filter(|line| !line.starts_with("EAL:"));
    lines.map(|line| mask_line(line) + "\n").collect::<String>().trim().to_owned()
}

/// Hexadecimal pairs between colons become `M`, other numbers `N`; spaces beside a number, which pad it, go.
fn mask_line(line: &str) -> String {
    let mut masked = String::new();
    let mut rest = line.trim_end();
    while let Some(first) = rest.chars().next() {
        let pairs = rest.split(':').take(6).map(|pair| pair.get(..2).unwrap_or_default());
        let is_mac = rest.get(2..3) == Some(":")
            && pairs.clone().count() == 6
            && pairs.clone().all(|pair| pair.len() == 2 && pair.bytes().all(|b| b.is_ascii_hexdigit()));
        if is_mac && rest.len() >= 17 {
            masked.push('M');
            rest = &rest[17..];
        } else if first.is_ascii_digit() {
            masked.truncate(masked.trim_end_matches(' ').len());
            masked.push('N');
            rest = rest.trim_start_matches(|c: char| c.is_ascii_digit()).trim_start_matches(' ');
        } else {
            masked.push(first);
            rest = &rest[first.len_utf8()..];
        }
    }
    masked
}

/// The number behind the last `name` of a text.
pub fn figure(text: &str, name: &str) -> Option<u64> {
    let behind = text.rsplit_once(name)?.1;
    behind.split_whitespace().next()?.parse().ok()
}

/// What a program's input and output are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum End {
    /// Pipes.
    Pipe,
    /// A terminal.
    Terminal,
}

/// A running program. Killed when dropped.
pub struct Program {
    child: Child,
    typed: Option<File>,
    bytes: Receiver<Vec<u8>>,
    /// All it said, without carriage returns.
    said: String,
    /// Bytes of it that were looked at.
    seen: usize,
}

impl Program {
    /// Starts `program` with `words`; errors go where output goes.
    pub fn start(program: &str, words: &[String], end: End) -> Program {
        let mut command = Command::new(program);
        command.args(words);
        let (typed, heard): (File, File) = match end {
            End::Pipe => {
                let (input, typed) = rustix::pipe::pipe().expect("pipes are to be had");
                let (heard, output) = rustix::pipe::pipe().expect("pipes are to be had");
                attach(&mut command, input, output);
                (typed.into(), heard.into())
            }
            End::Terminal => {
                let main = openpt(OpenptFlags::RDWR | OpenptFlags::NOCTTY).expect("a terminal is to be had");
                grantpt(&main).and_then(|()| unlockpt(&main)).expect("the terminal is ours");
                let name = ptsname(&main, Vec::new()).expect("it has a name");
                let open = || File::options().read(true).write(true).open(name.to_str().expect("a path"));
                let (input, output) = (open().expect("it opens"), open().expect("it opens"));
                attach(&mut command, input.into(), output.into());
                let main = File::from(main);
                (main.try_clone().expect("a second handle"), main)
            }
        };
        let child = command.spawn().unwrap_or_else(|error| panic!("{program}: {error}"));
        drop(command);
        let (sender, bytes) = channel();
        std::thread::spawn(move || {
            let mut heard = heard;
            let mut buffer = vec![0; 1 << 16];
            while let Ok(n @ 1..) = heard.read(&mut buffer) {
                if sender.send(buffer[..n].to_vec()).is_err() {
                    return;
                }
            }
        });
        Program { child, typed: Some(typed), bytes, said: String::new(), seen: 0 }
    }

    /// Types the lines, each once the prompt is there; a number is a pause.
    pub fn play(&mut self, lines: &[String]) {
        self.play_while(lines, |_| true);
    }

    /// As [`Program::play`], as long as `wanted`.
    pub fn play_while(&mut self, lines: &[String], wanted: impl Fn(&str) -> bool) {
        for line in lines.iter().take_while(|line| wanted(line)) {
            if !line.is_empty() && line.bytes().all(|b| b.is_ascii_digit() || b == b'.') {
                self.wait(PAUSE);
                continue;
            }
            // Without a prompt the empty line ends the program.
            self.until(if line.is_empty() { "exit\n" } else { "testpmd> " });
            self.seen = self.said.len();
            let typed = self.typed.as_mut().expect("input is open until the end");
            typed.write_all(format!("{line}\n").as_bytes()).expect("the program reads");
            // What comes is read before the next prompt is waited for.
            self.wait(Duration::from_millis(20));
        }
    }

    /// Listens for a while.
    pub fn wait(&mut self, span: Duration) {
        let end = Instant::now() + span;
        while let Ok(bytes) = self.bytes.recv_timeout(end.saturating_duration_since(Instant::now())) {
            self.hear(&bytes);
        }
    }

    /// Waits until something is said behind what was looked at; each part between `.*` in order.
    pub fn until(&mut self, pattern: &str) {
        let parts: Vec<&str> = pattern.split(".*").collect();
        let end = Instant::now() + PATIENCE;
        loop {
            let mut rest = &self.said[self.seen..];
            let found = parts.iter().all(|part| match rest.split_once(part) {
                Some((_, behind)) => {
                    rest = behind;
                    true
                }
                None => false,
            });
            if found {
                return;
            }
            match self.bytes.recv_timeout(end.saturating_duration_since(Instant::now())) {
                Ok(bytes) => self.hear(&bytes),
                Err(RecvTimeoutError::Timeout) => panic!("no {pattern:?} in: {}", self.said),
                Err(RecvTimeoutError::Disconnected) => panic!("ended before {pattern:?}: {}", self.said),
            }
        }
    }

    /// All it said so far.
    pub fn said(&self) -> &str {
        &self.said
    }

    /// Sends SIGINT.
    pub fn interrupt(&self) {
        let pid = Pid::from_child(&self.child);
        kill_process(pid, Signal::INT).expect("it runs");
    }

    /// Waits for its end; exit status and all it said.
    pub fn finish(mut self) -> (Option<i32>, String) {
        let end = Instant::now() + PATIENCE;
        let status = loop {
            self.wait(Duration::from_millis(50));
            match self.child.try_wait().expect("it is our child") {
                Some(status) => break status,
                None => assert!(Instant::now() < end, "it does not end: {}", self.said),
            }
        };
        self.wait(Duration::from_millis(100));
        (status.code(), std::mem::take(&mut self.said))
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.said.push_str(&String::from_utf8_lossy(bytes).replace('\r', ""));
    }
}

impl Drop for Program {
    fn drop(&mut self) {
        drop(self.typed.take());
        if matches!(self.child.try_wait(), Ok(None)) {
            let _ = self.child.kill();
            let _ = self.child.wait();
        }
    }
}

fn attach(command: &mut Command, input: OwnedFd, output: OwnedFd) {
    let errors = output.try_clone().expect("a second handle");
    command.stdin(Stdio::from(input)).stdout(Stdio::from(output)).stderr(Stdio::from(errors));
}

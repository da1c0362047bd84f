//! SIGTERM, SIGINT and SIGHUP as descriptors that the control thread polls.
//!
//! Model: a handler writes a byte into a socket pair, nothing else. SIGTERM and SIGINT share one pair: both
//! stop. Handlers stay until the process ends.

use std::io::{self, Read};
use std::os::fd::{AsFd, BorrowedFd};
use std::os::unix::net::UnixStream;

use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::low_level::pipe;

/// The signals the daemon answers to.
#[derive(Debug)]
pub struct Signals {
    /// SIGTERM, SIGINT.
    pub stop: Signal,
    /// SIGHUP.
    pub reload: Signal,
}

/// One signal, or several with one meaning.
#[derive(Debug)]
pub struct Signal(UnixStream);

impl Signals {
    /// Takes the signals over. Before the first thread is made, so that none misses them.
    pub fn install() -> io::Result<Signals> {
        Ok(Signals { stop: Signal::of(&[SIGTERM, SIGINT])?, reload: Signal::of(&[SIGHUP])? })
    }
}

impl Signal {
    fn of(numbers: &[i32]) -> io::Result<Signal> {
        let (ours, handlers) = UnixStream::pair()?;
        ours.set_nonblocking(true)?;
        for number in numbers {
            pipe::register(*number, handlers.try_clone()?)?;
        }
        Ok(Signal(ours))
    }

    /// Whether it came since the last call; several count as one. Never blocks.
    pub fn take(&mut self) -> bool {
        let mut came = false;
        let mut bytes = [0; 64];
        while matches!(self.0.read(&mut bytes), Ok(1..)) {
            came = true;
        }
        came
    }
}

impl AsFd for Signal {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_signal_is_seen_once() {
        let mut signal = Signal::of(&[signal_hook::consts::SIGUSR1]).unwrap();
        assert!(!signal.take());
        signal_hook::low_level::raise(signal_hook::consts::SIGUSR1).unwrap();
        signal_hook::low_level::raise(signal_hook::consts::SIGUSR1).unwrap();
        assert!(signal.take());
        assert!(!signal.take());
    }
}

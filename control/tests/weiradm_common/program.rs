//! The program over any transport, in this process, with the names that the recordings depend on.

use std::io::Read;
use std::net::{IpAddr, Ipv4Addr};

use control::weiradm::{Console, Names, Transport, run};
use rustix::io::Errno;

/// What a run left: standard output, standard error, exit status.
#[derive(Debug, PartialEq, Eq)]
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
    pub exit: u8,
}

/// Runs `ipvsadm` with these words (the program's name left out), this input and this way to the server.
pub fn ipvsadm_over<T: Transport>(
    connect: impl FnOnce() -> Result<T, Errno>,
    arguments: &[String],
    input: &mut dyn Read,
) -> Outcome {
    let (mut stdout, mut stderr) = (Vec::new(), Vec::new());
    let mut console = Console { input, output: &mut stdout, errors: &mut stderr };
    let exit = run("ipvsadm", arguments, &KnownNames, &mut console, connect).unwrap();
    let text = |bytes| String::from_utf8(bytes).unwrap();
    Outcome { stdout: text(stdout), stderr: text(stderr), exit }
}

pub fn words(line: &str) -> Vec<String> {
    line.split_whitespace().map(str::to_owned).collect()
}

/// The names that the recordings depend on.
struct KnownNames;

const SERVICES: [(&str, u16, u16); 5] =
    [("http", 80, 6), ("https", 443, 6), ("tproxy", 8081, 6), ("domain", 53, 6), ("domain", 53, 17)];

impl Names for KnownNames {
    fn address_of(&self, host: &str) -> Option<Ipv4Addr> {
        (host == "localhost").then_some(Ipv4Addr::LOCALHOST)
    }

    fn host_of(&self, address: IpAddr) -> Option<String> {
        (address == Ipv4Addr::LOCALHOST).then(|| "localhost".to_owned())
    }

    fn port_of(&self, service: &str, protocol: u16) -> Option<u16> {
        SERVICES.iter().find(|(name, _, of)| (*name, *of) == (service, protocol)).map(|(_, port, _)| *port)
    }

    fn service_of(&self, port: u16, protocol: u16) -> Option<String> {
        let found = SERVICES.iter().find(|(_, number, of)| (*number, *of) == (port, protocol));
        found.map(|(name, ..)| (*name).to_owned())
    }
}

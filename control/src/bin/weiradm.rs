//! The `weiradm` program: ipvsadm's command line on the daemon's control socket.
#![forbid(unsafe_code)]

use std::io::{self, BufWriter, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use control::weiradm::{Console, SocketTransport, SystemNames, run, status};

/// Control socket of the daemon unless another one is named.
const DEFAULT_SOCKET: &str = "/run/weir/weir.sock";
/// Environment variable that names another one.
const SOCKET_VARIABLE: &str = "WEIR_SOCKET";
/// Bytes of a listing that are written at once.
const OUTPUT_BYTES: usize = 64 * 1024;

fn main() -> ExitCode {
    let mut arguments: Vec<String> =
        std::env::args_os().map(|word| word.to_string_lossy().into_owned()).collect();
    let program = arguments.first().map_or("weiradm", String::as_str).to_owned();
    arguments.drain(..arguments.len().min(1));
    let socket = take_socket(&mut arguments);
    let mut output = BufWriter::with_capacity(OUTPUT_BYTES, io::stdout().lock());
    let mut console = Console { input: &mut io::stdin(), output: &mut output, errors: &mut io::stderr() };
    let ended = run(&program, &arguments, &SystemNames, &mut console, || SocketTransport::connect(&socket));
    match ended.and_then(|status| output.flush().map(|()| status)) {
        Ok(status) => status.into(),
        // The reader of the listing has gone: as a C program ends then, without a word.
        Err(_) => status::LISTING.into(),
    }
}

/// Path of the control socket; takes `--socket PATH` off the front of the arguments.
fn take_socket(arguments: &mut Vec<String>) -> PathBuf {
    let taken = match arguments.first().map(|word| word.split_once('=').unwrap_or((word, ""))) {
        Some(("--socket", "")) if arguments.len() > 1 => Some((2, arguments[1].clone())),
        Some(("--socket", path)) if !path.is_empty() => Some((1, path.to_owned())),
        _ => None,
    };
    if let Some((words, path)) = taken {
        arguments.drain(..words);
        return path.into();
    }
    std::env::var_os(SOCKET_VARIABLE).map_or_else(|| DEFAULT_SOCKET.into(), PathBuf::from)
}

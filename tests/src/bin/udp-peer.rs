//! The demo's UDP server and client: `udp-peer echo ADDRESS NAME`, `udp-peer ask ADDRESS COUNT`.
#![forbid(unsafe_code)]

use std::net::UdpSocket;
use std::process::ExitCode;

use tests::netns::peers::{ask_udp, serve_udp};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = args.iter().map(String::as_str).collect();
    let result = match words[..] {
        ["echo", address, name] => UdpSocket::bind(address).and_then(|socket| serve_udp(&socket, name)),
        ["ask", address, count] => match count.parse() {
            Ok(count) => (0..count).try_for_each(|number: u32| {
                println!("{}", ask_udp(address, &format!("question {number}"))?);
                Ok(())
            }),
            Err(_) => return usage(),
        },
        _ => return usage(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("udp-peer: {}: {error}", words[..2].join(" "));
            ExitCode::FAILURE
        }
    }
}

fn usage() -> ExitCode {
    eprintln!("usage: udp-peer echo ADDRESS NAME | udp-peer ask ADDRESS COUNT");
    ExitCode::from(2)
}

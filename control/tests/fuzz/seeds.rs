//! Recorded inputs: exchanges of ipvsadm with a kernel, command lines and what they read, configuration files.

use std::path::Path;

use config::keys::TABLES;
use control::api::codec::{ConnFilterText, Request, encode_request};

/// Number of the family on the recorded machine, and here.
const RECORDED_ID: [u8; 2] = 35_u16.to_le_bytes();
const OUR_ID: [u8; 2] = 0x3ff_u16.to_le_bytes();

/// Requests of both families.
pub fn requests() -> Vec<Vec<u8>> {
    let filter = ConnFilterText { client: Some("192.0.2.1".into()), ..ConnFilterText::default() };
    let option = |number| Request::OptionGet { number, length: 64, data: vec![0; 64] };
    let own = [
        Request::Hello,
        Request::Status,
        Request::Drops { all: true },
        Request::List,
        Request::Conns(filter),
        Request::SysctlGet { name: Some("conntrack".into()) },
        Request::SysctlSet { name: "conntrack".into(), text: "1".into() },
        Request::TextOpen { name: "net/ip_vs".into(), write: false },
        Request::OptionSet { number: 1154, data: vec![0; 44] },
        Request::OptionSet { number: 1159, data: vec![0; 68] },
        Request::OptionSet { number: 1162, data: vec![0; 12] },
    ];
    let options = (1152..1160).map(option);
    let own =
        own.into_iter().chain(options).zip(1..).map(|(request, sequence)| encode_request(sequence, &request));
    let mut all: Vec<_> = recorded("> ").collect();
    // More messages than a datagram may have.
    all.push(all[1].repeat(65));
    all.extend(own);
    all
}

/// Answers to them.
pub fn replies() -> Vec<Vec<u8>> {
    let mut all: Vec<_> = recorded("< ").collect();
    all.sort();
    all.dedup();
    all
}

fn recorded(mark: &str) -> impl Iterator<Item = Vec<u8>> {
    let lines = include_str!("../data/kernel/netlink.txt").lines();
    let messages: Vec<_> = lines.filter_map(|line| line.strip_prefix(mark)).map(bytes).collect();
    messages.into_iter().map(|mut message| {
        if message[4..6] == RECORDED_ID {
            message[4..6].copy_from_slice(&OUR_ID);
        }
        message
    })
}

/// Command lines, and lines read by `-R`.
pub fn lines() -> Vec<Vec<u8>> {
    let directory = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/ipvsadm");
    let mut files: Vec<_> =
        std::fs::read_dir(directory).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let mut all = Vec::new();
    for file in files {
        let text = std::fs::read_to_string(file).unwrap();
        let command = text.lines().find_map(|line| line.strip_prefix("command: ipvsadm"));
        all.extend(command.map(|line| line.trim().as_bytes().to_vec()));
        let stdin =
            text.split_once("--- stdin\n").map(|(_, rest)| rest.split("--- ").next().unwrap_or_default());
        all.extend(stdin.map(|lines| lines.as_bytes().to_vec()));
        all.extend(
            text.lines().filter(|line| line.starts_with("-A ") || line.starts_with("-a ")).map(|l| l.into()),
        );
    }
    all.sort();
    all.dedup();
    all
}

/// Configuration files: that of the demo, every default, and one table at a time.
pub fn files() -> Vec<Vec<u8>> {
    let demo = include_str!("../../../tests/demo/weir.toml");
    let mut all = vec![demo.as_bytes().to_vec(), config::parse("", "none").unwrap().to_toml().into_bytes()];
    for table in TABLES {
        for key in table.keys {
            for value in ["1", "\"x\"", "[\"10.0.0.1/24\"]", "true"] {
                all.push(format!("{}\n{} = {value}\n", table.header(), key.name).into_bytes());
            }
        }
    }
    all
}

/// The words of texts, each once.
pub fn words_of(texts: &[Vec<u8>]) -> Vec<Vec<u8>> {
    let is_gap = |byte: &u8| b" \n=".contains(byte);
    let mut words: Vec<_> = texts.iter().flat_map(|text| text.split(is_gap)).map(<[u8]>::to_vec).collect();
    words.extend(
        [&b"-1"[..], b"65536", b"4294967296", b"\"", b"[", b"[[", b"#", b"\0", b"\xff"].map(<[u8]>::to_vec),
    );
    words.sort();
    words.dedup();
    words
}

/// Bytes of hexadecimal text.
pub fn bytes(text: &str) -> Vec<u8> {
    let digits = text.as_bytes().chunks_exact(2);
    digits.map(|two| u8::from_str_radix(std::str::from_utf8(two).unwrap(), 16).unwrap()).collect()
}

//! Long transfers of real programs through NAT: every byte arrives, in both directions.
#![forbid(unsafe_code)]

use std::fs;
use std::path::Path;
use std::process::Command;

use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::peers::Nginx;
use tests::netns::{Net, Topology, VIP};

const SIZE_BYTES: usize = 100 * 1000 * 1000;

#[test]
fn netns_a_hundred_megabytes_arrive_whole_both_ways() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let web = Nginx::start(&net, 1);
    let dest = (format!("{}:8080", net.server_address(1)), 1);
    let services = service(&format!("tcp://{VIP}:80"), "wlc", "nat", &[dest]);
    let weir = Daemon::start(&net, &configuration(&net, &services));

    let original = web.files.join("down");
    fs::write(&original, noise()).expect("room for the file");
    let expected = sha256(&original);

    let client = net.client();
    let copy = net.dir().join("copy");
    let copy_path = copy.to_str().expect("a plain path");
    client
        .output("curl", &["-sSf", "--max-time", "60", "-o", copy_path, &format!("http://{VIP}/files/down")]);
    assert_eq!(sha256(&copy), expected, "download");

    client.output("curl", &["-sSf", "--max-time", "60", "-T", copy_path, &format!("http://{VIP}/files/up")]);
    assert_eq!(sha256(&web.files.join("up")), expected, "upload");

    assert_eq!(weir.drops(), []);
    assert!(weir.stop().status.success());
}

/// Bytes without a pattern that a shifted or repeated segment would keep (xorshift64).
fn noise() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let words = std::iter::repeat_with(|| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    });
    words.take(SIZE_BYTES / 8).flatten().collect()
}

fn sha256(file: &Path) -> String {
    let output = Command::new("sha256sum").arg(file).output().expect("sha256sum runs");
    assert!(output.status.success(), "{} is there", file.display());
    String::from_utf8_lossy(&output.stdout).split_whitespace().next().expect("a hash comes first").to_owned()
}

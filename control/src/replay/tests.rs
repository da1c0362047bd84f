//! A request and its reply through the rules of a file, and what is no capture.

use std::path::PathBuf;

use super::*;

const RULES: &str = r#"
[connections]
max = 64
[[port]]
name = "wan"
device = "net_null0"
addresses = ["192.0.2.1/24"]
[[port]]
name = "lan"
device = "net_null1"
addresses = ["10.0.0.254/24"]
[[neighbour]]
address = "192.0.2.7"
mac = "02:00:00:00:00:07"
port = "wan"
[[neighbour]]
address = "10.0.0.11"
mac = "02:00:00:00:00:11"
port = "lan"
[[service]]
address = "tcp://192.0.2.100:80"
  [[service.destination]]
  address = "10.0.0.11:8080"
"#;

/// A TCP segment without data, its checksums right.
fn tcp(mac: u8, src: ([u8; 4], u16), dst: ([u8; 4], u16), flags: u8) -> Vec<u8> {
    let sum = |bytes: &[u8]| {
        let words = bytes.chunks(2).map(|w| u32::from(u16::from_be_bytes([w[0], *w.get(1).unwrap_or(&0)])));
        let sum: u32 = words.sum();
        !(((sum & 0xffff) + (sum >> 16)) as u16)
    };
    let mut ip = vec![0x45, 0, 0, 40, 0, 1, 0, 0, 64, 6, 0, 0];
    ip.extend(src.0);
    ip.extend(dst.0);
    let check = sum(&ip);
    ip[10..12].copy_from_slice(&check.to_be_bytes());
    let mut segment = Vec::new();
    segment.extend(src.1.to_be_bytes());
    segment.extend(dst.1.to_be_bytes());
    segment.extend([0, 0, 0, 1, 0, 0, 0, 1, 0x50, flags, 0x20, 0, 0, 0, 0, 0]);
    let pseudo = [&src.0[..], &dst.0, &[0, 6, 0, 20], &segment].concat();
    let check = sum(&pseudo);
    segment[16..18].copy_from_slice(&check.to_be_bytes());
    [&[2, 0, 0, 0, 0, mac, 2, 0, 0, 0, 0, 0x77, 8, 0][..], &ip, &segment].concat()
}

struct Case {
    dir: tempfile::TempDir,
}

impl Case {
    fn new(frames: &[Vec<u8>]) -> Case {
        let dir = tempfile::tempdir().unwrap();
        std::fs::write(dir.path().join("rules.toml"), RULES).unwrap();
        let frames: Vec<Frame> = (0u64..)
            .zip(frames)
            .map(|(n, bytes)| Frame {
                time_ns: 1_700_000_000_000_000_000 + n * 1_000_000,
                bytes: bytes.clone(),
            })
            .collect();
        let mut file = Vec::new();
        pcap::write(&mut file, &frames).unwrap();
        std::fs::write(dir.path().join("in.pcap"), file).unwrap();
        Case { dir }
    }

    fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    fn run(&self, out: &str) -> Exit {
        replay(&ReplayArgs {
            rules: self.path("rules.toml"),
            input: self.path("in.pcap"),
            output: self.path(out),
            trace: false,
        })
    }
}

#[test]
fn a_request_and_its_reply_pass_and_the_same_again_gives_the_same() {
    let (client, vip, server) = (([192, 0, 2, 7], 40_000), ([192, 0, 2, 100], 80), ([10, 0, 0, 11], 8080));
    let case = Case::new(&[tcp(1, client, vip, 0x02), tcp(2, server, client, 0x12)]);
    assert_eq!(case.run("a.pcap"), Exit::Done);
    assert_eq!(case.run("b.pcap"), Exit::Done);
    let [a, b] = ["a.pcap", "b.pcap"].map(|name| std::fs::read(case.path(name)).unwrap());
    assert_eq!(a, b);
    let out: Vec<String> =
        pcap::read(&a[..]).unwrap().iter().map(|frame| packet::line(&frame.bytes)).collect();
    assert_eq!(
        out,
        [
            "TCP 192.0.2.7:40000 > 10.0.0.11:8080 [S] ttl 63 len 40",
            "TCP 192.0.2.100:80 > 192.0.2.7:40000 [S.] ttl 63 len 40",
        ]
    );
}

#[test]
fn decisions_are_told_from_the_figures() {
    let valid = config::parse(RULES, "test").unwrap();
    let (client, vip) = (([192, 0, 2, 7], 40_000), ([192, 0, 2, 100], 80));
    let frames: Vec<Frame> = [
        tcp(1, client, vip, 0x02),
        tcp(1, client, vip, 0x10),
        tcp(1, client, ([192, 0, 2, 100], 81), 0x02),
        tcp(9, client, vip, 0x02),
    ]
    .into_iter()
    .map(|bytes| Frame { time_ns: 1_000_000_000, bytes })
    .collect();
    let mut balancer = Balancer::new(&valid, 1_000_000_000).unwrap();
    let mut decisions = Vec::new();
    balancer.pass(&frames, |_, before, after| decisions.push(decision(before, after)));
    assert_eq!(
        decisions,
        ["new connection, forwarded", "forwarded", "dropped unmatched_reset", "dropped l2_not_ours"]
    );
    let hint = address_hint(&valid, &frames);
    assert!(hint.contains("frames are for 02:00:00:00:00:09, the ports have 02:00:00:00:00:01"), "{hint}");
    assert!(
        summary(4, 3, &balancer.stats.read())
            .starts_with("4 packets in, 3 out, 2 dropped\n  1 l2_not_ours: ")
    );
}

#[test]
fn what_is_no_capture_is_refused_with_its_name() {
    let case = Case::new(&[]);
    assert_eq!(case.run("out.pcap"), Exit::Done, "an empty capture is one");
    std::fs::write(case.path("in.pcap"), "not a capture").unwrap();
    std::fs::remove_file(case.path("out.pcap")).unwrap();
    assert_eq!(case.run("out.pcap"), Exit::Usage);
    assert!(!case.path("out.pcap").exists());
    std::fs::remove_file(case.path("in.pcap")).unwrap();
    let missing = read(&case.path("in.pcap")).unwrap_err();
    assert!(missing.to_string().contains("in.pcap: No such file"), "{missing}");
    let long = Case::new(&[vec![0; FRAME_BYTES_MAX + 1]]);
    assert!(read(&long.path("in.pcap")).unwrap_err().why.starts_with("packet 1 has 2049 bytes"));
}

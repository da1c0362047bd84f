//! How the daemon starts, refuses to start, and ends: exit status, what it says, what it leaves behind.
#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use tests::netns::daemon::{Daemon, Ended, configuration, service};
use tests::netns::peers::Nginx;
use tests::netns::{Net, Topology, VIP};

#[test]
fn netns_a_stop_in_traffic_is_clean_and_failed_starts_leave_nothing() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    let before = leftovers();
    let dest = (format!("{}:8080", net.server_address(1)), 1);
    let services = service(&format!("tcp://{VIP}:80"), "rr", "nat", &[dest]);
    let good = configuration(&net, &services);
    let socket = net.dir().join("weir.sock");

    // (case, configuration, exit status, what the message names)
    let refused = [
        ("unknown key", good.replace("scheduler =", "schedular ="), 2, ["schedular", "scheduler"]),
        ("bad value", good.replace("max = 65536", "max = \"many\""), 2, ["max", "many"]),
        ("no such device", good.replace("iface=lan", "iface=nowhere"), 3, ["lan", "nowhere"]),
        ("no such driver", good.replace("net_af_packet1", "net_af_pocket1"), 3, ["lan", "net_af_pocket1"]),
    ];
    for (case, text, status, names) in refused {
        assert_ne!(text, good, "{case} changes something");
        let ended = Daemon::start_in_vain(&net, "refused", &text);
        assert_refused(case, &ended, status, &names);
        assert!(!socket.exists(), "{case} left a socket");
        assert_nothing_new(&before, case);
    }

    let web = Nginx::start(&net, 1);
    let weir = Daemon::start(&net, &good);
    let second = Daemon::start_in_vain(&net, "second", &good);
    assert_refused("second daemon on the same socket", &second, 3, &["weir.sock"]);
    let url = format!("http://{VIP}/");
    assert_eq!(net.client().output("curl", &["-sS", "--max-time", "5", &url]), "rs1\n", "the first goes on");
    assert!(weir.notified().contains(&"READY=1".to_owned()), "the service manager is told of the start");

    // A bad file in mid-life: named in the log, nothing changes.
    weir.reload_in_vain(&good.replace("scheduler =", "schedular ="), "schedular");
    assert_eq!(net.client().output("curl", &["-sS", "--max-time", "5", &url]), "rs1\n");
    weir.reload(&good.replace("\"rr\"", "\"wlc\""));
    let said = weir.notified();
    assert!(["RELOADING=1", "READY=1"].iter().all(|word| said.iter().any(|line| line == word)), "{said:?}");

    // A download in full swing when the signal comes.
    fs::write(web.files.join("big"), vec![7; 50_000_000]).expect("room for the file");
    let mut download = net.client().command("curl");
    download.args(["-sS", "--max-time", "3", "-o", "/dev/null", &format!("http://{VIP}/files/big")]);
    let mut download = download.stderr(std::process::Stdio::null()).spawn().expect("ip runs");
    std::thread::sleep(std::time::Duration::from_millis(100));
    let pid = weir.id();
    let ended = weir.stop();
    assert_eq!(ended.status.code(), Some(0), "{}", ended.log);
    assert!(ended.notified.contains(&"STOPPING=1".to_owned()), "{:?}", ended.notified);
    assert!(!socket.exists(), "the socket is removed");
    assert!(!Path::new(&format!("/proc/{pid}")).exists());
    assert_nothing_new(&before, "a stop in traffic");
    download.wait().expect("curl can be waited for");

    // The place is free again.
    let again = Daemon::start(&net, &good);
    assert_eq!(net.client().output("curl", &["-sS", "--max-time", "5", &url]), "rs1\n");
    assert!(again.stop().status.success());
}

fn assert_refused(case: &str, ended: &Ended, status: i32, names: &[&str]) {
    assert_eq!(ended.status.code(), Some(status), "{case}: {}", ended.log);
    for name in names {
        assert!(ended.log.contains(name), "{case} does not name {name}: {}", ended.log);
    }
    assert!(!ended.log.contains("panicked"), "{case}: {}", ended.log);
}

/// Less than before is fine: a daemon that starts removes what killed ones left.
fn assert_nothing_new(before: &BTreeSet<String>, case: &str) {
    let now = leftovers();
    let new: Vec<_> = now.difference(before).collect();
    assert!(new.is_empty(), "{case} left {new:?}");
}

/// Places where a DPDK process may forget something.
fn leftovers() -> BTreeSet<String> {
    let mut found = BTreeSet::new();
    for dir in ["/run/dpdk", "/var/run/dpdk", "/dev/hugepages", "/dev/shm"] {
        for entry in fs::read_dir(dir).into_iter().flatten().flatten() {
            found.insert(entry.path().display().to_string());
        }
    }
    let free = fs::read_to_string("/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages");
    found.insert(format!("free huge pages: {}", free.unwrap_or_default().trim()));
    found
}

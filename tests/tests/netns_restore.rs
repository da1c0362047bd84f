//! A file with one bad line, given to `weir restore` in mid-traffic: nothing changes, nobody notices.
#![forbid(unsafe_code)]

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::peers::{LineClient, start_line_server};
use tests::netns::{Net, Topology, VIP};

const PORT: u16 = 7000;
/// Longer than any answer takes here.
const SOON: Duration = Duration::from_secs(2);
/// Files given in the test; each good line would break the traffic, were it carried out.
const FILES: usize = 20;

#[test]
fn netns_a_file_with_a_bad_line_changes_nothing_under_traffic() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    start_line_server(&net.server(1), PORT, "rs1");
    let dest = format!("{}:{PORT}", net.server_address(1));
    let vip = format!("{VIP}:{PORT}");
    let services = service(&format!("tcp://{vip}"), "rr", "nat", &[(dest, 1)]);
    let weir = Daemon::start(&net, &configuration(&net, &services));
    let client = net.client();
    let file = net.dir().join("rules");
    let bad = ["-a -t 192.0.2.77:80 -r 10.9.9.9:80 -m", "-a -t nonsense -r 10.9.9.9:80 -m"];
    let state = || {
        let listing = String::from_utf8(weir.ask(&["save"]).output().unwrap().stdout).unwrap();
        (listing, weir.status().daemon.revision, weir.drops())
    };
    let before = state();
    assert!(before.0.contains(&vip));

    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        let background = scope.spawn(|| {
            let mut old = LineClient::connect(&client, &vip).expect("a new connection is accepted");
            while !stop.load(Ordering::Relaxed) {
                old.ask("old", SOON).expect("no packet of a connection is lost");
                served.fetch_add(1, Ordering::Relaxed);
            }
        });
        let end = StopOnDrop(&stop);
        for round in 0..FILES {
            let bad = bad[round % 2];
            fs::write(
                &file,
                format!("-A -t 192.0.2.78:80 -s rr\n-A -t 192.0.2.79:80\n{bad}\n-A -t 192.0.2.80:80\n"),
            )
            .unwrap();
            let output = weir.ask(&["restore", file.to_str().unwrap()]).output().unwrap();
            let errors = String::from_utf8(output.stderr).unwrap();
            assert_eq!(output.status.code(), Some(if round % 2 == 0 { 1 } else { 2 }), "{errors}");
            assert!(errors.contains(&format!("{}:3: ", file.display())) && errors.contains(bad), "{errors}");
        }
        drop(end);
        background.join().unwrap();
    });
    assert!(served.load(Ordering::Relaxed) > 0);
    assert_eq!(state(), before, "same table, same revision, nothing dropped");
    println!("{FILES} refused files, {} requests answered meanwhile", served.load(Ordering::Relaxed));
}

/// Ends the traffic also when an assertion fails, so that the scope can end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

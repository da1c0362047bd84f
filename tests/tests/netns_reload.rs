//! A server's life by reload in mid-traffic: in service, weight 0, deleted, back again.
#![forbid(unsafe_code)]

use std::io::ErrorKind;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use tests::netns::daemon::{Daemon, STATISTICS_SETTLE, configuration, service};
use tests::netns::peers::{LineClient, start_line_server};
use tests::netns::{Host, Net, Topology, VIP};

const PORT: u16 = 7000;
/// Longer than any answer takes here.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn netns_a_server_drains_leaves_and_returns_by_reload() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    start_line_server(&net.server(1), PORT, "rs1");
    start_line_server(&net.server(2), PORT, "rs2");
    let [rs1, rs2] = [1, 2].map(|number| format!("{}:{PORT}", net.server_address(number)));
    let vip = format!("{VIP}:{PORT}");
    let with =
        |dests: &[(String, u32)]| configuration(&net, &service(&format!("tcp://{vip}"), "rr", "nat", dests));
    let both = |weight_of_rs1| with(&[(rs1.clone(), weight_of_rs1), (rs2.clone(), 1)]);
    let weir = Daemon::start(&net, &both(1));
    let client = net.client();
    let new_conns = |count: usize| -> Vec<String> {
        (0..count)
            .map(|_| connect(&client, &vip).ask("who", SOON).expect("a new connection is served"))
            .collect()
    };

    let stop = AtomicBool::new(false);
    let served = AtomicU64::new(0);
    thread::scope(|scope| {
        let background = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                connect(&client, &vip).ask("who", SOON).expect("no request fails while servers come and go");
                served.fetch_add(1, Ordering::Relaxed);
                thread::sleep(Duration::from_millis(20));
            }
        });
        let end = StopOnDrop(&stop);

        let mut old: Vec<(String, LineClient)> = (0..8)
            .map(|_| {
                let mut conn = connect(&client, &vip);
                (conn.ask("hello", SOON).expect("a server answers"), conn)
            })
            .collect();
        assert!(["rs1", "rs2"].iter().all(|server| old.iter().any(|(name, _)| name == server)));

        // Weight 0: no new connections, the old ones go on.
        weir.reload(&both(0));
        assert_eq!(new_conns(6), vec!["rs2"; 6]);
        for (name, conn) in &mut old {
            assert_eq!(conn.ask("still there", SOON).expect("old connections go on"), *name);
        }

        // Deleted: requests of its connections vanish, counted, without a reset; everybody else goes on.
        let before = weir.drops_of("dest_gone");
        weir.reload(&with(&[(rs2.clone(), 1)]));
        assert_eq!(new_conns(6), vec!["rs2"; 6]);
        for (name, conn) in &mut old {
            match conn.ask("anybody", if name == "rs1" { Duration::from_millis(300) } else { SOON }) {
                Ok(answer) => assert!(name == "rs2" && answer == *name, "{name}: {answer}"),
                Err(error) => {
                    assert!(name == "rs1" && error.kind() == ErrorKind::WouldBlock, "{name}: {error}")
                }
            }
        }
        assert!(weir.drops_of("dest_gone") > before, "{:?}", weir.drops());

        // Back again: what the clients kept repeating is answered, and new connections come.
        weir.reload(&both(1));
        for (name, conn) in old.iter_mut().filter(|(name, _)| name == "rs1") {
            assert_eq!(conn.answer(Duration::from_secs(10)).expect("the connection resumes"), *name);
        }
        assert!(new_conns(6).contains(&"rs1".to_owned()));
        drop(end);
        if let Err(panic) = background.join() {
            std::panic::resume_unwind(panic);
        }
    });
    assert!(served.load(Ordering::Relaxed) > 20);

    // The object that came back is the one that left: its counters went on.
    thread::sleep(STATISTICS_SETTLE);
    let (service, dests) = weir.counters(&format!("tcp:{vip}"));
    let of_dests: u64 = dests.iter().map(|(_, counters)| counters.connections_total).sum();
    assert_eq!(service.connections_total, of_dests, "{dests:?}");
    assert!(weir.stop().status.success());
}

/// Ends the background traffic also when an assertion fails, so that the scope can end.
struct StopOnDrop<'a>(&'a AtomicBool);

impl Drop for StopOnDrop<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

fn connect(client: &Host, server: &str) -> LineClient {
    LineClient::connect(client, server).expect("a new connection is accepted")
}

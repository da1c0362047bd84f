//! A service made, changed and taken away with `weiradm` while a client uses it; the file knows nothing of it.
#![forbid(unsafe_code)]

use std::thread;
use std::time::Duration;

use tests::netns::daemon::{Daemon, STATISTICS_SETTLE, configuration};
use tests::netns::peers::{LineClient, start_line_server};
use tests::netns::{Host, Net, Topology, VIP};

const PORT: u16 = 7000;
/// Longer than any answer takes here.
const SOON: Duration = Duration::from_secs(2);

#[test]
fn netns_weiradm_changes_what_clients_meet_at_once() {
    let Some(net) = Net::up(Topology::Nat) else { return };
    start_line_server(&net.server(1), PORT, "rs1");
    start_line_server(&net.server(2), PORT, "rs2");
    let weir = Daemon::start(&net, &configuration(&net, ""));
    let weiradm = |arguments: &str| weir.weiradm(arguments);
    let [rs1, rs2] = [1, 2].map(|number| format!("{}:{PORT}", net.server_address(number)));
    let vip = format!("{VIP}:{PORT}");
    let client = net.client();
    let new_conns = |count: usize| -> Vec<String> {
        (0..count).map(|_| connect(&client, &vip).ask("who", SOON).expect("it is served")).collect()
    };

    // The first packet after the command returned is forwarded: the address is announced, the servers take turns.
    weiradm(&format!("-A -t {vip} -s rr"));
    weiradm(&format!("-a -t {vip} -r {rs1} -m"));
    weiradm(&format!("-a -t {vip} -r {rs2} -m"));
    assert_eq!(new_conns(4), ["rs2", "rs1", "rs2", "rs1"]);

    // Weight 0: no new connections, the old one goes on. Deleted: it waits. Back again: it resumes.
    let mut old = Vec::from_iter((0..2).map(|_| connect(&client, &vip)));
    old.retain_mut(|conn| conn.ask("hello", SOON).expect("it is served") == "rs1");
    let mut old = old.pop().expect("one of two is on rs1");
    weiradm(&format!("-e -t {vip} -r {rs1} -m -w 0"));
    assert_eq!(new_conns(3), ["rs2"; 3]);
    assert_eq!(old.ask("still there", SOON).expect("it goes on"), "rs1");
    weiradm(&format!("-d -t {vip} -r {rs1}"));
    old.ask("anybody", Duration::from_millis(300)).expect_err("nobody answers");
    weiradm(&format!("-a -t {vip} -r {rs1} -m"));
    assert_eq!(old.answer(Duration::from_secs(10)).expect("it resumes"), "rs1");

    // Counters of the object that came back went on, until they are zeroed.
    thread::sleep(STATISTICS_SETTLE);
    let conns = |weir: &Daemon| {
        let (service, dests) = weir.counters(&format!("tcp:{vip}"));
        let of_dests: u64 = dests.iter().map(|(_, counters)| counters.connections_total).sum();
        assert_eq!(service.connections_total, of_dests, "{dests:?}");
        of_dests
    };
    assert_eq!(conns(&weir), 4 + 2 + 3);
    assert!(
        weiradm("-L -n --stats").contains(&format!("TCP  {vip:<28}        9")),
        "{}",
        weiradm("-L -n --stats")
    );
    assert!(weiradm("-L -n -c").contains("ESTABLISHED"), "{}", weiradm("-L -n -c"));
    weiradm("-Z");
    assert_eq!(conns(&weir), 0);

    // A reload of a file that says nothing of the service leaves it; without it the address is nobody's.
    weir.reload(&format!("{}[timeouts]\nudp = 77\n", configuration(&net, "")));
    assert_eq!(weiradm("-L --timeout"), "Timeout (tcp tcpfin udp): 900 120 77\n");
    assert_eq!(new_conns(2).len(), 2);
    weiradm(&format!("-D -t {vip}"));
    LineClient::connect(&client, &vip).expect_err("no service");
    assert!(weir.stop().status.success());
}

fn connect(client: &Host, server: &str) -> LineClient {
    LineClient::connect(client, server).expect("a new connection is accepted")
}

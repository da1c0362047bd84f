//! Schedulers, pick for pick: what kernel IPVS was recorded to do, and vectors worked out by hand.
//!
//! Everything goes through the whole worker: a pick is a new connection's first packet, a change is a reload.

use std::fmt::Write as _;
use std::net::Ipv4Addr;

use tests::check;
use tests::kernel::schedulers::{Counts, Sequence, Step, sequences};
use tests::packets::{self, CLIENT, VIP, VIP_PORT, flags};
use tests::topo::{Method, Proto, Rules, Server, Service, Topo};

#[test]
fn every_recorded_run_is_repeated() {
    let mut failed = String::new();
    println!("{:<5} {:<4} {:<24} {:<10} result", "sched", "", "run", "weights");
    for run in sequences() {
        let outcome = replay(&run);
        let result = if outcome.is_ok() { "equal" } else { "DIFFERS" };
        println!(
            "{:<5} {:<4} {:<24} {:<10} {result}",
            run.scheduler,
            run.proto,
            run.name,
            format!("{:?}", run.weights)
        );
        if let Err(why) = outcome {
            let _ = writeln!(failed, "{} {} {} {:?}: {why}", run.scheduler, run.proto, run.name, run.weights);
        }
    }
    println!("the other ten schedulers: later");
    assert!(failed.is_empty(), "{failed}");
}

/// Repeats one recorded run.
fn replay(run: &Sequence) -> Result<(), String> {
    let proto = if run.proto == "udp" { Proto::Udp } else { Proto::Tcp };
    let mut bench = Bench::new(&run.scheduler, proto, &run.weights, run.thresholds());
    for (at, step) in run.steps().iter().enumerate() {
        let context = |why| format!("step {at}: {why}");
        match step {
            Step::Picks(expected, counts) => {
                let picks: Vec<Option<usize>> = expected.iter().map(|_| bench.open()).collect();
                equal("picks", &letters(expected), &letters(&picks)).map_err(context)?;
                bench.expect_counts(counts).map_err(context)?;
            }
            Step::Add { server, weight } => bench.add(*server, *weight),
            Step::Delete { server } => bench.delete(*server),
            Step::Edit { server, weight } => bench.edit(*server, *weight),
            Step::Close { server, counts } => {
                bench.close_all(*server);
                bench.expect_counts(counts).map_err(context)?;
            }
        }
    }
    Ok(())
}

/// Destinations A, B, C are added in this order; no connection ends.
#[test]
fn picks_by_hand() {
    let tcp = Proto::Tcp;
    let table: &[(&str, Proto, &[u32], &str)] = &[
        ("rr", tcp, &[3, 2, 1], "CBACBACBACBACBACBACB"),
        ("rr", tcp, &[1, 2, 3], "CBACBACBACBACBACBACB"),
        ("wrr", tcp, &[3, 2, 1], "CBAABACBAABACBAABACB"),
        ("wrr", tcp, &[1, 2, 3], "CBACCBCBACCBCBACCBCB"),
        ("lc", tcp, &[3, 2, 1], "CBACBACBACBACBACBACB"),
        ("lc", tcp, &[1, 2, 3], "CBACBACBACBACBACBACB"),
        ("wlc", tcp, &[3, 2, 1], "CBAABACBAABACBAABACB"),
        ("wlc", tcp, &[1, 2, 3], "CBACBCCBACBCCBACBCCB"),
        ("lc", Proto::Udp, &[3, 2, 1], "CBACBACBACBACBACBACB"),
        ("wlc", Proto::Udp, &[3, 2, 1], "CBAABACBAABACBAABACB"),
        ("wrr", tcp, &[4, 3, 2], "CBAABACBACBAABACBACBAABA"),
        ("wrr", tcp, &[4, 2, 2], "CBAACBAACBAACBAACBAACBAA"),
        ("wrr", tcp, &[100, 50, 50], "CBAACBAACBAACBAACBAACBAA"),
        ("wrr", tcp, &[5, 1, 1], "CBAAAAACBAAAAACBAAAAACBA"),
        ("wrr", tcp, &[6, 4, 2], "CBAABACBAABACBAABACBAABA"),
        // Degenerate lists: nothing to choose, or nothing at all.
        ("rr", tcp, &[0, 0, 0], "-----"),
        ("wrr", tcp, &[0, 0, 0], "-----"),
        ("lc", tcp, &[0, 0, 0], "-----"),
        ("wlc", tcp, &[0, 0, 0], "-----"),
        ("rr", tcp, &[7], "AAAAA"),
        ("wrr", tcp, &[7], "AAAAA"),
        ("lc", tcp, &[7], "AAAAA"),
        ("wlc", tcp, &[7], "AAAAA"),
        ("wlc", tcp, &[], "-----"),
    ];
    for (scheduler, proto, weights, expected) in table {
        let mut bench = Bench::new(scheduler, *proto, weights, (0, 0));
        let picks = bench.pick(expected.len());
        assert_eq!(picks, *expected, "{scheduler} {proto:?} {weights:?}");
    }
}

#[test]
fn rr_keeps_its_place_through_changes() {
    let mut bench = Bench::new("rr", Proto::Tcp, &[3, 2, 1], (0, 0));
    let mut picks = bench.pick(4);
    bench.edit(B, 0);
    picks += &bench.pick(4);
    bench.edit(B, 2);
    bench.delete(C);
    picks += &bench.pick(4);
    bench.add(C, 1);
    picks += &bench.pick(6);
    assert_eq!(picks, "CBAC ACAC BABA CBACBA".replace(' ', ""));
}

#[test]
fn wrr_starts_afresh_after_changes_and_passes_over_the_overloaded() {
    let mut bench = Bench::new("wrr", Proto::Tcp, &[3, 2, 1], (0, 0));
    let mut picks = bench.pick(9);
    bench.edit(A, 0);
    picks += &bench.pick(6);
    bench.edit(A, 3);
    picks += &bench.pick(9);
    bench.overload(A);
    picks += &bench.pick(6);
    assert_eq!(picks, "CBAABACBA CBBCBB BACBAABAC BBCBBC".replace(' ', ""));
}

/// Load figures are 256 x active + inactive: many closed connections weigh as much as one open one.
#[test]
fn inactive_connections_count_a_little() {
    // (active, inactive) of A, B, C.
    let table = [("lc", [(0, 300), (1, 10), (1, 0)], C), ("wlc", [(6, 40), (4, 0), (2, 1)], B)];
    for (scheduler, loads, expected) in table {
        let mut bench = Bench::new(scheduler, Proto::Tcp, &[3, 2, 1], (0, 0));
        for (server, (active, inactive)) in (A..).zip(loads) {
            bench.load(server, active, inactive);
        }
        assert_eq!(bench.open(), Some(expected), "{scheduler}");
    }
}

/// With only an upper threshold a server comes back below three quarters of it, with a lower one below that.
#[test]
fn thresholds_release() {
    // Thresholds, connections closed one by one until the server is picked again.
    for ((upper, lower), closed) in [((8, 0), 3), ((8, 2), 7), ((8, 8), 1), ((1, 0), 1)] {
        let mut bench = Bench::new("rr", Proto::Tcp, &[1], (upper, lower));
        assert_eq!(bench.pick(upper as usize + 1), "A".repeat(upper as usize) + "-", "{upper}/{lower}");
        let mut ended = 0;
        while bench.open().is_none() {
            assert!(ended < upper, "{upper}/{lower}: never released");
            bench.expire_one(A);
            ended += 1;
        }
        assert_eq!(ended, closed, "{upper}/{lower}");
    }
}

const A: usize = 1;
const B: usize = 2;
const C: usize = 3;

/// One service under a worker, with servers numbered from 1 and clients numbered by port.
struct Bench {
    rules: Rules,
    topo: Topo,
    proto: Proto,
    thresholds: (u32, u32),
    client_port: u16,
    /// Client ports of the open connections of each server.
    open: Vec<(usize, u16)>,
}

impl Bench {
    fn new(scheduler: &str, proto: Proto, weights: &[u32], thresholds: (u32, u32)) -> Self {
        let service = Service::new(proto, VIP, VIP_PORT, scheduler);
        let mut rules = Rules::test_network().service(service);
        rules.neighbours.retain(|(port, ..)| *port == 0);
        for number in 1..=9 {
            rules.neighbours.push((1, address(number), mac(number)));
        }
        let topo = Topo::new(&rules);
        let mut bench = Bench { rules, topo, proto, thresholds, client_port: 10_000, open: Vec::new() };
        for (number, weight) in (1..).zip(weights) {
            bench.add(number, *weight);
        }
        bench
    }

    fn add(&mut self, number: usize, weight: u32) {
        let mut server = Server::new(address(number), VIP_PORT, Method::Dr);
        (server.weight, server.upper, server.lower) = (weight, self.thresholds.0, self.thresholds.1);
        self.rules.services[0].servers.push(server);
        self.topo.reload(&self.rules);
    }

    fn delete(&mut self, number: usize) {
        self.rules.services[0].servers.retain(|server| server.address != address(number));
        self.topo.reload(&self.rules);
    }

    fn edit(&mut self, number: usize, weight: u32) {
        self.server(number).weight = weight;
        self.topo.reload(&self.rules);
    }

    fn server(&mut self, number: usize) -> &mut Server {
        let mut servers = self.rules.services[0].servers.iter_mut();
        servers.find(|server| server.address == address(number)).expect("a server of that number")
    }

    /// The next client's first packet: which server it went to.
    fn open(&mut self) -> Option<usize> {
        self.client_port += 1;
        let to = (VIP, VIP_PORT);
        let from = (CLIENT, self.client_port);
        let packet = match self.proto {
            Proto::Tcp => packets::tcp(from, to, flags::SYN),
            Proto::Udp => packets::udp(from, to, b"x"),
        };
        let sent = self.topo.deliver(0, &packet.bytes());
        let forwarded: Vec<_> = sent.iter().filter(|out| out.port == 1).collect();
        let [out] = forwarded[..] else { return None };
        let number = usize::from(check::valid(&out.frame).dst[5]);
        self.open.push((number, self.client_port));
        Some(number)
    }

    fn pick(&mut self, count: usize) -> String {
        let picks: Vec<Option<usize>> = (0..count).map(|_| self.open()).collect();
        picks.iter().map(|pick| pick.map_or('-', |number| (b'@' + number as u8) as char)).collect()
    }

    /// Every client of a server finishes its handshake and closes: its connections become inactive.
    fn close_all(&mut self, number: usize) {
        let ports: Vec<u16> = self.open.iter().filter(|(s, _)| *s == number).map(|(_, port)| *port).collect();
        self.open.retain(|(s, _)| *s != number);
        for port in ports {
            for kind in [flags::ACK, flags::FIN | flags::ACK] {
                self.topo.deliver(0, &packets::tcp((CLIENT, port), (VIP, VIP_PORT), kind).bytes());
            }
        }
    }

    /// One connection of a server ends at once.
    fn expire_one(&mut self, number: usize) {
        let at = self.open.iter().position(|(s, _)| *s == number).expect("an open connection");
        let (_, port) = self.open.swap_remove(at);
        self.topo.deliver(0, &packets::tcp((CLIENT, port), (VIP, VIP_PORT), flags::ACK).bytes());
        self.topo.deliver(0, &packets::tcp((CLIENT, port), (VIP, VIP_PORT), flags::RST).bytes());
        // CLOSE lasts 10 s; the others are in SYN_RECV for 60 s and are kept alive.
        for (_, port) in self.open.clone() {
            self.topo.deliver(0, &packets::tcp((CLIENT, port), (VIP, VIP_PORT), flags::SYN).bytes());
        }
        self.topo.advance_secs(11);
    }

    /// Gives a server that many connections, whatever the scheduler says.
    fn load(&mut self, number: usize, active: u32, inactive: u32) {
        self.topo.set_counts(address(number), active, inactive);
    }

    fn overload(&mut self, number: usize) {
        self.topo.set_overload(address(number), true);
    }

    fn expect_counts(&self, expected: &[Counts]) -> Result<(), String> {
        let found: Vec<Counts> = expected
            .iter()
            .map(|counts| {
                let (active, inactive) = self.topo.counts(address(counts.server));
                Counts { active, inactive, ..*counts }
            })
            .collect();
        equal("counts", &format!("{expected:?}"), &format!("{found:?}"))
    }
}

fn address(number: usize) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number as u8)
}

fn mac(number: usize) -> packets::Mac {
    [0x02, 0, 0, 0, 0x02, number as u8]
}

fn letters(picks: &[Option<usize>]) -> String {
    picks.iter().map(|pick| pick.map_or("-".into(), |number| number.to_string())).collect()
}

fn equal(what: &str, expected: &str, found: &str) -> Result<(), String> {
    if expected == found { Ok(()) } else { Err(format!("{what}\n  expected {expected}\n  found    {found}")) }
}

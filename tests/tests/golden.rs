//! Golden packets through the whole worker over memory ports, byte for byte.

use tests::case::{self, Case};
use tests::golden::{GOLDEN, Golden, Rules as Which};
use tests::packets::{SERVER, SERVER_PORT, VIP, VIP_PORT};
use tests::topo::{Method, Proto, Rules, Service, Topo};

#[test]
fn golden_packets_byte_for_byte() {
    println!("{:<26} {:<9} what", "golden", "result");
    let mut failed = Vec::new();
    for golden in GOLDEN {
        let case = Case { what: golden.what, steps: golden.steps(), counters: Vec::new() };
        let outcome = case::run_one(&case, &mut Topo::new(&rules(golden)));
        println!(
            "{:<26} {:<9} {}",
            golden.name,
            if outcome.is_ok() { "equal" } else { "DIFFERS" },
            golden.what
        );
        failed.extend(outcome.err().map(|why| format!("=== {}: {}\n{why}", golden.name, golden.what)));
    }
    assert!(failed.is_empty(), "{}", failed.join("\n"));
}

/// The same packets behind one another through one worker: nothing of one exchange leaks into the next.
#[test]
fn golden_packets_twice_over() {
    for golden in GOLDEN {
        let mut topo = Topo::new(&rules(golden));
        for _ in 0..2 {
            let case = Case { what: golden.what, steps: golden.steps(), counters: Vec::new() };
            case::run_one(&case, &mut topo).unwrap_or_else(|why| panic!("{}: {why}", golden.name));
        }
    }
}

fn rules(golden: &Golden) -> Rules {
    let tcp = |server: Option<(Method, u16)>| {
        let mut service = Service::new(Proto::Tcp, VIP, VIP_PORT, "rr");
        service.servers.extend(server.map(|(method, port)| tests::topo::Server::new(SERVER, port, method)));
        service
    };
    Rules::test_network().service(match golden.rules {
        Which::TcpNat => tcp(Some((Method::Nat, SERVER_PORT))),
        Which::TcpDr => tcp(Some((Method::Dr, VIP_PORT))),
        Which::TcpEmpty => tcp(None),
        Which::UdpNat => {
            Service::new(Proto::Udp, VIP, 53, "rr").server(tests::topo::Server::new(SERVER, 53, Method::Nat))
        }
    })
}

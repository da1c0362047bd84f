//! Services that come and go while packets are on their way to the workers that own them.

use super::*;

/// A service on a port's own address is deleted: its connections' packets still go to their owner, which drops them in
/// silence, as one worker does; and once there is none, the address is a host's.
#[test]
fn packets_of_a_service_that_left_our_own_address_find_their_owner() {
    const CLIENTS: u8 = 64;
    let without = rules("rr", "worker", [1; 4]);
    let mut with = without.clone();
    let service = Service::new(Proto::Tcp, packets::P0, NAT, "rr");
    with.services.push(service.server(Server::new(server(1), server_port(NAT), Method::Nat)));
    let clients = || (0..CLIENTS).map(|n| (Ipv4Addr::new(198, 51, 100, n), 4000));
    for steer in [Steer::ONE, Steer::keyed(2, By::Client, (3, 5)), Steer::keyed(3, By::ClientPort, (3, 5))] {
        let (mut mesh, mut rng) = (Mesh::new(&with, &steer), Rng::new(1));
        for (flags, port) in [(flags::SYN, NAT), (flags::ACK, NAT), (flags::ACK, NAT + 1)] {
            if flags == flags::ACK {
                mesh.reload(&without);
            }
            for client in clients() {
                let to = rng.below(steer.workers());
                mesh.inject(to, 0, &packets::tcp(client, (packets::P0, port), flags).bytes());
                mesh.run(&mut rng);
            }
        }
        let (figures, workers) = (mesh.figures(), steer.workers());
        assert_eq!(figures.created, u64::from(CLIENTS), "{workers} workers");
        assert_eq!(figures.drops_for(DropReason::DestGone), u64::from(CLIENTS), "{workers} workers");
        assert_eq!(figures.drops_for(DropReason::UnmatchedReset), u64::from(CLIENTS), "{workers} workers");
    }
}

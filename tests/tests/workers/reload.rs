//! Services that come and go while packets are on their way to the workers that own them.

use super::*;

/// A service on a port's own address is deleted: its connections' packets still go to their owner, which drops them in
/// silence, as one worker does; and once there is none, the address is a host's.
#[test]
fn packets_of_a_service_that_left_our_own_address_find_their_owner() {
    const CLIENTS: u8 = 64;
    let without = rules("rr", "worker", [1; 4]);
    let mut with = without.clone();
    let service = Service { announce: false, ..Service::new(Proto::Tcp, packets::P0, NAT, "rr") };
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

/// A packet waits in a ring, handed over as a reply, while the service it is for is added: no connection where its
/// client's next packet does not come.
#[test]
fn a_service_that_is_added_while_a_packet_is_in_a_ring() {
    let with = rules("rr", "worker", [1; 4]);
    let mut without = with.clone();
    without.services.clear();
    let steer = Steer::keyed(2, By::Client, (3, 5));
    let there = steer.owner((VIP.to_bits(), 0));
    let here = 1 - there;
    let mut clients = (1..255).map(|n| Ipv4Addr::new(198, 51, 100, n));
    let client = clients.find(|c| steer.owner((c.to_bits(), 0)) == here).expect("clients of each");
    for flags in [flags::SYN, flags::ACK] {
        let (mut mesh, mut rng) = (Mesh::new(&without, &steer), Rng::new(1));
        let packet = |flags| packets::tcp((client, 4000), (VIP, NAT), flags).bytes();
        mesh.inject(here, 0, &packet(flags));
        mesh.poll(here);
        assert_eq!(mesh.ios[0].in_rings(), 1, "as it is for nobody, it goes where a reply would");
        mesh.reload(&with);
        mesh.run(&mut rng);
        assert_eq!((mesh.conns(), mesh.sent().len()), (vec![0, 0], 0));
        assert_eq!(mesh.figures().drops_for(DropReason::WrongOwner), 1);
        mesh.inject(there, 0, &packet(flags::SYN));
        mesh.run(&mut rng);
        assert_eq!((mesh.conns()[here], mesh.conns()[there]), (1, 0), "the client's next try");
    }
}

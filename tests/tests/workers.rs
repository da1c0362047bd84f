//! Several workers against one: packets arrive at any of them, and what leaves is what one worker would have sent.

#![forbid(unsafe_code)]

use std::collections::HashMap;
use std::net::Ipv4Addr;
use std::time::Duration;

use dataplane::steer::{By, Steer};
use dataplane::verdict::DropReason;
use tests::case::Out;
use tests::check::{self, L4};
use tests::mesh::Mesh;
use tests::mutate::Rng;
use tests::packets::{self, CLIENT, SERVER, SERVER_MAC, VIP, flags};
use tests::topo::{Method, Proto, Rules, Server, Service};

#[path = "workers/reload.rs"]
mod reload;

/// Seeds of the comparison with one worker.
const SEEDS: u64 = 1000;
/// Steps of one seed: bursts, single packets that may be scheduled, pauses.
const STEPS: usize = 60;
/// Most packets of one flow that arrive at the same time.
const BURST_OF_FLOW: usize = 3;
/// Servers of each service.
const SERVERS: u8 = 4;
/// Service ports: through NAT, by direct routing, of one server only; UDP through NAT.
const NAT: u16 = 80;
const DIRECT: u16 = 81;
const SINGLE: u16 = 82;
const DNS: u16 = 53;

const SCHEDULERS: [&str; 4] = ["rr", "wrr", "lc", "wlc"];

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Flow {
    udp: bool,
    client: (Ipv4Addr, u16),
    port: u16,
}

impl Flow {
    fn random(rng: &mut Rng) -> Self {
        let port = [NAT, DIRECT, SINGLE, DNS][rng.below(4)];
        let client = (Ipv4Addr::new(198, 51, 100, rng.below(30) as u8), 40_000 + rng.below(4) as u16);
        Self { udp: port == DNS, client, port }
    }

    fn request(self, flags: u8) -> Vec<u8> {
        self.packet(self.client, (VIP, self.port), flags).bytes()
    }

    /// A request, or the reply of a server (none comes back this way under direct routing), with a number in it.
    fn numbered(self, from: Option<Ipv4Addr>, flags: u8, number: u8) -> Vec<u8> {
        let packet = match from {
            None => self.packet(self.client, (VIP, self.port), flags),
            Some(server) => self.packet((server, server_port(self.port)), self.client, flags).from_server(),
        };
        packet.payload(&[number]).bytes()
    }

    fn packet(self, from: (Ipv4Addr, u16), to: (Ipv4Addr, u16), flags: u8) -> packets::Packet {
        if self.udp { packets::udp(from, to, b"question") } else { packets::tcp(from, to, flags) }
    }
}

fn server_port(port: u16) -> u16 {
    if port == DIRECT { port } else { port + 8000 }
}

fn server(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 0, 0, number)
}

fn rules(scheduler: &str, scope: &str, weights: [u32; SERVERS as usize]) -> Rules {
    let mut rules = Rules::test_network();
    rules.neighbours.retain(|(port, ..)| *port == 0);
    for (proto, port, servers) in [
        (Proto::Tcp, NAT, SERVERS),
        (Proto::Tcp, DIRECT, SERVERS),
        (Proto::Tcp, SINGLE, 1),
        (Proto::Udp, DNS, SERVERS),
    ] {
        let mut service = Service::new(proto, VIP, port, scheduler);
        service.announce = false;
        for number in 1..=servers {
            let method = if port == DIRECT { Method::Dr } else { Method::Nat };
            let weight = weights[usize::from(number) - 1];
            service.servers.push(Server { weight, ..Server::new(server(number), server_port(port), method) });
        }
        rules.services.push(service);
    }
    rules.neighbours.extend((1..=SERVERS).map(|number| (1, server(number), mac(number))));
    // Each worker limits what it answers, so the limit must be out of reach.
    rules.extra = format!(
        "[limits]\nservices = 16\ndestinations = 64\nneighbours = 64\nicmp_rate = 1000000\nicmp_burst = 100000\n\
         [timeouts]\ntcp = 20\nudp = 10\nsynrecv = 6\ntimewait = 3\nclose = 3\ntcpfin = 5\n\
         [workers]\nsched_scope = \"{scope}\"\n"
    );
    rules
}

fn mac(number: u8) -> packets::Mac {
    [2, 0, 0, 0, 1, 0x20 + number]
}

/// What of a frame does not depend on the worker: all but identification and header checksum, as each worker numbers
/// the packets that it makes itself.
fn without_identity(mut out: Out) -> (usize, Vec<u8>) {
    if out.frame[12..14] == [8, 0] {
        out.frame[18..20].fill(0);
        out.frame[24..26].fill(0);
    }
    (out.port, out.frame)
}

/// Frames by flow and direction, those of each in the order they left.
fn by_flow(sent: Vec<Out>) -> Vec<(usize, Vec<u8>)> {
    let mut frames: Vec<_> = sent.into_iter().map(without_identity).collect();
    frames.sort_by_key(|(port, frame)| (*port, flow_of(frame)));
    frames
}

/// Protocol, addresses and ports; an ICMP error has the ports in the packet that it is about.
fn flow_of(frame: &[u8]) -> [u8; 13] {
    let ports = if frame[23] == 1 { 62 } else { 34 };
    let bytes = [&frame[23..24], &frame[26..34], &frame[ports..ports + 4]];
    bytes.concat().try_into().expect("thirteen bytes")
}

/// Server that a frame of a request goes to.
fn target(out: &Out) -> Option<packets::Mac> {
    (out.port == 1).then(|| out.frame[..6].try_into().expect("six bytes"))
}

/// Traffic of one seed, run through any number of meshes step by step.
struct Traffic {
    rng: Rng,
    /// Server of each flow that was sent to one, as its last SYN or datagram went.
    known: HashMap<Flow, u8>,
}

/// A step: what arrives at the same time, or time that passes.
enum Step {
    /// Frames of some flows, none of which can be scheduled, with the port they come in on. Those of one flow arrive
    /// at one worker, mixed with others'; only their order matters.
    Burst(Vec<(usize, Vec<Vec<u8>>)>),
    /// One packet that may be scheduled.
    Single(Flow, Vec<u8>),
    Pause(Duration),
}

impl Traffic {
    fn new(seed: u64) -> Self {
        Self { rng: Rng::new(seed), known: HashMap::new() }
    }

    fn step(&mut self) -> Step {
        let rng = &mut self.rng;
        match rng.below(10) {
            0 => Step::Pause(Duration::from_millis(100 * (1 + rng.below(60) as u64))),
            1..=5 => {
                let flow = Flow::random(rng);
                Step::Single(flow, flow.request(flags::SYN))
            }
            _ => {
                let known: Vec<(Flow, u8)> =
                    self.known.iter().map(|(flow, server)| (*flow, *server)).collect();
                let mut frames = HashMap::new();
                for _ in 0..rng.below(20).min(known.len()) {
                    let (flow, number) = known[rng.below(known.len())];
                    let reply = flow.port != DIRECT && rng.one_in(2);
                    if flow.udp && !reply {
                        continue;
                    }
                    let packets = (0..1 + rng.below(BURST_OF_FLOW)).map(|n| {
                        let flags =
                            [flags::ACK, flags::ACK, flags::ACK | flags::FIN, flags::RST][rng.below(4)];
                        let syn = if reply && rng.one_in(3) { flags::SYN } else { 0 };
                        let from = reply.then(|| server(number));
                        flow.numbered(from, flags | syn, n as u8)
                    });
                    frames.insert(flow, (usize::from(reply), packets.collect()));
                }
                Step::Burst(frames.into_values().collect())
            }
        }
    }

    /// Notes where a packet that may have been scheduled went.
    fn note(&mut self, flow: Flow, sent: &[Out]) {
        let number = sent.iter().filter_map(target).find_map(|to| (1..=SERVERS).find(|n| mac(*n) == to));
        match number {
            Some(number) => self.known.insert(flow, number),
            None => self.known.remove(&flow),
        };
    }
}

fn run(mesh: &mut Mesh, workers: usize, step: &Step, rng: &mut Rng) -> Vec<Out> {
    match step {
        Step::Pause(by) => mesh.advance(*by),
        Step::Single(_, frame) => mesh.inject(rng.below(workers), 0, frame),
        Step::Burst(flows) => {
            let at: Vec<_> = flows.iter().map(|_| rng.below(workers)).collect();
            for turn in 0..BURST_OF_FLOW {
                for ((port, frames), worker) in flows.iter().zip(&at) {
                    frames.get(turn).into_iter().for_each(|frame| mesh.inject(*worker, *port, frame));
                }
            }
        }
    }
    mesh.run(rng);
    mesh.sent()
}

/// With one position of the schedulers for all workers, and where there is nothing to choose, the same packets leave in
/// the same order of each flow as with one worker, wherever each of them arrives.
#[test]
fn two_workers_send_what_one_sends() {
    let mut foreign = 0;
    for seed in 1..=SEEDS {
        let mut traffic = Traffic::new(seed);
        let (mut arrivals, scheduler) = (Rng::new(seed * 7919), SCHEDULERS[seed as usize % 4]);
        let weights = std::array::from_fn(|_| 1 + traffic.rng.below(3) as u32);
        let rules = rules(scheduler, "global", weights);
        let by = if seed % 3 == 0 { By::ClientPort } else { By::Client };
        let steer = match seed % 2 {
            0 => Steer::keyed(2, by, (seed.wrapping_mul(0x9E37_79B9_7F4A_7C15), !seed << 7)),
            _ => Steer::toeplitz(2, by, 0x6d5a, 128),
        };
        let (mut one, mut two) = (Mesh::new(&rules, &Steer::ONE), Mesh::new(&rules, &steer));
        for number in 0..STEPS {
            let step = traffic.step();
            let expected = run(&mut one, 1, &step, &mut arrivals);
            let sent = run(&mut two, 2, &step, &mut arrivals);
            if let Step::Single(flow, _) = &step {
                traffic.note(*flow, &expected);
            }
            assert_eq!(by_flow(sent), by_flow(expected), "seed {seed}, {scheduler}, step {number}");
        }
        let counts = |mesh: &Mesh| -> Vec<_> {
            let mut rows: Vec<_> = mesh
                .dests()
                .iter()
                .map(|r| (r.dest.addr, r.dest.port, r.active, r.inactive, r.totals))
                .collect();
            rows.sort_by_key(|row| (row.0, row.1));
            rows
        };
        assert_eq!(counts(&two), counts(&one), "seed {seed}");
        assert_eq!(two.conns().iter().sum::<usize>(), one.conns()[0]);
        foreign += two.figures().handed_out;
    }
    assert!(foreign > SEEDS * STEPS as u64 / 2, "{foreign} packets were handed over");
}

/// With positions of their own, every packet of a connection still goes to one server, and shares are as weights say.
#[test]
fn workers_with_turns_of_their_own_keep_shares_and_connections() {
    let weights = [1, 2, 3, 4];
    for scheduler in SCHEDULERS {
        for workers in [2, 3, 8] {
            let mut rng = Rng::new(workers as u64);
            let steer = Steer::keyed(workers, By::Client, (0x0123_4567_89ab_cdef, 0xfedc_ba98_7654_3211));
            let mut mesh = Mesh::new(&rules(scheduler, "worker", weights), &steer);
            let mut servers = HashMap::new();
            let flows: Vec<Flow> = (0..1600u32)
                .map(|n| Flow {
                    udp: false,
                    client: (Ipv4Addr::from_bits(0x6440_0000 + n * 13), 4000),
                    port: NAT,
                })
                .collect();
            for flow in &flows {
                mesh.inject(rng.below(workers), 0, &flow.request(flags::SYN));
                if rng.one_in(4) {
                    mesh.run(&mut rng);
                }
            }
            mesh.run(&mut rng);
            let answered = |mesh: &mut Mesh| -> HashMap<Ipv4Addr, packets::Mac> {
                let sent = mesh.sent();
                sent.iter()
                    .map(|out| (check::valid(&out.frame).ip().src, target(out).expect("a request")))
                    .collect()
            };
            servers.extend(answered(&mut mesh));
            assert_eq!(servers.len(), flows.len());
            for flow in &flows {
                mesh.inject(rng.below(workers), 0, &flow.request(flags::ACK));
                mesh.run(&mut rng);
            }
            assert_eq!(answered(&mut mesh), servers, "{scheduler}: connections stay where they are");

            let total: u32 = if scheduler.starts_with('w') { weights.iter().sum() } else { SERVERS.into() };
            for number in 1..=SERVERS {
                let weight = if scheduler.starts_with('w') { weights[usize::from(number) - 1] } else { 1 };
                let got = servers.values().filter(|to| **to == mac(number)).count() as f64;
                let share = flows.len() as f64 * f64::from(weight) / f64::from(total);
                let off = (got - share).abs() / flows.len() as f64;
                assert!(
                    off <= 0.02,
                    "{scheduler}, {workers} workers: server {number} has {got}, not {share}"
                );
            }
            assert!(mesh.conns().iter().all(|n| *n > 0), "{:?}", mesh.conns());
        }
    }
}

/// Each worker begins its round in another part of the list.
#[test]
fn rounds_begin_apart() {
    for (scheduler, picks) in [("rr", [4, 3, 2, 1]), ("wrr", [4, 3, 2, 1])] {
        let steer = Steer::keyed(4, By::Client, (9, 0x9E37_79B9_7F4A_7C15));
        let mut mesh = Mesh::new(&rules(scheduler, "worker", [1; 4]), &steer);
        let mut rng = Rng::new(1);
        for (worker, pick) in picks.into_iter().enumerate() {
            let client = (0..).map(|n| Ipv4Addr::from_bits(0x6440_0000 + n));
            let client =
                client.clone().find(|c| steer.owner((c.to_bits(), 1)) == worker).expect("clients of each");
            let flow = Flow { udp: false, client: (client, 1), port: NAT };
            mesh.inject(0, 0, &flow.request(flags::SYN));
            mesh.run(&mut rng);
            assert_eq!(
                mesh.sent().iter().filter_map(target).collect::<Vec<_>>(),
                [mac(pick)],
                "{scheduler} {worker}"
            );
        }
    }
}

/// Thresholds are overshot by no more than the other workers can schedule before they see the count.
#[test]
fn an_upper_threshold_holds_over_all_workers() {
    let mut rules = rules("wlc", "worker", [1; 4]);
    rules.services[0].servers.iter_mut().for_each(|server| server.upper = 10);
    let steer = Steer::keyed(4, By::Client, (9, 0x9E37_79B9_7F4A_7C15));
    let mut mesh = Mesh::new(&rules, &steer);
    let mut rng = Rng::new(3);
    for n in 0..200u32 {
        let flow = Flow { udp: false, client: (Ipv4Addr::from_bits(0x6440_0000 + n), 1), port: NAT };
        mesh.inject(rng.below(4), 0, &flow.request(flags::SYN));
        mesh.run(&mut rng);
    }
    for row in mesh.dests().iter().filter(|row| row.dest.port == server_port(NAT)) {
        assert_eq!((row.active + row.inactive, row.overloaded), (10, true));
    }
    assert_eq!(mesh.figures().drops_for(DropReason::NoDest), 160);
}

/// A full ring costs the packets that find it full, and they are counted.
#[test]
fn a_full_ring_drops_and_counts() {
    let steer = Steer::keyed(2, By::Client, (9, 0x9E37_79B9_7F4A_7C15));
    let mut mesh = Mesh::new(&rules("rr", "worker", [1; 4]), &steer);
    let owner = steer.owner((CLIENT.to_bits(), 0));
    mesh.ios[1 - owner].set_ring(3);
    for port in 0..10 {
        mesh.inject(1 - owner, 0, &packets::tcp((CLIENT, 4000 + port), (VIP, NAT), flags::SYN).bytes());
    }
    mesh.poll(1 - owner);
    mesh.check();
    let receiver = mesh.each()[1 - owner];
    assert_eq!((receiver.rx, receiver.handed_out, receiver.drops_for(DropReason::RingFull)), (10, 3, 7));
    assert_eq!(mesh.ios[0].in_rings(), 3);
    mesh.run(&mut Rng::new(1));
    let owner = mesh.each()[owner];
    assert_eq!((owner.rx, owner.handed_in, owner.created), (0, 3, 3));
    assert_eq!(mesh.sent().iter().filter(|out| target(out).is_some()).count(), 3);
}

/// The answer to one worker's ARP request comes in at another: what waits leaves at once.
#[test]
fn an_arp_answer_helps_whoever_waits() {
    let mut rules = rules("rr", "worker", [1; 4]);
    rules.neighbours.retain(|(port, ..)| *port == 0);
    let steer = Steer::keyed(2, By::Client, (9, 0x9E37_79B9_7F4A_7C15));
    let mut mesh = Mesh::new(&rules, &steer);
    let (mut rng, owner) = (Rng::new(1), steer.owner((CLIENT.to_bits(), 0)));
    let flow = Flow { udp: false, client: (CLIENT, 4000), port: SINGLE };
    mesh.inject(1 - owner, 0, &flow.request(flags::SYN));
    mesh.run(&mut rng);
    // The request for the neighbour leaves with the next housekeeping.
    mesh.advance(Duration::from_millis(20));
    let asked = mesh.sent().iter().any(|out| out.port == 1 && out.frame[12..14] == [8, 6]);
    assert!(asked && mesh.each()[owner].parked == 1, "{:?}", mesh.each());

    let answer = packets::arp_reply((SERVER_MAC, SERVER), (packets::P1_MAC, packets::DIP));
    mesh.inject(1 - owner, 1, &answer);
    mesh.poll(1 - owner);
    mesh.poll(owner);
    let sent = mesh.sent();
    assert_eq!(sent.len(), 1, "{sent:?}");
    let L4::Tcp { dport, .. } = check::valid(&sent[0].frame).ip().l4 else { panic!("{sent:?}") };
    assert_eq!((dport, target(&sent[0])), (server_port(SINGLE), Some(SERVER_MAC)));
    mesh.check();
}

//! Rows `veth.*`: real TCP through the balancer between kernel links, beside DPDK's testpmd that only moves frames.
//!
//! The network is the demo's NAT one. The balancer's worker, or testpmd's forwarding core, has the one CPU to itself;
//! clients, servers and the kernel's part of the links share the other. The two take turns on the same ports, each
//! started anew. A turn is a stream by iperf3, then connections with one exchange each, then exchanges on one connection.
//! Through testpmd there is one network only: the client has an address in the servers' and calls the server itself.

use std::io::{BufRead, BufReader, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use serde_json::Value;
use tests::netns::daemon::{Daemon, configuration, service};
use tests::netns::peers::start_line_server;
use tests::netns::{Net, Process, Topology, VIP};

use crate::reference::Testpmd;
use crate::report::{Row, median};
use crate::{Bench, pin};

/// iperf3's own.
const STREAM_PORT: u16 = 5201;
/// Of the server that answers each line.
const LINE_PORT: u16 = 5202;
/// Smaller than any queue on the way: a veth's backlog holds 1000 frames.
const WINDOW: &str = "512K";
/// How long the way to the servers may take to come up, and an answer may take.
const PATIENCE: Duration = Duration::from_secs(10);
/// Turns of each, at most.
const TURNS: usize = 5;
/// What is measured: name and unit.
const FIGURES: [(&str, &str); 4] = [("gbit", "Gbit/s"), ("conns", "1/s"), ("p50", "us"), ("p99", "us")];
/// Drivers with what they need besides the interface.
const DRIVERS: [(&str, &str); 2] = [("af_packet", ",framecnt=4096"), ("af_xdp", "")];

/// The figures of one turn, as in [`FIGURES`].
type Turn = [f64; FIGURES.len()];

/// All of them.
pub fn rows(bench: &mut Bench<'_>) -> Result<(), String> {
    let wanted: Vec<_> = DRIVERS
        .into_iter()
        .filter(|(driver, _)| FIGURES.iter().any(|(figure, _)| bench.wants(&id(driver, figure))))
        .collect();
    if wanted.is_empty() {
        return Ok(());
    }
    let Some(other_cpu) = bench.other_cpu else {
        eprintln!("bench: veth.* left out: it needs two CPUs");
        return Ok(());
    };
    let ground = Ground { cpu: bench.cpu, other_cpu, span: 4 * bench.span };
    // Processes started from here may use both CPUs.
    pin(&[bench.cpu, other_cpu])?;
    for (driver, more) in wanted {
        ground.rows(bench, driver, more)?;
    }
    pin(&[bench.cpu])
}

fn id(driver: &str, figure: &str) -> String {
    format!("veth.lb.{driver}.{figure}")
}

/// Where and how long.
#[derive(Clone, Copy)]
struct Ground {
    /// Of whoever forwards.
    cpu: usize,
    /// Of clients and servers.
    other_cpu: usize,
    span: Duration,
}

impl Ground {
    fn rows(self, bench: &mut Bench<'_>, driver: &str, more: &str) -> Result<(), String> {
        let Some(net) = Net::up(Topology::Nat) else {
            eprintln!("bench: veth.* left out: network namespaces need root");
            return Ok(());
        };
        self.prepare(&net)?;
        let mut server = net.server(1).command("taskset");
        server.args(["-c", &self.other_cpu.to_string(), "iperf3", "-s", "-p", &STREAM_PORT.to_string()]);
        let _server = Process::start("iperf3", server.stdout(Stdio::null()).stderr(Stdio::null()));
        let (mut io, mut lb) = (Vec::new(), Vec::new());
        for _ in 0..bench.rounds.min(TURNS) {
            match self.through_testpmd(&net, driver, more) {
                Ok(turn) => io.push(turn),
                Err(why) => {
                    eprintln!("bench: veth.lb.{driver}.* left out: through dpdk-testpmd io: {why}");
                    return Ok(());
                }
            }
            lb.push(self.through_weir(&net, driver, more)?);
        }
        for (at, (figure, unit)) in FIGURES.into_iter().enumerate() {
            let column = |turns: &[Turn]| median(&mut turns.iter().map(|turn| turn[at]).collect::<Vec<_>>());
            let ((value, spread), (reference, _)) = (column(&lb), column(&io));
            bench.push(Row {
                value,
                unit,
                reference: "dpdk-testpmd io on the same ports".into(),
                reference_value: Some(reference),
                ratio: Some(value / reference),
                spread,
                ..Row::new(id(driver, figure))
            });
        }
        Ok(())
    }

    /// A second address for the client, enough ports for connections without end, the server.
    fn prepare(self, net: &Net) -> Result<(), String> {
        let client = net.client();
        client.output("ip", &["address", "add", "10.0.0.10/24", "dev", "eth0"]);
        client
            .output("sysctl", &["-qw", "net.ipv4.tcp_tw_reuse=1", "net.ipv4.ip_local_port_range=1024 65535"]);
        // Threads inherit the CPUs of whoever starts them.
        pin(&[self.other_cpu])?;
        start_line_server(&net.server(1), LINE_PORT, "s");
        pin(&[self.cpu, self.other_cpu])
    }

    fn through_testpmd(self, net: &Net, driver: &str, more: &str) -> Result<Turn, String> {
        let words = format!(
            "--no-huge -m 512 --no-shconf --no-pci --no-telemetry -l {},{} --vdev net_{driver}0,iface=wan{more} \
             --vdev net_{driver}1,iface=lan{more} -- --forward-mode=io --total-num-mbufs=16384 -i",
            self.other_cpu, self.cpu
        );
        let mut testpmd = net.lb().run(|| Testpmd::spawn(Path::new("dpdk-testpmd"), &words))?;
        testpmd.until("io packet forwarding")?;
        testpmd.command("start")?;
        self.turn(net, &net.server_address(1))
    }

    fn through_weir(self, net: &Net, driver: &str, more: &str) -> Result<Turn, String> {
        let mut services = String::new();
        for port in [STREAM_PORT, LINE_PORT] {
            let dest = (format!("{}:{port}", net.server_address(1)), 1);
            services.push_str(&service(&format!("tcp://{VIP}:{port}"), "rr", "nat", &[dest]));
        }
        let mut text = configuration(net, &services)
            .replace("mode = \"shared\"", &format!("mode = \"exclusive\"\ncpus = \"{}\"", self.cpu))
            .replace("max = 65536", "max = 1048576");
        for (number, name) in ["wan", "lan"].into_iter().enumerate() {
            text = text.replace(
                &format!("net_af_packet{number},iface={name},framecnt=4096"),
                &format!("net_{driver}{number},iface={name}{more}"),
            );
        }
        let weir = Daemon::start(net, &text);
        let turn = self.turn(net, VIP)?;
        let drops = weir.drops();
        let ended = weir.stop();
        if !drops.is_empty() || !ended.status.success() {
            return Err(format!("veth.lb.{driver}: {}, dropped: {drops:?}\n{}", ended.status, ended.log));
        }
        Ok(turn)
    }

    /// All figures against `target`.
    fn turn(self, net: &Net, target: &str) -> Result<Turn, String> {
        let server = SocketAddr::new(target.parse().map_err(|e| format!("{target}: {e}"))?, LINE_PORT);
        let (conns, times) = net.client().run(|| {
            pin(&[self.other_cpu])?;
            let since = Instant::now();
            while let Err(why) = Client::connect(server, Duration::from_millis(300)) {
                if since.elapsed() > PATIENCE {
                    return Err(format!("{server} is not reached: {why}"));
                }
            }
            let measured = || -> std::io::Result<_> {
                Ok((connections(server, self.span)?, exchanges(server, self.span)?))
            };
            measured().map_err(|e| format!("{server}: {e}"))
        })?;
        let gbit = self.stream(net, target)?;
        let at = |share: f64| times[((times.len() - 1) as f64 * share) as usize];
        Ok([gbit, conns, at(0.5), at(0.99)])
    }

    /// Gbit/s of one TCP stream, whole seconds as iperf3 counts them.
    fn stream(self, net: &Net, target: &str) -> Result<f64, String> {
        let (cpu, port) = (self.other_cpu.to_string(), STREAM_PORT.to_string());
        let seconds = self.span.as_secs().max(1).to_string();
        let args = ["-c", &cpu, "iperf3", "-c", target, "-p", &port, "-t", &seconds, "-w", WINDOW, "-J"];
        let output = net.client().command("taskset").args(args).output();
        let output = output.map_err(|e| format!("iperf3 does not start: {e}"))?;
        let report: Value = serde_json::from_slice(&output.stdout).map_err(|e| format!("iperf3 -J: {e}"))?;
        let bits = report["end"]["sum_received"]["bits_per_second"].as_f64();
        bits.map(|bits| bits / 1e9).ok_or_else(|| format!("iperf3: {}", report["error"]))
    }
}

/// Connections a second: each opened, one line asked and answered, closed.
fn connections(server: SocketAddr, span: Duration) -> std::io::Result<f64> {
    let (from, mut count) = (Instant::now(), 0u32);
    while from.elapsed() < span {
        Client::connect(server, PATIENCE)?.ask()?;
        count += 1;
    }
    Ok(f64::from(count) / from.elapsed().as_secs_f64())
}

/// Microseconds of exchanges on one connection, sorted.
fn exchanges(server: SocketAddr, span: Duration) -> std::io::Result<Vec<f64>> {
    let mut client = Client::connect(server, PATIENCE)?;
    let (from, mut times) = (Instant::now(), Vec::new());
    while from.elapsed() < span {
        let asked = Instant::now();
        client.ask()?;
        times.push(asked.elapsed().as_nanos() as f64 / 1e3);
    }
    times.sort_by(f64::total_cmp);
    Ok(times)
}

/// A client of the line server, in the namespace of the thread that made it.
struct Client {
    stream: BufReader<TcpStream>,
    answer: String,
}

impl Client {
    fn connect(server: SocketAddr, limit: Duration) -> std::io::Result<Self> {
        let stream = TcpStream::connect_timeout(&server, limit)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(PATIENCE))?;
        Ok(Self { stream: BufReader::new(stream), answer: String::new() })
    }

    fn ask(&mut self) -> std::io::Result<()> {
        self.stream.get_mut().write_all(b"?\n")?;
        self.answer.clear();
        match self.stream.read_line(&mut self.answer)? {
            0 => Err(std::io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

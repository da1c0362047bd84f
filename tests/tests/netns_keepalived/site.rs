//! Balancer, servers and keepalived on one network, and what tests ask of them.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpStream;
use std::process::Command;
use std::time::{Duration, Instant};

use tests::netns::daemon::{Daemon, configuration};
use tests::netns::keepalived::Keepalived;
use tests::netns::load::Request;
use tests::netns::peers::Nginx;
use tests::netns::{Net, Topology, VIP, text_of};

/// Time between two checks of a server.
pub const CHECK: Duration = Duration::from_millis(500);
/// How long a check waits for an answer.
pub const CHECK_TIMEOUT: Duration = Duration::from_millis(500);

/// keepalived's configuration of one service on the two servers, with a sorry server.
pub fn keepalived(scheduler: &str, weights: [u32; 2]) -> String {
    let [first, second] = weights;
    format!(
        "global_defs {{
            router_id test
            lvs_flush
            lvs_timeouts tcp 901 tcpfin 121 udp 301
        }}
        virtual_server {VIP} 80 {{
            delay_loop {check}
            lb_algo {scheduler}
            lb_kind NAT
            protocol TCP
            alpha
            quorum 1
            sorry_server 10.0.0.12 8081
            real_server 10.0.0.11 8080 {{
                weight {first}
                TCP_CHECK {{
                    connect_timeout {timeout}
                    retry 0
                }}
            }}
            real_server 10.0.0.12 8080 {{
                weight {second}
                inhibit_on_failure
                HTTP_GET {{
                    url {{
                        path /
                        status_code 200
                    }}
                    connect_timeout {timeout}
                    retry 0
                }}
            }}
        }}\n",
        check = CHECK.as_secs_f32(),
        timeout = CHECK_TIMEOUT.as_secs_f32(),
    )
}

/// Names that answered the requests begun in a span of time, none of which may have failed.
pub fn served(requests: &[Request], span: impl std::ops::RangeBounds<Instant>) -> Vec<String> {
    let inside = requests.iter().filter(|request| span.contains(&request.begun));
    let name = |request: &Request| match &request.answer {
        Ok(name) => name.clone(),
        Err(error) => panic!("a request failed, {:?} ago: {error}", request.begun.elapsed()),
    };
    inside.map(name).collect()
}

/// Balancer, servers and keepalived, all running.
pub struct Site {
    /// keepalived; `None` once it is stopped.
    pub keepalived: Option<Keepalived>,
    weir: Option<Daemon>,
    /// Both web servers; `None` where one is killed.
    pub web: [Option<Nginx>; 2],
    _sorry: Nginx,
    /// The network.
    pub net: Net,
}

impl Site {
    pub fn up(configuration_of_keepalived: &str) -> Option<Site> {
        if !Keepalived::is_installed() {
            return None;
        }
        let net = Net::up(Topology::Nat)?;
        let web = [1, 2].map(|number| Some(Nginx::start(&net, number)));
        let sorry = Nginx::start_as(&net, 2, "sorry", 8081);
        let weir = Some(Daemon::start(&net, &configuration(&net, "")));
        let keepalived = Some(Keepalived::start(&net, configuration_of_keepalived));
        Some(Site { keepalived, weir, web, _sorry: sorry, net })
    }

    pub fn weir(&self) -> &Daemon {
        self.weir.as_ref().expect("a daemon runs")
    }

    pub fn keepalived(&self) -> &Keepalived {
        self.keepalived.as_ref().expect("keepalived runs")
    }

    /// Kills the daemon, and starts it again once `meanwhile` is done.
    pub fn restarts_daemon(&mut self, meanwhile: impl FnOnce(&mut Site)) {
        self.weir = None;
        meanwhile(self);
        self.weir = Some(Daemon::start(&self.net, &configuration(&self.net, "")));
    }

    /// Waits until these services are listed, without connection counts, and three programs agree on it.
    #[track_caller]
    pub fn shows(&self, expected: &str) {
        let weir = self.weir();
        let start = Instant::now();
        while rules(&weir.weiradm("-L -n")) != expected && start.elapsed() < Duration::from_secs(10) {
            std::thread::sleep(Duration::from_millis(10));
        }
        let log = || self.keepalived.as_ref().map(Keepalived::log).unwrap_or_default();
        assert_eq!(rules(&weir.weiradm("-L -n")), expected, "{}", log());
        assert_eq!(rules(&output(&mut weir.ask(&["list"]))), expected);
        let mut ipvsadm = weir.ask(&["exec"]);
        assert_eq!(rules(&output(ipvsadm.args(["--", "/usr/sbin/ipvsadm", "-L", "-n"]))), expected);
    }

    /// Asks with new connections, as many as expected answers, and counts who answered.
    #[track_caller]
    pub fn serves(&self, service: &str, expected: &[(&str, usize)]) {
        let count = expected.iter().map(|(_, count)| count).sum();
        let url = format!("http://{service}/");
        let urls = vec![url.as_str(); count];
        let arguments =
            [&["-sS", "--fail-early", "--max-time", "5", "-H", "Connection: close"][..], &urls].concat();
        let mut answers = BTreeMap::new();
        for name in self.net.client().output("curl", &arguments).lines() {
            *answers.entry(name.to_owned()).or_insert(0) += 1;
        }
        let expected = BTreeMap::from_iter(expected.iter().map(|(name, count)| ((*name).to_owned(), *count)));
        assert_eq!(answers, expected, "{service}");
    }

    /// keepalived ends and takes its services with it; nobody answers any more.
    pub fn stops(&mut self) {
        self.keepalived.take().expect("it is stopped once").stop();
        self.shows("");
        let mut curl = self.net.client().command("curl");
        let status =
            curl.args(["-s", "--max-time", "1", &format!("http://{VIP}/")]).status().expect("ip runs");
        assert!(!status.success());
    }
}

/// A connection of the client's.
pub fn connect(net: &Net, service: &str) -> TcpStream {
    net.client().run(|| TcpStream::connect(service).expect("it is served"))
}

/// Asks on an open connection; name of the server that answers.
pub fn ask(connection: &mut TcpStream) -> String {
    connection.write_all(b"GET / HTTP/1.1\r\nHost: test\r\n\r\n").expect("the connection is open");
    let mut lines = BufReader::new(connection).lines().map(|line| line.expect("an answer"));
    lines.find(String::is_empty).expect("the head ends");
    lines.next().expect("a name")
}

/// A listing after its head, without connection counts, blanks made one.
pub fn rules(listing: &str) -> String {
    let line = |line: &str| {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rule = if words[0] == "->" { &words[..4] } else { &words[..] };
        rule.join(" ")
    };
    listing.lines().skip(3).map(line).collect::<Vec<_>>().join("\n")
}

fn output(command: &mut Command) -> String {
    let output = command.output().expect("weir runs");
    assert!(output.status.success(), "{}", text_of(&output));
    String::from_utf8(output.stdout).expect("listings are text")
}

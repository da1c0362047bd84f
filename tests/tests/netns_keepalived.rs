//! keepalived as it is, under `weir exec`: what its checks, reloads and stop say is what clients meet, and at every step
//! `weiradm -Ln`, `weir list`, Debian's ipvsadm and the traffic agree.
#![forbid(unsafe_code)]

#[path = "netns_keepalived/site.rs"]
mod site;

use std::time::{Duration, Instant};

use rustix::process::Signal;
use site::{CHECK, CHECK_TIMEOUT, Site, ask, connect, keepalived, rules, served};
use tests::netns::keepalived::Keepalived;
use tests::netns::load::Load;
use tests::netns::peers::Nginx;
use tests::netns::{VIP, wait_for};

/// keepalived and the daemon run on a busy machine.
const SLACK: Duration = Duration::from_millis(500);

#[test]
fn netns_keepalived_moves_traffic_as_its_checks_say() {
    let Some(mut site) = Site::up(&keepalived("rr", [1, 1])) else { return };
    let both = "TCP 192.0.2.100:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 1";
    site.shows(both);
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);

    // Killed: its port refuses. Gone from the pool at the next check, and from then on no request fails.
    let load = Load::start(&site.net.client(), "192.0.2.100:80");
    std::thread::sleep(CHECK);
    let killed = Instant::now();
    site.web[0] = None;
    site.shows("TCP 192.0.2.100:80 rr\n-> 10.0.0.12:8080 Masq 1");
    let moved = Instant::now();
    assert!(moved - killed < CHECK + SLACK, "{:?} after the kill", moved - killed);
    std::thread::sleep(CHECK);
    let requests = load.stop();
    assert!(served(&requests, ..killed).iter().any(|name| name == "rs1"), "{requests:?}");
    let later = served(&requests, moved..);
    assert!(later.len() > 10 && later.iter().all(|name| name == "rs2"), "{later:?}");
    site.serves("192.0.2.100:80", &[("rs2", 4)]);

    // Back again: no request fails on the way.
    let load = Load::start(&site.net.client(), "192.0.2.100:80");
    site.web[0] = Some(Nginx::start(&site.net, 1));
    site.shows(both);
    let back = Instant::now();
    std::thread::sleep(CHECK);
    let requests = load.stop();
    let all = served(&requests, ..);
    assert!(served(&requests, back..).iter().any(|name| name == "rs1"), "{all:?}");
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);

    // One hangs, and stays with weight 0 as inhibit_on_failure asks; then the quorum is lost with the other.
    site.web[1].as_ref().expect("it runs").signal(Signal::STOP);
    let stopped = Instant::now();
    site.shows("TCP 192.0.2.100:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 0");
    assert!(stopped.elapsed() < CHECK + CHECK_TIMEOUT + SLACK, "{:?} after the stop", stopped.elapsed());
    site.serves("192.0.2.100:80", &[("rs1", 4)]);
    let killed = Instant::now();
    site.web[0] = None;
    site.shows("TCP 192.0.2.100:80 rr\n-> 10.0.0.12:8080 Masq 0\n-> 10.0.0.12:8081 Masq 1");
    assert!(killed.elapsed() < CHECK + SLACK, "{:?} after the kill", killed.elapsed());
    site.serves("192.0.2.100:80", &[("sorry", 4)]);

    // Both are well again: the sorry server leaves.
    site.web[1].as_ref().expect("it runs").signal(Signal::CONT);
    site.web[0] = Some(Nginx::start(&site.net, 1));
    site.shows(both);
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);

    assert_eq!(site.weir().weiradm("-L --timeout"), "Timeout (tcp tcpfin udp): 901 121 301\n");
    site.stops();
    assert_eq!(site.weir().weiradm("-L --timeout"), "Timeout (tcp tcpfin udp): 900 120 300\n");
}

#[test]
fn netns_keepalived_reloads_keep_what_did_not_change() {
    let group = |addresses: &str| {
        format!(
            "virtual_server_group G {{
                {addresses} 80
                fwmark 77
            }}
            virtual_server group G {{
                delay_loop 0.5
                lb_algo wlc
                lb_kind NAT
                protocol TCP
                real_server 10.0.0.12 8080 {{
                    weight 5
                    TCP_CHECK
                }}
            }}\n"
        )
    };
    let Some(mut site) = Site::up(&(keepalived("rr", [1, 1]) + &group("192.0.2.101-102"))) else { return };
    let member = |service: &str| format!("{service} wlc\n-> 10.0.0.12:8080 Masq 5");
    let members =
        |services: &[&str]| services.iter().map(|service| member(service)).collect::<Vec<_>>().join("\n");
    let before = members(&["TCP 192.0.2.101:80", "TCP 192.0.2.102:80", "FWM 77"]);
    site.shows(&format!("TCP {VIP}:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 1\n{before}"));
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);
    site.serves("192.0.2.101:80", &[("rs2", 4)]);
    site.serves("192.0.2.102:80", &[("rs2", 4)]);
    let unbuilt = site.weir().status().warnings.into_iter().any(|warning| warning.seen.contains("mark:77"));
    assert!(unbuilt, "what is listed and not forwarded is named: {:?}", site.weir().status().warnings);

    // Another scheduler, other weights, a longer range: open connections stay where they are, new ones follow the weights.
    let mut open = [(); 2].map(|()| connect(&site.net, "192.0.2.100:80"));
    let servers = open.each_mut().map(ask);
    assert_ne!(servers[0], servers[1]);
    let load = Load::start(&site.net.client(), "192.0.2.101:80");
    site.keepalived().reload(&(keepalived("wrr", [3, 1]) + &group("192.0.2.101-103")));
    let after = members(&["TCP 192.0.2.101:80", "TCP 192.0.2.102:80", "TCP 192.0.2.103:80", "FWM 77"]);
    site.shows(&format!("TCP {VIP}:80 wrr\n-> 10.0.0.11:8080 Masq 3\n-> 10.0.0.12:8080 Masq 1\n{after}"));
    site.serves("192.0.2.100:80", &[("rs1", 6), ("rs2", 2)]);
    site.serves("192.0.2.103:80", &[("rs2", 4)]);
    assert_eq!(open.each_mut().map(ask), servers);
    assert!(served(&load.stop(), ..).iter().all(|name| name == "rs2"));
    // Statistics are those of the estimator's last pass, up to two seconds ago.
    wait_for("counters that went on", Duration::from_secs(5), || {
        let (counters, _) = site.weir().counters(&format!("tcp:{VIP}:80"));
        (counters.connections_total >= 8 + 2 + 8).then_some(())
    });

    // keepalived 2.2.7 forgets at such a reload who uses a range: when it stops, it empties those services and leaves them.
    site.keepalived.take().expect("it runs").stop();
    site.shows("TCP 192.0.2.101:80 wlc\nTCP 192.0.2.102:80 wlc\nTCP 192.0.2.103:80 wlc");
    assert_eq!(
        site.weir().log().matches("command=\"-D").count(),
        2,
        "one service and the mark: {}",
        site.weir().log()
    );
    // The next one flushes at its start, and without such a reload leaves nothing.
    site.keepalived =
        Some(Keepalived::start(&site.net, &(keepalived("rr", [1, 1]) + &group("192.0.2.101-102"))));
    site.shows(&format!("TCP {VIP}:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 1\n{before}"));
    site.stops();
}

#[test]
fn netns_keepalived_outlives_the_daemon_beneath_it() {
    let Some(mut site) = Site::up(&keepalived("rr", [1, 1])) else { return };
    let both = "TCP 192.0.2.100:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 1";
    site.shows(both);
    // keepalived sends what it knows once only: the daemon has to remember it, and what keepalived set besides.
    site.restarts_daemon(|_| ());
    assert_eq!(rules(&site.weir().weiradm("-L -n")), both);
    assert_eq!(site.weir().weiradm("-L --timeout"), "Timeout (tcp tcpfin udp): 901 121 301\n");
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);

    // A server goes while there is no daemon: the removal is tried again until there is one. Nobody spins meanwhile.
    site.restarts_daemon(|site| {
        let ticks = site.keepalived().checker_ticks();
        site.web[0] = None;
        site.keepalived().await_log("Device or resource busy");
        std::thread::sleep(Duration::from_secs(1));
        let ticks = site.keepalived().checker_ticks() - ticks;
        assert!(ticks < 5, "{ticks} ticks of 10 ms in about 2 s");
    });
    site.shows("TCP 192.0.2.100:80 rr\n-> 10.0.0.12:8080 Masq 1");
    site.serves("192.0.2.100:80", &[("rs2", 4)]);

    // It comes back while there is none.
    site.restarts_daemon(|site| {
        site.web[0] = Some(Nginx::start(&site.net, 1));
        std::thread::sleep(2 * CHECK);
    });
    site.shows(both);
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);
    site.stops();
}

#[test]
fn netns_keepalived_as_vrrp_speaker_starts_and_stops_the_sync_daemon() {
    let vrrp = |priority: u8, peer: &str| {
        format!(
            "global_defs {{
                router_id test
                lvs_sync_daemon lan {peer} id 51 maxlen 1400 port 8850 ttl 3 group 224.0.0.90
            }}
            vrrp_instance V1 {{
                interface lan
                state BACKUP
                virtual_router_id 7
                priority {priority}
                version 3
                advert_int 0.2
                virtual_ipaddress {{
                    10.0.0.250/32
                }}
            }}\n"
        )
    };
    let with_service =
        |text: String| text + keepalived("rr", [1, 1]).split_once('}').expect("global_defs end").1;
    let Some(mut site) = Site::up(&with_service(vrrp(100, "V1"))) else { return };
    let role = |role: &str| {
        format!(
            "{role} sync daemon (mcast=lan, syncid=51, maxlen=1400, group=224.0.0.90, port=8850, ttl=3)\n"
        )
    };
    site.keepalived().await_log("Entering MASTER STATE");
    wait_for("it is master", Duration::from_secs(5), || {
        (site.weir().weiradm("-L --daemon") == role("master")).then_some(())
    });
    assert!(site.keepalived().log().contains("Entering BACKUP STATE"));
    let started = ["backup", "master"].map(|role| site.weir().log().find(&format!("--start-daemon {role}")));
    assert!(started[0].is_some() && started[0] < started[1], "{}", site.weir().log());
    let warnings = site.weir().status().warnings;
    assert!(warnings.iter().any(|warning| warning.seen.contains("the sync daemon")), "{warnings:?}");
    site.shows("TCP 192.0.2.100:80 rr\n-> 10.0.0.11:8080 Masq 1\n-> 10.0.0.12:8080 Masq 1");
    site.serves("192.0.2.100:80", &[("rs1", 4), ("rs2", 4)]);
    site.stops();
    assert_eq!(site.weir().weiradm("-L --daemon"), "");

    // Not tied to VRRP: both at once.
    site.keepalived = Some(Keepalived::start(&site.net, &with_service(vrrp(100, ""))));
    assert_eq!(site.weir().weiradm("-L --daemon"), role("master") + &role("backup"));
    site.stops();
    assert_eq!(site.weir().weiradm("-L --daemon"), "");
}

/// Mishaps one after the other for two minutes, the same ones in each run.
#[test]
fn netns_keepalived_soak_of_mishaps() {
    if std::env::var_os("WEIR_SOAK").is_none() {
        eprintln!("SKIPPED: takes two minutes, WEIR_SOAK is not set");
        return;
    }
    let Some(mut site) = Site::up(&keepalived("wrr", [1, 1])) else { return };
    let mut weights = [1, 1];
    let (mut killed, mut hung) = (false, false);
    let mut random = 2026_u32;
    let begun = Instant::now();
    let mut mishaps = 0;
    while begun.elapsed() < Duration::from_secs(120) {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        match random >> 30 {
            0 => {
                killed = !killed;
                site.web[0] = (!killed).then(|| Nginx::start(&site.net, 1));
            }
            1 => {
                hung = !hung;
                let signal = if hung { Signal::STOP } else { Signal::CONT };
                site.web[1].as_ref().expect("it is never killed").signal(signal);
            }
            2 if !killed && !hung => {
                weights = [1 + (random >> 8) % 4, 1 + (random >> 16) % 4];
                site.keepalived().reload(&keepalived("wrr", weights));
            }
            _ => site.restarts_daemon(|_| ()),
        }
        let mut lines = vec![format!("TCP {VIP}:80 wrr")];
        lines.extend((!killed).then(|| format!("-> 10.0.0.11:8080 Masq {}", weights[0])));
        lines.push(format!("-> 10.0.0.12:8080 Masq {}", if hung { 0 } else { weights[1] }));
        lines.extend((killed && hung).then(|| "-> 10.0.0.12:8081 Masq 1".to_owned()));
        site.shows(&lines.join("\n"));
        let expected = match (killed, hung) {
            (false, false) => vec![("rs1", weights[0] as usize), ("rs2", weights[1] as usize)],
            (false, true) => vec![("rs1", 3)],
            (true, false) => vec![("rs2", 3)],
            (true, true) => vec![("sorry", 3)],
        };
        site.serves("192.0.2.100:80", &expected);
        mishaps += 1;
    }
    println!("{mishaps} mishaps, each followed by the right listing and traffic");
    if hung {
        site.web[1].as_ref().expect("it is never killed").signal(Signal::CONT);
    }
    site.stops();
}

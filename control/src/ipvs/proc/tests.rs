//! The texts as kernel 6.12 printed them.

use super::*;
use crate::ipvs::{DestKey, DestOptions, ServiceOptions, Tunnel};

fn options(flags: u32, timeout_seconds: u32, netmask: u32) -> ServiceOptions {
    ServiceOptions { scheduler: "rr".into(), engine: None, flags, timeout_seconds, netmask }
}

fn listed(key: ServiceKey, options: ServiceOptions, dests: &[(&str, Method, i32)]) -> String {
    let dests = dests.iter().map(|(socket, method, weight)| {
        let socket: SocketAddr = socket.parse().unwrap();
        let tunnel = Tunnel::default();
        Dest {
            key: DestKey { address: socket.ip(), port: socket.port() },
            options: DestOptions { method: *method, weight: *weight, upper: 0, lower: 0, tunnel },
            active: 0,
            inactive: 0,
            persistent: 0,
            stats: Stats::default(),
        }
    });
    service(&Service { key, options, stats: Stats::default() }, dests)
}

fn key(protocol: u16, socket: &str) -> ServiceKey {
    let socket: SocketAddr = socket.parse().unwrap();
    ServiceKey::Address { protocol, address: socket.ip(), port: socket.port() }
}

/// The kernel's own text of a table with one service of each kind; what a persistent one adds is by its source.
#[test]
fn services_as_recorded() {
    let recorded = "IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
UDP  C0000202:0035 rr  
TCP  C0000201:0050 rr  
  -> C6336405:0050      Masq    2      0          0         
  -> C6336401:0050      Masq    3      0          0         
TCP  [2001:0db8:0000:0000:0000:0000:0000:0001]:0050 rr 
FWM  00000005 rr 
";
    let masq = Method::MASQUERADE;
    let plain = options(0, 0, u32::MAX);
    let text = [
        head(&Info { version: Info::VERSION, table_size: 4096 }),
        listed(key(17, "192.0.2.2:53"), plain.clone(), &[]),
        listed(
            key(6, "192.0.2.1:80"),
            plain.clone(),
            &[("198.51.100.5:80", masq, 2), ("198.51.100.1:80", masq, 3)],
        ),
        listed(key(6, "[2001:db8::1]:80"), options(0, 0, 128), &[]),
        listed(ServiceKey::Mark { family: Family::V4, mark: 5 }, plain, &[]),
    ];
    assert_eq!(text.concat(), recorded);

    let persistent = flag::PERSISTENT | flag::ONE_PACKET;
    let text = listed(key(132, "192.0.2.1:0"), options(persistent, 300, 0xffff_ff00), &[]);
    assert_eq!(text, "SCTP  C0000201:0000 rr ops  persistent 75000 FFFFFF00\n");
    let text =
        listed(key(47, "[2001:db8::1]:1"), options(persistent, 1, 64), &[("[2001:db8::2]:1", Method(3), 0)]);
    let v6 = "2001:0db8:0000:0000:0000:0000:0000";
    let dest = format!("  -> [{v6}:0002]:0001      Route   0      0          0         \n");
    assert_eq!(text, format!("IP_47  [{v6}:0001]:0001 rr persistent 250 40000000\n{dest}"));
}

#[test]
fn statistics_as_recorded() {
    assert_eq!(
        stats(&Stats::default()),
        "   Total Incoming Outgoing         Incoming         Outgoing
   Conns  Packets  Packets            Bytes            Bytes
       0        0        0                0                0

 Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s
       0        0        0                0                0
"
    );
    assert_eq!(
        stats_percpu(&[(0, Stats::default())], &Stats::default()),
        "       Total Incoming Outgoing         Incoming         Outgoing
CPU    Conns  Packets  Packets            Bytes            Bytes
  0        0        0        0                0                0
  ~        0        0        0                0                0

     Conns/s   Pkts/s   Pkts/s          Bytes/s          Bytes/s
           0        0        0                0                0
"
    );
    let some =
        Stats { conns: 0x1_0000_0000, in_bytes: u64::MAX, in_packets_per_second: 171, ..Stats::default() };
    let text = stats(&some);
    assert!(text.contains("\n100000000        0        0 FFFFFFFFFFFFFFFF                0\n\n"), "{text}");
    assert!(text.ends_with("\n       0       AB        0                0                0\n"), "{text}");
}

#[test]
fn connections_by_their_columns() {
    let at = |text: &str| text.parse::<SocketAddr>().unwrap();
    let (client, service, dest) = (at("192.0.2.9:40000"), at("192.0.2.1:80"), at("198.51.100.1:8080"));
    let entry = Conn {
        protocol: "TCP",
        client,
        service,
        dest,
        state: "ESTABLISHED",
        expires_seconds: 899,
        engine: None,
    };
    assert_eq!(conn(&entry), "TCP C0000209 9C40 C0000201 0050 C6336401 1F90 ESTABLISHED     899\n");
    assert_eq!(
        conn_sync(&entry),
        "TCP C0000209 9C40 C0000201 0050 C6336401 1F90 ESTABLISHED LOCAL      899\n"
    );
    let entry = Conn { engine: Some(("sip", "12345")), state: "UDP", client: at("[2001:db8::9]:1"), ..entry };
    assert_eq!(
        conn(&entry),
        "TCP 2001:0db8:0000:0000:0000:0000:0000:0009 0001 C0000201 0050 C6336401 1F90 UDP             899 sip 12345\n"
    );
}

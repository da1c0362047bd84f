//! The mistakes, each with the text that it earns.

/// (what is replaced, by what, what is printed)
pub const CASES: &[(&str, &str, &str)] = &[
    (
        "weight = 3",
        "wieght = 3",
        r#"weir: service.destination.wieght: unknown key
  weir.toml:26
      wieght = 3
      ^^^^^^
  expected a key of [[service.destination]]: address, method, weight, upper, lower
  help: did you mean weight?
"#,
    ),
    (
        "weight = 3",
        r#"weight = "3""#,
        r#"weir: service.destination.weight: a text instead of an integer
  weir.toml:26
      weight = "3"
               ^^^
  expected an integer from 0 to 2147483647
  help: write it without quotes: weight = 3
"#,
    ),
    (
        "weight = 3",
        "weight = 2147483648",
        r#"weir: service.destination.weight: 2147483648 is too big
  weir.toml:26
      weight = 2147483648
               ^^^^^^^^^^
  expected an integer from 0 to 2147483647
"#,
    ),
    (
        "weight = 3",
        "upper = 3\n  lower = 4",
        r#"weir: service.destination.lower: 4 is above upper, which is 3
  weir.toml:27
      lower = 4
              ^
  help: write a lower of at most 3, or 0 for three quarters of upper
"#,
    ),
    (
        "weight = 3",
        r#"tunnel = "gue""#,
        r#"weir: service.destination.tunnel: is not supported yet by this version (tunnels)
  weir.toml:26
      tunnel = "gue"
      ^^^^^^
"#,
    ),
    (
        "10.0.0.11:8080",
        "10.0.0.300:8080",
        r#"weir: service.destination.address: "10.0.0.300:8080" is not an address and port
  weir.toml:21
      address = "10.0.0.300:8080"
                ^^^^^^^^^^^^^^^^^
  expected an address and port, like "10.0.0.11:8080"; without the port, the service's
"#,
    ),
    (
        "10.0.0.11:8080",
        "web1.example:8080",
        r#"weir: service.destination.address: "web1.example:8080" is not an address and port
  weir.toml:21
      address = "web1.example:8080"
                ^^^^^^^^^^^^^^^^^^^
  expected an address and port, like "10.0.0.11:8080"; without the port, the service's
  help: names are not looked up; write the address
"#,
    ),
    (
        "10.0.0.11:8080",
        "224.0.0.1:8080",
        r#"weir: service.destination.address: 224.0.0.1 is a multicast address, not one host's
  weir.toml:21
      address = "224.0.0.1:8080"
                ^^^^^^^^^^^^^^^^
  help: a destination is one server: write its own address
"#,
    ),
    (
        "10.0.0.11:8080",
        "10.0.0.255:8080",
        r#"weir: service.destination.address: 10.0.0.255 is the broadcast address of 10.0.0.0/24, not a host in it
  weir.toml:21
      address = "10.0.0.255:8080"
                ^^^^^^^^^^^^^^^^^
  help: a destination is one server: write its own address
"#,
    ),
    (
        "10.0.0.11:8080",
        "10.0.0.1:8080",
        r#"weir: service.destination.address: 10.0.0.1 is the address of port lan: there is no server here
  weir.toml:21
      address = "10.0.0.1:8080"
                ^^^^^^^^^^^^^^^
  help: write the address of the server
"#,
    ),
    (
        "10.0.0.11:8080",
        "198.51.100.1:8080",
        r#"weir: service.destination.address: 198.51.100.1 is the address of service tcp:198.51.100.1:80, which is announced here
  weir.toml:21
      address = "198.51.100.1:8080"
                ^^^^^^^^^^^^^^^^^^^
  help: write the server's own address; with dr too, where the service address is only on its loopback
"#,
    ),
    (
        "10.0.0.11:8080",
        "10.0.0.11:0",
        r#"weir: service.destination.address: port 0 is no port
  weir.toml:21
      address = "10.0.0.11:0"
                ^^^^^^^^^^^^^
  expected an address and port, like "10.0.0.11:8080"; without the port, the service's
  help: for the service's port write "10.0.0.11"
"#,
    ),
    (
        r#"10.0.0.11:8080""#,
        r#"10.0.0.12:80""#,
        r#"weir: service.destination.address: tcp:198.51.100.1:80 has a destination 10.0.0.12:80 already
  weir.toml:24
      address = "10.0.0.12"
                ^^^^^^^^^^^
  help: the first is in line 21; for a larger share raise its weight
"#,
    ),
    (
        r#""10.0.0.12""#,
        r#""10.8.0.12""#,
        r#"weir: service.destination.address: 10.8.0.12 is behind router 10.0.0.254, where dr cannot reach it
  weir.toml:24
      address = "10.8.0.12"
                ^^^^^^^^^^^
  expected an address in one of: 10.0.0.0/24, 192.0.2.0/24
  help: dr changes only the frame, so the server must be on the wire of a port; write method = "nat", or a [[route]] with port if it is on that wire
"#,
    ),
    (
        r#""10.0.0.12""#,
        r#""10.0.0.12:81""#,
        r#"weir: service.destination.address: port 81, but dr leaves the port 80
  weir.toml:24
      address = "10.0.0.12:81"
                ^^^^^^^^^^^^^^
  help: write "10.0.0.12" without a port, or method = "nat"
"#,
    ),
    (
        r#""dr""#,
        r#""tunnel""#,
        r#"weir: service.destination.method: "tunnel" (tunnels) is not supported yet by this version
  weir.toml:25
      method = "tunnel"
               ^^^^^^^^
"#,
    ),
    (
        r#""rr""#,
        r#""wlcc""#,
        r#"weir: service.scheduler: unknown word "wlcc"
  weir.toml:18
    scheduler = "wlcc"
                ^^^^^^
  expected one of rr, wrr, lc, wlc, lblc, lblcr, dh, sh, sed, nq, fo, ovf, mh, twos, none
  help: did you mean "wlc"?
"#,
    ),
    (
        r#""rr""#,
        "rr",
        r#"weir: syntax: string values must be quoted, expected literal string
  weir.toml:18
    scheduler = rr
                ^^
"#,
    ),
    (
        r#""rr""#,
        "\"sh\"\nflags = [\"sh-port\", \"mh-port\"]",
        r#"weir: service.flags: mh-port is no flag of scheduler sh
  weir.toml:19
    flags = ["sh-port", "mh-port"]
                        ^^^^^^^^^
  help: remove the flag, or write scheduler = "mh"
"#,
    ),
    (
        r#""rr""#,
        "\"rr\"\nflags = [\"ops\"]",
        r#"weir: service.flags: "ops" (one-packet scheduling) is not supported yet by this version
  weir.toml:19
    flags = ["ops"]
             ^^^^^
"#,
    ),
    (
        r#""rr""#,
        "\"rr\"\nflags = \"ops\"",
        r#"weir: service.flags: a text instead of a list
  weir.toml:19
    flags = "ops"
            ^^^^^
  expected a list of: sh-fallback, sh-port, mh-fallback, mh-port, flag-1, flag-2, flag-3
  help: write a list: flags = ["ops"]
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""198.51.100.1:80""#,
        r#"weir: service.address: "198.51.100.1:80" is not a service
  weir.toml:17
    address = "198.51.100.1:80"
              ^^^^^^^^^^^^^^^^^
  expected tcp:// or udp:// with address and port, like "tcp://198.51.100.1:80"
  help: say the protocol: "tcp://198.51.100.1:80" or "udp://198.51.100.1:80"
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""tcp://198.51.100.1""#,
        r#"weir: service.address: "tcp://198.51.100.1" has no port
  weir.toml:17
    address = "tcp://198.51.100.1"
              ^^^^^^^^^^^^^^^^^^^^
  expected tcp:// or udp:// with address and port, like "tcp://198.51.100.1:80"
  help: add it, like "tcp://198.51.100.1:80"
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""tcp://10.0.0.1:80""#,
        r#"weir: service.address: 10.0.0.1 is the address of port lan, which answers for it already
  weir.toml:17
    address = "tcp://10.0.0.1:80"
              ^^^^^^^^^^^^^^^^^^^
  help: write announce = false for this service, or give it an address of its own
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""tcp://192.0.2.1:80""#,
        r#"weir: service.address: 192.0.2.1 is the gateway of port wan
  weir.toml:17
    address = "tcp://192.0.2.1:80"
              ^^^^^^^^^^^^^^^^^^^^
  help: announcing it would take the router's packets; give the service an address of its own
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""sctp://198.51.100.1:80""#,
        r#"weir: service.address: SCTP is not supported yet by this version
  weir.toml:17
    address = "sctp://198.51.100.1:80"
              ^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""fwmark:7""#,
        r#"weir: service.address: a service by firewall mark is not supported yet by this version
  weir.toml:17
    address = "fwmark:7"
              ^^^^^^^^^^
"#,
    ),
    (
        r#""tcp://198.51.100.1:80""#,
        r#""tcp://[2001:db8::1]:80""#,
        r#"weir: service.address: IPv6 is not supported yet by this version
  weir.toml:17
    address = "tcp://[2001:db8::1]:80"
              ^^^^^^^^^^^^^^^^^^^^^^^^
"#,
    ),
    (
        r#"scheduler = "rr""#,
        "persistent = 300",
        r#"weir: service.persistent: is not supported yet by this version (persistence)
  weir.toml:18
    persistent = 300
    ^^^^^^^^^^
"#,
    ),
    (
        r#"scheduler = "rr""#,
        r#"unmatched = "host""#,
        r#"weir: service.unmatched: "host" (handing packets to the host) is not supported yet by this version
  weir.toml:18
    unmatched = "host"
                ^^^^^^
"#,
    ),
    (
        "[[service]]",
        "[service]",
        r#"weir: service: one table where there should be a list of them
  weir.toml:16
    [service]
    ^^^^^^^^^
  help: write [[service]] above the keys of each
"#,
    ),
    (
        "[[service]]",
        "[[service]]\naddress = \"tcp://198.51.100.1:80\"\n\n[[service]]",
        r#"weir: service.address: there is a service tcp:198.51.100.1:80 already
  weir.toml:20
    address = "tcp://198.51.100.1:80"
              ^^^^^^^^^^^^^^^^^^^^^^^
  help: the first is in line 17; put all destinations there
"#,
    ),
    (
        "[[service]]",
        "[[service]]\naddress = \"udp://198.51.100.1:80\"\nannounce = false\n\n[[service]]",
        r#"weir: service.announce: true here and false in another service of 198.51.100.1
  weir.toml:20
    [[service]]
    ^^^^^^^^^^^
  help: the other is in line 18; an address is announced or not, for all its services
"#,
    ),
    (
        r#""192.0.2.1""#,
        r#""192.0.3.1""#,
        r#"weir: port.gateway: 192.0.3.1 is not on a network of port wan
  weir.toml:5
    gateway = ["192.0.3.1"]
               ^^^^^^^^^^^
  expected an address in one of: 192.0.2.0/24
  help: correct it, or give the port an address in the router's network
"#,
    ),
    (
        r#""192.0.2.10/24""#,
        r#""192.0.2.10""#,
        r#"weir: port.addresses: "192.0.2.10" has no prefix length
  weir.toml:4
    addresses = ["192.0.2.10"]
                 ^^^^^^^^^^^^
  expected a list of addresses with prefix length, like ["192.0.2.10/24"]
  help: add the length of its network, like "192.0.2.10/24"
"#,
    ),
    (
        r#""192.0.2.10/24""#,
        r#""192.0.2.0/24""#,
        r#"weir: port.addresses: 192.0.2.0 is the network 192.0.2.0/24 itself, not a host in it
  weir.toml:4
    addresses = ["192.0.2.0/24"]
                 ^^^^^^^^^^^^^^
  help: give the port an address of its own in that network
"#,
    ),
    (
        r#""192.0.2.10/24""#,
        r#""192.0.2.10/24", "2001:db8::10/64""#,
        r#"weir: port.addresses: IPv6 is not supported yet by this version
  weir.toml:4
    addresses = ["192.0.2.10/24", "2001:db8::10/64"]
                                  ^^^^^^^^^^^^^^^^^
"#,
    ),
    (
        r#""10.0.0.1/24""#,
        r#""192.0.2.11/24""#,
        r#"weir: port.addresses: 192.0.2.0/24 is the network of port wan too
  weir.toml:10
    addresses = ["192.0.2.11/24"]
                 ^^^^^^^^^^^^^^^
  help: one network is on one port; two ports on one switch need networks of their own
"#,
    ),
    (
        "device = \"net_af_packet1,iface=veth1\"\n",
        "",
        r#"weir: port.device: is missing
  weir.toml:7
    [[port]]
    ^^^^^^^^
  expected a text that is not empty
  help: add device = ... to it. PCI address like "0000:3b:00.0", or a virtual device like "net_af_packet0,iface=eth1".
"#,
    ),
    (
        "net_af_packet1",
        "net_af_packet0",
        r#"weir: port.device: device net_af_packet0 is another port's
  weir.toml:9
    device = "net_af_packet0,iface=veth1"
             ^^^^^^^^^^^^^^^^^^^^^^^^^^^^
  help: line 3 has it; a virtual device needs a number of its own, like net_af_packet1
"#,
    ),
    (
        r#""lan""#,
        r#""wan""#,
        r#"weir: port.name: there is a port wan already
  weir.toml:8
    name = "wan"
           ^^^^^
  help: the first is in line 2; give this one another name
"#,
    ),
    (
        r#""lan""#,
        r#""la n""#,
        r#"weir: port.name: "la n" is not a name
  weir.toml:8
    name = "la n"
           ^^^^^^
  expected 1 to 32 letters, digits, '-', '_' or '.', beginning with a letter or digit
"#,
    ),
    (
        "[[route]]",
        "[[routes]]",
        r#"weir: routes: unknown table
  weir.toml:12
    [[routes]]
      ^^^^^^
  expected one of [daemon], [eal], [[port]], [[route]], [[neighbour]], [workers], [estimators], [connections], [limits], [timeouts], [policy], [sysctl], [[service]]
  help: did you mean [[route]]?
"#,
    ),
    (
        "10.8.0.0/16",
        "10.8.0.0/8",
        r#"weir: route.prefix: "10.8.0.0/8" has bits set beyond its length
  weir.toml:13
    prefix = "10.8.0.0/8"
             ^^^^^^^^^^^^
  expected a prefix, like "10.0.0.0/8"
  help: did you mean "10.0.0.0/8"?
"#,
    ),
    (
        r#"via = "10.0.0.254""#,
        r#"port = "lna""#,
        r#"weir: route.port: there is no port "lna"
  weir.toml:14
    port = "lna"
           ^^^^^
  expected wan or lan
  help: did you mean "lan"?
"#,
    ),
    (
        "via = \"10.0.0.254\"\n",
        "",
        r#"weir: route: says nothing of where the prefix is
  weir.toml:12
    [[route]]
    ^^^^^^^^^
  help: add via = "ADDRESS" of a router, or port = "NAME"
"#,
    ),
    (
        r#"via = "10.0.0.254""#,
        "port = \"lan\"\n\n[[route]]\nprefix = \"0.0.0.0/0\"\nvia = \"10.0.0.254\"",
        r#"weir: route.prefix: a second route for all destinations
  weir.toml:17
    prefix = "0.0.0.0/0"
             ^^^^^^^^^^^
  help: the first is in line 5; write a [[route]] for the prefixes this one is for
"#,
    ),
    (
        "[[route]]",
        "[[neighbour]]\naddress = \"10.8.0.5\"\nmac = \"02:00:00:00:00:05\"\n\n[[route]]",
        r#"weir: neighbour.address: 10.8.0.5 is not on a network of any port
  weir.toml:13
    address = "10.8.0.5"
              ^^^^^^^^^^
  expected an address in one of: 10.0.0.0/24, 192.0.2.0/24
  help: a host behind a router is reached by the router's Ethernet address
"#,
    ),
    (
        "[[route]]",
        "[workers]\ncpus = \"4-1\"\nnice = 20\nweight = 1\n\n[[route]]",
        r#"weir: workers.cpus: 4-1 runs backwards
  weir.toml:13
    cpus = "4-1"
           ^^^^^
  expected CPU numbers and ranges up to 8191, like "1-4,6"

weir: workers.nice: 20 is too big
  weir.toml:14
    nice = 20
           ^^
  expected an integer from -20 to 19

weir: workers.weight: unknown key
  weir.toml:15
    weight = 1
    ^^^^^^
  expected a key of [workers]: cpus, mode, steer, sched_scope, nice
  help: weight is a key of [[service.destination]]
"#,
    ),
    (
        "[[route]]",
        "[limits]\ndestinations = 1\n\n[[route]]",
        r#"weir: limits.destinations: 1, but the file has 2
  weir.toml:13
    destinations = 1
                   ^
  help: in [limits] write destinations = 2 or more, up to 16777216
"#,
    ),
    (
        "[[route]]",
        "[sysctl]\nsync_threshold = \"50 3\"\nsync_ports = 3\nsecure_tcp = 4\nsloppy_tcp = true\nest_nice = 1\n\n[[route]]",
        r#"weir: sysctl.sync_threshold: "50 3" is no pair in order
  weir.toml:13
    sync_threshold = "50 3"
                     ^^^^^^
  expected two integers from 0 in a text, the first below the second unless that is 0, like "3 50"

weir: sysctl.sync_ports: 3 is not a power of two
  weir.toml:14
    sync_ports = 3
                 ^
  expected a power of two from 1 to 64

weir: sysctl.secure_tcp: 4 is too big
  weir.toml:15
    secure_tcp = 4
                 ^
  expected an integer from 0 to 3

weir: sysctl.sloppy_tcp: true or false instead of an integer
  weir.toml:16
    sloppy_tcp = true
                 ^^^^
  expected a 32-bit integer
  help: write sloppy_tcp = 1

weir: sysctl.est_nice: unknown key
  weir.toml:17
    est_nice = 1
    ^^^^^^^^
  expected a key of [sysctl]: am_droprate, amemthresh, backup_only, cache_bypass, conn_lfactor, conn_reuse_mode, conntrack, drop_entry, drop_packet, expire_nodest_conn, expire_quiescent_template, ignore_tunneled, lblc_expiration, lblcr_expiration, nat_icmp_send, pmtu_disc, schedule_icmp, secure_tcp, sloppy_sctp, sloppy_tcp, snat_reroute, svc_lfactor, sync_persist_mode, sync_ports, sync_qlen_max, sync_refresh_period, sync_retries, sync_sock_size, sync_threshold, sync_version
  help: est_nice is a key of [estimators]
"#,
    ),
];

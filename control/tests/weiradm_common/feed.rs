//! What the recorded runs of ipvsadm found in their server that no command can put there.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use control::ipvs::{Command, Dest, Info, Method, Service, ServiceKey, ServiceOptions, Stats, Store};
use control::weiradm::Entry;
use rustix::io::Errno;

use crate::weiradm_common::World;

/// Interfaces of the recorded server, with their MTU.
pub const INTERFACES: &[(&str, u32)] = &[("lo", 65536), ("eth0", 1500), ("eth1", 1500)];

/// Puts into the world what no command can.
pub fn feed(world: &mut World, lines: &str) {
    for line in lines.lines() {
        let (kind, rest) = line.split_once(' ').unwrap();
        match kind {
            "svc" => {
                let (name, values) = split_values(rest);
                let (service, _) = entry(world, &service_key(&name));
                set_stats(&mut service.stats, &values);
            }
            "dst" => {
                let (name, values) = split_values(rest);
                let (service, dest) = name.rsplit_once(' ').unwrap();
                let dest: SocketAddr = dest.parse().unwrap();
                let (_, dests) = entry(world, &service_key(service));
                let found = |d: &&mut Dest| (d.key.address, d.key.port) == (dest.ip(), dest.port());
                let dest = dests.iter_mut().find(found).unwrap();
                set_stats(&mut dest.stats, &values);
                for (key, value) in &values {
                    match key.as_str() {
                        "active" => dest.active = *value as u32,
                        "inact" => dest.inactive = *value as u32,
                        "persist" => dest.persistent = *value as u32,
                        "fwd" => dest.options.method = Method::from_wire(*value as u32),
                        _ => {}
                    }
                }
            }
            "conn" => world.connections.push(connection(rest)),
            "fail" => {
                let (command, errno) = rest.split_once(' ').unwrap();
                world.failing.insert(command_number(command), errno_of(errno));
            }
            "version" => {
                let version = u32::from_str_radix(rest.trim_start_matches("0x"), 16).unwrap();
                let store = world.server.store_mut();
                store.info = Info { version, ..store.info };
            }
            "tabsize" => world.server.store_mut().info.table_size = rest.parse().unwrap(),
            "timeouts" => assert_eq!(rest, "900 120 300", "the default"),
            "rawsvc" => {
                assert_eq!(rest, "proto=47 addr=10.0.0.1:0 sched=rr");
                let key = ServiceKey::Address { protocol: 47, address: [10, 0, 0, 1].into(), port: 0 };
                let options = ServiceOptions {
                    scheduler: "rr".to_owned(),
                    engine: None,
                    flags: 0,
                    timeout_seconds: 0,
                    netmask: u32::MAX,
                };
                world.server.store_mut().add_service(key, options).unwrap();
            }
            _ => panic!("{line}"),
        }
    }
}

/// A line of the kernel's connection table.
fn connection(line: &str) -> Entry {
    let words: Vec<&str> = line.split_whitespace().collect();
    let endpoint = |at: usize| {
        let port = u16::from_str_radix(words[at + 1], 16).unwrap();
        let address: IpAddr = match u32::from_str_radix(words[at], 16) {
            Ok(bits) => Ipv4Addr::from_bits(bits).into(),
            Err(_) => words[at].parse::<Ipv6Addr>().unwrap().into(),
        };
        SocketAddr::new(address, port)
    };
    Entry {
        protocol: words[0].to_owned().into(),
        client: endpoint(1),
        service_address: endpoint(3),
        dest: endpoint(5),
        state: words[7].to_owned().into(),
        expires_seconds: words[8].parse().unwrap(),
        engine: words.get(9).map(|name| ((*name).to_owned(), words[10].to_owned())),
    }
}

fn entry<'a>(world: &'a mut World, key: &ServiceKey) -> &'a mut (Service, Vec<Dest>) {
    world.server.store_mut().entry_mut(key).unwrap()
}

/// The words without `=`, and the pairs with one.
fn split_values(text: &str) -> (String, HashMap<String, u64>) {
    let (pairs, names): (Vec<&str>, Vec<&str>) = text.split(' ').partition(|word| word.contains('='));
    let pair = |word: &str| {
        let (key, value) = word.split_once('=').unwrap();
        (key.to_owned(), value.parse().unwrap())
    };
    (names.join(" "), pairs.into_iter().map(pair).collect())
}

fn service_key(text: &str) -> ServiceKey {
    let (option, value) = text.split_once(' ').unwrap();
    if option == "-f" {
        return ServiceKey::Mark { family: control::ipvs::Family::V4, mark: value.parse().unwrap() };
    }
    let protocol = if option == "-t" { 6 } else { 17 };
    let address: SocketAddr = value.parse().unwrap();
    ServiceKey::Address { protocol, address: address.ip(), port: address.port() }
}

fn set_stats(stats: &mut Stats, values: &HashMap<String, u64>) {
    for (key, value) in values {
        let field = match key.as_str() {
            "conns" => &mut stats.conns,
            "inpkts" => &mut stats.in_packets,
            "outpkts" => &mut stats.out_packets,
            "inbytes" => &mut stats.in_bytes,
            "outbytes" => &mut stats.out_bytes,
            "cps" => &mut stats.conns_per_second,
            "inpps" => &mut stats.in_packets_per_second,
            "outpps" => &mut stats.out_packets_per_second,
            "inbps" => &mut stats.in_bytes_per_second,
            "outbps" => &mut stats.out_bytes_per_second,
            _ => continue,
        };
        *field = *value;
    }
}

fn command_number(name: &str) -> u8 {
    let command = match name {
        "NEW_SERVICE" => Command::NewService,
        "NEW_DEST" => Command::NewDest,
        "GET_DEST" => Command::GetDest,
        "GET_CONFIG" => Command::GetConfig,
        "FLUSH" => Command::Flush,
        _ => panic!("{name}"),
    };
    command as u8
}

fn errno_of(name: &str) -> Errno {
    match name {
        "EPERM" => Errno::PERM,
        "ENOMEM" => Errno::NOMEM,
        "EINVAL" => Errno::INVAL,
        "EBUSY" => Errno::BUSY,
        "EOPNOTSUPP" => Errno::OPNOTSUPP,
        "EAFNOSUPPORT" => Errno::AFNOSUPPORT,
        _ => panic!("{name}"),
    }
}

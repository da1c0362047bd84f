//! Exchanges captured from kernel 6.12 (`data/kernel/netlink.txt`), replayed: every answer has the kernel's
//! bytes, but for the family's number and the order of services, which the kernel hashes anew at each boot. And the
//! exchange of keepalived 2.2.7 through start, failures, reload and stop.

use control::api::codec::Incoming;
use control::ipvs::{Command, MemoryStore, Rights, Server, ServiceKey, Store, Timeouts};

/// Number of the family on the recorded machine, and here.
const RECORDED_ID: [u8; 2] = 35u16.to_le_bytes();
const OUR_ID: [u8; 2] = 0x3ffu16.to_le_bytes();
/// Types of an error message, of the end of a listing, and of a lookup.
const NLMSG_ERROR: u8 = 2;
const NLMSG_DONE: u8 = 3;
const GENL_ID_CTRL: u8 = 16;
/// The case that ran without rights.
const CASE_WITHOUT_RIGHTS: &str = "36";

#[test]
fn every_recorded_request_is_answered_with_the_kernels_bytes() {
    let recording = include_str!("data/kernel/netlink.txt");
    let mut case = "";
    let mut command = "";
    let mut server = server();
    let mut answered: Vec<Vec<u8>> = Vec::new();
    let mut recorded: Vec<Vec<u8>> = Vec::new();
    let (mut exchanges, mut reordered) = (0, 0);
    let lines = recording.lines().filter(|line| !line.starts_with('#')).chain(["== end end"]);
    for line in lines {
        let (mark, rest) = line.split_at(2);
        if mark != "< " && !(answered.is_empty() && recorded.is_empty()) {
            if answered != recorded {
                answered.sort();
                recorded.sort();
                assert_eq!(answered, recorded, "case {case}: {command}");
                assert!(recorded.iter().all(|message| is_service_or_end(message)), "case {case}: {command}");
                reordered += 1;
            }
            answered.clear();
            recorded.clear();
        }
        match mark {
            "==" => {
                let (next, text) = rest.trim().split_once(' ').unwrap();
                command = text;
                if next != case {
                    case = next;
                    server = self::server();
                }
            }
            "> " => {
                exchanges += 1;
                let rights = if case == CASE_WITHOUT_RIGHTS { Rights::None } else { Rights::Write };
                let request = messages(&bytes(rest)).into_iter().flat_map(renumbered).collect::<Vec<u8>>();
                let datagrams = server.answer_datagram(&request, rights);
                answered = datagrams.iter().flat_map(|datagram| messages(datagram)).collect();
            }
            "< " => recorded.extend(messages(&bytes(rest)).into_iter().map(renumbered)),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(exchanges, 485);
    assert_eq!(reordered, REORDERED);
}

/// Listings whose services the kernel gave in another order than that of their creation.
const REORDERED: usize = 28;

/// Only the order of services is the kernel's own.
fn is_service_or_end(message: &[u8]) -> bool {
    message[4] == NLMSG_DONE || message[16] == Command::NewService as u8
}

#[test]
fn keepalived_gets_the_answers_it_got() {
    let recording = include_str!("data/ipvsadm/wire-keepalived-2.2.7.txt");
    let (_, lines) = recording.split_once("--- messages\n").unwrap();
    let mut server = server();
    let mut answers: Vec<Vec<u8>> = Vec::new();
    let mut requests = 0;
    for line in lines.lines().filter(|line| !line.starts_with("##")).chain(["-> end"]) {
        let words: Vec<&str> = line.split(' ').collect();
        if words[0] == "->" {
            assert!(answers.is_empty(), "one answer too many, before {line}");
            let ["->", name, flags, content] = words[..] else { continue };
            let kind = if name == "nlctrl" { [GENL_ID_CTRL, 0] } else { OUR_ID };
            let flags = u16::from_str_radix(flags.trim_start_matches("flags=0x"), 16).unwrap();
            let content = bytes(content);
            let mut request = (16 + content.len() as u32).to_ne_bytes().to_vec();
            request.extend(kind);
            request.extend(flags.to_ne_bytes());
            request.extend([0; 8]);
            request.extend(content);
            answers =
                server.answer_datagram(&request, Rights::Write).iter().flat_map(|d| messages(d)).collect();
            requests += 1;
            continue;
        }
        let answer = answers.remove(0);
        match words[..] {
            ["<-", "ERROR", number] => {
                let code = i32::from_ne_bytes(*answer[16..].first_chunk().unwrap());
                assert_eq!((answer[4], code), (NLMSG_ERROR, number.parse().unwrap()), "{line}");
            }
            ["<-", "nlctrl", ..] => assert_eq!(answer[4], GENL_ID_CTRL),
            ["<-", _, _, content] => assert_eq!(answer[16..], bytes(content), "{line}"),
            _ => panic!("{line}"),
        }
    }
    assert_eq!(requests, 47);
    // It removed the services of a group of addresses no more than their destinations: its own counting.
    let left = server.store().services().map(|service| service.key).collect::<Vec<_>>();
    let group = |last| ServiceKey::Address { protocol: 6, address: [10, 9, 0, last].into(), port: 80 };
    assert_eq!(left, [1, 2, 3].map(group));
    assert!(left.iter().all(|key| server.store().dests(key).next().is_none()));
    assert_eq!(server.store().timeouts(), Timeouts::default());
}

fn server() -> Server<MemoryStore> {
    let mut store = MemoryStore::default();
    store.interfaces.insert("lo".to_owned(), 65536);
    Server::new(store)
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

fn messages(datagram: &[u8]) -> Vec<Vec<u8>> {
    Incoming::split(datagram).into_iter().map(|message| message.raw).collect()
}

/// A recorded message with our number of the family in place of the recorded one.
fn renumbered(mut message: Vec<u8>) -> Vec<u8> {
    match message[4] {
        NLMSG_ERROR => renumber(&mut message[24..26]),
        GENL_ID_CTRL => {
            let attribute = [6, 0, 1, 0, RECORDED_ID[0], RECORDED_ID[1]];
            if let Some(at) = message.windows(6).position(|window| window == attribute) {
                renumber(&mut message[at + 4..at + 6]);
            }
        }
        _ => renumber(&mut message[4..6]),
    }
    message
}

fn renumber(bytes: &mut [u8]) {
    if bytes == RECORDED_ID {
        bytes.copy_from_slice(&OUR_ID);
    }
}

//! Round trips of every message, the answers' exact bytes, and arbitrary bytes in place of messages.

use proptest::prelude::*;

use super::*;

fn one(bytes: &[u8]) -> Incoming {
    let mut messages = Incoming::split(bytes);
    assert_eq!(messages.len(), 1);
    messages.remove(0)
}

fn requests() -> Vec<Request> {
    let text = |s: &str| Some(s.to_owned());
    vec![
        Request::Hello,
        Request::Status,
        Request::Workers,
        Request::List,
        Request::Drops { all: false },
        Request::Drops { all: true },
        Request::Conns(ConnFilterText::default()),
        Request::Conns(ConnFilterText {
            client: text("192.0.2.1:40000"),
            service: text("tcp:[2001:db8::1]:80"),
            dest: text("10.0.0.11:8080"),
            state: text("ESTABLISHED"),
        }),
        Request::Conns(ConnFilterText { dest: text(""), ..ConnFilterText::default() }),
        Request::OptionSet { number: 1157, data: Vec::new() },
        Request::OptionGet { number: 1154, length: 112, data: vec![1, 0, 0, 0, 0, 0, 0, 0] },
        Request::TextOpen { name: "net/ip_vs".into(), write: false },
        Request::TextOpen { name: "sys/conntrack".into(), write: true },
        Request::SysctlGet { name: None },
        Request::SysctlGet { name: text("conntrack") },
        Request::SysctlSet { name: "net.ipv4.vs.conntrack".into(), text: "1\n".into() },
    ]
}

#[test]
fn every_request_survives_the_wire() {
    for (sequence, request) in (1u32..).zip(requests()) {
        let bytes = encode_request(sequence, &request);
        let incoming = one(&bytes);
        assert!(incoming.is_request());
        assert_eq!(incoming.header.sequence_number, sequence);
        assert_eq!(incoming.request(), Ok(request));
    }
}

#[test]
fn request_bytes_are_those_of_netlink() {
    let request = Request::Conns(ConnFilterText { state: Some("UDP".into()), ..ConnFilterText::default() });
    #[rustfmt::skip]
    let expected = [
        28, 0, 0, 0,  0xfe, 3,  1, 3,  7, 0, 0, 0,  0, 0, 0, 0, // length, type 0x3fe, REQUEST | DUMP, sequence, port id
        19, 1, 0, 0,                                            // command 19, version 1
        8, 0,  5, 0,  b'U', b'D', b'P', 0,                      // attribute 5 of 8 bytes
    ];
    assert_eq!(encode_request(7, &request), expected);
}

#[test]
fn every_reply_survives_the_wire() {
    let request = one(&encode_request(9, &Request::Status));
    let refusal = Refusal::new(Errno::INVAL, "no such state: FOO");
    let row = br#"{"row":"daemon"}"#.to_vec();
    let cases = [
        (encode_row(&request.header, Command::Status, true, row.clone()).unwrap(), Reply::Row(row)),
        (encode_done(&request.header), Reply::Done),
        (encode_ack(&request), Reply::Ack),
        (encode_refusal(&request, &refusal), Reply::Refused(refusal)),
    ];
    for (bytes, expected) in cases {
        assert_eq!(Reply::split(&bytes).unwrap(), [(9, expected)]);
    }
}

#[test]
fn acknowledgement_and_end_have_the_kernels_length_and_flags() {
    let mut request = one(&encode_request(3, &Request::Hello));
    request.header.port_number = 4711;
    let ack = one(&encode_ack(&request));
    assert_eq!((ack.header.length, ack.header.flags, ack.header.port_number), (36, NLM_F_CAPPED, 4711));
    let done = one(&encode_done(&request.header));
    assert_eq!((done.header.length, done.header.flags, done.header.port_number), (20, NLM_F_MULTIPART, 4711));
}

#[test]
fn a_refusal_of_an_unaligned_request_keeps_its_text() {
    let mut raw = encode_request(3, &Request::Hello);
    raw.push(0xff);
    raw[0] += 1;
    let refusal = Refusal::new(Errno::NOENT, "why");
    let bytes = encode_refusal(&one(&raw), &refusal);
    assert_eq!(Reply::split(&bytes).unwrap(), [(3, Reply::Refused(refusal))]);
}

#[test]
fn a_row_beyond_the_attribute_is_refused() {
    let header = one(&encode_request(1, &Request::List)).header;
    assert!(encode_row(&header, Command::List, true, vec![b' '; ROW_BYTES_MAX]).is_some());
    assert!(encode_row(&header, Command::List, true, vec![b' '; ROW_BYTES_MAX + 1]).is_none());
}

#[test]
fn bad_requests_are_refused_by_the_kernels_numbers() {
    let with = |kind: u16, value: &[u8]| {
        let mut header = NetlinkHeader::default();
        header.flags = NLM_F_REQUEST | NLM_F_DUMP;
        let attributes = vec![Attribute::new(kind, value.to_vec())];
        encode_body(header, Body { command: Command::Conns as u8, attributes })
    };
    let mut other_family = encode_request(1, &Request::List);
    other_family[4] = 0x77;
    let mut other_command = encode_request(1, &Request::List);
    other_command[HEADER_BYTES] = 200;
    let mut without_dump = encode_request(1, &Request::List);
    without_dump[7] = 0;
    let mut short = encode_request(1, &Request::List);
    short.truncate(HEADER_BYTES + 3);
    short[0] = 19;
    let cases = [
        ("another family", other_family, Errno::NOENT),
        ("an unknown command", other_command, Errno::OPNOTSUPP),
        ("shorter than the generic header", short, Errno::INVAL),
        ("a listing not asked for as one", without_dump, Errno::OPNOTSUPP),
        ("text without its end", with(attr::STATE, b"UDP"), Errno::INVAL),
        ("text with an end inside", with(attr::STATE, b"U\0P\0"), Errno::INVAL),
        ("text too long", with(attr::STATE, &[[b'a'; 4097].as_slice(), &[0]].concat()), Errno::INVAL),
        ("text not UTF-8", with(attr::STATE, &[0xff, 0]), Errno::INVAL),
        ("empty attribute", with(attr::STATE, b""), Errno::INVAL),
    ];
    for (name, bytes, errno) in cases {
        let refused = one(&bytes).request().expect_err(name);
        assert_eq!(refused.errno, errno, "{name}");
        assert!(!refused.text.is_empty(), "{name}");
    }
}

#[test]
fn of_a_repeated_attribute_the_last_wins() {
    let mut header = NetlinkHeader::default();
    header.flags = NLM_F_REQUEST | NLM_F_DUMP;
    let attributes = ["TCP", "UDP"].map(|state| text_attribute(attr::STATE, state)).to_vec();
    let bytes = encode_body(header, Body { command: Command::Conns as u8, attributes });
    let state = Some("UDP".to_owned());
    assert_eq!(
        one(&bytes).request(),
        Ok(Request::Conns(ConnFilterText { state, ..ConnFilterText::default() }))
    );
}

#[test]
fn a_datagram_of_several_messages_is_taken_in_order_up_to_the_first_lie() {
    let mut datagram = encode_request(1, &Request::Hello);
    datagram.extend(encode_request(2, &Request::List));
    let whole = datagram.len();
    datagram.extend(encode_request(3, &Request::Status));
    datagram[whole] = 15; // a length below the header's own
    let sequences: Vec<u32> = Incoming::split(&datagram).iter().map(|m| m.header.sequence_number).collect();
    assert_eq!(sequences, [1, 2]);
    datagram[whole] = 0xff; // beyond the datagram
    assert_eq!(Incoming::split(&datagram).len(), 2);
}

proptest! {
    #[test]
    fn arbitrary_bytes_end_in_a_value(bytes in proptest::collection::vec(any::<u8>(), 0..200)) {
        for message in Incoming::split(&bytes) {
            let _ = message.request();
            let refusal = Refusal::new(Errno::INVAL, "x");
            let reply = encode_refusal(&message, &refusal);
            prop_assert_eq!(Reply::split(&reply).unwrap(), [(message.header.sequence_number, Reply::Refused(refusal))]);
        }
        let _ = Reply::split(&bytes);
    }

    #[test]
    fn damaged_requests_end_in_a_value(
        which in 0usize..8,
        damage in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        cut in any::<prop::sample::Index>(),
    ) {
        let mut bytes = encode_request(1, &requests()[which]);
        for (at, value) in damage {
            let at = at.index(bytes.len());
            bytes[at] = value;
        }
        bytes.truncate(cut.index(bytes.len() + 1));
        for message in Incoming::split(&bytes) {
            let _ = message.request();
        }
        let _ = Reply::split(&bytes);
    }
}

//! One session, moved on by hand: a reader that takes nothing, under a clock of the test; commands that queue.

use rustix::net::{AddressFamily, SendFlags, SocketFlags, SocketType};

use super::super::codec::{Reply, Request};
use super::super::handler::{Next, Rows};
use super::*;
use crate::ipvs::Command as Ipvs;
use crate::ipvs::request::Call;

/// Rows without end.
struct Endless;

impl Rows for Endless {
    fn next(&mut self) -> Result<Next, Refusal> {
        Ok(Next::Row(vec![b'1'; 1000]))
    }
}

impl Handler for Endless {
    fn answer(&mut self, _: Request, _: Peer) -> Result<Outcome, Refusal> {
        Ok(Outcome::Rows(Box::new(Endless)))
    }

    fn write_knob(&mut self, _: &str, _: &str, _: Peer) {}

    fn ipvs(&mut self, _: &[Incoming], _: Peer) -> Vec<ipvs::Answer> {
        Vec::new()
    }
}

#[test]
fn a_reader_that_takes_nothing_is_closed_after_a_while_and_one_that_is_slow_is_not() {
    let start = Instant::now();
    let (client, mut session) = session(start);
    rustix::net::send(&client, &codec::encode_request(1, &Request::List), SendFlags::empty()).unwrap();
    let mut turn = |after: Duration| session.turn(PollFlags::IN, start + after, true, &mut Endless);

    // Turns are bounded, so it takes some until the socket is full.
    (0..100).for_each(|_| turn(Duration::ZERO).unwrap());
    turn(STALL - Duration::from_secs(1)).unwrap();
    let mut buffer = [0; 16 * 1024];
    rustix::net::recv(&client, &mut buffer, RecvFlags::empty()).unwrap();
    turn(STALL - Duration::from_secs(1)).unwrap();
    turn(STALL + Duration::from_secs(5)).expect("it took something in between");
    turn(STALL * 2).unwrap_err();
}

/// How many messages each call brought.
#[derive(Default)]
struct Counting(Vec<usize>);

impl Handler for Counting {
    fn answer(&mut self, _: Request, _: Peer) -> Result<Outcome, Refusal> {
        Ok(Outcome::Done)
    }

    fn write_knob(&mut self, _: &str, _: &str, _: Peer) {}

    fn ipvs(&mut self, messages: &[Incoming], _: Peer) -> Vec<ipvs::Answer> {
        self.0.push(messages.len());
        messages.iter().map(|message| ipvs::Answer::refused(message, Errno::SRCH)).collect()
    }
}

#[test]
fn commands_that_queue_are_executed_together_and_answered_in_order() {
    let change = |sequence| Call::plain(Ipvs::Flush).encode(sequence);
    let reading = |sequence| Call::plain(Ipvs::GetInfo).encode(sequence);
    let beyond = |sequence| change(sequence).repeat(MESSAGES_MAX + 1);
    let half = |first: u32| (first..first + 40).flat_map(change).collect::<Vec<u8>>();
    type Case = (&'static str, Vec<Vec<u8>>, Vec<usize>, Vec<u32>);
    let cases: [Case; 5] = [
        ("changes", vec![change(1), change(2), change(3)], vec![3], vec![1, 2, 3]),
        ("a reading ends it", vec![change(1), reading(2), change(3)], vec![2, 1], vec![1, 2, 3]),
        ("a reading waits for nothing", vec![reading(1), change(2), change(3)], vec![1, 2], vec![1, 2, 3]),
        (
            "as many as one datagram may have",
            vec![half(1), half(41), half(81)],
            vec![80, 40],
            (1..=120).collect(),
        ),
        ("beyond the limits", vec![change(1), change(2), beyond(3)], vec![2], vec![1, 2, 3]),
    ];
    for (name, datagrams, together, answered) in cases {
        let now = Instant::now();
        let (client, mut session) = session(now);
        for datagram in &datagrams {
            rustix::net::send(&client, datagram, SendFlags::empty()).unwrap();
        }
        let mut handler = Counting::default();
        let (mut sequences, mut buffer) = (Vec::new(), [0; DATAGRAM_BYTES_MAX]);
        for _ in 0..40 {
            let _ = session.turn(PollFlags::IN, now, true, &mut handler);
            while let Ok((length @ 1.., _)) = rustix::net::recv(&client, &mut buffer, RecvFlags::DONTWAIT) {
                let replies = Reply::split(&buffer[..length]).unwrap();
                sequences.extend(replies.into_iter().map(|(sequence, _)| sequence));
            }
        }
        assert_eq!((handler.0, sequences), (together, answered), "{name}");
    }
}

/// A client's socket, and the session of it.
fn session(start: Instant) -> (OwnedFd, Session) {
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (client, ours) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    (client, Session::new(ours, Peer { uid: 0, pid: 1, rights: Rights::Write }, start))
}

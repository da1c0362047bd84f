//! One session under a clock that the test moves: a reader that takes nothing.

use rustix::net::{AddressFamily, SocketFlags, SocketType};

use super::super::codec::Request;
use super::*;

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
    let flags = SocketFlags::NONBLOCK | SocketFlags::CLOEXEC;
    let (client, ours) =
        rustix::net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, flags, None).unwrap();
    let start = Instant::now();
    let mut session = Session::new(ours, Peer { uid: 0, pid: 1, rights: Rights::Write }, start);
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

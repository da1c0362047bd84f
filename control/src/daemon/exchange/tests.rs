//! Listings against a worker played by the test: pieces, turns, and a client that leaves.

use crossbeam::channel::bounded;
use dataplane::conn::Tuple;
use dataplane::mailbox::ConnRow;

use super::*;
use crate::api::codec::ConnFilterText;

/// A worker's end of the mailbox with a table of `total` connections.
struct Fake {
    inbox: Receiver<ToWorker>,
    outbox: Sender<FromWorker>,
    total: u32,
}

fn fake(total: u32) -> (Fake, Rc<RefCell<Exchange>>) {
    let (to, inbox) = bounded(4);
    let (outbox, from) = bounded(4);
    let life = Arc::new(Life::default());
    life.set_alive();
    (Fake { inbox, outbox, total }, Rc::new(RefCell::new(Exchange::new(to, from, life))))
}

impl Fake {
    /// Fills the piece that waits, up to `rows` rows; whether there was one.
    fn serve(&self, rows: usize) -> bool {
        let Ok(ToWorker::Dump(mut dump)) = self.inbox.try_recv() else { return false };
        assert!(dump.rows.is_empty() && !dump.done);
        while dump.rows.len() < rows && dump.cursor < self.total {
            dump.rows.push(conn(dump.cursor));
            dump.cursor += 1;
        }
        dump.done = dump.cursor == self.total;
        self.outbox.send(FromWorker::Dump(dump)).unwrap();
        true
    }
}

fn conn(n: u32) -> ConnRow {
    let tuple = Tuple { proto: 6, caddr: n, cport: 1, vaddr: 2, vport: 80, daddr: 3, dport: 81 };
    ConnRow { tuple, state: (n % 2) as u8, flags: 0, remaining: 15, dest: 0, in_pkts: 1 }
}

/// The clients of the next row, `None` at the end; the workers serve while it waits.
fn pull(rows: &mut ConnRows, workers: &[Fake]) -> Option<Vec<u32>> {
    for _ in 0..100 {
        match rows.next().unwrap() {
            Next::Row(message) => {
                let client = |record: Record| match record.row().client.ip() {
                    std::net::IpAddr::V4(client) => client.to_bits(),
                    other => panic!("{other}"),
                };
                return Some(conns::decode(&message).unwrap().map(client).collect());
            }
            Next::Wait => drop(workers.iter().map(|w| w.serve(3)).collect::<Vec<_>>()),
            Next::End => return None,
        }
    }
    panic!("a listing that never ends");
}

fn all(rows: &mut ConnRows, workers: &[Fake]) -> Vec<u32> {
    std::iter::from_fn(|| pull(rows, workers)).flatten().collect()
}

#[test]
fn every_connection_of_every_worker_comes_once() {
    for (a, b) in [(0, 0), (1, 0), (3, 7), (0, 6), (10, 1)] {
        let (workers, exchanges): (Vec<_>, Vec<_>) = [fake(a), fake(b)].into_iter().unzip();
        let mut rows = ConnRows::new(exchanges, ConnFilter::default());
        assert_eq!(all(&mut rows, &workers), (0..a).chain(0..b).collect::<Vec<_>>());
    }
}

#[test]
fn a_large_piece_comes_in_messages_and_the_next_is_filled_meanwhile() {
    let (worker, exchange) = fake(1000);
    let mut rows = ConnRows::new(vec![exchange], ConnFilter::default());
    assert_eq!(rows.next(), Ok(Next::Wait));
    assert!(worker.serve(600));
    let mut lengths = vec![pull(&mut rows, &[]).unwrap().len()];
    assert!(worker.serve(600), "asked for before the first piece is through");
    lengths.extend(std::iter::from_fn(|| pull(&mut rows, &[])).map(|row| row.len()));
    assert_eq!(lengths, [256, 256, 88, 256, 144]);
}

#[test]
fn the_filter_narrows() {
    let (worker, exchange) = fake(9);
    let text = ConnFilterText { state: Some("ESTABLISHED".into()), ..ConnFilterText::default() };
    let mut rows = ConnRows::new(vec![exchange], ConnFilter::parse(&text).unwrap());
    assert_eq!(all(&mut rows, &[worker]), [1, 3, 5, 7]);
}

#[test]
fn listings_take_turns_and_one_that_leaves_frees_the_mailbox() {
    let (worker, exchange) = fake(10);
    let workers = [worker];
    let listing = || ConnRows::new(vec![exchange.clone()], ConnFilter::default());
    let (mut first, mut second, mut leaves) = (listing(), listing(), listing());
    let turns: Vec<_> =
        (0..8).map(|i| pull(if i % 2 == 0 { &mut first } else { &mut second }, &workers).unwrap()).collect();
    assert_eq!(
        turns.concat(),
        [0..3, 0..3, 3..6, 3..6, 6..9, 6..9, 9..10, 9..10].into_iter().flatten().collect::<Vec<_>>()
    );

    assert_eq!(leaves.next(), Ok(Next::Wait));
    let mut waits = listing();
    assert_eq!(waits.next(), Ok(Next::Wait));
    drop((leaves, waits)); // one piece is with the worker, one in the queue
    assert!(workers[0].serve(3));
    assert_eq!(all(&mut listing(), &workers), (0..10).collect::<Vec<_>>());
}

/// What is gone when it is asked is ended: a sweep that has not begun waits, whatever else the mailbox holds.
#[test]
fn however_often_it_is_asked_a_sweep_waits_for_the_worker() {
    let (worker, exchange) = fake(10);
    let mut rows = ConnRows::new(vec![Rc::clone(&exchange)], ConnFilter::default());
    assert_eq!(rows.next(), Ok(Next::Wait));
    let waiting = |asked: usize| {
        (0..asked).for_each(|_| exchange.borrow().end_unavailable());
        worker.inbox.try_iter().map(|m| matches!(m, ToWorker::EndUnavailable)).collect::<Vec<_>>()
    };
    assert_eq!(waiting(10), [false, true, true, true]);
    assert_eq!(waiting(1), [true]);
}

#[test]
fn a_listing_that_stalls_holds_nobody_up() {
    let (worker, exchange) = fake(9);
    let listing = || ConnRows::new(vec![exchange.clone()], ConnFilter::default());
    let mut stalls = listing();
    assert_eq!(stalls.next(), Ok(Next::Wait));
    assert!(worker.serve(3)); // its piece is back and never taken
    let workers = [worker];
    assert_eq!(all(&mut listing(), &workers), (0..9).collect::<Vec<_>>());
    assert_eq!(all(&mut stalls, &workers), (0..9).collect::<Vec<_>>());
}

#[test]
fn a_dead_worker_ends_the_listing_with_its_name() {
    let (_worker, exchange) = fake(1);
    exchange.borrow_mut().life = Arc::new(Life::default());
    let refused = ConnRows::new(vec![exchange], ConnFilter::default()).next().unwrap_err();
    assert_eq!(refused.text, "worker 0 is gone");
}

//! Listings against a worker played by the test: pieces, turns, and a client that leaves.

use crossbeam::channel::bounded;
use dataplane::conn::Tuple;

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

/// The next row's client, `None` at the end; the workers serve while it waits.
fn pull(rows: &mut ConnRows, workers: &[Fake]) -> Option<u32> {
    for _ in 0..100 {
        match rows.next().unwrap() {
            Next::Row(json) => {
                let row: rows::ConnRow = serde_json::from_slice(&json).unwrap();
                let SocketAddr::V4(client) = row.client else { panic!("{row:?}") };
                return Some(client.ip().to_bits());
            }
            Next::Wait => drop(workers.iter().map(|w| w.serve(3)).collect::<Vec<_>>()),
            Next::End => return None,
        }
    }
    panic!("a listing that never ends");
}

#[test]
fn every_connection_of_every_worker_comes_once() {
    for (a, b) in [(0, 0), (1, 0), (3, 7), (0, 6), (10, 1)] {
        let (workers, exchanges): (Vec<_>, Vec<_>) = [fake(a), fake(b)].into_iter().unzip();
        let mut rows = ConnRows::new(exchanges, ConnFilter::default());
        let all: Vec<u32> = std::iter::from_fn(|| pull(&mut rows, &workers)).collect();
        assert_eq!(all, (0..a).chain(0..b).collect::<Vec<_>>());
    }
}

#[test]
fn the_filter_narrows() {
    let (worker, exchange) = fake(9);
    let text = ConnFilterText { state: Some("ESTABLISHED".into()), ..ConnFilterText::default() };
    let mut rows = ConnRows::new(vec![exchange], ConnFilter::parse(&text).unwrap());
    let all: Vec<u32> = std::iter::from_fn(|| pull(&mut rows, std::slice::from_ref(&worker))).collect();
    assert_eq!(all, [1, 3, 5, 7]);
}

#[test]
fn listings_take_turns_and_one_that_leaves_frees_the_mailbox() {
    let (worker, exchange) = fake(10);
    let workers = [worker];
    let listing = || ConnRows::new(vec![exchange.clone()], ConnFilter::default());
    let (mut first, mut second, mut leaves) = (listing(), listing(), listing());
    let interleaved: Vec<_> =
        (0..20).map(|i| pull(if i % 2 == 0 { &mut first } else { &mut second }, &workers).unwrap()).collect();
    assert_eq!(interleaved, (0..10).flat_map(|n| [n, n]).collect::<Vec<_>>());

    assert_eq!(leaves.next(), Ok(Next::Wait));
    drop(leaves); // its piece is with the worker
    assert!(workers[0].serve(3));
    let mut last = listing();
    let all: Vec<u32> = std::iter::from_fn(|| pull(&mut last, &workers)).collect();
    assert_eq!(all, (0..10).collect::<Vec<_>>());
}

#[test]
fn a_piece_that_is_back_waits_for_its_own_listing() {
    let (worker, exchange) = fake(3);
    let listing = || ConnRows::new(vec![exchange.clone()], ConnFilter::default());
    let (mut first, mut second) = (listing(), listing());
    assert_eq!(first.next(), Ok(Next::Wait));
    assert!(worker.serve(3));
    assert_eq!(second.next(), Ok(Next::Wait)); // it finds the first one's piece
    assert!(!worker.serve(3), "and sends none of its own");
    assert_eq!(pull(&mut first, &[]), Some(0));
}

#[test]
fn a_dead_worker_ends_the_listing_with_its_name() {
    let (_worker, exchange) = fake(1);
    exchange.borrow_mut().life = Arc::new(Life::default());
    let refused = ConnRows::new(vec![exchange], ConnFilter::default()).next().unwrap_err();
    assert_eq!(refused.text, "worker 0 is gone");
}

//! The table against a list that is searched from end to end.

use dpdk_sys::Prefault;
use proptest::prelude::*;

use crate::conn::record::{Direction, Record, Tuple, flag};
use crate::conn::table::{ConnTable, Probe, Slot, TableError, TableFull};
use crate::hash::{FlowHasher, FlowKey, HashFlow};

const KEYED: FlowHasher = FlowHasher::portable(0x0706_0504_0302_0100, 0x0f0e_0d0c_0b0a_0908);

/// Leaves as many hash values as `keep` has bits set: chains through all buckets, equal tags.
#[derive(Clone, Copy)]
struct Weak {
    keep: u64,
}

impl HashFlow for Weak {
    fn hash(&self, key: &FlowKey) -> u64 {
        KEYED.hash(key) & self.keep
    }
}

/// Every connection, newest first.
#[derive(Default)]
struct Model {
    conns: Vec<(Slot, Record)>,
}

impl Model {
    fn lookup(&self, key: &FlowKey) -> Option<(Slot, Direction)> {
        [Direction::Reply, Direction::Request].into_iter().find_map(|direction| {
            let shows = |(_, record): &&(Slot, Record)| record.key(direction) == *key;
            self.conns.iter().find(shows).map(|&(slot, _)| (slot, direction))
        })
    }
}

#[derive(Clone, Debug)]
enum Step {
    Insert(Record),
    /// Removes the n-th oldest, modulo their number.
    Remove(usize),
    /// Removes a slot that may be free.
    RemoveSlot(u32),
    Settle,
}

/// Endpoints from a handful of values, so that flows meet: equal ones, and one's reply as another's
/// request.
fn any_record() -> impl Strategy<Value = Record> {
    let address = 0u32..4;
    let port = 0u16..2;
    let proto = prop_oneof![4 => Just(6u8), 1 => Just(17)];
    (proto, address.clone(), port.clone(), address.clone(), port.clone(), address, port, 0u16..5).prop_map(
        |(proto, caddr, cport, vaddr, vport, daddr, dport, method)| {
            Record::new(Tuple { proto, caddr, cport, vaddr, vport, daddr, dport }, method)
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => any_record().prop_map(Step::Insert),
        4 => any::<usize>().prop_map(Step::Remove),
        1 => (0u32..40).prop_map(Step::RemoveSlot),
        2 => Just(Step::Settle),
    ]
}

fn every_key() -> impl Iterator<Item = FlowKey> {
    (0..4u32 * 4 * 2 * 2 * 2).map(|n| FlowKey {
        src: n & 3,
        dst: n >> 2 & 3,
        sport: (n >> 4 & 1) as u16,
        dport: (n >> 5 & 1) as u16,
        proto: if n >> 6 == 0 { 6 } else { 17 },
    })
}

fn found<H: HashFlow>(table: &ConnTable<H>, key: &FlowKey) -> Option<(Slot, Direction)> {
    let hash = table.hash(key);
    let found = table.lookup(hash, key);
    assert_eq!(table.lookup_probed(table.probe(hash), hash, key), found);
    found
}

fn run<H: HashFlow>(max: usize, hasher: H, steps: Vec<Step>) -> Result<(), TestCaseError> {
    let mut table = ConnTable::new(max, hasher, Prefault::Lazy).unwrap();
    let mut model = Model::default();
    for step in steps {
        // A burst probes all its flows before its first packet changes the table.
        let probes: Vec<Probe> = every_key()
            .map(|key| {
                let hash = table.hash(&key);
                table.prefetch_bucket(hash);
                table.probe(hash)
            })
            .collect();
        match step {
            Step::Settle => table.settle(),
            Step::Insert(record) => match table.insert(record) {
                Ok(slot) => {
                    prop_assert!(model.conns.iter().all(|&(used, _)| used != slot));
                    model.conns.insert(0, (slot, record));
                    prop_assert!(model.conns.len() <= max);
                }
                Err(TableFull) => prop_assert_eq!(model.conns.len(), max),
            },
            Step::Remove(n) if model.conns.is_empty() => {
                prop_assert!(!table.remove(Slot((n % max) as u32)));
            }
            Step::Remove(n) => {
                let (slot, _) = model.conns.remove(n % model.conns.len());
                prop_assert!(table.remove(slot));
            }
            Step::RemoveSlot(n) => {
                let before = model.conns.len();
                model.conns.retain(|&(slot, _)| slot != Slot(n));
                prop_assert_eq!(table.remove(Slot(n)), model.conns.len() < before);
            }
        }
        prop_assert_eq!(table.len(), model.conns.len());
        for (key, probe) in every_key().zip(probes) {
            let expected = model.lookup(&key);
            prop_assert_eq!(found(&table, &key), expected, "{:?}", key);
            prop_assert_eq!(table.lookup_probed(probe, table.hash(&key), &key), expected, "{:?}", key);
        }
    }
    for &(slot, record) in &model.conns {
        prop_assert_eq!(table.get(slot).tuple(), record.tuple());
        prop_assert_eq!(table.get(slot).flags(), record.flags() | flag::HASHED);
    }
    let mut slots: Vec<Slot> = model.conns.iter().map(|&(slot, _)| slot).collect();
    slots.sort();
    let by_windows =
        (0..table.high_water()).step_by(5).flat_map(|from| table.used(from..from + 5)).collect::<Vec<_>>();
    prop_assert_eq!(&by_windows, &slots);
    for slot in slots {
        table.remove(slot);
    }
    prop_assert_eq!(table.total_passed(), 0);
    Ok(())
}

proptest! {
    #[test]
    fn equals_the_list(
        max in 1usize..32,
        keep in prop_oneof![
            Just(u64::MAX),
            // One home and one tag; one home; one tag; few of both.
            Just(0), Just(!0 << 32), Just(0xffff_ffff), Just(0x3_c000_0000),
        ],
        steps in proptest::collection::vec(any_step(), 1..150),
    ) {
        run(max, Weak { keep }, steps)?;
    }
}

fn record_of(n: u32) -> Record {
    let tuple = Tuple {
        proto: 17,
        caddr: 0x0a01_0000 + (n >> 16),
        cport: n as u16,
        vaddr: 0xc000_0201,
        vport: 53,
        daddr: 0x0a02_0000 + n % 7,
        dport: 5353,
    };
    Record::new(tuple, flag::NAT)
}

#[test]
fn full_table_refuses_and_takes_again_what_was_freed() {
    let max = 10_000;
    let mut table = ConnTable::new(max, KEYED, Prefault::Now).unwrap();
    let slots: Vec<Slot> = (0..max as u32).map(|n| table.insert(record_of(n)).unwrap()).collect();
    assert_eq!(table.insert(record_of(max as u32)), Err(TableFull));
    assert_eq!(found(&table, &record_of(max as u32).key(Direction::Request)), None);

    // Ten times over: a third leaves, others come, nothing is lost to churn.
    let mut live: Vec<(u32, Slot)> = (0..).zip(slots).collect();
    let mut next = max as u32;
    for round in 0..10 {
        for i in (round % 3..max).step_by(3) {
            assert!(table.remove(live[i].1));
            live[i] = (next, table.insert(record_of(next)).unwrap());
            next += 1;
        }
    }
    assert_eq!(table.len(), max);
    for &(n, slot) in &live {
        for direction in [Direction::Request, Direction::Reply] {
            let key = record_of(n).key(direction);
            assert_eq!(found(&table, &key), Some((slot, direction)));
        }
        assert!(table.remove(slot));
        assert!(!table.remove(slot));
    }
    assert!(table.is_empty());
    assert_eq!(table.high_water(), max as u32);
}

#[test]
fn a_connection_takes_at_most_128_bytes() {
    for max in [1_000, 1_000_000] {
        let table = ConnTable::new(max, KEYED, Prefault::Lazy).unwrap();
        assert!(table.memory_bytes() <= 128 * max, "{} bytes", table.memory_bytes());
        assert!(table.memory_bytes() <= 95 * max);
    }
}

#[test]
fn extreme_sizes() {
    let mut none = ConnTable::new(0, KEYED, Prefault::Now).unwrap();
    assert_eq!(none.insert(record_of(1)), Err(TableFull));
    assert_eq!(found(&none, &record_of(1).key(Direction::Request)), None);
    assert!(!none.remove(Slot(0)));

    let requested = (1 << 30) + 1;
    let error = ConnTable::new(requested, KEYED, Prefault::Lazy).err();
    assert!(matches!(error, Some(TableError::TooMany { requested: n }) if n == requested));
}

#[test]
fn method_and_hashed_are_the_tables_own() {
    let mut record = Record::new(record_of(1).tuple(), flag::DR | flag::NO_OUTPUT | flag::HASHED);
    assert_eq!(record.flags(), flag::DR | flag::NO_OUTPUT);
    record.set(flag::METHOD | flag::HASHED | flag::INACTIVE);
    assert_eq!(record.flags(), flag::DR | flag::NO_OUTPUT | flag::INACTIVE);
    record.clear(u16::MAX);
    assert_eq!(record.flags(), flag::DR);
}

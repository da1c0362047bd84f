//! Hand-off rings between registered threads, and the threads' registration itself.

use arrayvec::ArrayVec;
use dpdk_sys::{
    BURST_MAX, Burst, DpdkError, Eal, EalHandle, HandoffRx, HandoffTx, LcoreToken, Mbuf, Mempool, PoolConfig,
    free_bulk, handoff, testing,
};

const PACKETS: u32 = 20_000;

#[test]
fn eal_handoff_keeps_order_and_frees_what_is_left() {
    let eal = testing::eal();
    let pool = Mempool::create(&eal, &PoolConfig::new("packets", 1023)).unwrap();

    lcore_ids(eal.handle());
    ends(&eal, &pool);
    let (tx, rx) = handoff(&eal, "threads", 64, None).unwrap();
    std::thread::scope(|scope| {
        let (handle, sender_pool) = (eal.handle(), pool.clone());
        scope.spawn(move || sender(handle, &sender_pool, tx));
        scope.spawn(move || receiver(handle, rx));
    });
    assert_eq!((pool.available(), pool.in_use()), (1023, 0));
}

/// The starting thread has an id; others get one for as long as they hold the token.
fn lcore_ids(handle: EalHandle<'_>) {
    let main = LcoreToken::register(handle).unwrap_err();
    assert!(matches!(main, DpdkError::LcoreAlready { id: 0 }), "{main}");
    let id = || {
        let token = LcoreToken::register(handle).unwrap();
        let twice = LcoreToken::register(handle).unwrap_err();
        assert!(matches!(twice, DpdkError::LcoreAlready { id } if id == token.id()), "{twice}");
        token.id()
    };
    std::thread::scope(|scope| {
        let first = scope.spawn(id).join().unwrap();
        let second = scope.spawn(id).join().unwrap();
        assert!(first > 0 && first == second, "given back and given again: {first} {second}");
    });
}

/// Either end may go first; what waits is freed when both are gone, and the name with it.
fn ends(eal: &Eal, pool: &Mempool<'_>) {
    assert!(matches!(handoff(eal, "none", 0, None), Err(DpdkError::BadArgument { .. })));
    for receiver_first in [false, true] {
        let (mut tx, mut rx) = handoff(eal, "ends", 40, None).unwrap();
        assert!(matches!(handoff(eal, "ends", 40, None), Err(DpdkError::Ring { .. })));
        let mut burst = ArrayVec::<Mbuf<'_>, 64>::new();
        pool.alloc_bulk(&mut burst, 50).unwrap();
        assert_eq!((tx.send(&mut burst), burst.len()), (40, 10), "exactly the size asked for");
        assert_eq!((tx.len(), rx.len()), (40, 40));
        let mut out = Burst::new();
        assert_eq!((rx.receive(&mut out), rx.receive(&mut out), rx.len()), (32, 0, 8));
        drop(out);
        if receiver_first {
            drop(rx);
            assert_eq!(tx.send(&mut burst), 10);
            assert_eq!(pool.in_use(), 18);
            drop(tx);
        } else {
            drop(burst);
            drop(tx);
            assert_eq!((rx.is_empty(), pool.in_use()), (false, 8));
            drop(rx);
        }
        assert_eq!(pool.in_use(), 0);
    }
}

fn sender(handle: EalHandle<'_>, pool: &Mempool<'_>, mut tx: HandoffTx<'_>) {
    let _lcore = LcoreToken::register(handle).unwrap();
    let mut burst = ArrayVec::<Mbuf<'_>, BURST_MAX>::new();
    let mut next = 0u32;
    while next < PACKETS || !burst.is_empty() {
        while next < PACKETS
            && !burst.is_full()
            && let Ok(mut mbuf) = pool.alloc()
        {
            mbuf.append(4).unwrap().copy_from_slice(&next.to_ne_bytes());
            burst.push(mbuf);
            next += 1;
        }
        if tx.send(&mut burst) == 0 {
            std::thread::yield_now();
        }
    }
}

fn receiver(handle: EalHandle<'_>, mut rx: HandoffRx<'_>) {
    let _lcore = LcoreToken::register(handle).unwrap();
    let mut burst = ArrayVec::<Mbuf<'_>, BURST_MAX>::new();
    let mut next = 0u32;
    while next < PACKETS {
        if rx.receive(&mut burst) == 0 {
            std::thread::yield_now();
        }
        for mbuf in &burst {
            assert_eq!(mbuf.data(), next.to_ne_bytes());
            next += 1;
        }
        free_bulk(&mut burst);
    }
}

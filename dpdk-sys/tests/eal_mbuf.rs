//! Mbufs and pools: every change of length against its limits, and every mbuf back at the end.

use arrayvec::ArrayVec;
use dpdk_sys::{
    BURST_MAX, Burst, DpdkError, Eal, HEADROOM_BYTES, Mbuf, Mempool, NoRoom, PoolConfig, PoolEmpty,
    RxChecksum, free_bulk, testing,
};

#[test]
fn eal_mbufs_keep_their_bounds_and_return_to_their_pools() {
    let eal = testing::eal();
    let small = PoolConfig { data_room: 256 + HEADROOM_BYTES, ..PoolConfig::new("small", 63) };
    let small = Mempool::create(&eal, &small).unwrap();
    let large = Mempool::create(&eal, &PoolConfig::new("large", 1023)).unwrap();
    assert_eq!((small.data_bytes(), large.data_bytes()), (256, 2048));

    lengths(&small);
    bulk(&small, &large);
    refused_pools(&eal);

    assert_eq!((small.available(), small.in_use()), (63, 0));
    assert_eq!((large.available(), large.in_use()), (1023, 0));
}

fn refused_pools(eal: &Eal) {
    let small = PoolConfig::new("small", 63);
    for (config, reason) in [
        (small.clone(), "File exists (os error 17)"),
        (PoolConfig { name: "n".repeat(26), ..small.clone() }, "File name too long (os error 36)"),
        (PoolConfig { name: "a".into(), count: 0, ..small.clone() }, "Invalid argument (os error 22)"),
        (PoolConfig { name: "b".into(), cache: 43, ..small.clone() }, "Invalid argument (os error 22)"),
        (PoolConfig::new("c", 1 << 20), "Cannot allocate memory (os error 12)"),
    ] {
        let error = Mempool::create(eal, &config).unwrap_err();
        assert!(matches!(error, DpdkError::Mempool { .. }), "{error}");
        assert!(error.to_string().ends_with(reason), "{error}");
    }
}

fn lengths(pool: &Mempool<'_>) {
    let mut mbuf = pool.alloc().unwrap();
    let state = |mbuf: &Mbuf<'_>| (mbuf.headroom(), mbuf.len(), mbuf.tailroom(), mbuf.packet_len());
    assert_eq!(state(&mbuf), (128, 0, 256, 0));
    assert!(mbuf.is_empty() && mbuf.is_contiguous() && mbuf.data().is_empty());
    assert_eq!((mbuf.ip_checksum(), mbuf.l4_checksum()), (RxChecksum::Unknown, RxChecksum::Unknown));

    mbuf.append(100).unwrap().fill(1);
    mbuf.prepend(28).unwrap().fill(2);
    assert_eq!(state(&mbuf), (100, 128, 156, 128));
    assert_eq!(mbuf.data()[26..30], [2, 2, 1, 1]);
    mbuf.adj(27).unwrap();
    mbuf.trim(99).unwrap();
    assert_eq!((state(&mbuf), mbuf.data()), ((127, 2, 255, 2), &[2, 1][..]));

    // One byte beyond each limit changes nothing; the limit itself is allowed.
    assert_eq!(mbuf.prepend(128), Err(NoRoom { wanted: 128, room: 127 }));
    assert_eq!(mbuf.append(256), Err(NoRoom { wanted: 256, room: 255 }));
    assert_eq!(mbuf.adj(3), Err(NoRoom { wanted: 3, room: 2 }));
    assert_eq!(mbuf.trim(3), Err(NoRoom { wanted: 3, room: 2 }));
    assert_eq!(mbuf.set_len(258), Err(NoRoom { wanted: 258, room: 257 }));
    assert_eq!(mbuf.prepend(usize::MAX), Err(NoRoom { wanted: usize::MAX, room: 127 }));
    assert_eq!(state(&mbuf), (127, 2, 255, 2));
    mbuf.set_len(257).unwrap();
    mbuf.prepend(127).unwrap();
    assert_eq!(state(&mbuf), (0, 384, 0, 384));
    mbuf.data_mut().fill(9);
    mbuf.set_len(1).unwrap();
    assert_eq!((state(&mbuf), mbuf.data()), ((0, 1, 383, 1), &[9][..]));
    assert_eq!(pool.in_use(), 1);
}

fn bulk(small: &Mempool<'_>, large: &Mempool<'_>) {
    // Two pools mixed: each mbuf goes home.
    let mut batch = ArrayVec::<Mbuf<'_>, 64>::new();
    for (pool, count) in [(small, 3), (large, 5), (small, 1), (large, 20)] {
        pool.alloc_bulk(&mut batch, count).unwrap();
    }
    assert_eq!((batch.len(), small.in_use(), large.in_use()), (29, 4, 25));
    free_bulk(&mut batch);
    assert_eq!((batch.len(), small.in_use(), large.in_use()), (0, 0, 0));
    free_bulk(&mut batch);

    // All or nothing.
    let mut batch = ArrayVec::<Mbuf<'_>, 64>::new();
    small.alloc_bulk(&mut batch, 60).unwrap();
    assert_eq!(small.alloc_bulk(&mut batch, 4), Err(PoolEmpty));
    assert_eq!((batch.len(), small.in_use()), (60, 60));
    small.alloc_bulk(&mut batch, 3).unwrap();
    assert_eq!(small.alloc().unwrap_err(), PoolEmpty);
    drop(batch);
    assert_eq!(small.in_use(), 0);

    let mut burst = Burst::new();
    large.alloc_bulk(&mut burst, BURST_MAX).unwrap();
    drop(burst.pop());
    assert_eq!(large.in_use(), 31);
    drop(burst);
    assert_eq!(large.in_use(), 0);
}

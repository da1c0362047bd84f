//! Ports and queues, over rings that give back what was sent.

use arrayvec::ArrayVec;
use dpdk_sys::{
    Burst, DpdkError, Eal, HEADROOM_BYTES, Mbuf, Mempool, PoolConfig, Port, PortConfig, Rss, RssEnd, RxQueue,
    Started, TxQueue, testing,
};

/// Packets a loopback queue holds: less than a burst, so that a transmit can be partial.
const DEPTH: u32 = 20;
const MBUFS: u32 = 1023;

#[test]
fn eal_ports_move_packets_and_lose_none() {
    let args = testing::eal_args().vdev("net_null0").vdev("net_null1,size=60");
    let eal = Eal::start(&args).unwrap();
    let pool = Mempool::create(&eal, &PoolConfig::new("packets", MBUFS)).unwrap();
    let name = testing::loopback_port(&eal, "loop", 2, DEPTH).unwrap();

    refusals(&eal, &pool, &name);
    let config = PortConfig { rx_queues: 2, tx_queues: 2, ..PortConfig::default() };
    let port = eal.port_by_name(&name).unwrap().configure(&config, &pool).unwrap().start().unwrap();
    queues_are_taken_once(&port);
    let port = port.stop().unwrap().configure(&config, &pool).unwrap().start().unwrap();
    settings(&port);
    details(&eal, &port);
    {
        let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
        order_and_content(&pool, &mut rx, &mut tx);
        partial_transmit(&pool, &mut rx, &mut tx);
        let (mut other_rx, mut other_tx) = (port.take_rx(1).unwrap(), port.take_tx(1).unwrap());
        queues_are_apart(&pool, &mut rx, &mut other_rx, &mut other_tx);
    }
    let stats = port.stats().unwrap();
    assert_eq!((stats.opackets, stats.ipackets), (3 + 20 + 5 + 1, 3 + 20 + 5 + 1));
    assert_eq!((stats.imissed, stats.ierrors, stats.rx_nombuf), (0, 0, 0));
    port.reset_stats().unwrap();
    assert_eq!(port.stats().unwrap().opackets, 0);
    drop(port);
    let gone = eal.port_by_name(&name).unwrap_err();
    assert!(matches!(gone, DpdkError::PortNotFound { .. }), "closed: {gone}");

    null_port(&eal, &pool);
    assert_eq!((pool.available(), pool.in_use()), (MBUFS, 0));
}

fn refusals(eal: &Eal, pool: &Mempool<'_>, name: &str) {
    let claim = eal.port_by_name(name).unwrap();
    let info = claim.info().unwrap();
    assert_eq!((info.driver.as_str(), info.max_rx_queues, info.max_tx_queues), ("net_ring", 2, 2));
    let config = PortConfig { rx_queues: 3, ..PortConfig::default() };
    let error = claim.configure(&config, pool).unwrap_err();
    assert_eq!(error.to_string(), format!("port `{name}`: 3 rx queues wanted, 2 possible"));

    let config = PoolConfig { data_room: 1500 + HEADROOM_BYTES, ..PoolConfig::new("tight", 63) };
    let tight = Mempool::create(eal, &config).unwrap();
    let claim = eal.port_by_name("net_null0").unwrap();
    let config = PortConfig { mtu: Some(2000), ..PortConfig::default() };
    // This failure comes after the device took its configuration, so the device is closed; the ring
    // port above was refused before and can be claimed again.
    let error = claim.configure(&config, &tight).unwrap_err();
    assert_eq!(
        error.to_string(),
        "port `net_null0`: a frame of 2022 bytes does not fit the pool's 1500 bytes"
    );
    assert!(eal.port_by_name("net_null0").is_err());
}

fn queues_are_taken_once(port: &Port<'_, Started>) {
    let (rx, tx) = (port.take_rx(1).unwrap(), port.take_tx(1).unwrap());
    let name = port.name();
    for (error, expected) in [
        (port.take_rx(1).unwrap_err(), "rx queue 1 was taken before"),
        (port.take_tx(1).unwrap_err(), "tx queue 1 was taken before"),
        (port.take_rx(2).unwrap_err(), "rx queue 2 does not exist"),
    ] {
        assert_eq!(error.to_string(), format!("port `{name}`: {expected}"));
    }
    port.return_rx(rx);
    port.return_tx(tx);
    assert!(port.take_rx(1).is_ok() && port.take_tx(1).is_ok());
}

/// What null and ring devices say of themselves.
fn details(eal: &Eal, port: &Port<'_, Started>) {
    assert_eq!(eal.port_names(), ["net_null1", port.name()]);
    assert_eq!(Mempool::preferred_ops(eal), "ring_mp_mc");
    let details = port.details().unwrap();
    assert_eq!((details.rx.queues, details.tx.max_queues, details.link_up), (2, 2, true));
    assert_eq!((details.link_speed.as_str(), details.firmware.as_deref()), ("10 Gbps", None));
    assert_eq!(port.offloads().unwrap(), (0, 0));
    let setup = port.rx_queue_setup(0).unwrap();
    assert_eq!((setup.free_threshold, setup.thresholds), (0, [0; 3]));
    let xstats = port.xstats().unwrap();
    assert_eq!(xstats[0], ("rx_good_packets".to_owned(), 0));
    assert!(xstats.iter().any(|(name, _)| name == "tx_q1_packets"));
}

fn settings(port: &Port<'_, Started>) {
    assert_eq!(port.mtu().unwrap(), 1500);
    assert!(port.link().unwrap().up);
    port.set_promiscuous(true).unwrap();
    port.set_allmulticast(false).unwrap();
    let error = port.set_mtu(9000).unwrap_err();
    assert!(matches!(error, DpdkError::Port { action: "set the MTU", .. }), "{error}");
}

fn order_and_content<'a>(pool: &Mempool<'a>, rx: &mut RxQueue<'a>, tx: &mut TxQueue<'_>) {
    let mut burst = numbered(pool, 0..3);
    assert_eq!((tx.transmit(&mut burst), burst.len()), (3, 0));
    // Received packets go behind those that are there, as far as there is room.
    let mut out = ArrayVec::<Mbuf<'_>, 3>::new();
    out.push(pool.alloc().unwrap());
    assert_eq!(rx.receive(&mut out), 2);
    assert_eq!(rx.receive(&mut out), 0, "full");
    assert_eq!(numbers(&out[1..]), [0, 1]);
    let mut rest = ArrayVec::<Mbuf<'_>, 32>::new();
    assert_eq!((rx.receive(&mut rest), numbers(&rest)), (1, vec![2]));
}

fn partial_transmit(pool: &Mempool<'_>, rx: &mut RxQueue<'_>, tx: &mut TxQueue<'_>) {
    let mut burst = numbered(pool, 0..25);
    assert_eq!(tx.transmit(&mut burst), DEPTH as usize);
    assert_eq!(numbers(&burst), [20, 21, 22, 23, 24], "the unsent rest, in order");
    assert_eq!((tx.transmit(&mut burst), burst.len()), (0, 5), "nothing fits, nothing is lost");

    let mut out = Burst::new();
    assert_eq!((rx.receive(&mut out), numbers(&out)), (20, (0..20).collect()));
    drop(out);
    assert_eq!((tx.transmit(&mut burst), burst.len()), (5, 0));
    let mut out = Burst::new();
    assert_eq!((rx.receive(&mut out), numbers(&out)), (5, (20..25).collect()));
}

fn queues_are_apart<'a>(
    pool: &Mempool<'_>,
    rx: &mut RxQueue<'a>,
    other_rx: &mut RxQueue<'a>,
    other_tx: &mut TxQueue<'_>,
) {
    assert_eq!(other_tx.transmit(&mut numbered(pool, 7..8)), 1);
    let mut out = Burst::new();
    assert_eq!(rx.receive(&mut out), 0);
    assert_eq!(other_rx.receive(&mut out), 1);
    assert_eq!(numbers(&out), [7]);
}

/// The null port fills any room with packets and swallows what is sent.
fn null_port(eal: &Eal, pool: &Mempool<'_>) {
    let claim = eal.port_by_name("net_null1").unwrap();
    let ability = claim.info().unwrap().rss;
    assert!(!ability.one_end && ability.cells > 0, "{ability:?}");
    // It has a table that nobody follows, and no hash of one end: the port comes up without.
    let rss = Rss { end: RssEnd::Source, with_port: false, key: 0x6d5a, queues: vec![0] };
    let config = PortConfig { rx_queues: 2, mtu: Some(2000), rss: Some(rss), ..PortConfig::default() };
    let port = claim.configure(&config, pool).unwrap().start().unwrap();
    assert_eq!(port.mtu().unwrap(), 2000);
    port.redirect(&[1, 0, 0]).unwrap();
    let cells = port.redirection().unwrap();
    assert_eq!((cells.len(), &cells[..5]), (ability.cells.into(), &[1, 0, 0, 1, 0][..]));
    let mac = [2, 0, 0, 0, 0, 9];
    port.set_mac(mac).unwrap();
    assert_eq!(port.mac().unwrap(), mac);

    let (mut rx, mut tx) = (port.take_rx(0).unwrap(), port.take_tx(0).unwrap());
    let mut burst = Burst::new();
    burst.push(pool.alloc().unwrap());
    assert_eq!((rx.receive(&mut burst), burst.len(), burst[1].len()), (31, 32, 60));
    assert_eq!(burst[1].port(), port.id());
    assert_eq!((tx.transmit(&mut burst), burst.len()), (32, 0));
    // What is not sent is freed with its batch, in bulk or one by one.
    rx.receive(&mut burst);
    let mut single = ArrayVec::<Mbuf<'_>, 4>::new();
    rx.receive(&mut single);
    assert_eq!(pool.in_use(), 36);
}

fn numbered<'a>(pool: &Mempool<'a>, numbers: std::ops::Range<u8>) -> ArrayVec<Mbuf<'a>, 32> {
    numbers
        .map(|number| {
            let mut mbuf = pool.alloc().unwrap();
            mbuf.append(60).unwrap().fill(number);
            mbuf
        })
        .collect()
}

fn numbers(burst: &[Mbuf<'_>]) -> Vec<u8> {
    burst.iter().map(|mbuf| mbuf.data()[59]).collect()
}

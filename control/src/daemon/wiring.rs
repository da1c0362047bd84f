//! Who polls which queue, and the rings between workers.
//!
//! Model: worker `w` has queue pair `w` of every port. Where a port has fewer receive queues, the first workers poll
//! them and hand packets to their owners like any others; where it has fewer transmit queues, the other workers send
//! over a ring to one that has a queue. Between any two workers there is a ring in either direction for packets of each
//! other's flows. Made once, at start, by control; every end moves to its worker's thread.

use dataplane::io::dpdk::{DpdkPort, Peer, TxWay, rings};
use dpdk_sys::{DpdkError, Eal, HandoffRx, PortConfig, handoff};

use super::boot::BootedPort;

/// One worker's ends.
pub struct Wires<'port> {
    /// Of every port, in port order.
    pub ports: Vec<DpdkPort<'port>>,
    /// Of the rings, by number of the other worker; `None` at its own.
    pub peers: Vec<Option<Peer<'port>>>,
}

/// The ends of `workers` workers.
pub fn wire<'a>(
    eal: &'a Eal,
    ports: &'a [BootedPort<'a>],
    workers: usize,
) -> Result<Vec<Wires<'a>>, DpdkError> {
    let mut wires: Vec<Wires<'a>> = rings(eal, workers)?
        .into_iter()
        .map(|peers| Wires { ports: Vec::with_capacity(ports.len()), peers })
        .collect();
    for (index, port) in ports.iter().enumerate() {
        for (worker, end) in port_ends(eal, index, port, workers)?.into_iter().enumerate() {
            wires[worker].ports.push(end);
        }
    }
    Ok(wires)
}

/// Every worker's ends of one port.
fn port_ends<'a>(
    eal: &'a Eal,
    index: usize,
    booted: &'a BootedPort<'a>,
    workers: usize,
) -> Result<Vec<DpdkPort<'a>>, DpdkError> {
    let senders = usize::from(booted.tx_queues);
    let mut relayed: Vec<Vec<HandoffRx<'a>>> = (0..workers).map(|_| Vec::new()).collect();
    let mut ends = Vec::new();
    for worker in 0..workers {
        let rx = (worker < usize::from(booted.rx_queues)).then(|| booted.port.take_rx(worker as u16));
        let tx = if worker < senders {
            TxWay::Queue(booted.port.take_tx(worker as u16)?)
        } else {
            // It holds what the queue that this worker does not have would hold.
            let size = PortConfig::default().tx_descriptors.into();
            let (to, from) = handoff(eal, &format!("weir_t_{index}_{worker}"), size, None)?;
            relayed[worker % senders].push(from);
            TxWay::Ring(to)
        };
        ends.push(DpdkPort { rx: rx.transpose()?, tx, relayed: Vec::new() });
    }
    for (end, relayed) in ends.iter_mut().zip(relayed) {
        end.relayed = relayed;
    }
    Ok(ends)
}

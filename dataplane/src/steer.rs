//! Steer: which worker owns a packet. With several workers every flow has one owner, a function of the client's
//! endpoint alone, so that a request, its reply and ICMP errors about either come to the same answer without a table
//! of who owns what. Whoever receives a packet that is another's hands it over ([`crate::pipeline`]).
//!
//! | packet | client |
//! |---|---|
//! | destination is a service address or a port's own | source |
//! | any other | destination |
//! | ICMP error | from the packet in it: its source, or its destination when its source is a service address |
//!
//! Two hashes: a keyed one, and Toeplitz under a key of period 16 bits where a network card is told to spread its packets
//! in the same way (receive side scaling over source or destination only). Under such a key the hash does not depend
//! on where in the input a field stands, so the card's word on a request and on a reply is the same.

use std::fmt;
use std::sync::Arc;

use crate::hash::FlowKey;
use crate::io::{Burst, PacketBuf};
use crate::limits::{BURST, WORKERS_MAX};
use crate::pipeline::parse::{Kind, Meta};
use crate::snapshot::ServiceMap;
use crate::wire::{ethernet, icmp, ipv4};

/// Cells of the largest redirection table that a card is given: what 10 and 25 Gb/s cards have.
pub const CELLS_MAX: usize = 512;

/// 2^64 divided by the golden ratio, odd: carries every bit of a number to its upper half.
const GOLDEN: u64 = 0x9E37_79B9_7F4A_7C15;

/// What chooses an owner: the client's address, or its address and L4 port.
pub use config::Steer as By;

/// Owners of flows; the same value on every worker of a daemon.
#[derive(Clone)]
pub struct Steer {
    workers: usize,
    by: By,
    spread: Spread,
}

#[derive(Clone)]
enum Spread {
    /// Folded product of the client and a secret.
    Keyed {
        mask: u64,
        factor: u64,
    },
    Toeplitz(Arc<Toeplitz>),
}

/// Toeplitz over one 16-bit word, by its two bytes, and the owner by the low bits of the hash.
struct Toeplitz {
    high: [u16; 256],
    low: [u16; 256],
    cells: Box<[u8]>,
}

impl Steer {
    /// One worker owns everything.
    pub const ONE: Steer = Steer { workers: 1, by: By::Client, spread: Spread::Keyed { mask: 0, factor: 1 } };

    /// Owners among `workers` by a hash under two secret random words.
    ///
    /// # Panics
    /// Without workers or with more than [`WORKERS_MAX`].
    pub fn keyed(workers: usize, by: By, key: (u64, u64)) -> Steer {
        check(workers);
        Steer { workers, by, spread: Spread::Keyed { mask: key.0, factor: key.1 | 1 } }
    }

    /// Owners as a card with this redirection key, repeated, and `cells` cells (a power of two) finds them.
    ///
    /// # Panics
    /// As [`Steer::keyed`].
    pub fn toeplitz(workers: usize, by: By, key: u16, cells: usize) -> Steer {
        check(workers);
        let cells = cells.min(CELLS_MAX);
        let table = Toeplitz {
            high: std::array::from_fn(|byte| toeplitz_word(key, (byte as u16) << 8)),
            low: std::array::from_fn(|byte| toeplitz_word(key, byte as u16)),
            cells: (0..cells).map(|cell| (cell % workers) as u8).collect(),
        };
        Steer { workers, by, spread: Spread::Toeplitz(Arc::new(table)) }
    }

    /// Number of workers.
    pub fn workers(&self) -> usize {
        self.workers
    }

    /// Owners of the cells of a card's redirection table; none under a keyed hash.
    pub fn cells(&self) -> impl Iterator<Item = usize> + '_ {
        let cells: &[u8] = match &self.spread {
            Spread::Keyed { .. } => &[],
            Spread::Toeplitz(table) => &table.cells,
        };
        cells.iter().map(|owner| usize::from(*owner))
    }

    /// The owner of a client's packets. Hot.
    #[inline(always)]
    pub fn owner(&self, (address, port): (u32, u16)) -> usize {
        let port = if self.by == By::Client { 0 } else { port };
        match &self.spread {
            Spread::Keyed { mask, factor } => {
                let client = u64::from(address) | u64::from(port) << 32;
                keyed_owner(client, *mask, *factor, self.workers)
            }
            Spread::Toeplitz(table) => {
                let word = (address >> 16) as u16 ^ address as u16 ^ port;
                let hash = table.high[usize::from(word >> 8)] ^ table.low[usize::from(word & 0xff)];
                usize::from(table.cells[usize::from(hash) & (table.cells.len() - 1)])
            }
        }
    }

    /// The owners of the packets that `me` received, and whether any is another's; what needs no connection is the
    /// receiver's own. Hot.
    #[inline(always)]
    pub(crate) fn owners<B: PacketBuf>(
        &self,
        services: &ServiceMap,
        burst: &Burst<B>,
        metas: &[Meta; BURST],
        me: usize,
        owners: &mut [u8; BURST],
    ) -> bool {
        // What is the same for all packets is asked once: this loop is all that a second worker costs a packet that
        // comes to its owner.
        match &self.spread {
            Spread::Keyed { mask, factor } if self.by == By::Client => {
                let keyed = |(client, _)| keyed_owner(u64::from(client), *mask, *factor, self.workers);
                fill_owners(services, burst, metas, me, owners, keyed)
            }
            _ => fill_owners(services, burst, metas, me, owners, |client| self.owner(client)),
        }
    }
}

#[inline(always)]
fn fill_owners<B: PacketBuf>(
    services: &ServiceMap,
    burst: &Burst<B>,
    metas: &[Meta; BURST],
    me: usize,
    owners: &mut [u8; BURST],
    owner: impl Fn((u32, u16)) -> usize,
) -> bool {
    let mut foreign = 0;
    for ((place, meta), buf) in owners.iter_mut().zip(metas).zip(burst) {
        let it = match meta.kind {
            Kind::Flow => owner(client(services, &meta.key)),
            Kind::Icmp => client_of_error(services, buf, meta).map_or(me, &owner),
            _ => me,
        };
        *place = it as u8;
        foreign |= it ^ me;
    }
    foreign != 0
}

/// A client's owner: the folded product of the client and a secret, scaled to the number of workers.
#[inline(always)]
fn keyed_owner(client: u64, mask: u64, factor: u64, workers: usize) -> usize {
    let product = u128::from(client ^ mask) * u128::from(factor);
    let folded = (product >> 64) as u64 ^ product as u64;
    // One product alone spreads neighbouring addresses badly under one secret of several hundred.
    let hash = folded.wrapping_mul(GOLDEN) >> 32;
    ((hash * workers as u64) >> 32) as usize
}

impl fmt::Debug for Steer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let spread = if matches!(self.spread, Spread::Keyed { .. }) { "keyed" } else { "toeplitz" };
        f.debug_struct("Steer")
            .field("workers", &self.workers)
            .field("by", &self.by)
            .field("spread", &spread)
            .finish()
    }
}

fn check(workers: usize) {
    assert!((1..=WORKERS_MAX).contains(&workers), "{workers} workers");
}

/// The client's endpoint of a TCP or UDP packet. Hot.
#[inline(always)]
pub fn client(services: &ServiceMap, key: &FlowKey) -> (u32, u16) {
    if services.is_address(key.dst) { (key.src, key.sport) } else { (key.dst, key.dport) }
}

/// The client's endpoint of the flow that an ICMP error is about; `None` for any other message and for a damaged one.
#[cold]
fn client_of_error<B: PacketBuf>(services: &ServiceMap, buf: &B, meta: &Meta) -> Option<(u32, u16)> {
    let end = ethernet::LEN + usize::from(meta.ip_len);
    let message = buf.data().get(usize::from(meta.l4)..end)?;
    let errors = [icmp::UNREACHABLE, icmp::SOURCE_QUENCH, icmp::TIME_EXCEEDED, icmp::PARAMETER_PROBLEM];
    if !errors.contains(&icmp::Header::at(message)?.kind()) {
        return None;
    }
    let about = message.get(icmp::LEN..)?;
    let ip = ipv4::Header::at(about)?;
    let ports = about.get(ip.header_len()..).and_then(|l4| l4.first_chunk::<4>());
    let [sport, dport] =
        ports.map_or([0, 0], |[a, b, c, d]| [u16::from_be_bytes([*a, *b]), u16::from_be_bytes([*c, *d])]);
    Some(if services.is_address(ip.src()) { (ip.dst(), dport) } else { (ip.src(), sport) })
}

/// Toeplitz hash of one word, low 16 bits, under `key` repeated for ever: the key shifted to each set bit's place.
const fn toeplitz_word(key: u16, word: u16) -> u16 {
    let (mut hash, mut bit) = (0, 0);
    while bit < 16 {
        if word & 0x8000 >> bit != 0 {
            hash ^= key.rotate_left(bit);
        }
        bit += 1;
    }
    hash
}

#[cfg(test)]
mod tests;

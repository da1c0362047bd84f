//! Receive side scaling: how a device spreads received packets over its queues.
//!
//! A device hashes fields of a packet under a key (Toeplitz) and looks the queue up in a redirection table by the low
//! bits of the hash. What is asked for here is a hash over one end of a packet only, so that whoever knows the key knows
//! the queue of both directions of a flow. Devices that cannot do that spread by addresses and L4 ports of both
//! ends, which is enough to share the load of receiving.

use crate::raw;

/// Packets that are hashed over one end: those of IPv4.
const IPV4: u64 = raw::RTE_ETH_RSS_IPV4
    | raw::RTE_ETH_RSS_FRAG_IPV4
    | raw::RTE_ETH_RSS_NONFRAG_IPV4_OTHER
    | raw::RTE_ETH_RSS_NONFRAG_IPV4_TCP
    | raw::RTE_ETH_RSS_NONFRAG_IPV4_UDP;

/// Of these a device must know at least TCP and UDP.
const IPV4_FLOWS: u64 = raw::RTE_ETH_RSS_NONFRAG_IPV4_TCP | raw::RTE_ETH_RSS_NONFRAG_IPV4_UDP;

/// Longest key of a device, bytes: 52 are what 40 Gb/s cards have.
const KEY_BYTES_MAX: usize = 64;

/// What a device can do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RssAbility {
    /// It can hash the source address alone, and the destination address alone.
    pub one_end: bool,
    /// It can do so with the L4 port of that end.
    pub one_end_with_port: bool,
    /// Cells of its redirection table; 0 if it has none that can be set.
    pub cells: u16,
    /// Length of its key.
    pub key_bytes: u8,
}

/// Which end of a packet is hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RssEnd {
    /// Where it comes from.
    Source,
    /// Where it goes.
    Destination,
}

/// How a port shall spread what it receives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rss {
    /// The end that is hashed.
    pub end: RssEnd,
    /// With its L4 port.
    pub with_port: bool,
    /// The key: these 16 bits again and again, so that the hash does not depend on where a field stands.
    pub key: u16,
    /// Receive queue of each cell; a larger table of the device repeats it.
    pub queues: Vec<u16>,
}

impl RssAbility {
    /// Of a device with these hash functions, table and key.
    pub(crate) fn of(hash_functions: u64, cells: u16, key_bytes: u8) -> RssAbility {
        let has = |fields: u64| hash_functions & fields == fields;
        let ends = raw::RTE_ETH_RSS_L3_SRC_ONLY | raw::RTE_ETH_RSS_L3_DST_ONLY;
        let ports = raw::RTE_ETH_RSS_L4_SRC_ONLY | raw::RTE_ETH_RSS_L4_DST_ONLY;
        let one_end = has(IPV4_FLOWS | ends);
        RssAbility { one_end, one_end_with_port: one_end && has(ports), cells, key_bytes }
    }
}

impl Rss {
    /// DPDK's name for the hash functions, of those the device has.
    pub(crate) fn fields(&self, hash_functions: u64) -> u64 {
        let (address, port) = match self.end {
            RssEnd::Source => (raw::RTE_ETH_RSS_L3_SRC_ONLY, raw::RTE_ETH_RSS_L4_SRC_ONLY),
            RssEnd::Destination => (raw::RTE_ETH_RSS_L3_DST_ONLY, raw::RTE_ETH_RSS_L4_DST_ONLY),
        };
        // Without the L4 port everything of IPv4 is alike; with it only what has ports.
        let (packets, ends) = if self.with_port { (IPV4_FLOWS, address | port) } else { (IPV4, address) };
        packets & hash_functions | ends
    }

    /// The key as long as a device wants it; 40 bytes if it does not say.
    pub(crate) fn key(&self, bytes: u8) -> Box<[u8]> {
        let bytes = if bytes == 0 { 40 } else { usize::from(bytes).min(KEY_BYTES_MAX) };
        self.key.to_be_bytes().into_iter().cycle().take(bytes).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn abilities_are_read_from_hash_functions() {
        let ends = raw::RTE_ETH_RSS_L3_SRC_ONLY | raw::RTE_ETH_RSS_L3_DST_ONLY;
        let ports = raw::RTE_ETH_RSS_L4_SRC_ONLY | raw::RTE_ETH_RSS_L4_DST_ONLY;
        let cases = [
            (0, false, false),
            (IPV4, false, false),
            (IPV4 | raw::RTE_ETH_RSS_L3_SRC_ONLY, false, false),
            (raw::RTE_ETH_RSS_NONFRAG_IPV4_TCP | ends | ports, false, false),
            (IPV4_FLOWS | ends, true, false),
            (IPV4 | ends | ports, true, true),
        ];
        for (functions, one_end, one_end_with_port) in cases {
            let expected = RssAbility { one_end, one_end_with_port, cells: 128, key_bytes: 52 };
            assert_eq!(RssAbility::of(functions, 128, 52), expected, "{functions:#x}");
        }
    }

    #[test]
    fn one_end_is_asked_for_with_what_the_device_has() {
        let all = u64::MAX;
        let rss = |end, with_port| Rss { end, with_port, key: 0x6d5a, queues: vec![0] };
        let source = rss(RssEnd::Source, false);
        assert_eq!(source.fields(all), IPV4 | raw::RTE_ETH_RSS_L3_SRC_ONLY);
        assert_eq!(source.fields(IPV4_FLOWS), IPV4_FLOWS | raw::RTE_ETH_RSS_L3_SRC_ONLY);
        let with_port = raw::RTE_ETH_RSS_L3_DST_ONLY | raw::RTE_ETH_RSS_L4_DST_ONLY;
        assert_eq!(rss(RssEnd::Destination, true).fields(all), IPV4_FLOWS | with_port);
        assert_eq!((source.key(0).len(), source.key(52).len()), (40, 52));
        assert_eq!(source.key(5)[..], [0x6d, 0x5a, 0x6d, 0x5a, 0x6d]);
    }
}

//! One packet buffer.
//!
//! ```text
//! buf_addr          data()                                    end of buffer
//!    |-- headroom() --|------------- len() -------------|-- tailroom() --|
//! ```
//! All lengths are of the first segment. A packet of several segments can arrive only on a port
//! that scatters, which this crate does not turn on; [`Mbuf::is_contiguous`] tells (I6).

use std::fmt;
use std::marker::PhantomData;
use std::ptr::NonNull;

use crate::mempool::HEADROOM_BYTES;
use crate::prefetch::prefetch_address;
use crate::raw;

/// Bytes of a cache line, DPDK's own assumption on x86.
const LINE: usize = raw::RTE_CACHE_LINE_SIZE as usize;

/// An mbuf and the right to free it (I2), which dropping it does.
///
/// It stays on its lcore; a [`handoff`](crate::handoff) ring or a transmit moves it away:
/// ```compile_fail,E0277
/// fn needs_send<T: Send>() {}
/// needs_send::<dpdk_sys::Mbuf<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_sync<T: Sync>() {}
/// needs_sync::<dpdk_sys::Mbuf<'static>>();
/// ```
/// ```compile_fail,E0277
/// fn needs_clone<T: Clone>() {}
/// needs_clone::<dpdk_sys::Mbuf<'static>>();
/// ```
#[repr(transparent)]
pub struct Mbuf<'eal> {
    raw: NonNull<raw::rte_mbuf>,
    _eal: PhantomData<&'eal ()>,
}

// I9: arrays of `Mbuf` are handed to DPDK as arrays of pointers.
const _: () = assert!(size_of::<Mbuf<'static>>() == size_of::<*mut raw::rte_mbuf>());

/// The buffer has no room for the change asked for. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{wanted} bytes wanted, {room} there")]
pub struct NoRoom {
    /// Bytes asked for.
    pub wanted: usize,
    /// Bytes there are.
    pub room: usize,
}

/// What the NIC found when it checked a checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RxChecksum {
    /// Not checked: software must.
    Unknown,
    /// Checked, wrong.
    Bad,
    /// Checked, right.
    Good,
    /// Not right in the packet, but the data is intact: it comes from another guest of this host.
    Intact,
}

impl<'eal> Mbuf<'eal> {
    /// Takes over an mbuf.
    ///
    /// # Safety
    /// `raw` is a live mbuf with one reference, of a pool of the EAL that `'eal` borrows, and the
    /// caller gives up its right to it.
    #[inline]
    pub(crate) unsafe fn from_raw(raw: NonNull<raw::rte_mbuf>) -> Self {
        Mbuf { raw, _eal: PhantomData }
    }

    #[inline]
    fn get(&self) -> &raw::rte_mbuf {
        // SAFETY: I2; ours alone while we live, and `&self` forbids writers.
        unsafe { self.raw.as_ref() }
    }

    #[inline]
    fn get_mut(&mut self) -> &mut raw::rte_mbuf {
        // SAFETY: I2; ours alone, and `&mut self` is the only reference.
        unsafe { self.raw.as_mut() }
    }

    /// Asks for the lines of an mbuf that another core had: both of its own, and the first of its data. Hot.
    ///
    /// Where the data is, is not read but guessed: in the usual layout of a pool it follows the mbuf and its headroom. For
    /// reading, although it will be written: lines that two cores pass to and fro came in 8 ns each so, in 12 ns when asked
    /// for with `prefetchw`.
    #[inline(always)]
    pub fn prefetch(&self) {
        let mbuf = self.raw.as_ptr().cast::<u8>();
        for offset in [0, LINE, size_of::<raw::rte_mbuf>() + usize::from(HEADROOM_BYTES)] {
            prefetch_address(mbuf.wrapping_add(offset));
        }
    }

    /// Bytes of data in the first segment.
    #[inline]
    pub fn len(&self) -> usize {
        self.get().data_len.into()
    }

    /// Whether the first segment has no data.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes of the packet over all segments.
    #[inline]
    pub fn packet_len(&self) -> usize {
        self.get().pkt_len as usize
    }

    /// Whether the first segment is the whole packet.
    #[inline]
    pub fn is_contiguous(&self) -> bool {
        self.get().nb_segs == 1
    }

    /// Free bytes before the data.
    #[inline]
    pub fn headroom(&self) -> usize {
        self.get().data_off.into()
    }

    /// Free bytes behind the data.
    #[inline]
    pub fn tailroom(&self) -> usize {
        let mbuf = self.get();
        usize::from(mbuf.buf_len) - usize::from(mbuf.data_off) - usize::from(mbuf.data_len)
    }

    /// The data of the first segment.
    #[inline]
    pub fn data(&self) -> &[u8] {
        let mbuf = self.get();
        // SAFETY: I6; `data_off + data_len <= buf_len`, the buffer is mapped memory of the pool and
        // nobody writes while `&self` lives (I2).
        unsafe {
            let start = mbuf.buf_addr.cast::<u8>().add(mbuf.data_off.into());
            std::slice::from_raw_parts(start, mbuf.data_len.into())
        }
    }

    /// The data of the first segment, to be changed in place.
    #[inline]
    pub fn data_mut(&mut self) -> &mut [u8] {
        let mbuf = self.get();
        debug_assert_eq!(mbuf.refcnt, 1, "I5: a shared mbuf reached us");
        // SAFETY: I5, I6; as in `data`, and `&mut self` makes the access exclusive.
        unsafe {
            let start = mbuf.buf_addr.cast::<u8>().add(mbuf.data_off.into());
            std::slice::from_raw_parts_mut(start, mbuf.data_len.into())
        }
    }

    /// Moves the start of the data back by `count` bytes and returns them, with whatever they hold.
    #[inline]
    pub fn prepend(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let room = self.headroom();
        if count > room {
            return Err(NoRoom { wanted: count, room });
        }
        let mbuf = self.get_mut();
        mbuf.data_off -= count as u16;
        mbuf.data_len += count as u16;
        mbuf.pkt_len += count as u32;
        Ok(&mut self.data_mut()[..count])
    }

    /// Removes `count` bytes from the start of the data.
    #[inline]
    pub fn adj(&mut self, count: usize) -> Result<(), NoRoom> {
        let room = self.len();
        if count > room {
            return Err(NoRoom { wanted: count, room });
        }
        let mbuf = self.get_mut();
        mbuf.data_off += count as u16;
        mbuf.data_len -= count as u16;
        mbuf.pkt_len -= count as u32;
        Ok(())
    }

    /// Removes `count` bytes from the end of a contiguous packet.
    #[inline]
    pub fn trim(&mut self, count: usize) -> Result<(), NoRoom> {
        let room = if self.is_contiguous() { self.len() } else { 0 };
        if count > room {
            return Err(NoRoom { wanted: count, room });
        }
        let mbuf = self.get_mut();
        mbuf.data_len -= count as u16;
        mbuf.pkt_len -= count as u32;
        Ok(())
    }

    /// Adds `count` bytes to the end of a contiguous packet and returns them, with whatever they
    /// hold.
    #[inline]
    pub fn append(&mut self, count: usize) -> Result<&mut [u8], NoRoom> {
        let room = if self.is_contiguous() { self.tailroom() } else { 0 };
        if count > room {
            return Err(NoRoom { wanted: count, room });
        }
        let start = self.len();
        let mbuf = self.get_mut();
        mbuf.data_len += count as u16;
        mbuf.pkt_len += count as u32;
        Ok(&mut self.data_mut()[start..])
    }

    /// Makes a contiguous packet `len` bytes long, by a cut or by added bytes of any content.
    #[inline]
    pub fn set_len(&mut self, len: usize) -> Result<(), NoRoom> {
        match len.checked_sub(self.len()) {
            Some(more) => self.append(more).map(|_| ()),
            None => self.trim(self.len() - len),
        }
        .map_err(|NoRoom { room, .. }| NoRoom { wanted: len, room: self.len() + room })
    }

    /// What the NIC found about the IPv4 header checksum.
    #[inline]
    pub fn ip_checksum(&self) -> RxChecksum {
        RxChecksum::from_flags(
            self.ol_flags(),
            raw::RTE_MBUF_F_RX_IP_CKSUM_BAD,
            raw::RTE_MBUF_F_RX_IP_CKSUM_GOOD,
        )
    }

    /// What the NIC found about the TCP or UDP checksum.
    #[inline]
    pub fn l4_checksum(&self) -> RxChecksum {
        RxChecksum::from_flags(
            self.ol_flags(),
            raw::RTE_MBUF_F_RX_L4_CKSUM_BAD,
            raw::RTE_MBUF_F_RX_L4_CKSUM_GOOD,
        )
    }

    /// DPDK's offload flags, `RTE_MBUF_F_*`.
    #[inline]
    pub fn ol_flags(&self) -> u64 {
        self.get().ol_flags
    }

    /// Number of the Ethernet port the packet came from; 65535 for one that was allocated.
    #[inline]
    pub fn port(&self) -> u16 {
        self.get().port
    }

    /// Notes another number in its place, of whatever numbering the caller uses.
    #[inline]
    pub fn set_port(&mut self, port: u16) {
        self.get_mut().port = port;
    }

    /// Brings the first cache line of the data towards the core. Hot; reads the mbuf itself, so it
    /// pays one packet after the mbuf was touched.
    #[inline]
    pub fn prefetch_data(&self) {
        let mbuf = self.get();
        crate::prefetch::prefetch_address(mbuf.buf_addr.cast::<u8>().wrapping_add(mbuf.data_off.into()));
    }
}

impl RxChecksum {
    #[inline]
    fn from_flags(flags: u64, bad: u64, good: u64) -> Self {
        match (flags & bad != 0, flags & good != 0) {
            (false, false) => RxChecksum::Unknown,
            (true, false) => RxChecksum::Bad,
            (false, true) => RxChecksum::Good,
            (true, true) => RxChecksum::Intact,
        }
    }
}

impl fmt::Debug for Mbuf<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mbuf")
            .field("len", &self.len())
            .field("headroom", &self.headroom())
            .field("segments", &self.get().nb_segs)
            .field("ol_flags", &format_args!("{:#x}", self.ol_flags()))
            .finish()
    }
}

impl Drop for Mbuf<'_> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: I2, I7; the right to free is ours and ends here.
        unsafe { raw::shim_mbuf_free(self.raw.as_ptr()) };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn checksum_status_by_flags() {
        let (bad, good) = (raw::RTE_MBUF_F_RX_L4_CKSUM_BAD, raw::RTE_MBUF_F_RX_L4_CKSUM_GOOD);
        // rte_mbuf_core.h: UNKNOWN 0, BAD 1<<3, GOOD 1<<8, NONE both.
        for (flags, expected) in [
            (0, RxChecksum::Unknown),
            (1 << 3, RxChecksum::Bad),
            (1 << 8, RxChecksum::Good),
            (1 << 3 | 1 << 8, RxChecksum::Intact),
            (1 << 4 | 1 << 7, RxChecksum::Unknown),
        ] {
            assert_eq!(RxChecksum::from_flags(flags, bad, good), expected, "{flags:#x}");
        }
    }
}

//! The feed without DPDK, for instruction counts under callgrind: one pointer a buffer, as an mbuf is, from a stack of
//! buffers and back to it.

use std::cell::RefCell;

use arrayvec::ArrayVec;
use dataplane::io::{Burst, Io, PacketBuf, PortIndex};
use dataplane::limits::BURST;

use crate::feed::{FRAME, Feeds, Frames};

/// Room of a buffer: a frame and what answers may need.
const ROOM: usize = 256;

struct Room {
    port: PortIndex,
    len: usize,
    bytes: [u8; ROOM],
}

thread_local! {
    #[expect(clippy::vec_box, reason = "a buffer is one pointer, as an mbuf is")]
    static SPARE: RefCell<Vec<Box<Room>>> = const { RefCell::new(Vec::new()) };
}

/// A buffer that goes back to its thread's stack.
pub struct PlainBuf(Option<Box<Room>>);

impl Drop for PlainBuf {
    fn drop(&mut self) {
        SPARE.with_borrow_mut(|spare| spare.extend(self.0.take()));
    }
}

impl PacketBuf for PlainBuf {
    #[inline(always)]
    fn data(&self) -> &[u8] {
        self.0.as_deref().map_or(&[], |room| &room.bytes[..room.len])
    }

    #[inline(always)]
    fn data_mut(&mut self) -> &mut [u8] {
        self.0.as_deref_mut().map_or(&mut [], |room| &mut room.bytes[..room.len])
    }

    #[inline(always)]
    fn set_len(&mut self, len: usize) -> bool {
        if let Some(room) = self.0.as_deref_mut()
            && len <= ROOM
        {
            room.len = len;
            return true;
        }
        false
    }

    #[inline(always)]
    fn port(&self) -> PortIndex {
        self.0.as_deref().map_or(0, |room| room.port)
    }

    #[inline(always)]
    fn set_port(&mut self, port: PortIndex) {
        if let Some(room) = self.0.as_deref_mut() {
            room.port = port;
        }
    }
}

/// Both ports of the subject.
pub struct PlainFeed {
    /// What is fed.
    pub frames: Frames,
}

impl PlainFeed {
    /// Feeds `frames`.
    pub fn new(frames: Frames) -> Self {
        SPARE.with_borrow_mut(|spare| {
            spare.extend((0..8 * BURST).map(|_| Box::new(Room { port: 0, len: 0, bytes: [0; ROOM] })));
        });
        Self { frames }
    }

    /// One burst a port in and out again, without a subject.
    pub fn pass(&mut self, burst: &mut Burst<PlainBuf>) -> usize {
        let mut n = 0;
        for port in 0..2 {
            self.rx(port, burst);
            n += burst.len();
            self.tx(port, burst);
        }
        n
    }
}

impl Feeds for PlainFeed {
    fn frames(&mut self) -> &mut Frames {
        &mut self.frames
    }
}

impl Io for PlainFeed {
    type Buf = PlainBuf;

    #[inline(never)]
    fn rx(&mut self, port: PortIndex, burst: &mut Burst<PlainBuf>) {
        if !self.frames.is_turn(port) {
            return;
        }
        for _ in 0..BURST {
            let Some(mut buf) = self.alloc() else { return };
            buf.set_len(FRAME);
            if let Some(frame) = buf.data_mut().first_chunk_mut() {
                self.frames.write(frame, port);
            }
            burst.push(buf);
        }
    }

    #[inline(never)]
    fn tx<const N: usize>(&mut self, _: PortIndex, queue: &mut ArrayVec<PlainBuf, N>) {
        queue.clear();
    }

    fn alloc(&mut self) -> Option<PlainBuf> {
        SPARE.with_borrow_mut(Vec::pop).map(|room| PlainBuf(Some(room)))
    }
}

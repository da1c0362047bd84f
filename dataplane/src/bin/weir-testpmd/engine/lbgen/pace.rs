//! Which flow is next, and when a new connection may begin.

/// New connections that are made up for at most, after a pause: those of so many nanoseconds.
const CATCH_UP_NS: u64 = 10_000_000;

/// All numbers below a length, in another order each time round: a full-period congruential sequence.
pub(super) struct Order {
    len: u32,
    mask: u32,
    state: u32,
    left: u32,
    step: u32,
}

impl Order {
    pub(super) fn new(len: u32) -> Order {
        let mask = len.next_power_of_two() - 1;
        Order { len, mask, state: 0, left: len, step: 1 }
    }

    #[inline(always)]
    pub(super) fn next(&mut self) -> u32 {
        if self.left == 0 {
            self.left = self.len;
            self.step = self.step.wrapping_mul(0x2C1B_3C6D) | 1;
        }
        self.left -= 1;
        loop {
            // A multiplier of the form 4n + 1 and an odd step visit every state of a power of two once.
            self.state = self.state.wrapping_mul(0x9E37_79B1).wrapping_add(self.step) & self.mask;
            if self.state < self.len {
                return self.state;
            }
        }
    }
}

/// Lets new connections through at a rate.
pub(super) struct Pacer {
    /// Nanoseconds between two, times 2^10; 0 for no limit.
    gap: u64,
    next: u64,
}

impl Pacer {
    pub(super) fn new(rate: u64, cores: u64) -> Pacer {
        let gap = ((1_000_000_000 * cores) << 10).checked_div(rate).unwrap_or(0);
        Pacer { gap, next: 0 }
    }

    /// One more, now? Returns one, to be counted.
    #[inline(always)]
    pub(super) fn may(&mut self, now_ns: u64) -> Option<u64> {
        if self.gap == 0 {
            return Some(1);
        }
        let now = now_ns << 10;
        if now < self.next {
            return None;
        }
        self.next = self.next.max(now.saturating_sub(CATCH_UP_NS << 10)) + self.gap;
        Some(1)
    }
}

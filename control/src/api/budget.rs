//! How many changes a user other than root may make: a token bucket for each.
//!
//! Control thread only. A bucket that has filled up again is forgotten, so there are no more of them than users
//! who changed something lately.

use std::collections::HashMap;
use std::time::{Duration, Instant};

/// Buckets are looked through for full ones when there are so many.
const SWEEP_AT: usize = 1024;

/// The buckets of all users.
#[derive(Debug)]
pub struct Budget {
    /// Changes per second.
    rate: u32,
    /// Changes at once.
    burst: u32,
    /// By user: the moment its bucket is full again.
    full_at: HashMap<u32, Instant>,
}

impl Budget {
    /// Budget of `rate` changes per second and `burst` at once, for each user.
    pub fn new(rate: u32, burst: u32) -> Budget {
        Budget { rate, burst, full_at: HashMap::new() }
    }

    /// Takes one change from the user's budget; false when it is used up. Root has no limit.
    pub fn take(&mut self, uid: u32, now: Instant) -> bool {
        if uid == 0 {
            return true;
        }
        if self.full_at.len() >= SWEEP_AT {
            self.full_at.retain(|_, full_at| *full_at > now);
        }
        let one = Duration::from_secs(1) / self.rate;
        let full_at = (*self.full_at.entry(uid).or_insert(now)).max(now) + one;
        if full_at.duration_since(now) > one * self.burst {
            return false;
        }
        self.full_at.insert(uid, full_at);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_burst_then_the_rate_for_each_user_alone_and_none_for_root() {
        let start = Instant::now();
        let mut budget = Budget::new(10, 5);
        let mut taken = |uid, at_ms| {
            (0..100).take_while(|_| budget.take(uid, start + Duration::from_millis(at_ms))).count()
        };
        assert_eq!(taken(1, 0), 5);
        assert_eq!(taken(1, 99), 0);
        assert_eq!(taken(1, 300), 3);
        assert_eq!(taken(2, 300), 5);
        assert_eq!(taken(0, 300), 100);
        assert_eq!(taken(1, 60_000), 5);
    }
}

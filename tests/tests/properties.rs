//! Properties that hold for any packets, rules and order of events, searched for counterexamples at random.

mod properties {
    pub mod life;
    pub mod rewrite;
    pub mod schedulers;
}

use tests::topo::Rules;

/// A few of everything: an instance starts in a millisecond.
pub const SMALL: &str = "[limits]\nservices = 16\ndestinations = 256\nneighbours = 64\n";

/// The test network with small tables.
pub fn small_rules() -> Rules {
    Rules { extra: SMALL.to_owned(), ..Rules::test_network() }
}

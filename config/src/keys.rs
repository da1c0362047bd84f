//! The one table of configuration keys.
//!
//! Model: a file is a set of tables, a table a set of keys, and a key has one row here: what it accepts, its
//! default and why, its unit, and a sentence. The reader accepts what a row says and nothing else, the writer
//! comments each line with it, and the manual is printed from it; no default and no range is anywhere else.
//! To add a key: a row here, a field in [`crate::Valid`], and the rules between keys in `validate`.

mod network;
mod row;
mod service;
mod settings;
mod sysctl;

pub(crate) use row::{ANY_INT, CPU_MAX, one_of};
pub use row::{Key, Kind, Later, Preset, Table};

/// All tables, in the order they are written.
pub static TABLES: &[Table] = &[
    settings::DAEMON,
    settings::EAL,
    network::PORT,
    network::ROUTE,
    network::NEIGHBOUR,
    settings::WORKERS,
    settings::ESTIMATORS,
    settings::CONNECTIONS,
    settings::LIMITS,
    settings::TIMEOUTS,
    settings::POLICY,
    sysctl::SYSCTL,
    service::SERVICE,
    service::DESTINATION,
];

/// Known to operators of load balancers, not to this version: refused by name.
#[rustfmt::skip]
pub(crate) static LATER: &[Later] = &[
    Later { place: "service", word: "persistent", feature: "persistence" },
    Later { place: "service", word: "netmask", feature: "persistence" },
    Later { place: "service", word: "pe", feature: "persistence" },
    Later { place: "service.destination", word: "tunnel", feature: "tunnels" },
    Later { place: "service.destination.method", word: "tunnel", feature: "tunnels" },
    Later { place: "service.flags", word: "ops", feature: "one-packet scheduling" },
    Later { place: "service.unmatched", word: "host", feature: "handing packets to the host" },
    Later { place: "policy.unmatched", word: "host", feature: "handing packets to the host" },
    Later { place: "policy.transit", word: "host", feature: "handing packets to the host" },
    Later { place: "policy.transit", word: "forward", feature: "plain routing" },
];

/// The table of that name.
pub(crate) fn table(name: &str) -> &'static Table {
    TABLES.iter().find(|t| t.name == name).expect("callers name tables of TABLES")
}

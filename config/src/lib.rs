//! Weir's configuration: text in, accepted value or errors out, and the difference between two values.
//!
//! Three stages, all pure: no file, socket, clock or log is touched, and any thread may call them.
//!
//! 1. [`parse()`]: TOML text against the one table of keys ([`keys::TABLES`]), then the rules between keys. The
//!    result is a [`Valid`], or [`Errors`] with every problem of the file.
//! 2. [`plan()`]: what to change to come from one [`Valid`] to another while packets flow.
//! 3. [`Valid::to_toml`]: the value as a file again, with defaults, units and sentences.
//!
//! ```
//! let text = r#"
//!     [[port]]
//!     name = "lan"
//!     device = "net_tap0"
//!     addresses = ["10.0.0.1/24"]
//!
//!     [[service]]
//!     address = "tcp://198.51.100.1:80"
//!       [[service.destination]]
//!       address = "10.0.0.11:8080"
//! "#;
//! let valid = config::parse(text, "weir.toml").unwrap();
//! let plan = config::plan(&config::Valid::empty(), &valid);
//! assert_eq!(
//!     plan.to_string(),
//!     "~ network + address 10.0.0.1/24 on lan\n\
//!      + service tcp:198.51.100.1:80 scheduler wlc flags [] announce true unmatched reset\n\
//!      + dest 10.0.0.11:8080 of tcp:198.51.100.1:80 method nat weight 1 upper 0 lower 0\n"
//! );
//! ```
#![forbid(unsafe_code)]

mod error;
mod field;
pub mod keys;
pub mod knobs;
mod parse;
mod plan;
mod save;
mod section;
mod types;
mod unbuilt;
mod valid;
mod validate;
mod value;
mod walk;
mod words;

pub use error::{Errors, Problem};
pub use parse::parse;
pub use plan::{Change, Plan, plan};
pub use types::*;
pub use valid::*;

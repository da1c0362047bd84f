//! What a command line comes to: an order, or the reason why there is none.

use super::grammar::{Command, Options};
use super::status;
use crate::ipvs::daemon::DaemonRequest;
use crate::ipvs::{DestKey, DestOptions, ServiceKey, ServiceOptions, Timeouts};

/// What a command line wants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Wanted {
    Help,
    Version,
    Do(Box<Order>),
}

/// A command with everything that goes with it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Order {
    pub command: Command,
    /// The service, if one was named.
    pub service: Option<ServiceKey>,
    pub service_options: ServiceOptions,
    pub dest: DestKey,
    pub dest_options: DestOptions,
    pub daemon: DaemonRequest,
    pub timeouts: Timeouts,
    pub options: Options,
}

/// Why a command line is not carried out: text for stderr and exit status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stop {
    pub status: u8,
    pub text: String,
    /// Whether a restore goes on with its next line.
    pub goes_on: bool,
}

impl Stop {
    /// Wrong usage.
    pub(super) fn usage(text: impl Into<String>) -> Stop {
        Stop { status: status::USAGE, text: text.into(), goes_on: false }
    }

    /// The words make no command.
    pub(super) fn try_help(program: &str) -> Stop {
        let text = format!("Try `{program} -h' or '{program} --help' for more information.");
        Stop { status: status::REFUSED, text, goes_on: false }
    }
}

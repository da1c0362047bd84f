//! The rules between keys.
//!
//! Model: single values are good when they come here. Ports and routes are judged first and give a picture of
//! where addresses are; services are judged against it. Every rule has its own problem with its own remedy, and
//! all rules are tried; a rule that would judge a value that was refused before is skipped.

mod network;
mod place;
mod service;

use crate::error::Problems;
use crate::valid::{Boot, Valid};
use crate::walk::Document;

/// A configuration, if no problem was found before or is found here.
pub(crate) fn validate(document: &Document, problems: &mut Problems) -> Option<Valid> {
    let (ports, network, place) = network::validate(document, problems);
    let boot = Boot {
        daemon: document.settings(),
        eal: document.settings(),
        ports,
        workers: document.settings(),
        connections: document.settings(),
        limits: document.settings(),
    };
    workers(document, &boot, problems);
    let policy = document.settings();
    let services = service::validate(document, &place, &policy, &boot.limits, problems);
    problems.is_empty().then(|| Valid {
        boot,
        network,
        policy,
        timeouts: document.settings(),
        knobs: document.settings(),
        estimators: document.settings(),
        services,
        blank: false,
    })
}

fn workers(document: &Document, boot: &Boot, problems: &mut Problems) {
    if boot.workers.cpus.as_ref().is_some_and(Vec::is_empty) {
        let section = document.single("workers");
        problems
            .push(section.place("cpus"), section.path("cpus"), "without a worker no packet is forwarded")
            .help("name at least one CPU, or leave the key out for the last one");
    }
}

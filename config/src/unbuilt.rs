//! What a configuration asks for and this version does not do.

use crate::field::Settings;
use crate::keys;
use crate::valid::{Estimators, Knobs, Valid};

impl Valid {
    /// Settings that are accepted and have no effect yet, one text each: `sysctl.conntrack = 1`,
    /// `service tcp:198.51.100.1:80 scheduler sh`.
    ///
    /// For the warning at start and for the status screen; a setting at its default is not listed.
    pub fn unbuilt(&self) -> Vec<String> {
        let mut list = self.unbuilt_settings();
        for service in self.services() {
            let scheduler = service.settings.scheduler;
            if !scheduler.is_built() {
                list.push(format!("service {} scheduler {scheduler}", service.key));
            }
        }
        list
    }

    /// Those of them that are settings of the whole, no service's.
    pub fn unbuilt_settings(&self) -> Vec<String> {
        let mut list = self.unbuilt_at_boot();
        list.extend(unbuilt_knobs(self.knobs(), self.estimators()));
        list
    }

    /// Those of them that only a restart changes.
    pub fn unbuilt_at_boot(&self) -> Vec<String> {
        let mut list = Vec::new();
        settings(self.workers(), &mut list);
        settings(self.connections(), &mut list);
        list
    }
}

/// Settings of `[sysctl]` and `[estimators]` that are accepted and have no effect yet, as [`Valid::unbuilt`].
pub(crate) fn unbuilt_knobs(knobs: &Knobs, estimators: &Estimators) -> Vec<String> {
    let mut list = Vec::new();
    settings(knobs, &mut list);
    settings(estimators, &mut list);
    list
}

fn settings<S: Settings>(settings: &S, list: &mut Vec<String>) {
    let table = keys::table(S::TABLE);
    let defaults = S::read(&crate::section::Section::defaults(table));
    for ((name, value), (_, default)) in settings.values().into_iter().zip(defaults.values()) {
        let key = table.key(name).expect("what is written is in the table of keys");
        if !key.built && value != default {
            list.push(format!("{}.{name} = {}", table.name, value.as_deref().unwrap_or("unset")));
        }
    }
}

//! The difference between two configurations, as a list of changes.
//!
//! Model: `plan(old, new)` looks at two values and does nothing. What can change while running becomes
//! [`Change`]s in a fixed order: settings first, then services in the new file's order, each with its
//! destinations, and what goes away last, so that a service is never without servers in between. What only a
//! restart can change is named in [`Plan::restart_needed`] and left as it is. Applied one after another to what
//! `old` describes, the changes make what [`Plan::in_force`] describes.

use std::collections::HashMap;
use std::fmt;

use crate::field::Settings;
use crate::save::{Values, dest_values, network_lines, port_values, service_values, without_quotes};
use crate::types::{DestKey, ServiceKey};
use crate::valid::{
    Boot, Destination, Estimators, Knobs, Network, Policy, Service, ServiceSettings, Timeouts, Valid,
};

/// What to do to come from one configuration to another.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Changes, in the order to apply them.
    pub changes: Vec<Change>,
    /// Settings that differ and stay as they are until a restart, one text each: `workers.nice 0 -> 5`.
    pub restart_needed: Vec<String>,
    /// What holds once the changes are applied: the new configuration but for `restart_needed`.
    pub in_force: Valid,
}

/// One change of the running state. `from` is what the change expects to find.
///
/// Printed, it is one line: `+` for what comes, `~` for what is edited, `-` for what goes.
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
#[allow(missing_docs, reason = "the fields are what their types say")]
pub enum Change {
    /// Addresses, routes and static neighbours; all of them at once.
    SetNetwork { from: Network, to: Network },
    /// `[policy]`.
    SetPolicy { from: Policy, to: Policy },
    /// `[timeouts]`; connections take them at their next packet.
    SetTimeouts { from: Timeouts, to: Timeouts },
    /// `[sysctl]`.
    SetKnobs { from: Knobs, to: Knobs },
    /// `[estimators]`.
    SetEstimators { from: Estimators, to: Estimators },
    /// A service without destinations; an [`Change::AddDest`] follows for each.
    AddService { key: ServiceKey, settings: ServiceSettings },
    /// Settings of a service; its connections stay.
    EditService { key: ServiceKey, from: ServiceSettings, to: ServiceSettings },
    /// A destination of a service.
    AddDest { service: ServiceKey, dest: Destination },
    /// Settings of a destination; its connections stay.
    EditDest { service: ServiceKey, from: Destination, to: Destination },
    /// A destination goes.
    DeleteDest { service: ServiceKey, dest: DestKey },
    /// A service goes with the destinations it has.
    DeleteService { key: ServiceKey },
}

/// The changes from `old` to `new`. Pure; any thread.
///
/// From [`Valid::empty`] it is what a start does: nothing needs a restart then.
pub fn plan(old: &Valid, new: &Valid) -> Plan {
    let mut in_force = new.clone();
    let mut restart_needed = Vec::new();
    if !old.blank {
        restart_needed = boot_differences(&old.boot, &new.boot);
        in_force.boot = old.boot.clone();
        // Routes speak of ports by index: with other ports there they cannot be applied.
        if !same_ports(&old.boot, &new.boot) {
            in_force.network = old.network.clone();
        }
    }
    Plan { changes: changes(old, &in_force), restart_needed, in_force }
}

fn changes(old: &Valid, new: &Valid) -> Vec<Change> {
    let mut changes = Vec::new();
    let mut set = |differs: bool, change: &dyn Fn() -> Change| {
        if differs {
            changes.push(change());
        }
    };
    set(old.network != new.network, &|| Change::SetNetwork {
        from: old.network.clone(),
        to: new.network.clone(),
    });
    set(old.policy != new.policy, &|| Change::SetPolicy { from: old.policy.clone(), to: new.policy.clone() });
    set(old.timeouts != new.timeouts, &|| Change::SetTimeouts {
        from: old.timeouts.clone(),
        to: new.timeouts.clone(),
    });
    set(old.knobs != new.knobs, &|| Change::SetKnobs { from: old.knobs.clone(), to: new.knobs.clone() });
    set(old.estimators != new.estimators, &|| Change::SetEstimators {
        from: old.estimators.clone(),
        to: new.estimators.clone(),
    });

    let mut gone: HashMap<_, _> = old.services.iter().map(|service| (service.key, service)).collect();
    let mut removals = Vec::new();
    for service in &new.services {
        service_changes(gone.remove(&service.key), service, &mut changes, &mut removals);
    }
    changes.append(&mut removals);
    let services_gone = old.services.iter().filter(|service| gone.contains_key(&service.key));
    changes.extend(services_gone.map(|service| Change::DeleteService { key: service.key }));
    changes
}

fn service_changes(
    old: Option<&Service>,
    new: &Service,
    changes: &mut Vec<Change>,
    removals: &mut Vec<Change>,
) {
    let key = new.key;
    match old {
        None => changes.push(Change::AddService { key, settings: new.settings }),
        Some(old) if old.settings != new.settings => {
            changes.push(Change::EditService { key, from: old.settings, to: new.settings });
        }
        Some(_) => {}
    }
    let old_dests = old.map_or(&[][..], |old| &old.destinations);
    let mut gone: HashMap<_, _> = old_dests.iter().map(|dest| (dest.key, *dest)).collect();
    for dest in &new.destinations {
        match gone.remove(&dest.key) {
            None => changes.push(Change::AddDest { service: key, dest: *dest }),
            Some(from) if from != *dest => {
                changes.push(Change::EditDest { service: key, from, to: *dest });
            }
            Some(_) => {}
        }
    }
    let dests_gone = old_dests.iter().filter(|dest| gone.contains_key(&dest.key));
    removals.extend(dests_gone.map(|dest| Change::DeleteDest { service: key, dest: dest.key }));
}

fn same_ports(old: &Boot, new: &Boot) -> bool {
    old.ports.iter().map(|port| &port.name).eq(new.ports.iter().map(|port| &port.name))
}

fn boot_differences(old: &Boot, new: &Boot) -> Vec<String> {
    let mut lines = Vec::new();
    if same_ports(old, new) {
        for (old, new) in old.ports.iter().zip(&new.ports) {
            let differences = differences(&port_values(old), &port_values(new));
            lines.extend(differences.into_iter().map(|d| format!("port {} {d}", new.name)));
        }
    } else {
        let names = |boot: &Boot| {
            let names: Vec<_> = boot.ports.iter().map(|port| port.name.as_str()).collect();
            names.join(", ")
        };
        lines.push(format!(
            "ports [{}] -> [{}], and all addresses, routes and neighbours",
            names(old),
            names(new)
        ));
    }
    fn settings<S: Settings>(old: &S, new: &S, lines: &mut Vec<String>) {
        let differences = differences(&old.values(), &new.values());
        lines.extend(differences.into_iter().map(|d| format!("{}.{d}", S::TABLE)));
    }
    settings(&old.daemon, &new.daemon, &mut lines);
    settings(&old.eal, &new.eal, &mut lines);
    settings(&old.workers, &new.workers, &mut lines);
    settings(&old.connections, &new.connections, &mut lines);
    settings(&old.limits, &new.limits, &mut lines);
    lines
}

/// `name old -> new` for each value that differs.
fn differences(old: &Values, new: &Values) -> Vec<String> {
    let text = |value: &Option<String>| value.as_deref().map_or("unset", without_quotes).to_string();
    let pairs = old.iter().zip(new).filter(|(old, new)| old.1 != new.1);
    pairs.map(|(old, new)| format!("{} {} -> {}", new.0, text(&old.1), text(&new.1))).collect()
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fn settings<S: Settings>(f: &mut fmt::Formatter<'_>, from: &S, to: &S) -> fmt::Result {
            write!(f, "~ {} {}", S::TABLE, differences(&from.values(), &to.values()).join(", "))
        }
        match self {
            Change::SetNetwork { from, to } => {
                let (old, new) = (network_lines(from), network_lines(to));
                let gone = old.iter().filter(|line| !new.contains(line)).map(|line| format!("- {line}"));
                let come = new.iter().filter(|line| !old.contains(line)).map(|line| format!("+ {line}"));
                let differences: Vec<_> = gone.chain(come).collect();
                match differences.as_slice() {
                    [] => write!(f, "~ network order"),
                    differences => write!(f, "~ network {}", differences.join(", ")),
                }
            }
            Change::SetPolicy { from, to } => settings(f, from, to),
            Change::SetTimeouts { from, to } => settings(f, from, to),
            Change::SetKnobs { from, to } => settings(f, from, to),
            Change::SetEstimators { from, to } => settings(f, from, to),
            Change::AddService { key, settings } => {
                write!(f, "+ service {key}")?;
                given(f, &service_values(settings))
            }
            Change::EditService { key, from, to } => {
                let differences = differences(&service_values(from), &service_values(to));
                write!(f, "~ service {key} {}", differences.join(", "))
            }
            Change::AddDest { service, dest } => {
                write!(f, "+ dest {} of {service}", dest.key)?;
                given(f, &dest_values(dest))
            }
            Change::EditDest { service, from, to } => {
                let differences = differences(&dest_values(from), &dest_values(to));
                write!(f, "~ dest {} of {service} {}", to.key, differences.join(", "))
            }
            Change::DeleteDest { service, dest } => write!(f, "- dest {dest} of {service}"),
            Change::DeleteService { key } => write!(f, "- service {key}"),
        }
    }
}

fn given(f: &mut fmt::Formatter<'_>, values: &Values) -> fmt::Result {
    for (name, value) in values {
        if let Some(value) = value {
            write!(f, " {name} {}", without_quotes(value))?;
        }
    }
    Ok(())
}

/// One line for each change, then one for each setting that waits for a restart; nothing if nothing differs.
impl fmt::Display for Plan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for change in &self.changes {
            writeln!(f, "{change}")?;
        }
        for setting in &self.restart_needed {
            writeln!(f, "! restart needed: {setting}")?;
        }
        Ok(())
    }
}

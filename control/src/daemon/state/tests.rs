//! A plan is applied whole or not at all; rows of a registry.

use config::plan;
use dataplane::route::PortFacts;

use super::*;
use crate::api::rows::ListRow;

fn valid(services: &str) -> Valid {
    let text = format!(
        "[limits]\nservices = 2\n[[port]]\nname = \"a\"\ndevice = \"net_null0\"\naddresses = [\"10.0.0.1/24\"]\n{services}"
    );
    config::parse(&text, "test").unwrap_or_else(|errors| panic!("{errors}"))
}

fn service(port: u16, dests: &[(&str, u32)]) -> String {
    let dest = |(address, weight): &(&str, u32)| {
        format!("[[service.destination]]\naddress = \"{address}\"\nweight = {weight}\n")
    };
    let dests: String = dests.iter().map(dest).collect();
    format!("[[service]]\naddress = \"tcp://198.51.100.1:{port}\"\n{dests}")
}

fn registry(valid: &Valid) -> Registry {
    let mut registry =
        Registry::new(valid, vec![PortFacts { mac: [2, 0, 0, 0, 0, 1], mtu: 1500 }], 1).unwrap();
    apply_whole(&mut registry, &plan(&Valid::empty(), valid).changes).unwrap();
    registry
}

/// The listing without counters: enough to see what a plan left.
fn listed(registry: &Registry) -> Vec<String> {
    let line = |row| match row {
        ListRow::Head(_) => String::new(),
        ListRow::Service(row) => format!("{} {}", row.service, row.scheduler),
        ListRow::Dest(row) => format!("  {} {} {}", row.dest, row.method, row.weight),
    };
    report::list(registry, 0).into_iter().map(line).skip(1).collect()
}

#[test]
fn services_are_listed_as_created_and_destinations_newest_first() {
    let registry =
        registry(&valid(&(service(81, &[("10.0.0.2:1", 1), ("10.0.0.3:1", 2)]) + &service(80, &[]))));
    assert_eq!(
        listed(&registry),
        ["tcp:198.51.100.1:81 wlc", "  10.0.0.3:1 nat 2", "  10.0.0.2:1 nat 1", "tcp:198.51.100.1:80 wlc"]
    );
}

#[test]
fn a_plan_with_a_refused_change_changes_nothing() {
    let old = valid(&(service(80, &[("10.0.0.2:1", 1)]) + &service(81, &[("10.0.0.3:1", 1)])));
    let mut registry = registry(&old);
    let before = listed(&registry);
    // An edit, an addition of a destination, then a third service beyond the limit of two; 81 would go last.
    let new =
        valid(&(service(80, &[("10.0.0.2:1", 7), ("10.0.0.9:1", 1)]) + &service(82, &[("10.0.0.4:1", 1)])));
    let RefusedChange { change, error } = apply_whole(&mut registry, &plan(&old, &new).changes).unwrap_err();
    assert!(matches!(*change, Change::AddService { .. }), "{change}");
    assert!(matches!(error, ApplyError::TooManyServices(2)), "{error}");
    assert_eq!(listed(&registry), before);

    let fits = valid(&service(80, &[("10.0.0.2:1", 7), ("10.0.0.9:1", 1)]));
    apply_whole(&mut registry, &plan(&old, &fits).changes).unwrap();
    assert_eq!(listed(&registry), ["tcp:198.51.100.1:80 wlc", "  10.0.0.9:1 nat 1", "  10.0.0.2:1 nat 7"]);
}

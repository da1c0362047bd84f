//! A plan is applied whole or not at all.

use config::{Valid, plan};
use dataplane::registry::{DestRow, ServiceRow};
use dataplane::route::PortFacts;

use super::*;

fn valid(services: &str) -> Valid {
    valid_within(2, services)
}

fn valid_within(limit: u32, services: &str) -> Valid {
    let text = format!(
        "[limits]\nservices = {limit}\n[[port]]\nname = \"a\"\ndevice = \"net_null0\"\naddresses = [\"10.0.0.1/24\"]\n{services}"
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

/// Services as created, destinations newest first.
fn listed(registry: &Registry) -> Vec<String> {
    let mut services: Vec<_> = registry.rows().collect();
    services.sort_by_key(|row| row.service.born);
    let dest = |row: &DestRow| format!("  {}:{} {}", row.dest.addr, row.dest.port, row.dest.weight);
    let lines = |row: &ServiceRow| {
        let service = format!("{} {}", row.service.key, row.service.scheduler);
        std::iter::once(service).chain(row.dests.iter().map(dest)).collect::<Vec<_>>()
    };
    services.iter().flat_map(lines).collect()
}

#[test]
fn a_plan_with_a_refused_change_changes_nothing() {
    let old = valid(&(service(80, &[("10.0.0.2:1", 1)]) + &service(81, &[("10.0.0.3:1", 1)])));
    let mut registry = registry(&old);
    let before = listed(&registry);
    // An edit, an addition of a destination, then a second and a third new service, of which the limit has room for
    // one; 81 would go last.
    let services = |ports: &[u16]| {
        let more: String = ports.iter().map(|port| service(*port, &[("10.0.0.4:1", 1)])).collect();
        service(80, &[("10.0.0.2:1", 7), ("10.0.0.9:1", 1)]) + &more
    };
    let new = valid_within(3, &services(&[82, 83]));
    let RefusedChange { change, error } = apply_whole(&mut registry, &plan(&old, &new).changes).unwrap_err();
    let change = change.to_string();
    assert!(change.starts_with("+ service tcp:198.51.100.1:83"), "{change}");
    assert!(matches!(error, ApplyError::TooManyServices(2)), "{error}");
    assert_eq!(listed(&registry), before);

    let fits = valid(&service(80, &[("10.0.0.2:1", 7), ("10.0.0.9:1", 1)]));
    apply_whole(&mut registry, &plan(&old, &fits).changes).unwrap();
    assert_eq!(listed(&registry), ["tcp:198.51.100.1:80 wlc", "  10.0.0.9:1 1", "  10.0.0.2:1 7"]);
}

//! Starting DPDK: what it leaves as it was, what it says, and that it starts once.

use std::fmt;
use std::sync::{Arc, Mutex};

use dpdk_sys::{DpdkError, Eal, PageChoice, allowed_cpus, testing};
use tracing::field::{Field, Visit};
use tracing::span::{Attributes, Id, Record};
use tracing::{Event, Metadata, Subscriber};

/// Keeps the text of each event of target `weir::eal`.
#[derive(Clone, Default)]
struct Lines(Arc<Mutex<Vec<String>>>);

impl Subscriber for Lines {
    fn enabled(&self, metadata: &Metadata<'_>) -> bool {
        metadata.target() == "weir::eal"
    }
    fn new_span(&self, _: &Attributes<'_>) -> Id {
        Id::from_u64(1)
    }
    fn record(&self, _: &Id, _: &Record<'_>) {}
    fn record_follows_from(&self, _: &Id, _: &Id) {}
    fn event(&self, event: &Event<'_>) {
        event.record(&mut LineOf(self));
    }
    fn enter(&self, _: &Id) {}
    fn exit(&self, _: &Id) {}
}

struct LineOf<'a>(&'a Lines);

impl Visit for LineOf<'_> {
    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        if field.name() == "message" {
            self.0.0.lock().unwrap().push(format!("{value:?}"));
        }
    }
}

#[test]
fn eal_starts_once_and_restores_the_thread() {
    let lines = Lines::default();
    tracing::subscriber::set_global_default(lines.clone()).unwrap();
    let cpus = allowed_cpus().unwrap();

    // A mistake found before DPDK is touched does not use up the one start.
    let error = Eal::start(&testing::eal_args().memory_mb(0)).unwrap_err();
    assert!(matches!(error, DpdkError::BadArgument { what: "memory", .. }), "{error}");

    // The capture file does not exist: the device fails to probe, and DPDK starts all the same.
    let args = testing::eal_args().vdev("net_pcap0,rx_pcap=/absent.pcap").vdev("net_null0");
    let eal = Eal::start(&args).unwrap();
    assert_eq!(allowed_cpus().unwrap(), cpus, "CPU list of the calling thread");
    assert!(matches!(eal.pages(), PageChoice::Normal { wanted_mb: 64, .. }));

    let error = eal.port_by_name("net_pcap0").unwrap_err();
    assert_eq!(error.to_string(), "no port `net_pcap0`: the device is absent or failed to probe");
    let claim = eal.port_by_name("net_null0").unwrap();
    assert_eq!(claim.info().unwrap().driver, "net_null");
    let error = eal.port_by_name("net_null0").unwrap_err();
    assert_eq!(error.to_string(), "port `net_null0` is already in use");
    drop(claim);
    eal.port_by_name("net_null0").expect("the claim was given up");

    let again = Eal::start(&testing::eal_args()).unwrap_err();
    assert!(matches!(again, DpdkError::EalAlreadyStarted), "{again}");
    drop(eal);
    let again = Eal::start(&testing::eal_args()).unwrap_err();
    assert!(matches!(again, DpdkError::EalAlreadyStarted), "{again}");

    let lines = lines.0.lock().unwrap();
    assert!(lines.iter().any(|line| line.starts_with("EAL: Detected CPU lcores: ")), "{lines:#?}");
    assert!(lines.iter().any(|line| line.contains("net_pcap0")), "{lines:#?}");
    assert!(lines.iter().all(|line| !line.contains('\n')), "{lines:#?}");
}

//! The schedulers and their slow models agree pick for pick, whatever happens to the list between picks.

use std::net::Ipv4Addr;

use config::{Change, DestKey, Destination, Method, ServiceKey, Valid};
use dataplane::registry::Registry;
use dataplane::route::PortFacts;
use dataplane::sched::{self, Place, SchedState};
use proptest::prelude::*;
use tests::oracle::sched::{Dest, Kind, Sched};

/// Upper threshold of destinations that have one; without a lower one they come back below three quarters of it.
const UPPER: u32 = 6;

/// Names of destinations.
const NAMES: u32 = 8;

/// What happens to the service. A destination that is not there, or is there already, is left alone.
#[derive(Clone, Copy, Debug)]
enum Event {
    Add {
        name: u32,
        weight: u32,
        limited: bool,
    },
    Delete {
        name: u32,
    },
    Edit {
        name: u32,
        weight: u32,
    },
    /// So many new connections, `active` of them established.
    Pick {
        times: u32,
        active: u32,
    },
    /// A connection of that destination ends.
    Close {
        name: u32,
    },
}

fn event() -> impl Strategy<Value = Event> {
    let weight = prop_oneof![4 => 0..7_u32, 1 => (1..5_u32).prop_map(|n| n * 50)];
    prop_oneof![
        3 => (0..NAMES, weight.clone(), prop::bool::weighted(0.3))
            .prop_map(|(name, weight, limited)| Event::Add { name, weight, limited }),
        1 => (0..NAMES).prop_map(|name| Event::Delete { name }),
        2 => (0..NAMES, weight).prop_map(|(name, weight)| Event::Edit { name, weight }),
        4 => (1..12_u32, 0..12_u32).prop_map(|(times, active)| Event::Pick { times, active }),
        2 => (0..NAMES).prop_map(|name| Event::Close { name }),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn schedulers_agree_with_their_models(
        kind in prop::sample::select(vec![Kind::Rr, Kind::Wrr, Kind::Lc, Kind::Wlc]),
        events in prop::collection::vec(event(), 1..60),
    ) {
        let mut both = Both::new(kind);
        for event in events {
            both.happens(event)?;
        }
    }
}

/// A service as control and a worker have it, and its model.
struct Both {
    key: ServiceKey,
    registry: Registry,
    state: SchedState,
    model: Sched,
    limited: [bool; NAMES as usize],
}

impl Both {
    fn new(kind: Kind) -> Self {
        let scheduler = match kind {
            Kind::Rr => "rr",
            Kind::Wrr => "wrr",
            Kind::Lc => "lc",
            Kind::Wlc => "wlc",
        };
        let text = format!(
            "{}[[port]]\nname = \"p\"\ndevice = \"m\"\naddresses = [\"10.0.0.254/24\"]\n\
             [[service]]\naddress = \"tcp://203.0.113.10:80\"\nscheduler = \"{scheduler}\"\n",
            crate::SMALL
        );
        let valid = config::parse(&text, "test.toml").unwrap();
        let mut registry = Registry::new(&valid, vec![PortFacts { mac: [2; 6], mtu: 1500 }], 1).unwrap();
        for change in config::plan(&Valid::empty(), &valid).changes {
            registry.apply(&change).unwrap();
        }
        let key = valid.services()[0].key;
        let model = Sched::new(kind);
        Self { key, registry, state: SchedState::EMPTY, model, limited: [false; NAMES as usize] }
    }

    fn happens(&mut self, event: Event) -> Result<(), TestCaseError> {
        let names = self.model.names();
        match event {
            Event::Add { name, weight, limited } if !names.contains(&name) => {
                self.limited[name as usize] = limited;
                let dest = self.destination(name, weight);
                self.registry.apply(&Change::AddDest { service: self.key, dest }).unwrap();
                // One that was here before is the same as then: its connections and its flag.
                let (active, inactive, overloaded) = self.counts(name);
                self.model.add(Dest { name, weight, overloaded, active, inactive });
            }
            Event::Delete { name } if names.contains(&name) => {
                let dest = self.destination(name, 0).key;
                self.registry.apply(&Change::DeleteDest { service: self.key, dest }).unwrap();
                self.model.delete(name);
            }
            Event::Edit { name, weight } if names.contains(&name) => {
                let to = self.destination(name, weight);
                self.registry.apply(&Change::EditDest { service: self.key, from: to, to }).unwrap();
                self.model.edit(name, weight);
            }
            Event::Pick { times, active } => {
                for number in 0..times {
                    self.pick(number < active)?;
                }
            }
            Event::Close { name } if names.contains(&name) => self.close(name),
            _ => {}
        }
        let listed: Vec<u32> = self.service().dests.iter().map(|row| number(row.dest.addr)).collect();
        prop_assert_eq!(listed, self.model.names(), "list order");
        Ok(())
    }

    fn pick(&mut self, active: bool) -> Result<(), TestCaseError> {
        let row = self.service();
        let dests = &self.registry.shared().dests;
        let picked = sched::pick(&row.service, &mut self.state, dests, Place::ALONE).copied();
        let expected = self.model.pick();
        prop_assert_eq!(picked.map(|dest| number(dest.addr)), expected);
        let Some(dest) = picked else { return Ok(()) };
        let state = &dests[dest.slot];
        state.bind();
        if active {
            state.shift(true);
        }
        let name = number(dest.addr);
        let limited = self.limited[name as usize];
        let model = self.model.dest(name);
        *(if active { &mut model.active } else { &mut model.inactive }) += 1;
        if limited && model.active + model.inactive >= UPPER {
            model.overloaded = true;
        }
        Ok(())
    }

    fn close(&mut self, name: u32) {
        let (active, inactive, _) = self.counts(name);
        if active + inactive == 0 {
            return;
        }
        let was_active = active > 0;
        let row = *self.service().dests.iter().find(|row| number(row.dest.addr) == name).unwrap();
        self.registry.shared().dests[row.dest.slot].unbind(was_active);
        let limited = self.limited[name as usize];
        let model = self.model.dest(name);
        *(if was_active { &mut model.active } else { &mut model.inactive }) -= 1;
        let total = model.active + model.inactive;
        model.overloaded = model.overloaded && limited && total * 4 >= UPPER * 3;
    }

    fn counts(&self, name: u32) -> (u32, u32, bool) {
        let row = self.service();
        let row = row.dests.iter().find(|row| number(row.dest.addr) == name).unwrap();
        (row.active, row.inactive, row.overloaded)
    }

    fn service(&self) -> dataplane::registry::ServiceRow {
        self.registry.find(self.key).unwrap()
    }

    fn destination(&self, name: u32, weight: u32) -> Destination {
        let key = DestKey::new(Ipv4Addr::new(10, 0, 0, name as u8 + 1).into(), 80);
        let upper = if self.limited[name as usize] { UPPER } else { 0 };
        Destination { key, method: Method::Nat, weight, upper, lower: 0 }
    }
}

fn number(address: Ipv4Addr) -> u32 {
    u32::from(address.octets()[3]) - 1
}

//! What holds for every file: text and value agree, a plan leads from one value to the other, nothing panics.

mod generate;

use std::collections::BTreeMap;

use config::{Change, DestKey, Destination, Plan, ServiceKey, ServiceSettings, Valid, plan};
use proptest::prelude::*;

/// What runs, as far as a plan can change it: the changes applied one by one in the plainest way.
#[derive(Clone, Debug, PartialEq)]
struct Model {
    network: config::Network,
    policy: config::Policy,
    timeouts: config::Timeouts,
    knobs: config::Knobs,
    estimators: config::Estimators,
    services: BTreeMap<ServiceKey, (ServiceSettings, BTreeMap<DestKey, Destination>)>,
}

impl Model {
    fn of(valid: &Valid) -> Model {
        let dests = |service: &config::Service| service.destinations.iter().map(|d| (d.key, *d)).collect();
        Model {
            network: valid.network().clone(),
            policy: valid.policy().clone(),
            timeouts: valid.timeouts().clone(),
            knobs: valid.knobs().clone(),
            estimators: valid.estimators().clone(),
            services: valid.services().iter().map(|s| (s.key, (s.settings, dests(s)))).collect(),
        }
    }

    fn apply(&mut self, change: Change) {
        fn set<T: PartialEq + std::fmt::Debug>(now: &mut T, from: T, to: T) {
            assert_eq!(*now, from);
            assert_ne!(from, to, "a change that changes nothing");
            *now = to;
        }
        match change {
            Change::SetNetwork { from, to } => set(&mut self.network, from, to),
            Change::SetPolicy { from, to } => set(&mut self.policy, from, to),
            Change::SetTimeouts { from, to } => set(&mut self.timeouts, from, to),
            Change::SetKnobs { from, to } => set(&mut self.knobs, from, to),
            Change::SetEstimators { from, to } => set(&mut self.estimators, from, to),
            Change::AddService { key, settings } => {
                assert!(self.services.insert(key, (settings, BTreeMap::new())).is_none());
            }
            Change::EditService { key, from, to } => set(&mut self.service(key).0, from, to),
            Change::DeleteService { key } => assert!(self.services.remove(&key).is_some()),
            Change::AddDest { service, dest } => {
                assert!(self.service(service).1.insert(dest.key, dest).is_none());
            }
            Change::EditDest { service, from, to } => {
                assert_eq!(from.key, to.key);
                set(self.service(service).1.get_mut(&to.key).expect("a destination"), from, to);
            }
            Change::DeleteDest { service, dest } => assert!(self.service(service).1.remove(&dest).is_some()),
            other => panic!("a change the model does not know: {other:?}"),
        }
    }

    fn service(&mut self, key: ServiceKey) -> &mut (ServiceSettings, BTreeMap<DestKey, Destination>) {
        self.services.get_mut(&key).expect("a service that is there")
    }
}

fn parse(text: &str) -> Valid {
    config::parse(text, "f").unwrap_or_else(|errors| panic!("{text}\n{errors}"))
}

/// Two files that share a part: the second often is the first with some of its lines changed.
fn two_files() -> impl Strategy<Value = (String, String)> {
    (generate::file(), generate::file(), any::<bool>()).prop_map(|(a, b, related)| {
        let (own, _) = a.split_once("[[service]]").unwrap_or((&a, ""));
        let second = match b.split_once("[[service]]") {
            Some((_, services)) if related && !services.contains("10.1.") && !services.contains("10.2.") => {
                format!("{own}[[service]]{services}")
            }
            _ => b,
        };
        (a, second)
    })
}

/// Changes that take something away.
fn is_removal(change: &Change) -> bool {
    matches!(change, Change::DeleteDest { .. } | Change::DeleteService { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(512) })]

    #[test]
    fn a_value_written_out_parses_to_itself(text in generate::file()) {
        let valid = parse(&text);
        let written = valid.to_toml();
        prop_assert_eq!(&valid, &parse(&written), "{}", written);
        prop_assert_eq!(&written, &parse(&written).to_toml());
    }

    #[test]
    fn a_plan_leads_from_the_old_to_the_new((a, b) in two_files()) {
        let (a, b) = (parse(&a), parse(&b));
        let Plan { changes, restart_needed, in_force } = plan(&a, &b);
        let mut model = Model::of(&a);
        let first_removal = changes.iter().position(is_removal).unwrap_or(changes.len());
        prop_assert!(changes[first_removal..].iter().all(is_removal));
        for change in &changes {
            prop_assert!(!change.to_string().contains('\n'));
            model.apply(change.clone());
        }
        prop_assert_eq!(&model, &Model::of(&in_force));
        prop_assert_eq!(in_force.boot(), a.boot());
        prop_assert_eq!(restart_needed.is_empty(), a.boot() == b.boot());
        let same_ports = a.ports().iter().map(|p| &p.name).eq(b.ports().iter().map(|p| &p.name));
        if same_ports {
            prop_assert_eq!(model, Model::of(&b));
        } else {
            prop_assert_eq!(&model.network, a.network());
            prop_assert_eq!(Model { network: b.network().clone(), ..model }, Model::of(&b));
        }
        prop_assert_eq!(plan(&in_force, &b).changes, vec![]);
    }

    #[test]
    fn a_plan_to_the_same_is_empty_whatever_the_order_of_destinations(text in generate::file()) {
        let valid = parse(&text);
        let same = plan(&valid, &valid);
        prop_assert_eq!(same.to_string(), "");
        prop_assert_eq!(&same.in_force, &valid);

        let blocks: Vec<_> = text.split("[[service]]").collect();
        let turned = blocks.iter().map(|block| {
            let mut dests: Vec<_> = block.split("  [[service.destination]]").collect();
            dests[1..].reverse();
            // The last destination ends with the blank line of its service.
            dests.iter().map(|dest| dest.trim_end_matches('\n').to_string() + "\n").collect::<Vec<_>>().join("  [[service.destination]]")
        });
        let turned = parse(&turned.collect::<Vec<_>>().join("[[service]]"));
        prop_assert_eq!(plan(&valid, &turned).changes, vec![]);
    }

    #[test]
    fn a_start_is_a_plan_from_nothing(text in generate::file()) {
        let valid = parse(&text);
        let start = plan(&Valid::empty(), &valid);
        prop_assert_eq!(&start.in_force, &valid);
        prop_assert!(start.restart_needed.is_empty());
        prop_assert!(!start.changes.iter().any(is_removal));
        let mut model = Model::of(&Valid::empty());
        start.changes.iter().for_each(|change| model.apply(change.clone()));
        prop_assert_eq!(model, Model::of(&valid));
        let keys: Vec<_> = valid.services().iter().map(|service| service.key).collect();
        let added = start.changes.iter().filter_map(|change| match change {
            Change::AddService { key, .. } => Some(*key),
            _ => None,
        });
        prop_assert_eq!(added.collect::<Vec<_>>(), keys);
    }

    #[test]
    fn identities_are_written_and_read_alike(addr: std::net::IpAddr, port: u16, udp: bool) {
        let proto = if udp { config::Proto::Udp } else { config::Proto::Tcp };
        let (service, dest) = (ServiceKey::new(proto, addr, port), DestKey::new(addr, port));
        prop_assert_eq!(service.to_string().parse(), Ok(service));
        prop_assert_eq!(dest.to_string().parse(), Ok(dest));
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(8_000) })]

    #[test]
    fn a_damaged_file_never_panics(text in generate::file(), damage in prop::collection::vec(damage(), 1..6)) {
        let mut bytes = text.into_bytes();
        damage.iter().for_each(|damage| apply(damage, &mut bytes));
        let text = String::from_utf8_lossy(&bytes);
        match config::parse(&text, "f") {
            Ok(valid) => prop_assert_eq!(&parse(&valid.to_toml()), &valid),
            Err(errors) => {
                prop_assert!(!errors.problems().is_empty());
                prop_assert!(errors.to_string().starts_with("weir: "));
                let lines = text.split('\n').count();
                prop_assert!(errors.problems().iter().all(|p| (1..=lines).contains(&p.line)));
            }
        }
    }
}

/// One change of a file's bytes: where, as a share of its length, and what.
#[derive(Clone, Debug)]
struct Damage {
    at: f64,
    what: What,
}

#[derive(Clone, Debug)]
enum What {
    Set(u8),
    Insert(&'static str),
    Remove(usize),
    Repeat(usize),
    Cut,
}

/// Longer than what is shown of a line, in characters of two and four bytes.
const LONG: &str = concat!(
    "\"",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "ééééééééééééé𝔘",
    "\""
);

fn damage() -> impl Strategy<Value = Damage> {
    let tokens = prop::sample::select(
        &[
            "\"",
            "'''",
            "[",
            "]",
            "[[",
            "]]",
            "=",
            "\n",
            "#",
            "{",
            "}",
            ",",
            ".",
            "-",
            "0x",
            "9999999999999999999",
            "1e9",
            "true",
            "\u{0}",
            "\u{feff}",
            "\r",
            "é",
            "[service]",
            "[[daemon]]",
            "port = 1\n",
            "a.b.c = 1\n",
            "[service.destination.address]\n",
            "address = \"tcp://[::1]:0\"\n",
            "weight = -1\n",
            LONG,
        ][..],
    );
    let what = prop_oneof![
        any::<u8>().prop_map(What::Set),
        tokens.prop_map(What::Insert),
        (1..40_usize).prop_map(What::Remove),
        (1..200_usize).prop_map(What::Repeat),
        Just(What::Cut),
    ];
    (0.0..1.0, what).prop_map(|(at, what)| Damage { at, what })
}

fn apply(damage: &Damage, bytes: &mut Vec<u8>) {
    let at = (bytes.len() as f64 * damage.at) as usize;
    match damage.what {
        What::Set(byte) if at < bytes.len() => bytes[at] = byte,
        What::Set(byte) => bytes.push(byte),
        What::Insert(token) => drop(bytes.splice(at..at, token.bytes())),
        What::Remove(count) => drop(bytes.drain(at..(at + count).min(bytes.len()))),
        What::Repeat(count) => {
            let piece = bytes[at..(at + count).min(bytes.len())].to_vec();
            drop(bytes.splice(at..at, piece));
        }
        What::Cut => bytes.truncate(at),
    }
}

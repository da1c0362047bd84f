//! Every row of the table of keys: accepted as it says, refused beyond, documented.

use config::keys::{Key, Kind, Preset, TABLES, Table};

/// A file in which `table` has the line `key = value` beside what it needs anyway.
fn file_with(table: &Table, key: &Key, value: &str) -> String {
    let mut text =
        String::from("[[port]]\nname = \"p0\"\ndevice = \"net_tap0\"\naddresses = [\"10.9.0.1/24\"]\n");
    let needed = match table.name {
        "port" => &[("name", "\"p1\""), ("device", "\"net_tap1\""), ("addresses", "[\"10.0.0.1/24\"]")][..],
        "route" => &[("prefix", "\"10.1.0.0/16\""), ("port", "\"p0\"")][..],
        "neighbour" => &[("address", "\"10.9.0.7\""), ("mac", "\"02:00:00:00:00:07\"")][..],
        "service" => &[("address", "\"tcp://198.51.100.1:80\"")][..],
        "service.destination" => {
            text += "[[service]]\naddress = \"udp://198.51.100.1:53\"\n";
            &[("address", "\"10.9.0.11:53\""), ("upper", "2147483647")][..]
        }
        _ => &[][..],
    };
    text += &format!("{}\n{} = {value}\n", table.header(), key.name);
    for (name, value) in needed {
        let replaced = *name == key.name || (table.name == "route" && key.name == "via" && *name == "port");
        if !replaced {
            text += &format!("{name} = {value}\n");
        }
    }
    text
}

/// Values a key has to accept: both ends of its range, all its words.
fn good_values(table: &Table, key: &Key) -> Vec<String> {
    match key.kind {
        Kind::Int(min, max) | Kind::PowerOfTwo(min, max) => vec![min.to_string(), max.to_string()],
        Kind::Bool => vec!["true".into(), "false".into()],
        Kind::Text => vec!["\"/x y\"".into()],
        Kind::Texts => vec!["[]".into(), "[\"-l\", \"\"]".into()],
        Kind::Name if table.name == "port" => vec!["\"x\"".into(), format!("\"0{}\"", "-_.A".repeat(7))],
        Kind::Name => vec!["\"p0\"".into()],
        Kind::Word(words) => words.iter().map(|word| format!("\"{word}\"")).collect(),
        Kind::Cpus => vec!["\"0\"".into(), "\"8191,1-4, 6\"".into()],
        Kind::Policy => vec!["\"other\"".into(), "\"rr:1\"".into(), "\"fifo:99\"".into()],
        Kind::Threshold => vec!["\"3 50\"".into(), "\"0 0\"".into(), "\"7\\t0\"".into()],
        Kind::Address => vec!["\"10.9.0.3\"".into()],
        Kind::Addresses => vec!["[]".into(), "[\"10.0.0.3\"]".into()],
        Kind::Prefix => vec!["\"0.0.0.0/0\"".into(), "\"10.9.0.3/32\"".into()],
        Kind::Interfaces => vec!["[\"10.2.0.1/24\", \"10.2.0.2/24\", \"10.3.0.0/31\"]".into()],
        Kind::Mac => vec!["\"02:00:00:00:0a:0B\"".into()],
        Kind::Service => vec!["\"tcp://198.51.100.7:65535\"".into(), "\"udp://198.51.100.7:1\"".into()],
        Kind::Destination => vec!["\"10.9.0.3:65535\"".into(), "\"10.9.0.3\"".into()],
        Kind::Scheduler => config::Scheduler::ALL.iter().map(|s| format!("\"{s}\"")).collect(),
        Kind::Flags => vec!["[]".into(), "[\"flag-1\", \"flag-3\"]".into()],
        _ => panic!("{}.{}: a kind without samples", table.name, key.name),
    }
}

fn bad_values(key: &Key) -> Vec<String> {
    let list = |element: &str| format!("[{element}]");
    let mut bad = vec!["1979-05-27".to_string(), "{ a = 1 }".into(), "1.5".into(), "[[]]".into()];
    bad.extend(match key.kind {
        Kind::Int(min, max) => vec![(min - 1).to_string(), (max + 1).to_string(), "\"1\"".into()],
        Kind::PowerOfTwo(min, max) => vec![(min - 1).to_string(), (max * 2).to_string(), "3".into()],
        Kind::Bool => vec!["0".into(), "\"true\"".into()],
        Kind::Texts => vec!["\"x\"".into(), list("1"), list("\"a\\u0000\"")],
        Kind::Cpus => ["1-", "-1", "1,,2", "a", "2-1", "8192", "1,1-2", "1-99999999999999999999"]
            .map(|text| format!("\"{text}\""))
            .to_vec(),
        Kind::Policy => ["rr", "rr:0", "fifo:100", "rr:+1", "batch:1"].map(|t| format!("\"{t}\"")).to_vec(),
        Kind::Threshold => {
            ["3", "3 3", "-1 5", "3 50 7", "a b", "1 99999999999"].map(|t| format!("\"{t}\"")).to_vec()
        }
        Kind::Addresses | Kind::Interfaces | Kind::Flags => {
            vec![list("\"zzz\""), list("7"), "\"10.0.0.3\"".into()]
        }
        _ => vec!["\"\"".into(), "\"  \\u0000 \"".into(), "7".into()],
    });
    bad
}

#[test]
fn every_key_accepts_what_its_row_says() {
    for table in TABLES {
        for key in table.keys {
            for value in good_values(table, key) {
                let text = file_with(table, key, &value);
                let valid = config::parse(&text, "f").unwrap_or_else(|errors| panic!("{text}\n{errors}"));
                let again = config::parse(&valid.to_toml(), "f").unwrap_or_else(|errors| panic!("{errors}"));
                assert_eq!(valid, again, "{text}");
            }
        }
    }
}

#[test]
fn every_key_refuses_the_rest_by_name() {
    for table in TABLES {
        for key in table.keys {
            for value in bad_values(key) {
                let text = file_with(table, key, &value);
                let errors = config::parse(&text, "f").expect_err(&text);
                let path = format!("{}.{}", table.name, key.name);
                let named = errors.problems().iter().find(|p| p.key == path);
                let named = named.unwrap_or_else(|| panic!("{text}\n{errors}"));
                assert_eq!(named.expected, Some(key.kind.expected()), "{text}\n{errors}");
            }
        }
    }
}

#[test]
fn every_key_is_documented_and_its_default_is_what_holds() {
    let defaults = config::Valid::empty().to_toml();
    let mut names = Vec::new();
    for table in TABLES {
        assert!(table.sentence.ends_with('.'), "{}", table.name);
        for key in table.keys {
            let path = format!("{}.{}", table.name, key.name);
            assert!(key.sentence.ends_with('.') && key.sentence.len() > 4, "{path}");
            assert!(key.reason.ends_with('.'), "{path}");
            assert!(!key.kind.expected().is_empty(), "{path}");
            assert!(!names.contains(&path), "{path} is there twice");
            names.push(path.clone());
            if table.list {
                continue;
            }
            let line = match key.default {
                Preset::Int(number) => format!("{} = {number}  # ", key.name),
                Preset::Bool(yes) => format!("{} = {yes}  # ", key.name),
                Preset::Text(text) => format!("{} = \"{text}\"  # ", key.name),
                Preset::Empty => format!("{} = []  # ", key.name),
                Preset::Unset(what) => format!("# {} is not set: {what}", key.name),
                _ => panic!("{path}: a table written once cannot be made to have a key"),
            };
            let section = defaults.split(&format!("\n{}\n", table.header())).nth(1);
            let section = section.or(defaults.strip_prefix("# ")).expect(&path);
            assert!(section.split("\n\n").next().unwrap().contains(&line), "{path}: {line}");
        }
    }
    assert_eq!(names.len(), 99, "a new key needs its sentence read once more");
}

#[test]
fn what_is_not_built_is_listed_only_if_asked_for() {
    assert_eq!(config::Valid::empty().unbuilt(), Vec::<String>::new());
    let text = "[sysctl]\nconntrack = 1\nsloppy_tcp = 1\n[[service]]\naddress = \"tcp://198.51.100.1:80\"\nscheduler = \"sh\"\nflags = [\"flag-2\"]\n";
    let valid = config::parse(text, "f").unwrap();
    assert_eq!(valid.unbuilt(), ["sysctl.conntrack = 1", "service tcp:198.51.100.1:80 scheduler sh"]);
    assert!(valid.to_toml().contains("flags = [\"sh-port\"]"), "a flag has the name of its scheduler");
}

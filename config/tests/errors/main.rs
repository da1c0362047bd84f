//! What a mistake in a file looks like to who made it, word for word.

mod cases;

use cases::CASES;

/// A good file; each case changes one place of it.
const GOOD: &str = r#"[[port]]
name = "wan"
device = "net_af_packet0,iface=veth0"
addresses = ["192.0.2.10/24"]
gateway = ["192.0.2.1"]

[[port]]
name = "lan"
device = "net_af_packet1,iface=veth1"
addresses = ["10.0.0.1/24"]

[[route]]
prefix = "10.8.0.0/16"
via = "10.0.0.254"

[[service]]
address = "tcp://198.51.100.1:80"
scheduler = "rr"

  [[service.destination]]
  address = "10.0.0.11:8080"

  [[service.destination]]
  address = "10.0.0.12"
  method = "dr"
  weight = 3
"#;

#[test]
fn the_good_file_is_good() {
    assert_eq!(
        config::parse(GOOD, "weir.toml").map_err(|e| e.to_string()).map(|v| v.services().len()),
        Ok(1)
    );
}

#[test]
fn mistakes_are_shown_with_place_expectation_and_remedy() {
    for (good, bad, expected) in CASES {
        assert_eq!(GOOD.matches(good).count(), 1, "{good:?} names one place");
        let text = GOOD.replace(good, bad);
        let errors = config::parse(&text, "weir.toml").expect_err(bad).to_string();
        assert_eq!(errors, *expected, "\n{bad}\n-- gave --\n{errors}");
    }
}

#[test]
fn all_problems_of_a_file_are_shown_in_its_order() {
    let text = "[eal]\nmemory_mb = 1\nwho = 2\n[daemon]\nlog = 3\n[[port]]\nname = 4\n";
    let errors = config::parse(text, "weir.toml").expect_err("five mistakes");
    let found: Vec<_> = errors.problems().iter().map(|p| (p.key.as_str(), p.line, p.column)).collect();
    let expected = [
        ("eal.memory_mb", 2, 13),
        ("eal.who", 3, 1),
        ("daemon.log", 5, 7),
        ("port.device", 6, 1),
        ("port.name", 7, 8),
    ];
    assert_eq!(found, expected);
}

#[test]
fn a_hostile_line_neither_floods_nor_drives_the_terminal() {
    let text =
        format!("# \u{1b}[2J\n[eal]\nargs = [{}\"\\u0000\u{fe0f}\t\u{85}\"]\r\n", "\"x\", ".repeat(9_000));
    let errors = config::parse(&text, "weir.toml").expect_err("a NUL").to_string();
    assert!(errors.chars().all(|c| c == '\n' || !c.is_control()), "{errors:?}");
    assert!(errors.lines().all(|line| line.chars().count() < 130), "{errors}");
    let mark = errors.lines().count()
        - 1
        - errors.lines().rev().position(|line| line.trim().starts_with('^')).expect("a mark");
    let (line, mark) = (errors.lines().nth(mark - 1).unwrap(), errors.lines().nth(mark).unwrap());
    let at = mark.find('^').expect("a mark");
    assert!(line.chars().skip(at).collect::<String>().starts_with("\"\\u0000"), "{errors}");
}

#[test]
fn a_file_of_rubbish_is_counted_not_printed() {
    let text = "[eal]\n".to_string() + &(0..5_000).map(|i| format!("key{i} = 1\n")).collect::<String>();
    let errors = config::parse(&text, "weir.toml").expect_err("5000 mistakes").to_string();
    assert!(errors.ends_with("\nweir: weir.toml: 4900 more problems\n"));
    assert_eq!(errors.matches("unknown key").count(), 100);
}

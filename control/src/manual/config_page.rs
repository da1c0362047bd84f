//! weir.toml(5): the table of configuration keys as a page.

use config::keys::{Key, Preset, TABLES};

use super::roff::Roff;

pub(super) fn page() -> String {
    let mut page = Roff::new("weir.toml", 5, "configuration of the load balancer Weir");
    page.section("Description");
    page.text(
        "A TOML file, read by weir run and again on SIGHUP; weir check finds every mistake in it at once. Every table \
        and key may be left out unless it is required. An unknown key is an error.\n\n\
        A table in double brackets may be written any number of times, once for each object.",
    );
    for table in TABLES {
        page.section(&table.header());
        page.text(table.sentence);
        for key in table.keys {
            page.entry(key.name, &told(key));
        }
    }
    page.section("Files");
    page.entry("/etc/weir/weir.toml", "Where the service unit looks for it.");
    page.section("See also");
    page.text("weir(8), weiradm(8)");
    page.finish()
}

fn told(key: &Key) -> String {
    let default = match key.default {
        Preset::Required => "required".to_owned(),
        Preset::Unset(what) => format!("not set: {what}"),
        Preset::Int(number) => number.to_string(),
        Preset::Bool(yes) => yes.to_string(),
        Preset::Text(text) => format!("\"{text}\""),
        Preset::Empty => "[]".to_owned(),
        other => unreachable!("a preset without words: {other:?}"),
    };
    let unit = if key.unit.is_empty() { String::new() } else { format!(" Unit: {}.", key.unit) };
    let unbuilt = if key.built { "" } else { " Kept without effect in this version." };
    format!(
        "{} Accepts {}.{unit} Default: {default}. {}{unbuilt}",
        key.sentence,
        key.kind.expected(),
        key.reason
    )
}

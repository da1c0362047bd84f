//! Recordings as text with sections, and the list of what differs from them on purpose.

use std::collections::HashMap;

/// Where what we print differs on purpose from a recording: its name, and the parts that replace those recorded.
pub struct Differences(Vec<Difference>);

struct Difference {
    name: String,
    sections: HashMap<String, String>,
    used: bool,
}

impl Differences {
    /// The entries of the list whose names begin so.
    pub fn of(prefix: &str) -> Differences {
        let text = include_str!("../data/differences.txt");
        let entries = text.split("\n== ").skip(1).filter_map(|entry| {
            let (head, body) = entry.split_once('\n')?;
            let name = head.strip_prefix(prefix)?.to_owned();
            assert!(body.starts_with("reason: "), "{head}: a difference has a reason");
            Some(Difference { name, sections: sections(body), used: false })
        });
        Differences(entries.collect())
    }

    /// Replaces what differs; panics when the recorded part is the same.
    pub fn apply(&mut self, name: &str, section: &str, recorded: &mut String) {
        for entry in self.0.iter_mut().filter(|entry| entry.name == name) {
            if let Some(ours) = entry.sections.get(section) {
                assert_ne!(ours, recorded, "{name}: {section} does not differ");
                recorded.clone_from(ours);
                entry.used = true;
            }
        }
    }

    /// Panics when an entry was not used.
    pub fn all_used(&self) {
        for entry in &self.0 {
            assert!(entry.used, "{}: in the list of differences, but not met", entry.name);
        }
    }
}

/// Parts of a text that begin with `--- NAME`; what stands behind the first word of a head is left out.
pub fn sections(text: &str) -> HashMap<String, String> {
    let mut sections = HashMap::new();
    let mut current = None;
    for line in text.split_inclusive('\n') {
        if let Some(head) = line.strip_prefix("--- ") {
            let name = head.trim_end().split(" (").next().unwrap_or_default().to_owned();
            sections.insert(name.clone(), String::new());
            current = Some(name);
        } else if let Some(name) = &current {
            sections.get_mut(name).unwrap().push_str(line);
        }
    }
    sections
}

//! What a row of the table of keys says.

use crate::types::{FLAGS, Scheduler};

/// One table of the file, `[name]` or `[[name]]`.
#[derive(Clone, Copy, Debug)]
pub struct Table {
    /// Name with its parents, e.g. `service.destination`.
    pub name: &'static str,
    /// Whether it is written once an object (`[[name]]`), not once a file.
    pub list: bool,
    /// What it holds.
    pub sentence: &'static str,
    /// Its keys, in the order they are written.
    pub keys: &'static [Key],
}

/// One key of a table.
#[derive(Clone, Copy, Debug)]
pub struct Key {
    /// Name.
    pub name: &'static str,
    /// What is accepted.
    pub kind: Kind,
    /// What holds if it is not written.
    pub default: Preset,
    /// Unit of the value; empty if it has none.
    pub unit: &'static str,
    /// What it does.
    pub sentence: &'static str,
    /// Why the default is what it is; for a required key, why there is none.
    pub reason: &'static str,
    /// Whether another value than the default has an effect yet.
    pub built: bool,
}

/// What a key accepts.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Kind {
    /// Integer of a range, ends included.
    Int(i64, i64),
    /// Power of two of a range, ends included.
    PowerOfTwo(i64, i64),
    /// `true` or `false`.
    Bool,
    /// Text, not empty.
    Text,
    /// List of texts.
    Texts,
    /// A name of ours: letters, digits, `-`, `_`, `.`, at most 32.
    Name,
    /// One of some words.
    Word(&'static [&'static str]),
    /// CPU numbers and ranges: `1-4,6`.
    Cpus,
    /// Scheduling policy: `other`, `rr:PRIORITY`, `fifo:PRIORITY`.
    Policy,
    /// Two integers in a text, the first below the second or the second 0: `3 50`.
    Threshold,
    /// IP address.
    Address,
    /// List of IP addresses.
    Addresses,
    /// Prefix without host bits: `10.0.0.0/8`.
    Prefix,
    /// List of addresses with the length of their network: `192.0.2.10/24`.
    Interfaces,
    /// Ethernet address: `02:00:00:00:00:01`.
    Mac,
    /// Service: `tcp://198.51.100.1:80`.
    Service,
    /// Destination: `10.0.0.11:8080`, or the address alone.
    Destination,
    /// Scheduler by name.
    Scheduler,
    /// List of scheduler flags.
    Flags,
}

/// What holds if a key is not written.
#[derive(Clone, Copy, Debug, PartialEq)]
#[non_exhaustive]
pub enum Preset {
    /// It has to be written.
    Required,
    /// No value, with what happens then.
    Unset(&'static str),
    /// That integer.
    Int(i64),
    /// That truth value.
    Bool(bool),
    /// That text, also for words, thresholds and schedulers.
    Text(&'static str),
    /// The empty list.
    Empty,
}

/// A key or word that files of this kind may have and this version does not know what to do with.
#[derive(Clone, Copy, Debug)]
pub struct Later {
    /// Table or key path it is met in.
    pub place: &'static str,
    /// The key, or the value of the key.
    pub word: &'static str,
    /// The feature it belongs to.
    pub feature: &'static str,
}

impl Table {
    /// The key of that name, if the table has it.
    pub fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|k| k.name == name)
    }

    /// How its header is written: `[workers]`, `[[port]]`.
    pub fn header(&self) -> String {
        if self.list { format!("[[{}]]", self.name) } else { format!("[{}]", self.name) }
    }
}

impl Key {
    pub(super) const fn new(
        name: &'static str,
        kind: Kind,
        default: Preset,
        unit: &'static str,
        sentence: &'static str,
        reason: &'static str,
    ) -> Key {
        Key { name, kind, default, unit, sentence, reason, built: true }
    }

    /// The same key, accepted and kept without effect.
    pub(super) const fn unbuilt(mut self) -> Key {
        self.built = false;
        self
    }
}

impl Kind {
    /// The type of its values, as errors have it.
    pub(crate) fn noun(&self) -> &'static str {
        match self {
            Kind::Int(..) | Kind::PowerOfTwo(..) => "an integer",
            Kind::Bool => "true or false",
            Kind::Texts | Kind::Addresses | Kind::Interfaces | Kind::Flags => "a list",
            _ => "a text",
        }
    }

    /// What is accepted, in words, as errors and the manual have it.
    pub fn expected(&self) -> String {
        match self {
            Kind::Int(min, max) if (*min, *max) == ANY_INT => "a 32-bit integer".into(),
            Kind::Int(min, max) => format!("an integer from {min} to {max}"),
            Kind::PowerOfTwo(min, max) => format!("a power of two from {min} to {max}"),
            Kind::Bool => "true or false".into(),
            Kind::Text => "a text that is not empty".into(),
            Kind::Texts => "a list of texts".into(),
            Kind::Name => "1 to 32 letters, digits, '-', '_' or '.', beginning with a letter or digit".into(),
            Kind::Word(words) => one_of(words.iter().copied()),
            Kind::Cpus => format!("CPU numbers and ranges up to {CPU_MAX}, like \"1-4,6\""),
            Kind::Policy => "other, or rr or fifo with a priority from 1 to 99, like \"rr:20\"".into(),
            Kind::Threshold => {
                "two integers from 0 in a text, the first below the second unless that is 0, like \"3 50\""
                    .into()
            }
            Kind::Address => "an IPv4 address, like \"192.0.2.1\"".into(),
            Kind::Addresses => "a list of IPv4 addresses, like [\"192.0.2.1\"]".into(),
            Kind::Prefix => "a prefix, like \"10.0.0.0/8\"".into(),
            Kind::Interfaces => "a list of addresses with prefix length, like [\"192.0.2.10/24\"]".into(),
            Kind::Mac => "a MAC address, like \"02:00:00:00:00:01\"".into(),
            Kind::Service => "tcp:// or udp:// with address and port, like \"tcp://198.51.100.1:80\"".into(),
            Kind::Destination => {
                "an address and port, like \"10.0.0.11:8080\"; without the port, the service's".into()
            }
            Kind::Scheduler => one_of(Scheduler::ALL.iter().map(|s| s.name())),
            Kind::Flags => {
                let names: Vec<_> = FLAGS.iter().map(|f| f.0).collect();
                format!("a list of: {}", names.join(", "))
            }
        }
    }
}

/// Range of a knob for which the kernel takes any `int`.
pub(crate) const ANY_INT: (i64, i64) = (i32::MIN as i64, i32::MAX as i64);

/// Highest CPU number accepted: the kernel's largest `CONFIG_NR_CPUS` is 8192.
pub(crate) const CPU_MAX: usize = 8191;

/// "a", "a or b", "one of a, b, c".
pub(crate) fn one_of<'a>(words: impl Iterator<Item = &'a str>) -> String {
    match words.collect::<Vec<_>>().as_slice() {
        [word] => (*word).to_string(),
        [first, second] => format!("{first} or {second}"),
        words => format!("one of {}", words.join(", ")),
    }
}

//! The knobs of `net.ipv4.vs` by their kernel names, as texts: what `sysctl` reads and writes.
//!
//! Model: every key of `[sysctl]` is a knob, and so are the three of `[estimators]` that the kernel has; the table
//! of keys says what each accepts. [`Tunables`] holds the values that run; texts are read and printed as the
//! kernel does it, with its error numbers. Pure; any thread.

use thiserror::Error;

use crate::field::{Settings, cpu_list};
use crate::keys::{self, Key, Kind};
use crate::plan::Change;
use crate::unbuilt::unbuilt_knobs;
use crate::valid::{Estimators, Knobs, Service, Timeouts, Valid};
use crate::value::{Value, is_threshold};

/// Where the kernel has them, as `sysctl` writes it.
pub const PREFIX: &str = "net.ipv4.vs.";

/// Keys of `[estimators]` that are knobs of the kernel.
const OF_ESTIMATORS: [&str; 3] = ["est_cpulist", "est_nice", "run_estimation"];

/// One knob.
#[derive(Clone, Copy, Debug)]
pub struct Knob {
    /// Its row in the table of keys.
    pub key: &'static Key,
    /// Table of the file that it is a key of.
    pub table: &'static str,
}

impl Knob {
    /// All knobs, by name.
    pub fn all() -> Vec<Knob> {
        let of = |table: &'static str| keys::table(table).keys.iter().map(move |key| Knob { key, table });
        let estimators = of(Estimators::TABLE).filter(|knob| OF_ESTIMATORS.contains(&knob.key.name));
        let mut all: Vec<_> = of(Knobs::TABLE).chain(estimators).collect();
        all.sort_by_key(|knob| knob.key.name);
        all
    }

    /// The knob of this name, with or without [`PREFIX`].
    ///
    /// # Errors
    /// There is none.
    pub fn find(name: &str) -> Result<Knob, KnobError> {
        let name = name.strip_prefix(PREFIX).unwrap_or(name);
        Knob::all().into_iter().find(|knob| knob.key.name == name).ok_or(KnobError::Unknown)
    }

    /// Whether it is one of the estimators'.
    pub fn is_of_estimators(&self) -> bool {
        self.table == Estimators::TABLE
    }
}

/// Why a knob does not take a text. Each has the error number that the kernel has for it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
pub enum KnobError {
    /// ENOENT.
    #[error("no such knob")]
    Unknown,
    /// EINVAL.
    #[error("not a value of this knob")]
    Invalid,
    /// ERANGE.
    #[error("there is no such CPU")]
    Range,
    /// EOVERFLOW.
    #[error("a number is too big")]
    Overflow,
}

/// CPUs of the machine, for `est_cpulist`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cpus {
    /// CPU numbers are below this.
    pub count: usize,
    /// Those that the daemon may use, ascending: of a list, only these are taken.
    pub allowed: Vec<usize>,
    /// Those that estimators run on while nobody has said anything, ascending.
    pub preset: Vec<usize>,
}

/// The values of all knobs.
#[derive(Clone, Debug, PartialEq)]
pub struct Tunables {
    /// `[sysctl]`.
    pub knobs: Knobs,
    /// `[estimators]`.
    pub estimators: Estimators,
}

impl Tunables {
    /// Those of a file.
    pub fn of(valid: &Valid) -> Tunables {
        Tunables { knobs: valid.knobs().clone(), estimators: valid.estimators().clone() }
    }

    /// The two tables of a file that has these values; parses back to them.
    pub fn to_toml(&self) -> String {
        let tables = [(Knobs::TABLE, self.knobs.values()), (Estimators::TABLE, self.estimators.values())];
        let mut out = String::new();
        for (table, values) in tables {
            out.push_str(&format!("[{table}]\n"));
            let given = values.into_iter().filter_map(|(name, value)| Some((name, value?)));
            given.for_each(|(name, value)| out.push_str(&format!("{name} = {value}\n")));
        }
        out
    }

    /// What a program reads from the knob, without the newline.
    pub fn text(&self, knob: Knob, cpus: &Cpus) -> String {
        match knob.key.name {
            "est_cpulist" => cpu_list(self.estimators.est_cpulist.as_ref().unwrap_or(&cpus.preset)),
            "run_estimation" => i32::from(self.estimators.run_estimation).to_string(),
            "sync_threshold" => {
                let (first, period) = self.knobs.sync_threshold;
                format!("{first}\t{period}")
            }
            name => {
                let values =
                    if knob.is_of_estimators() { self.estimators.values() } else { self.knobs.values() };
                let value = values.into_iter().find(|(key, _)| *key == name);
                value.and_then(|(_, value)| value).unwrap_or_default()
            }
        }
    }

    /// Gives the knob the value that a program wrote. On an error nothing is changed.
    ///
    /// # Errors
    /// The kernel's, for this text.
    pub fn set(&mut self, knob: Knob, text: &str, cpus: &Cpus) -> Result<(), KnobError> {
        let value = match knob.key.kind {
            Kind::Bool => Value::Bool(number(text)? != 0),
            Kind::Threshold => self.threshold(text)?,
            Kind::Cpus => Value::Cpus(cpus_of(text, cpus)?),
            kind => Value::Int(in_range(kind, number(text)?)?),
        };
        if knob.is_of_estimators() {
            self.estimators.set(knob.key.name, Some(&value));
        } else {
            self.knobs.set(knob.key.name, Some(&value));
        }
        Ok(())
    }

    /// Takes over what a file's `[sysctl]` changed from one version to the next; the rest stays as it runs.
    pub fn edit_knobs(&mut self, from: &Knobs, to: &Knobs) {
        self.knobs = self.knobs.edited(from, to);
    }

    /// The same for `[estimators]`.
    pub fn edit_estimators(&mut self, from: &Estimators, to: &Estimators) {
        self.estimators = self.estimators.edited(from, to);
    }

    /// What has to change to come from these values to `to`.
    pub fn changes(&self, to: &Tunables) -> Vec<Change> {
        let (old, new) = (&self.knobs, &to.knobs);
        let knobs = (old != new).then(|| Change::SetKnobs { from: old.clone(), to: new.clone() });
        let (old, new) = (&self.estimators, &to.estimators);
        let estimators = (old != new).then(|| Change::SetEstimators { from: old.clone(), to: new.clone() });
        knobs.into_iter().chain(estimators).collect()
    }

    /// Knobs and settings of `[estimators]` that are set and have no effect yet: `sysctl.conntrack = 1`.
    pub fn unbuilt(&self) -> Vec<String> {
        unbuilt_knobs(&self.knobs, &self.estimators)
    }

    /// One number leaves the second as it is.
    fn threshold(&self, text: &str) -> Result<Value, KnobError> {
        let mut words = text.split_ascii_whitespace();
        let first = number(words.next().ok_or(KnobError::Invalid)?)?;
        let period = words.next().map_or(Ok(self.knobs.sync_threshold.1.into()), number)?;
        match (i32::try_from(first), i32::try_from(period)) {
            (Ok(first), Ok(period)) if words.next().is_none() && is_threshold(first, period) => {
                Ok(Value::Threshold(first, period))
            }
            _ => Err(KnobError::Invalid),
        }
    }
}

impl Valid {
    /// The same with other services, timeouts and knobs, for writing down what runs.
    #[must_use]
    pub fn running(&self, services: Vec<Service>, timeouts: Timeouts, tunables: Tunables) -> Valid {
        let Tunables { knobs, estimators } = tunables;
        Valid { services, timeouts, knobs, estimators, ..self.clone() }
    }
}

/// One number as the kernel's knobs read it: decimal, hexadecimal after `0x`, octal after `0`.
fn number(text: &str) -> Result<i64, KnobError> {
    let text = text.trim_ascii();
    let digits = text.strip_prefix('-').unwrap_or(text);
    let (digits, radix) = match digits.as_bytes() {
        [b'0', b'x' | b'X', ..] => (&digits[2..], 16),
        [b'0', _, ..] => (&digits[1..], 8),
        _ => (digits, 10),
    };
    // `from_str_radix` takes a sign of its own.
    let plain = digits.bytes().all(|b| b.is_ascii_alphanumeric());
    let number = i64::from_str_radix(digits, radix).ok().filter(|_| plain).ok_or(KnobError::Invalid)?;
    Ok(if text.starts_with('-') { -number } else { number })
}

fn in_range(kind: Kind, number: i64) -> Result<i64, KnobError> {
    let good = match kind {
        Kind::Int(min, max) => (min..=max).contains(&number),
        Kind::PowerOfTwo(min, max) => (min..=max).contains(&number) && (number as u64).is_power_of_two(),
        _ => false,
    };
    if good { Ok(number) } else { Err(KnobError::Invalid) }
}

/// A CPU list as the kernel reads it (`bitmap_parselist`): `all`, `3`, `0-N` with the last CPU, `0-7:2/4` for the
/// first two of each four.
fn cpus_of(text: &str, cpus: &Cpus) -> Result<Vec<usize>, KnobError> {
    let mut listed = Vec::new();
    let regions =
        text.split(|c: char| c == ',' || c.is_ascii_whitespace()).filter(|region| !region.is_empty());
    for region in regions {
        let (range, pattern) = match region.split_once(':') {
            Some((range, pattern)) => (range, Some(pattern)),
            None => (region, None),
        };
        let last_cpu = cpus.count.saturating_sub(1);
        let (first, last) = match range.split_once('-') {
            _ if range == "all" => (0, last_cpu),
            Some((first, last)) => (cpu(first, last_cpu)?, cpu(last, last_cpu)?),
            None if pattern.is_some() => return Err(KnobError::Invalid),
            None => (cpu(range, last_cpu)?, cpu(range, last_cpu)?),
        };
        let (used, group) = match pattern.map(|pattern| pattern.split_once('/')) {
            None => (1, 1),
            Some(None) => return Err(KnobError::Invalid),
            Some(Some((used, group))) => (cpu(used, last_cpu)?, cpu(group, last_cpu)?),
        };
        if first > last || group == 0 || used > group {
            return Err(KnobError::Invalid);
        }
        if last > last_cpu {
            return Err(KnobError::Range);
        }
        listed.extend((first..=last).filter(|cpu| (cpu - first) % group < used));
    }
    listed.sort_unstable();
    listed.dedup();
    listed.retain(|cpu| cpus.allowed.contains(cpu));
    Ok(listed)
}

/// A number of a CPU list; `N` is the last CPU.
fn cpu(text: &str, last: usize) -> Result<usize, KnobError> {
    if text == "N" {
        return Ok(last);
    }
    if text.is_empty() || !text.bytes().all(|b| b.is_ascii_digit()) {
        return Err(KnobError::Invalid);
    }
    text.parse::<u32>().map(|number| number as usize).map_err(|_| KnobError::Overflow)
}

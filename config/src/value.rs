//! One value of the file: from TOML to what its key accepts, or a problem.

mod address;

use std::net::IpAddr;

use ipnet::IpNet;
use toml::Spanned;
use toml::de::DeValue;

use crate::error::{Problems, Span, printable};
use crate::keys::{ANY_INT, CPU_MAX, Key, Kind, LATER, Preset};
use crate::types::{FLAGS, Mac, Scheduler, ServiceKey};
use crate::valid::SchedPolicy;

/// A value that its key accepts.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Value {
    Int(i64),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    Cpus(Vec<usize>),
    Threshold(i32, i32),
    Address(IpAddr),
    Addresses(Vec<(IpAddr, Span)>),
    Network(IpNet),
    Interfaces(Vec<(IpNet, Span)>),
    Mac(Mac),
    Service(ServiceKey),
    Destination(IpAddr, Option<u16>),
    Scheduler(Scheduler),
    Flags(Vec<(&'static str, Span)>),
}

impl Value {
    /// The default of a key as a value, `None` if it has none.
    pub(crate) fn preset(key: &Key) -> Option<Value> {
        Some(match (key.default, key.kind) {
            (Preset::Required | Preset::Unset(_), _) => return None,
            (Preset::Int(number), _) => Value::Int(number),
            (Preset::Bool(yes), _) => Value::Bool(yes),
            (Preset::Text(text), Kind::Threshold) => parse_threshold(text).expect("defaults keep their rows"),
            (Preset::Text(name), Kind::Scheduler) => {
                Value::Scheduler(Scheduler::from_name(name).expect("defaults keep their rows"))
            }
            (Preset::Text(text), _) => Value::Text(text.to_string()),
            (Preset::Empty, Kind::Addresses) => Value::Addresses(Vec::new()),
            (Preset::Empty, Kind::Interfaces) => Value::Interfaces(Vec::new()),
            (Preset::Empty, Kind::Flags) => Value::Flags(Vec::new()),
            (Preset::Empty, _) => Value::Texts(Vec::new()),
        })
    }
}

/// The value of `key` (`path` with its table) as its row wants it; `None` after noting why not.
pub(crate) fn convert(
    key: &Key,
    path: &str,
    value: &Spanned<DeValue<'_>>,
    problems: &mut Problems,
) -> Option<Value> {
    let mut at = At { key, path, span: value.span(), problems };
    match key.kind {
        Kind::Int(min, max) => at.integer(value.get_ref(), min, max).map(Value::Int),
        Kind::PowerOfTwo(min, max) => {
            let number = at.integer(value.get_ref(), min, max)?;
            if (number as u64).is_power_of_two() {
                return Some(Value::Int(number));
            }
            at.refuse(format!("{number} is not a power of two"), None)
        }
        Kind::Bool => match value.get_ref() {
            DeValue::Boolean(yes) => Some(Value::Bool(*yes)),
            other => at.wrong_type(other),
        },
        Kind::Text => {
            let text = at.text(value.get_ref())?;
            // A path or a device name with a NUL would be cut at it by the C functions it is handed to.
            if text.is_empty() || text.contains('\0') {
                return at.refuse("is empty or has a NUL character in it", None);
            }
            Some(Value::Text(text.to_string()))
        }
        Kind::Texts => at
            .list(value.get_ref(), |at, text| {
                if text.contains('\0') {
                    return at.refuse("has a NUL character in it", None);
                }
                Some(text.to_string())
            })
            .map(|texts| Value::Texts(texts.into_iter().map(|(text, _)| text).collect())),
        Kind::Name => {
            let text = at.text(value.get_ref())?;
            if is_name(text) {
                return Some(Value::Text(text.to_string()));
            }
            at.refuse(format!("{} is not a name", quoted(text)), None)
        }
        Kind::Word(words) => {
            let text = at.text(value.get_ref())?;
            if words.contains(&text) {
                return Some(Value::Text(text.to_string()));
            }
            at.unknown_word(text, words)
        }
        Kind::Cpus => {
            let text = at.text(value.get_ref())?;
            parse_cpus(text).map(Value::Cpus).map_or_else(|why| at.refuse(why, None), Some)
        }
        Kind::Policy => {
            let text = at.text(value.get_ref())?;
            match text.parse::<SchedPolicy>() {
                Ok(_) => Some(Value::Text(text.to_string())),
                Err(_) => at.refuse(format!("{} is no policy", quoted(text)), None),
            }
        }
        Kind::Threshold => {
            let text = at.text(value.get_ref())?;
            parse_threshold(text)
                .map_or_else(|| at.refuse(format!("{} is no pair in order", quoted(text)), None), Some)
        }
        Kind::Address => {
            let text = at.text(value.get_ref())?;
            at.address(text).map(Value::Address)
        }
        Kind::Addresses => at.list(value.get_ref(), At::address).map(Value::Addresses),
        Kind::Prefix => {
            let text = at.text(value.get_ref())?;
            at.prefix(text).map(Value::Network)
        }
        Kind::Interfaces => at.list(value.get_ref(), At::interface).map(Value::Interfaces),
        Kind::Mac => {
            let text = at.text(value.get_ref())?;
            match text.parse::<Mac>() {
                Ok(mac) if mac.is_unicast() => Some(Value::Mac(mac)),
                Ok(_) => at.refuse(format!("{text} is a group address or zero"), None),
                Err(_) => at.refuse(format!("{} is not a MAC address", quoted(text)), None),
            }
        }
        Kind::Service => {
            let text = at.text(value.get_ref())?;
            at.service(text).map(Value::Service)
        }
        Kind::Destination => {
            let text = at.text(value.get_ref())?;
            at.destination(text).map(|(address, port)| Value::Destination(address, port))
        }
        Kind::Scheduler => {
            let text = at.text(value.get_ref())?;
            Scheduler::from_name(text).map_or_else(
                || at.unknown_word(text, &Scheduler::ALL.map(Scheduler::name)),
                |scheduler| Some(Value::Scheduler(scheduler)),
            )
        }
        Kind::Flags => at
            .list(value.get_ref(), |at, text| {
                let names = FLAGS.map(|flag| flag.0);
                names
                    .into_iter()
                    .find(|name| *name == text)
                    .map_or_else(|| at.unknown_word(text, &names), Some)
            })
            .map(Value::Flags),
    }
}

/// The word of `words` that `text` is most likely meant to be, if any is near.
pub(crate) fn nearest<'a>(text: &str, words: impl IntoIterator<Item = &'a str>) -> Option<&'a str> {
    let text = text.to_lowercase();
    words
        .into_iter()
        .map(|word| (strsim::damerau_levenshtein(&text, word), word))
        // A third of the letters wrong, at least one and at most three, is a slip; more is another word.
        .filter(|(distance, word)| *distance <= (word.len().max(text.len()) / 3).clamp(1, 3))
        .min_by_key(|(distance, _)| *distance)
        .map(|(_, word)| word)
}

/// A text of the file within a message: in quotes, short, without control characters.
pub(crate) fn quoted(text: &str) -> String {
    const SHOWN: usize = 60;
    let mut shown: String = text.chars().take(SHOWN).map(printable).collect();
    if text.chars().nth(SHOWN).is_some() {
        shown.push_str("...");
    }
    format!("\"{shown}\"")
}

/// Where a value is met, for the problems with it.
struct At<'a> {
    key: &'a Key,
    path: &'a str,
    span: Span,
    problems: &'a mut Problems,
}

impl At<'_> {
    /// Notes that the value is refused, with what the key expects.
    fn refuse<T>(&mut self, why: impl Into<String>, help: Option<String>) -> Option<T> {
        let problem = self.problems.push(&self.span, self.path, why);
        problem.expected(self.key.kind.expected());
        if let Some(help) = help {
            problem.help(help);
        }
        None
    }

    fn later<T>(&mut self, what: &str) -> Option<T> {
        self.problems.push(&self.span, self.path, format!("{what} is not supported yet by this version"));
        None
    }

    fn wrong_type<T>(&mut self, found: &DeValue<'_>) -> Option<T> {
        let (name, key) = (type_name(found), self.key);
        let help = match (found, key.kind) {
            (DeValue::String(text), Kind::Int(min, max))
                if text.parse().is_ok_and(|n: i64| (min..=max).contains(&n)) =>
            {
                Some(format!("write it without quotes: {} = {text}", key.name))
            }
            (DeValue::String(text), Kind::Bool) if matches!(text.as_ref(), "true" | "false") => {
                Some(format!("write it without quotes: {} = {text}", key.name))
            }
            (DeValue::Integer(number), Kind::Bool) if matches!(number.as_str(), "0" | "1") => {
                Some(format!("write {} = {}", key.name, number.as_str() == "1"))
            }
            (DeValue::Boolean(yes), Kind::Int(min, max)) if (min, max) == ANY_INT => {
                Some(format!("write {} = {}", key.name, i32::from(*yes)))
            }
            (DeValue::Integer(number), Kind::Cpus) if number.radix() == 10 => {
                Some(format!("write it in quotes: {} = \"{}\"", key.name, number.as_str()))
            }
            (DeValue::String(text), Kind::Addresses | Kind::Interfaces | Kind::Texts | Kind::Flags) => {
                Some(format!("write a list: {} = [{}]", key.name, quoted(text)))
            }
            _ => None,
        };
        self.refuse(format!("{name} instead of {}", key.kind.noun()), help)
    }

    fn integer(&mut self, found: &DeValue<'_>, min: i64, max: i64) -> Option<i64> {
        let DeValue::Integer(number) = found else { return self.wrong_type(found) };
        match i64::from_str_radix(number.as_str(), number.radix()) {
            Ok(value) if value < min => self.refuse(format!("{value} is too small"), None),
            Ok(value) if value <= max => Some(value),
            _ => self.refuse(format!("{} is too big", number.as_str()), None),
        }
    }

    fn text<'v>(&mut self, found: &'v DeValue<'_>) -> Option<&'v str> {
        match found {
            DeValue::String(text) => Some(text),
            other => self.wrong_type(other),
        }
    }

    /// Each element of a list of texts through `one`; `None` if any is refused, after looking at all.
    fn list<T>(
        &mut self,
        found: &DeValue<'_>,
        mut one: impl FnMut(&mut Self, &str) -> Option<T>,
    ) -> Option<Vec<(T, Span)>> {
        let DeValue::Array(array) = found else { return self.wrong_type(found) };
        let whole = self.span.clone();
        // All elements are looked at, also after one that is refused.
        let mut list = Vec::new();
        for element in array.iter() {
            self.span = element.span();
            let text = self.text(element.get_ref());
            if let Some(one) = text.and_then(|text| one(self, text)) {
                list.push((one, element.span()));
            }
        }
        self.span = whole;
        (list.len() == array.len()).then_some(list)
    }

    fn unknown_word<T>(&mut self, text: &str, words: &[&str]) -> Option<T> {
        if let Some(later) = LATER.iter().find(|l| l.place == self.path && l.word == text) {
            return self.later(&format!("{} ({})", quoted(text), later.feature));
        }
        let help = nearest(text, words.iter().copied()).map(|word| format!("did you mean \"{word}\"?"));
        self.refuse(format!("unknown word {}", quoted(text)), help)
    }
}

fn type_name(value: &DeValue<'_>) -> &'static str {
    match value {
        DeValue::String(_) => "a text",
        DeValue::Integer(_) => "an integer",
        DeValue::Float(_) => "a number with a fraction",
        DeValue::Boolean(_) => "true or false",
        DeValue::Datetime(_) => "a date",
        DeValue::Array(_) => "a list",
        DeValue::Table(_) => "a table",
    }
}

fn is_name(text: &str) -> bool {
    let plain = |b: u8| b.is_ascii_alphanumeric() || matches!(b, b'-' | b'_' | b'.');
    (1..=32).contains(&text.len()) && text.bytes().all(plain) && text.as_bytes()[0].is_ascii_alphanumeric()
}

/// CPU numbers of a list like `1-4,6`, ascending, each once; the empty text is the empty list.
fn parse_cpus(text: &str) -> Result<Vec<usize>, String> {
    let mut cpus = Vec::new();
    for part in text.split(',').filter(|_| !text.trim().is_empty()) {
        let number =
            |n: &str| n.trim().parse::<usize>().map_err(|_| format!("{} is not a CPU list", quoted(text)));
        let (first, last) = match part.split_once('-') {
            Some((first, last)) => (number(first)?, number(last)?),
            None => (number(part)?, number(part)?),
        };
        if first > last {
            return Err(format!("{first}-{last} runs backwards"));
        }
        if last > CPU_MAX {
            return Err(format!("there is no CPU {last}"));
        }
        cpus.extend(first..=last);
    }
    cpus.sort_unstable();
    let given = cpus.len();
    cpus.dedup();
    if cpus.len() < given { Err("a CPU is in it twice".into()) } else { Ok(cpus) }
}

/// The kernel's rule for `sync_threshold`: both from 0, the first below the second unless that is 0.
fn parse_threshold(text: &str) -> Option<Value> {
    let mut numbers = text.split_ascii_whitespace().map(|n| n.parse::<i32>().ok());
    let (first, second) = (numbers.next()??, numbers.next()??);
    let good = numbers.next().is_none() && is_threshold(first, second);
    good.then_some(Value::Threshold(first, second))
}

/// Whether the two are a threshold and its period.
pub(crate) fn is_threshold(first: i32, period: i32) -> bool {
    first >= 0 && period >= 0 && (period == 0 || first < period)
}

//! Which forwarding thread runs on which CPUs: the EAL options `-l`, `-c` and `--lcores`, read by us.
//!
//! DPDK gets the main lcore alone; every other lcore is a thread of this program that registers itself. The words left
//! over are the EAL's own and reach it as they were typed.

use dpdk_sys::CpuSet;

/// One lcore: its number and where it may run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lcore {
    /// Number, as typed.
    pub id: u32,
    /// CPUs.
    pub cpus: Vec<usize>,
}

/// The EAL's share of the command line.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EalWords {
    /// The lcore that types.
    pub main: Lcore,
    /// Lcores that forward, by number.
    pub forwarding: Vec<Lcore>,
    /// Everything else.
    pub rest: Vec<String>,
}

/// EAL options that this program cannot honour, with the reason.
const REFUSED: [(&str, &str); 4] = [
    ("-s", "service cores are not used"),
    ("-S", "service cores are not used"),
    ("--proc-type", "it is always the primary process"),
    ("--help", "give it after `--`; for DPDK's own, see dpdk-testpmd --help"),
];

impl EalWords {
    /// Reads the words before `--`; without a choice of lcores each of the `allowed` CPUs is one.
    pub fn read(words: &[String], allowed: &CpuSet) -> Result<EalWords, String> {
        let (mut lcores, mut main, mut rest) = (None, None, Vec::new());
        let mut words = words.iter();
        while let Some(word) = words.next() {
            if let Some((name, why)) = REFUSED.iter().find(|(name, _)| is(word, name)) {
                return Err(format!("{name}: {why}"));
            }
            let mut value = |name: &str| option_value(word, name, &mut words);
            if let Some(list) = value("-l").transpose()? {
                lcores = Some(core_list(&list)?);
            } else if let Some(mask) = value("-c").transpose()? {
                lcores = Some(core_mask(&mask)?);
            } else if let Some(text) = value("--lcores").transpose()? {
                lcores = Some(core_map(&text)?);
            } else if let Some(id) = value("--main-lcore").transpose()? {
                main = Some(id.parse::<u32>().map_err(|_| format!("--main-lcore: {id} is no lcore"))?);
            } else {
                rest.push(word.clone());
            }
        }
        let all = || allowed.iter().map(|cpu| Lcore { id: cpu as u32, cpus: vec![cpu] }).collect();
        let mut forwarding: Vec<Lcore> = lcores.unwrap_or_else(all);
        forwarding.sort_by_key(|lcore| lcore.id);
        if forwarding.windows(2).any(|pair| pair[0].id == pair[1].id) {
            return Err("an lcore is named twice".into());
        }
        let at = match main {
            None => 0,
            Some(id) => forwarding
                .iter()
                .position(|lcore| lcore.id == id)
                .ok_or(format!("--main-lcore: {id} is not among the lcores"))?,
        };
        if forwarding.is_empty() {
            return Err("no lcore".into());
        }
        let main = forwarding.remove(at);
        Ok(EalWords { main, forwarding, rest })
    }
}

/// Whether `word` is the option `name`, alone or with its value.
fn is(word: &str, name: &str) -> bool {
    word == name
        || name.starts_with("--") && word.strip_prefix(name).is_some_and(|rest| rest.starts_with('='))
}

/// The value of option `name` if `word` is it: behind `=`, glued to a short option, or the next word.
fn option_value<'a>(
    word: &str,
    name: &str,
    next: &mut impl Iterator<Item = &'a String>,
) -> Option<Result<String, String>> {
    let rest = word.strip_prefix(name)?;
    if rest.is_empty() {
        return Some(next.next().cloned().ok_or(format!("{name}: a value is missing")));
    }
    match rest.strip_prefix('=') {
        Some(value) if name.starts_with("--") => Some(Ok(value.to_owned())),
        _ if name.starts_with("--") => None,
        _ => Some(Ok(rest.to_owned())),
    }
}

/// `0-1,3`: lcore n on CPU n.
fn core_list(text: &str) -> Result<Vec<Lcore>, String> {
    Ok(numbers(text)?.into_iter().map(|n| Lcore { id: n as u32, cpus: vec![n] }).collect())
}

/// `0x3`: lcore n on CPU n for each bit.
fn core_mask(text: &str) -> Result<Vec<Lcore>, String> {
    let mask = u128::from_str_radix(text.trim_start_matches("0x"), 16)
        .map_err(|_| format!("{text} is no hexadecimal mask"))?;
    Ok((0..128).filter(|n| mask >> n & 1 == 1).map(|n| Lcore { id: n as u32, cpus: vec![n] }).collect())
}

/// `0@1,(2-3)@0,5`: lcores on CPUs. A group in parentheses without `@` shares its own CPUs.
fn core_map(text: &str) -> Result<Vec<Lcore>, String> {
    let mut lcores = Vec::new();
    for part in split_outside(text) {
        let (ids, cpus) = match part.split_once('@') {
            Some((ids, cpus)) => (ids, Some(numbers(cpus)?)),
            None => (part, None),
        };
        let grouped = ids.starts_with('(');
        let ids = numbers(ids)?;
        for &id in &ids {
            let own = if grouped { ids.clone() } else { vec![id] };
            lcores.push(Lcore { id: id as u32, cpus: cpus.clone().unwrap_or(own) });
        }
    }
    Ok(lcores)
}

/// Parts between commas that are in no parentheses.
fn split_outside(text: &str) -> Vec<&str> {
    let (mut parts, mut from, mut depth) = (Vec::new(), 0, 0i32);
    for (at, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth -= 1,
            ',' if depth == 0 => {
                parts.push(&text[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    parts.push(&text[from..]);
    parts
}

/// `3`, `0-2,5`, either in parentheses.
pub fn numbers(text: &str) -> Result<Vec<usize>, String> {
    let inner = text.strip_prefix('(').and_then(|t| t.strip_suffix(')')).unwrap_or(text);
    let wrong = || format!("{text} is no list of numbers, such as 0-2,5");
    let mut list = Vec::new();
    for part in inner.split(',') {
        let (from, to) = part.split_once('-').unwrap_or((part, part));
        let (from, to): (usize, usize) =
            (from.parse().map_err(|_| wrong())?, to.parse().map_err(|_| wrong())?);
        if from > to || to > 1023 {
            return Err(wrong());
        }
        list.extend(from..=to);
    }
    Ok(list)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> Result<String, String> {
        let words: Vec<String> = line.split_whitespace().map(str::to_owned).collect();
        let eal = EalWords::read(&words, &[0, 1].into_iter().collect())?;
        let show = |lcore: &Lcore| format!("{}@{:?}", lcore.id, lcore.cpus);
        let forwarding: Vec<_> = eal.forwarding.iter().map(show).collect();
        Ok(format!("{} | {} | {}", show(&eal.main), forwarding.join(" "), eal.rest.join(" ")))
    }

    #[test]
    fn lcores_are_mapped_by_us_and_the_rest_is_left() {
        for (line, expected) in [
            ("", "0@[0] | 1@[1] | "),
            ("-l 0-1 --no-pci --vdev=net_null0", "0@[0] | 1@[1] | --no-pci --vdev=net_null0"),
            ("-l0,2 -m 200", "0@[0] | 2@[2] | -m 200"),
            ("-c 0x5", "0@[0] | 2@[2] | "),
            ("--lcores 0@0,1@0,2@1", "0@[0] | 1@[0] 2@[1] | "),
            ("--lcores=(0-2)@1", "0@[1] | 1@[1] 2@[1] | "),
            ("--lcores 0@1,(1,2)@(0-1),5", "0@[1] | 1@[0, 1] 2@[0, 1] 5@[5] | "),
            ("-l 0-2 --main-lcore 1", "1@[1] | 0@[0] 2@[2] | "),
            ("-l 3", "3@[3] |  | "),
            ("--log-level lib.eal:debug", "0@[0] | 1@[1] | --log-level lib.eal:debug"),
        ] {
            assert_eq!(read(line).as_deref(), Ok(expected), "{line}");
        }
    }

    #[test]
    fn what_cannot_be_honoured_is_named() {
        for (line, expected) in [
            ("-l x", "x is no list of numbers, such as 0-2,5"),
            ("-l", "-l: a value is missing"),
            ("-l 0,0", "an lcore is named twice"),
            ("--main-lcore 7 -l 0-1", "--main-lcore: 7 is not among the lcores"),
            ("-S 4", "-S: service cores are not used"),
            ("--proc-type=secondary", "--proc-type: it is always the primary process"),
        ] {
            assert_eq!(read(line).unwrap_err(), expected, "{line}");
        }
    }
}

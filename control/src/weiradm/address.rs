//! Numbers and addresses as the C library and ipvsadm read them.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::names::Names;

/// What was read of `ADDRESS[:PORT]`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Endpoint {
    pub address: IpAddr,
    /// `None` when none was given.
    pub port: Option<u16>,
}

/// A whole decimal number inside the limits, as `strtol` takes it: blanks and a sign before it are fine.
pub(super) fn number(text: &str, min: i64, max: i64) -> Option<i64> {
    let digits = text.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\x0b');
    digits.parse().ok().filter(|number| (min..=max).contains(number))
}

/// The number that a text begins with, as `atoi` takes it; 0 when it begins with none.
pub(super) fn leading_number(text: &str) -> i64 {
    let text = text.trim_start();
    let (sign, digits) = match text.strip_prefix('-') {
        Some(rest) => (-1, rest),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let end = digits.find(|c: char| !c.is_ascii_digit()).unwrap_or(digits.len());
    sign * digits[..end].parse::<i64>().unwrap_or(0)
}

/// An IPv4 address in any form that `inet_aton` takes: one to four numbers, decimal, octal or hexadecimal, of
/// which the last fills the bytes that are left.
pub(super) fn classic_ipv4(text: &str) -> Option<Ipv4Addr> {
    let parts = text.split('.').map(c_number).collect::<Option<Vec<u32>>>()?;
    let (last, leading) = parts.split_last()?;
    if leading.len() > 3 || leading.iter().any(|part| *part > 255) {
        return None;
    }
    let free_bits = 32 - 8 * leading.len() as u32;
    if u64::from(*last) >= 1 << free_bits {
        return None;
    }
    let high = leading.iter().fold(0u64, |bits, part| bits << 8 | u64::from(*part)) << free_bits;
    Some(Ipv4Addr::from_bits(u32::try_from(high).ok()? | last))
}

/// A number as C constants are written.
fn c_number(text: &str) -> Option<u32> {
    let (radix, digits) = match text.strip_prefix("0x").or_else(|| text.strip_prefix("0X")) {
        Some(hex) => (16, hex),
        None if text.len() > 1 && text.starts_with('0') => (8, &text[1..]),
        None => (10, text),
    };
    let digits_only = !digits.is_empty() && digits.chars().all(|c| c.is_digit(radix));
    digits_only.then(|| u32::from_str_radix(digits, radix).ok())?
}

/// An IPv4 address, or the first one of a host.
pub(super) fn ipv4_or_host(text: &str, names: &dyn Names) -> Option<Ipv4Addr> {
    classic_ipv4(text).or_else(|| names.address_of(text))
}

/// Reads `ADDRESS[:PORT]`; a port name is one of this protocol's.
///
/// An IPv6 address without brackets is taken whole; in brackets it must be followed by a port. An IPv4
/// address in brackets is taken too and loses its port, as in ipvsadm.
pub(super) fn endpoint(text: &str, protocol: u16, names: &dyn Names) -> Option<Endpoint> {
    if text.chars().all(|c| c.is_ascii_digit()) {
        return None;
    }
    let (inside, bracket_port) = match text.strip_prefix('[') {
        Some(rest) => {
            let (inside, after) = rest.split_once(']')?;
            (inside, Some(after.strip_prefix(':')?))
        }
        None => (text, None),
    };
    let (address, port) = match inside.parse::<Ipv6Addr>() {
        Ok(v6) => (v6.into(), bracket_port),
        Err(_) => {
            let (host, port) = match inside.rsplit_once(':') {
                Some((host, port)) => (host, Some(port)),
                None => (inside, None),
            };
            (ipv4_or_host(host, names)?.into(), port)
        }
    };
    let port = match port {
        None => None,
        Some(text) => Some(
            number(text, 0, i64::from(u16::MAX))
                .and_then(|port| u16::try_from(port).ok())
                .or_else(|| names.port_of(text, protocol))?,
        ),
    };
    Some(Endpoint { address, port })
}

#[cfg(test)]
mod tests {
    use super::super::names::tests::TestNames;
    use super::*;

    #[test]
    fn ipv4_addresses_are_read_as_inet_aton_reads_them() {
        for (text, expected) in [
            ("10.0.0.1", Some([10, 0, 0, 1])),
            ("10.1", Some([10, 0, 0, 1])),
            ("10.1.258", Some([10, 1, 1, 2])),
            ("0x7f000001", Some([127, 0, 0, 1])),
            ("010.0.0.1", Some([8, 0, 0, 1])),
            ("4294967295", Some([255, 255, 255, 255])),
            ("4294967296", None),
            ("256.1", None),
            ("300.1.1.1", None),
            ("1.2.3.256", None),
            ("1.2.3.4.5", None),
            ("1..2", None),
            ("08.1.1.1", None),
            ("", None),
            ("x", None),
            ("+1.2.3.4", None),
        ] {
            assert_eq!(classic_ipv4(text), expected.map(Ipv4Addr::from), "{text}");
        }
    }

    #[test]
    fn endpoints_are_read_as_ipvsadm_reads_them() {
        for (text, expected) in [
            ("10.0.0.1:80", Some(("10.0.0.1", Some(80)))),
            ("10.0.0.1", Some(("10.0.0.1", None))),
            ("10.0.0.1:http", Some(("10.0.0.1", Some(80)))),
            ("localhost:http", Some(("127.0.0.1", Some(80)))),
            ("10.0.0.1:99999", None),
            ("10.0.0.1:", None),
            ("80", None),
            ("", None),
            ("[2001:db8::1]:443", Some(("2001:db8::1", Some(443)))),
            ("[2001:db8::1]", None),
            ("[2001:db8::1", None),
            ("[2001:db8::1]x:443", None),
            ("2001:db8::1", Some(("2001:db8::1", None))),
            ("2001:db8::1:80", Some(("2001:db8::1:80", None))),
            ("[10.0.0.1]:80", Some(("10.0.0.1", None))),
            ("nohost:80", None),
        ] {
            let expected =
                expected.map(|(address, port)| Endpoint { address: address.parse().unwrap(), port });
            assert_eq!(endpoint(text, 6, &TestNames), expected, "{text}");
        }
    }

    #[test]
    fn numbers_are_read_as_strtol_and_atoi_read_them() {
        for (text, whole, leading) in [
            ("80", Some(80), 80),
            (" +5", Some(5), 5),
            ("-1", None, -1),
            ("64abc", None, 64),
            ("abc", None, 0),
            ("", None, 0),
            ("99999999999999999999", None, 0),
        ] {
            assert_eq!((number(text, 0, 100), leading_number(text)), (whole, leading), "{text}");
        }
    }
}

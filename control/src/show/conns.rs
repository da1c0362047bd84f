//! The connection listing in ipvsadm's `-L -c -n` form.
//!
//! Source: ipvsadm 1.31, by its output. Readers of this text take lines of at most 255 characters. There may be
//! millions of lines, so they are put together without the formatting machinery.

use std::net::{IpAddr, SocketAddr};

use super::listing::endpoint_text;
use crate::api::rows::ConnRow;

/// Widths of the columns in front of the last.
const PROTOCOL: usize = 3;
const EXPIRES: usize = 6;
const STATE: usize = 11;
const ENDPOINT: usize = 18;

/// Head of the listing, two lines.
pub fn head() -> String {
    format!(
        "IPVS connection entries\npro expire {:<11} {:<18} {:<18} {}\n",
        "state", "source", "virtual", "destination"
    )
}

/// Adds one line.
pub fn push_line(text: &mut String, row: &ConnRow) {
    push_front(text, row.protocol, row.expires_ms / 1000, row.state);
    push_column(text, ENDPOINT, |text| push_endpoint(text, row.client));
    push_column(text, ENDPOINT, |text| push_endpoint(text, row.service_address));
    push_endpoint(text, row.dest);
    text.push('\n');
}

/// Adds the columns before the endpoints. Of the time a part of a second is not shown, and minutes may need more than
/// two digits.
pub fn push_front(text: &mut String, protocol: &str, expires_seconds: u64, state: &str) {
    push_column(text, PROTOCOL, |text| text.push_str(protocol));
    push_column(text, EXPIRES, |text| {
        push_number(text, expires_seconds / 60, 2);
        text.push(':');
        push_number(text, expires_seconds % 60, 2);
    });
    push_column(text, STATE, |text| text.push_str(state));
}

/// Adds what `push` adds, at least `width` characters, and a space. Only texts of ASCII come here.
pub fn push_column(text: &mut String, width: usize, push: impl FnOnce(&mut String)) {
    let end = text.len() + width;
    push(text);
    let spaces = end.saturating_sub(text.len()) + 1;
    text.extend(std::iter::repeat_n(' ', spaces));
}

/// Adds `ADDRESS:PORT`, with brackets round an IPv6 address.
pub fn push_endpoint(text: &mut String, of: SocketAddr) {
    match of.ip() {
        IpAddr::V4(address) => {
            for (i, octet) in address.octets().into_iter().enumerate() {
                if i > 0 {
                    text.push('.');
                }
                push_number(text, octet.into(), 1);
            }
            text.push(':');
            push_number(text, of.port().into(), 1);
        }
        IpAddr::V6(_) => text.push_str(&endpoint_text(of)),
    }
}

/// Adds the number with at least so many digits.
fn push_number(text: &mut String, number: u64, digits: usize) {
    let (mut bytes, mut rest, mut at) = ([b'0'; 20], number, 20);
    while rest > 0 {
        at -= 1;
        bytes[at] = b'0' + (rest % 10) as u8;
        rest /= 10;
    }
    text.extend(bytes[at.min(20 - digits)..].iter().map(|byte| char::from(*byte)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_prints_as_ipvsadm_prints_it() {
        let sample = include_str!("../../tests/data/ipvsadm/044-conn-v4.txt");
        let mut text = head();
        for fed in sample.lines().filter_map(|l| l.strip_prefix("conn ")) {
            push_line(&mut text, &row(fed));
        }
        let start = sample.find("--- stdout\n").unwrap() + "--- stdout\n".len();
        let expected = &sample[start..start + sample[start..].find("--- ").unwrap()];
        assert_eq!(text, expected);
    }

    #[test]
    fn long_waits_keep_all_their_minutes() {
        for (seconds, expected) in [(0, "00:00"), (59, "00:59"), (6000, "100:00")] {
            let mut text = String::new();
            push_front(&mut text, "TCP", seconds, "NONE");
            assert_eq!(text, format!("TCP {expected:<6} NONE        "));
        }
    }

    #[test]
    fn endpoints_print_as_the_library_prints_them() {
        for endpoint in ["0.0.0.0:0", "255.255.255.255:65535", "10.20.0.100:8080", "[2001:db8::1]:80"] {
            let endpoint: SocketAddr = endpoint.parse().unwrap();
            let mut text = String::new();
            push_column(&mut text, ENDPOINT, |text| push_endpoint(text, endpoint));
            assert_eq!(text, format!("{:<18} ", endpoint.to_string()));
        }
    }

    /// A line as the kernel's table gives it: protocol, three hexadecimal pairs, state, seconds.
    fn row(fed: &'static str) -> ConnRow {
        let words: Vec<&'static str> = fed.split_whitespace().collect();
        let pair = |i: usize| {
            let address = u32::from_str_radix(words[i], 16).unwrap();
            let port = u16::from_str_radix(words[i + 1], 16).unwrap();
            std::net::SocketAddr::from((std::net::Ipv4Addr::from_bits(address), port))
        };
        ConnRow {
            worker: 0,
            protocol: words[0],
            client: pair(1),
            service_address: pair(3),
            dest: pair(5),
            state: words[7],
            expires_ms: words[8].parse::<u64>().unwrap() * 1000,
            method: "nat",
        }
    }
}

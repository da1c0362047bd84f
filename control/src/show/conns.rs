//! The connection listing in ipvsadm's `-L -c -n` form.
//!
//! Source: ipvsadm 1.31, by its output. Readers of this text take lines of at most 255 characters.

use crate::api::rows::ConnRow;

/// Head of the listing, two lines.
pub fn head() -> String {
    format!(
        "IPVS connection entries\npro expire {:<11} {:<18} {:<18} {}\n",
        "state", "source", "virtual", "destination"
    )
}

/// One line.
pub fn line(row: &ConnRow) -> String {
    format!(
        "{:<3} {:<6} {:<11} {:<18} {:<18} {}\n",
        row.protocol,
        expire(row.expires_ms),
        row.state,
        row.client.to_string(),
        row.service_address.to_string(),
        row.dest
    )
}

/// Minutes and seconds; a part of a second is not shown, and minutes may need more than two digits.
fn expire(ms: u64) -> String {
    let seconds = ms / 1000;
    format!("{:02}:{:02}", seconds / 60, seconds % 60)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sample_prints_as_ipvsadm_prints_it() {
        let sample = include_str!("../../tests/data/ipvsadm/044-conn-v4.txt");
        let mut text = head();
        for fed in sample.lines().filter_map(|l| l.strip_prefix("conn ")) {
            text.push_str(&line(&row(fed)));
        }
        let start = sample.find("--- stdout\n").unwrap() + "--- stdout\n".len();
        let expected = &sample[start..start + sample[start..].find("--- ").unwrap()];
        assert_eq!(text, expected);
    }

    #[test]
    fn long_waits_keep_all_their_minutes() {
        for (ms, text) in [(0, "00:00"), (999, "00:00"), (59_999, "00:59"), (6_000_000, "100:00")] {
            assert_eq!(expire(ms), text);
        }
    }

    /// A line as the kernel's table gives it: protocol, three hexadecimal pairs, state, seconds.
    fn row(fed: &str) -> ConnRow {
        let words: Vec<&str> = fed.split_whitespace().collect();
        let pair = |i: usize| {
            let address = u32::from_str_radix(words[i], 16).unwrap();
            let port = u16::from_str_radix(words[i + 1], 16).unwrap();
            std::net::SocketAddr::from((std::net::Ipv4Addr::from_bits(address), port))
        };
        ConnRow {
            worker: 0,
            protocol: words[0].to_owned(),
            client: pair(1),
            service_address: pair(3),
            dest: pair(5),
            state: words[7].to_owned(),
            expires_ms: words[8].parse::<u64>().unwrap() * 1000,
            method: "nat".to_owned(),
        }
    }
}

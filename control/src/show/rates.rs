//! The table of rates: the whole box, then the busiest objects.

use crate::api::rows::RateRow;
use crate::show::table::{self, number, text};

/// One line an object; bytes are bytes, not bits.
pub fn listing(rows: &[RateRow]) -> String {
    let cells: Vec<[String; 7]> = rows
        .iter()
        .map(|row| {
            let r = &row.rates;
            [
                row.service.clone().unwrap_or_else(|| "all together".to_owned()),
                row.dest.clone().unwrap_or_default(),
                r.connections_per_second.to_string(),
                r.in_packets_per_second.to_string(),
                r.out_packets_per_second.to_string(),
                r.in_bytes_per_second.to_string(),
                r.out_bytes_per_second.to_string(),
            ]
        })
        .collect();
    let columns = [
        text("SERVICE"),
        text("DESTINATION"),
        number("CONNS/S"),
        number("IN PACKETS/S"),
        number("OUT PACKETS/S"),
        number("IN BYTES/S"),
        number("OUT BYTES/S"),
    ];
    table::render(columns, &cells)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::api::rows::RateFields;

    #[test]
    fn the_box_has_no_name_and_a_service_no_destination() {
        let rates = RateFields { in_packets_per_second: 1000, ..RateFields::default() };
        let service = Some("udp:198.51.100.1:53".to_owned());
        let rows = [
            RateRow { rates, ..RateRow::default() },
            RateRow { service: service.clone(), rates, ..RateRow::default() },
            RateRow { service, dest: Some("10.0.0.2:53".into()), rates, ..RateRow::default() },
        ];
        let text = listing(&rows);
        let lines: Vec<&str> = text.lines().collect();
        assert!(lines[1].starts_with("all together "), "{text}");
        assert!(lines[2].starts_with("udp:198.51.100.1:53 ") && lines[3].contains(" 10.0.0.2:53 "), "{text}");
        let words: Vec<&str> = lines[3].split_whitespace().collect();
        assert_eq!(words[2..], ["0", "1000", "0", "0", "0"]);
    }
}

//! The drop listing: count, rate, reason, sentence.

use crate::api::rows::DropRow;
use crate::show::table::{self, number, text};

/// The listing; one sentence when nothing was dropped.
pub fn listing(rows: &[DropRow]) -> String {
    if rows.is_empty() {
        return "No packet was dropped.\n".to_owned();
    }
    let cells: Vec<[String; 4]> = rows
        .iter()
        .map(|row| {
            [
                row.drops_total.to_string(),
                format!("{:.1}", row.drops_per_second),
                row.reason.clone(),
                row.sentence.clone(),
            ]
        })
        .collect();
    table::render([number("PACKETS"), number("PER SECOND"), text("REASON"), text("WHAT HAPPENED")], &cells)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_stand_in_columns() {
        let row = |reason: &str, total, rate, sentence: &str| DropRow {
            reason: reason.into(),
            drops_total: total,
            drops_per_second: rate,
            sentence: sentence.into(),
        };
        let text =
            listing(&[row("no_dest", 12, 0.5, "no server"), row("ttl", 3, 0.0, "time to live ran out")]);
        assert_eq!(
            text,
            "PACKETS  PER SECOND  REASON   WHAT HAPPENED\n     \
             12         0.5  no_dest  no server\n      \
             3         0.0  ttl      time to live ran out\n"
        );
        assert_eq!(listing(&[]), "No packet was dropped.\n");
    }
}

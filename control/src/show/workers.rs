//! The workers: what each does with its time, and what they hand to each other. Rates and shares are those of the last
//! second, as an operator tunes by them; counters are since the start.

use crate::api::rows::WorkerRow;
use crate::show::table::{self, number, text};

/// The listing.
pub fn listing(rows: &[WorkerRow]) -> String {
    let columns = [
        number("WORKER"),
        number("CPU"),
        text("MODE"),
        number("LOAD"),
        number("PACKETS/S"),
        number("CYCLES/PACKET"),
        number("BATCH"),
        number("EMPTY POLLS"),
        number("HANDED OUT"),
        number("HANDED IN"),
        number("RING DROPS"),
        number("CONNECTIONS"),
    ];
    let cells: Vec<_> = rows.iter().map(cells).collect();
    table::render(columns, &cells)
}

fn cells(row: &WorkerRow) -> [String; 12] {
    [
        row.worker.to_string(),
        row.cpu.to_string(),
        if row.alive { row.mode.clone() } else { "DEAD".to_owned() },
        format!("{:.1}%", row.load_percent),
        format!("{:.0}", row.packets_per_second),
        format!("{:.0}", row.cycles_per_packet),
        format!("{:.1}", row.packets_per_poll),
        format!("{:.1}%", row.empty_polls_percent),
        row.handed_out_total.to_string(),
        row.handed_in_total.to_string(),
        row.ring_drops_total.to_string(),
        row.connections.to_string(),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_stand_in_columns() {
        let row = WorkerRow {
            worker: 1,
            cpu: 3,
            mode: "shared".into(),
            alive: true,
            load_percent: 12.34,
            packets_per_second: 1000.4,
            cycles_per_packet: 99.6,
            packets_per_poll: 7.25,
            empty_polls_percent: 50.0,
            handed_out_total: 5,
            handed_in_total: 6,
            ring_drops_total: 7,
            connections: 8,
            ..WorkerRow::default()
        };
        let dead = WorkerRow { alive: false, ..row.clone() };
        let text = listing(&[row, dead]);
        let words = |line: usize| text.lines().nth(line).unwrap().split_whitespace().collect::<Vec<_>>();
        let expected = ["1", "3", "shared", "12.3%", "1000", "100", "7.2", "50.0%", "5", "6", "7", "8"];
        assert_eq!(words(1), expected, "{text}");
        assert_eq!(words(2)[2], "DEAD");
    }
}

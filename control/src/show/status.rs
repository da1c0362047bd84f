//! The status screen: process, ports, workers, estimators, tables, warnings.

use serde::Serialize;

use crate::api::rows::{DaemonRow, EstSummaryRow, PortRow, StatusRow, TableRow, WarningRow, WorkerRow};
use crate::show::est;
use crate::show::table::{self, number, text};

/// The rows of a status, by kind; also the shape of `weir status --json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Status {
    /// The process.
    pub daemon: DaemonRow,
    /// Ethernet ports, in configuration order.
    pub ports: Vec<PortRow>,
    /// Workers by number.
    pub workers: Vec<WorkerRow>,
    /// The estimators.
    pub estimators: EstSummaryRow,
    /// Tables of fixed size.
    pub tables: Vec<TableRow>,
    /// What an operator should know.
    pub warnings: Vec<WarningRow>,
}

impl Status {
    /// Sorts rows by kind.
    pub fn from_rows(rows: impl IntoIterator<Item = StatusRow>) -> Status {
        let mut status = Status::default();
        for row in rows {
            match row {
                StatusRow::Daemon(row) => status.daemon = row,
                StatusRow::Port(row) => status.ports.push(row),
                StatusRow::Worker(row) => status.workers.push(row),
                StatusRow::Estimators(row) => status.estimators = row,
                StatusRow::Table(row) => status.tables.push(row),
                StatusRow::Warning(row) => status.warnings.push(row),
            }
        }
        status
    }

    /// The screen.
    pub fn text(&self) -> String {
        let parts = [
            self.daemon_text(),
            self.ports_text(),
            self.workers_text(),
            est::line(&self.estimators),
            self.tables_text(),
            self.warnings_text(),
        ];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join("\n")
    }

    fn daemon_text(&self) -> String {
        let d = &self.daemon;
        format!(
            "weir {}, process {}, up {}, revision {}, generation {}\n\
             configuration {}, socket {}\n\
             packet memory {} in {} pages of {}; {} of the process in RAM\n",
            d.version,
            d.pid,
            duration(d.uptime_seconds),
            d.revision,
            d.generation,
            d.config,
            d.socket,
            bytes(d.memory_bytes),
            d.pages,
            bytes(d.page_bytes),
            bytes(d.resident_bytes),
        )
    }

    fn ports_text(&self) -> String {
        let cells: Vec<[String; 10]> = self
            .ports
            .iter()
            .map(|p| {
                [
                    p.port.clone(),
                    link(p),
                    p.mac.clone(),
                    p.mtu_bytes.to_string(),
                    p.rx_packets_total.to_string(),
                    p.tx_packets_total.to_string(),
                    p.rx_missed_total.to_string(),
                    (p.rx_errors_total + p.tx_errors_total).to_string(),
                    p.device.clone(),
                    p.addresses.join(" "),
                ]
            })
            .collect();
        let columns = [
            text("PORT"),
            text("LINK"),
            text("MAC"),
            number("MTU"),
            number("RX PACKETS"),
            number("TX PACKETS"),
            number("MISSED"),
            number("ERRORS"),
            text("DEVICE"),
            text("ADDRESSES"),
        ];
        table::render(columns, &cells)
    }

    fn workers_text(&self) -> String {
        let cells: Vec<[String; 9]> = self
            .workers
            .iter()
            .map(|w| {
                [
                    w.worker.to_string(),
                    w.cpu.to_string(),
                    if w.alive { w.mode.clone() } else { "DEAD".to_owned() },
                    format!("{:.1}%", w.load_percent),
                    w.rx_packets_total.to_string(),
                    w.tx_packets_total.to_string(),
                    w.drops_total.to_string(),
                    w.handed_in_total.to_string(),
                    w.connections.to_string(),
                ]
            })
            .collect();
        let columns = [
            number("WORKER"),
            number("CPU"),
            text("MODE"),
            number("LOAD"),
            number("RX PACKETS"),
            number("TX PACKETS"),
            number("DROPS"),
            number("HANDED IN"),
            number("CONNECTIONS"),
        ];
        table::render(columns, &cells)
    }

    fn tables_text(&self) -> String {
        let cells: Vec<[String; 5]> = self
            .tables
            .iter()
            .map(|t| {
                [
                    t.table.clone(),
                    t.used.to_string(),
                    t.size.to_string(),
                    format!("{:.1}%", 100.0 * t.used as f64 / t.size.max(1) as f64),
                    if t.reserved_bytes == 0 { String::new() } else { bytes(t.reserved_bytes) },
                ]
            })
            .collect();
        let columns = [text("TABLE"), number("USED"), number("SIZE"), number("FULL"), number("MEMORY")];
        table::render(columns, &cells)
    }

    fn warnings_text(&self) -> String {
        self.warnings
            .iter()
            .map(|w| format!("warning: {}\n  means: {}\n  remedy: {}\n", w.seen, w.meaning, w.remedy))
            .collect()
    }
}

fn link(port: &PortRow) -> String {
    match (port.link_up, port.link_mbps) {
        (false, _) => "down".to_owned(),
        (true, 0) => "up".to_owned(),
        (true, mbps) if mbps.is_multiple_of(1000) => format!("up {}G", mbps / 1000),
        (true, mbps) => format!("up {mbps}M"),
    }
}

/// The two largest units of a time.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, _) => format!("{minutes} min {} s", seconds % 60),
        (0, ..) => format!("{hours} h {minutes} min"),
        _ => format!("{days} d {hours} h"),
    }
}

/// A size in the largest binary unit that leaves at least one.
fn bytes(n: u64) -> String {
    let units = [(1u64 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match units.iter().find(|(size, _)| n >= *size) {
        Some((size, unit)) if n.is_multiple_of(*size) => format!("{} {unit}", n / size),
        Some((size, unit)) => format!("{:.1} {unit}", n as f64 / *size as f64),
        None => format!("{n} B"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_the_largest_that_fit() {
        for (n, s) in
            [(0, "0 B"), (1023, "1023 B"), (1024, "1 KiB"), (1536, "1.5 KiB"), (512 << 20, "512 MiB")]
        {
            assert_eq!(bytes(n), s);
        }
        for (n, s) in [(59, "59 s"), (61, "1 min 1 s"), (3660, "1 h 1 min"), (90_000, "1 d 1 h")] {
            assert_eq!(duration(n), s);
        }
    }

    #[test]
    fn the_screen_names_what_is_down_and_dead() {
        let status = Status::from_rows([
            StatusRow::Daemon(DaemonRow { version: "0.1.0".into(), ..DaemonRow::default() }),
            StatusRow::Port(PortRow { port: "wan".into(), ..PortRow::default() }),
            StatusRow::Worker(WorkerRow { worker: 1, mode: "shared".into(), ..WorkerRow::default() }),
            StatusRow::Warning(WarningRow { seen: "a".into(), meaning: "b".into(), remedy: "c".into() }),
        ]);
        let text = status.text();
        let words = |start: &str| -> Vec<String> {
            let line = text.lines().find(|l| l.trim_start().starts_with(start)).unwrap();
            line.split_whitespace().map(str::to_owned).collect()
        };
        assert_eq!(words("wan")[1], "down");
        assert_eq!(words("1 ")[2], "DEAD");
        assert!(text.ends_with("warning: a\n  means: b\n  remedy: c\n"));
    }
}

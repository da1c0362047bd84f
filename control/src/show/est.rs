//! The estimators' screen: the kernel's three status lines, the whole in a line or two, a table of threads.

use serde::Serialize;

use crate::api::rows::{EstRow, EstSummaryRow, EstThreadRow};
use crate::counted::counted;
use crate::show::table::{self, number, text};

/// The rows of `weir est`, by kind; also the shape of its `--json`.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Est {
    /// The whole.
    #[serde(flatten)]
    pub summary: EstSummaryRow,
    /// Threads by number.
    pub est_threads: Vec<EstThreadRow>,
}

impl Est {
    /// Sorts rows by kind.
    pub fn from_rows(rows: impl IntoIterator<Item = EstRow>) -> Est {
        let mut est = Est::default();
        for row in rows {
            match row {
                EstRow::Summary(row) => est.summary = row,
                EstRow::Thread(row) => est.est_threads.push(row),
            }
        }
        est
    }

    /// The screen.
    pub fn text(&self) -> String {
        let EstSummaryRow { threads_max, chain_max, thread_estimators_max, .. } = self.summary;
        let kernel = format!(
            "Stats thread slots:\t{} (max {threads_max})\nStats chain max len:\t{chain_max}\n\
             Stats thread ests:\t{thread_estimators_max}\n",
            self.est_threads.len()
        );
        format!("{kernel}\n{}{}\n{}", line(&self.summary), self.calibration_text(), self.threads_text())
    }

    fn calibration_text(&self) -> String {
        let s = &self.summary;
        let age = match s.calibration_age_seconds {
            None => return "not calibrated yet\n".to_owned(),
            Some(seconds) => format!("{seconds} s ago"),
        };
        format!(
            "calibrated {age}: single est {} ns, chain limit {}; short first periods {}, over budget {}\n",
            s.calibration_single_ns,
            s.calibration_chain_max,
            s.short_first_periods_total,
            s.over_budget_total
        )
    }

    fn threads_text(&self) -> String {
        let cells: Vec<[String; 11]> = self.est_threads.iter().map(thread_cells).collect();
        let columns = [
            number("THREAD"),
            text("STATE"),
            text("CPUS"),
            number("ESTIMATORS"),
            number("ROOM FOR"),
            number("LOAD"),
            number("WORST ROW US"),
            number("LATE TICKS"),
            number("CHAIN LIMIT"),
            number("NS/EST"),
            number("NS/EST/WORKER"),
        ];
        table::render(columns, &cells)
    }
}

fn thread_cells(t: &EstThreadRow) -> [String; 11] {
    let state = match (t.running, t.draining) {
        (false, _) => "stopped",
        (true, true) => "draining",
        (true, false) => "running",
    };
    [
        t.est_thread.to_string(),
        state.to_owned(),
        t.cpus.clone(),
        t.estimators.to_string(),
        t.estimators_max.to_string(),
        format!("{:.2}%", t.load_percent),
        format!("{:.1}", t.worst_row_ns as f64 / 1000.0),
        t.late_ticks_total.to_string(),
        t.chain_max.to_string(),
        format!("{:.1}", t.cost_ps as f64 / 1000.0),
        format!("{:.2}", t.cost_per_worker_ps as f64 / 1000.0),
    ]
}

/// The estimators in one line, also that of `weir status`.
pub fn line(s: &EstSummaryRow) -> String {
    let state = match (s.running, s.run_estimation) {
        (true, _) => format!("on CPUs {}", s.cpus),
        (false, true) => "stopped: est_cpulist is empty".to_owned(),
        (false, false) => "stopped: run_estimation is 0".to_owned(),
    };
    let policy = if s.policy == "other" { String::new() } else { format!(" {}", s.policy) };
    format!(
        "estimators {} in {}, {} of {} threads {state}, nice {}{policy}, load {:.2}% of a CPU \
         (limit {}% a thread), {}\n",
        s.estimators,
        counted(s.blocks, "block"),
        s.threads,
        s.threads_max,
        s.nice,
        s.load_percent,
        s.load_limit_percent,
        counted(s.late_ticks_total as usize, "late tick")
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> EstSummaryRow {
        EstSummaryRow {
            running: true,
            run_estimation: true,
            cpus: "0-3".into(),
            policy: "other".into(),
            load_limit_percent: 12,
            threads: 1,
            threads_max: 16,
            chain_max: 16,
            thread_estimators_max: 38400,
            estimators: 3,
            blocks: 1,
            load_percent: 0.25,
            calibration_single_ns: 5700,
            calibration_chain_max: 16,
            calibration_age_seconds: Some(7),
            ..EstSummaryRow::default()
        }
    }

    /// The three lines as in the kernel's `ip_vs_status`.
    #[test]
    fn the_kernels_lines_come_first() {
        let thread =
            EstThreadRow { running: true, cpus: "0-3".into(), cost_ps: 5_700_000, ..Default::default() };
        let est = Est::from_rows([EstRow::Summary(summary()), EstRow::Thread(thread)]);
        let text = est.text();
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            lines[..3],
            ["Stats thread slots:\t1 (max 16)", "Stats chain max len:\t16", "Stats thread ests:\t38400"]
        );
        assert_eq!(lines[4], line(&summary()).trim_end());
        let words: Vec<&str> = lines.last().unwrap().split_whitespace().collect();
        assert_eq!(words, ["0", "running", "0-3", "0", "0", "0.00%", "0.0", "0", "0", "5700.0", "0.00"]);
    }

    #[test]
    fn the_line_says_why_nothing_runs() {
        assert_eq!(
            line(&summary()),
            "estimators 3 in 1 block, 1 of 16 threads on CPUs 0-3, nice 0, load 0.25% of a CPU \
             (limit 12% a thread), 0 late ticks\n"
        );
        let off = EstSummaryRow { running: false, run_estimation: false, ..summary() };
        assert!(line(&off).contains("stopped: run_estimation is 0"));
        let empty = EstSummaryRow { running: false, policy: "rr:3".into(), ..summary() };
        assert!(line(&empty).contains("stopped: est_cpulist is empty, nice 0 rr:3,"));
    }
}

//! Rows as a table on the terminal and as `target/bench/summary.json`.

use std::path::Path;

use serde::Serialize;

/// One figure beside its reference.
#[derive(Clone, Debug, Serialize)]
pub struct Row {
    /// Name of the row.
    pub id: String,
    /// Median.
    pub value: f64,
    /// Unit of `value`.
    pub unit: &'static str,
    /// What it is compared with.
    pub reference: String,
    /// Median of the reference in the same run.
    pub reference_value: Option<f64>,
    /// `value / reference_value`.
    pub ratio: Option<f64>,
    /// (largest - smallest) / median of the samples.
    pub spread: f64,
}

impl Row {
    /// Nothing yet but its name.
    pub fn new(id: impl Into<String>) -> Self {
        Row {
            id: id.into(),
            value: 0.0,
            unit: "",
            reference: String::new(),
            reference_value: None,
            ratio: None,
            spread: 0.0,
        }
    }
}

/// What the figures were taken on.
#[derive(Clone, Debug, Serialize)]
pub struct Machine {
    /// Processor, as it calls itself.
    pub cpu: String,
    /// CPUs.
    pub cpus: usize,
    /// Kernel release.
    pub kernel: String,
    /// Page size of packet memory.
    pub pages: String,
    /// Rate of the time stamp counter.
    pub tsc_hz: u64,
    /// Samples behind each median.
    pub samples: usize,
}

#[derive(Serialize)]
struct Summary<'a> {
    rows: &'a [Row],
    machine: &'a Machine,
}

/// Prints the table's head.
pub fn head() {
    println!(
        "{:<24} {:>10} {:<14} {:>10} {:>8} {:>8}  reference",
        "row", "median", "unit", "reference", "ratio", "spread"
    );
}

/// Prints one row.
pub fn line(row: &Row) {
    let or_dash = |v: Option<f64>| v.map_or("-".into(), |v| format!("{v:.2}"));
    println!(
        "{:<24} {:>10.2} {:<14} {:>10} {:>8} {:>7.1}%  {}",
        row.id,
        row.value,
        row.unit,
        or_dash(row.reference_value),
        or_dash(row.ratio),
        row.spread * 100.0,
        row.reference
    );
}

/// Writes the summary.
pub fn write(path: &Path, rows: &[Row], machine: &Machine) -> std::io::Result<()> {
    if let Some(folder) = path.parent() {
        std::fs::create_dir_all(folder)?;
    }
    let text = serde_json::to_string_pretty(&Summary { rows, machine })?;
    std::fs::write(path, text + "\n")
}

/// Median and spread of samples.
pub fn median(samples: &mut [f64]) -> (f64, f64) {
    samples.sort_by(f64::total_cmp);
    let median = samples[samples.len() / 2];
    (median, (samples[samples.len() - 1] - samples[0]) / median)
}

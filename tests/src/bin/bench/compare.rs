//! `bench --diff OLD NEW`: two summaries side by side, row by row. Ratios are compared where both have one: they hold
//! across moods of the machine better than times do.

use std::path::Path;

use serde_json::Value;

/// A change below this is within what two runs of the same program show here.
const NOISE: f64 = 0.05;

/// Prints the comparison.
pub fn run(mut args: impl Iterator<Item = String>) -> Result<(), String> {
    let (Some(old), Some(new)) = (args.next(), args.next()) else {
        return Err("--diff OLD.json NEW.json".into());
    };
    let (old, new) = (read(&old)?, read(&new)?);
    println!("{:<24} {:>12} {:>12} {:>9}  compared", "row", "old", "new", "change");
    for row in &new {
        let id = row["id"].as_str().unwrap_or_default();
        let Some(before) = old.iter().find(|r| r["id"] == row["id"]) else {
            println!("{id:<24} {:>12} {:>12.2} {:>9}", "-", row["value"].as_f64().unwrap_or_default(), "new");
            continue;
        };
        let both = |key: &str| before[key].as_f64().zip(row[key].as_f64());
        let (what, pair) = match both("ratio") {
            Some(pair) => ("ratio", Some(pair)),
            None => (row["unit"].as_str().unwrap_or_default(), both("value")),
        };
        let Some((was, is)) = pair else { continue };
        let change = if was == 0.0 { 0.0 } else { is / was - 1.0 };
        let mark = if change.abs() < NOISE { "" } else { "  *" };
        println!("{id:<24} {was:>12.2} {is:>12.2} {:>8.1}%  {what}{mark}", change * 100.0);
    }
    for row in old.iter().filter(|r| !new.iter().any(|n| n["id"] == r["id"])) {
        println!("{:<24} gone", row["id"].as_str().unwrap_or_default());
    }
    Ok(())
}

fn read(path: &str) -> Result<Vec<Value>, String> {
    let text = std::fs::read_to_string(Path::new(path)).map_err(|e| format!("{path}: {e}"))?;
    let summary: Value = serde_json::from_str(&text).map_err(|e| format!("{path}: {e}"))?;
    match summary["rows"].as_array() {
        Some(rows) => Ok(rows.clone()),
        None => Err(format!("{path}: no rows: not a summary of this benchmark")),
    }
}

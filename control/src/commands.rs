//! The reading commands: ask the daemon, print its rows.
//!
//! Each command is one request; `--json` prints the rows as they are, otherwise [`crate::show`] makes the
//! text. With `--watch` the same is printed again and again: over the old text on a terminal, below it
//! elsewhere.

use std::fs::File;
use std::io::{self, IsTerminal, Write};
use std::ops::ControlFlow;
use std::time::Duration;

use serde::Serialize;
use serde_json::json;

use crate::api::client::Client;
use crate::api::codec::{ConnFilterText, Request};
use crate::api::rows::{
    DestRow, DropRow, EstRow, KnobRow, ListRow, RateRow, ServiceRow, StatusRow, WorkerRow,
};
use crate::args::{
    ConnsArgs, DropsArgs, EstArgs, ListArgs, ProcArgs, RatesArgs, Reading, StatusArgs, SysctlArgs, Watch,
    WorkersArgs,
};
use crate::conn_filter::ConnFilter;
use crate::failure::Failure;
use crate::show::est::Est;
use crate::show::listing::{Columns, Listing};
use crate::show::status::Status;
use crate::show::{conns, drops, knobs, rates, workers};

/// Clears a terminal and goes to its first line (ECMA-48 ED, CUP).
const CLEAR: &str = "\x1b[2J\x1b[H";

/// `weir status`.
pub fn status(args: &StatusArgs) -> Result<(), Failure> {
    watch(&args.watch, &args.reading, |client| {
        let status = Status::from_rows(client.collect::<StatusRow>(&Request::Status)?);
        Ok(if args.reading.json { pretty(&status) } else { status.text() })
    })
}

/// `weir workers`.
pub fn workers(args: &WorkersArgs) -> Result<(), Failure> {
    watch(&args.watch, &args.reading, |client| {
        let rows = client.collect::<WorkerRow>(&Request::Workers)?;
        Ok(if args.reading.json { pretty(&json!({ "workers": rows })) } else { workers::listing(&rows) })
    })
}

/// `weir est`.
pub fn est(args: &EstArgs) -> Result<(), Failure> {
    watch(&args.watch, &args.reading, |client| {
        let est = Est::from_rows(client.collect::<EstRow>(&Request::Est)?);
        Ok(if args.reading.json { pretty(&est) } else { est.text() })
    })
}

/// `weir rates`.
pub fn rates(args: &RatesArgs) -> Result<(), Failure> {
    watch(&args.watch, &args.reading, |client| {
        let rows = client.collect::<RateRow>(&Request::Rates { order: args.sort, top: args.top })?;
        Ok(if args.reading.json { pretty(&json!({ "rates": rows })) } else { rates::listing(&rows) })
    })
}

/// `weir drops`.
pub fn drops(args: &DropsArgs) -> Result<(), Failure> {
    watch(&args.watch, &args.reading, |client| {
        let rows = client.collect::<DropRow>(&Request::Drops { all: args.all })?;
        Ok(if args.reading.json { pretty(&json!({ "drops": rows })) } else { drops::listing(&rows) })
    })
}

/// `weir list`.
pub fn list(args: &ListArgs) -> Result<(), Failure> {
    let columns = match (args.stats, args.rate, args.exact) {
        (true, _, false) => Columns::Stats,
        (true, _, true) => Columns::StatsExact,
        (_, true, false) => Columns::Rate,
        (_, true, true) => Columns::RateExact,
        _ => Columns::Plain,
    };
    watch(&args.watch, &args.reading, |client| {
        let listing = Listing::from_rows(client.collect::<ListRow>(&Request::List)?)
            .ok_or_else(|| Failure::run("list", "the daemon's answer has a destination without a service"))?;
        Ok(if args.reading.json { pretty(&listing_json(&listing)) } else { listing.text(columns) })
    })
}

/// `weir conns`. Rows are printed as they come: there may be millions.
pub fn conns(args: &ConnsArgs) -> Result<(), Failure> {
    let filter = ConnFilterText {
        client: args.client.clone(),
        service: args.service.clone(),
        dest: args.dest.clone(),
        state: args.state.clone(),
    };
    ConnFilter::parse(&filter).map_err(|refusal| {
        Failure::usage("conns", refusal.text).hint("`weir conns --help` shows the forms of the filters")
    })?;
    let mut client = Client::connect(&args.reading.socket_path())?;
    let mut out = io::BufWriter::new(io::stdout().lock());
    let mut printed = Printed::default();
    if args.reading.json {
        printed.write(&mut out, "{\"connections\":[")?;
    } else {
        printed.write(&mut out, &conns::head())?;
    }
    let (mut text, mut separator) = (String::new(), "\n  ");
    client.connections(filter, |row| {
        text.clear();
        if args.reading.json {
            text.push_str(separator);
            separator = ",\n  ";
            text.push_str(&serde_json::to_string(row).expect("rows have string keys and finite numbers"));
        } else {
            conns::push_line(&mut text, row);
        }
        printed.write(&mut out, &text)?;
        Ok(if printed.reader_gone { ControlFlow::Break(()) } else { ControlFlow::Continue(()) })
    })?;
    if args.reading.json {
        printed.write(&mut out, "\n]}\n")?;
    }
    printed.flush(&mut out)
}

/// `weir sysctl`. What is set is set in order, up to the first that is refused, and shown.
pub fn sysctl(args: &SysctlArgs) -> Result<(), Failure> {
    let mut client = Client::connect(&args.reading.socket_path())?;
    let mut rows = Vec::new();
    for word in &args.knobs {
        let (name, value) = match word.split_once('=') {
            Some((name, value)) => (name.trim(), Some(value.trim())),
            None => (word.trim(), None),
        };
        if let Some(value) = value {
            client.order(&Request::SysctlSet { name: name.to_owned(), text: value.to_owned() })?;
        }
        rows.extend(client.collect::<KnobRow>(&Request::SysctlGet { name: Some(name.to_owned()) })?);
    }
    if args.knobs.is_empty() {
        rows = client.collect(&Request::SysctlGet { name: None })?;
    }
    let text = if args.reading.json { pretty(&json!({ "knobs": rows })) } else { knobs::listing(&rows) };
    let mut out = io::stdout().lock();
    let mut printed = Printed::default();
    printed.write(&mut out, &text)?;
    printed.flush(&mut out)
}

/// `weir proc`. Printed as it comes: there may be millions of lines.
pub fn proc(args: &ProcArgs) -> Result<(), Failure> {
    let file = format!("net/{}", args.name);
    if args.watch.watch.is_some() || args.reading.json {
        return watch(&args.watch, &args.reading, |client| {
            let text = io::read_to_string(File::from(client.open(&file, false)?));
            let text = text.map_err(|error| Failure::run(&args.name, error))?;
            Ok(if args.reading.json { pretty(&json!({ "name": args.name, "text": text })) } else { text })
        });
    }
    let mut file = File::from(Client::connect(&args.reading.socket_path())?.open(&file, false)?);
    let mut out = io::stdout().lock();
    match io::copy(&mut file, &mut out).and_then(|_| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        Err(error) => Err(Failure::run("stdout", error)),
        Ok(()) => Ok(()),
    }
}

/// Prints what `text` makes of the daemon's answer, once or every so many seconds.
fn watch(
    watch: &Watch,
    reading: &Reading,
    mut text: impl FnMut(&mut Client) -> Result<String, Failure>,
) -> Result<(), Failure> {
    let mut client = Client::connect(&reading.socket_path())?;
    let mut out = io::stdout().lock();
    let mut printed = Printed::default();
    let redraw = watch.watch.is_some() && out.is_terminal() && !reading.json;
    loop {
        let text = text(&mut client)?;
        if redraw {
            printed.write(&mut out, CLEAR)?;
        }
        printed.write(&mut out, &text)?;
        printed.flush(&mut out)?;
        match watch.watch {
            Some(seconds) if !printed.reader_gone => std::thread::sleep(Duration::from_secs(seconds.into())),
            _ => return Ok(()),
        }
        if !redraw && !reading.json {
            printed.write(&mut out, "\n")?;
        }
    }
}

/// Writing to stdout, where a reader that has gone (`| head`) is no failure of ours.
#[derive(Default)]
struct Printed {
    reader_gone: bool,
}

impl Printed {
    fn write(&mut self, out: &mut impl Write, text: &str) -> Result<(), Failure> {
        if self.reader_gone {
            return Ok(());
        }
        let written = out.write_all(text.as_bytes());
        self.note(written)
    }

    fn flush(&mut self, out: &mut impl Write) -> Result<(), Failure> {
        if self.reader_gone {
            return Ok(());
        }
        let flushed = out.flush();
        self.note(flushed)
    }

    fn note(&mut self, result: io::Result<()>) -> Result<(), Failure> {
        match result {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.reader_gone = true,
            Err(error) => return Err(Failure::run("stdout", error)),
            Ok(()) => {}
        }
        Ok(())
    }
}

#[derive(Serialize)]
struct ServiceJson<'a> {
    #[serde(flatten)]
    service: &'a ServiceRow,
    destinations: &'a [DestRow],
}

fn listing_json(listing: &Listing) -> serde_json::Value {
    let services: Vec<ServiceJson<'_>> = listing
        .services
        .iter()
        .map(|(service, destinations)| ServiceJson { service, destinations })
        .collect();
    json!({ "connection_table_size": listing.connection_table_size, "services": services })
}

fn pretty(value: &impl Serialize) -> String {
    serde_json::to_string_pretty(value).expect("rows have string keys and finite numbers") + "\n"
}

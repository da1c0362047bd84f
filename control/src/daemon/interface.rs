//! What the kernel's IPVS offers beside its messages: knobs, the texts of /proc, the old socket options.
//!
//! Model: each is a request of our own family, answered from the same table and registry as the messages; a change goes
//! through [`Daemon::change`] as theirs do. Long texts are lines that are made as they are read. Control thread only.

use std::rc::Rc;

use config::knobs::{Knob, PREFIX};
use dataplane::counters;
use dataplane::est::Snapshot;
use rustix::io::Errno;
use tracing::warn;

use super::exchange::ConnRows;
use super::state::{Daemon, WorkerHandle};
use super::table::stats;
use crate::api::codec::Refusal;
use crate::api::handler::{Next, Outcome, Peer, Rows};
use crate::api::rows::{self, KnobRow};
use crate::conn_filter::ConnFilter;
use crate::ipvs::proc::{self, Conn};
use crate::ipvs::{self, Rights, Stats, Store};

/// Files of `/proc/net`, with what precedes them in a name.
const NET: &str = "net/";
/// Files of `/proc/sys/net/ipv4/vs`, likewise.
const SYS: &str = "sys/";

/// Knobs whose values 1 and 2 are automatic modes.
const DEFENCES: [&str; 2] = ["drop_packet", "secure_tcp"];

impl Daemon<'_> {
    /// Sets an old socket option.
    pub(super) fn set_option(&mut self, number: u32, data: &[u8], peer: Peer) -> Result<Outcome, Refusal> {
        self.spend(peer)?;
        let done = self.change(peer, |running| {
            let mut server = ipvs::Server::new(running);
            let done = server.set_option(number, data, peer.rights);
            (server.into_store(), done)
        });
        done.map(|()| Outcome::Done).map_err(|errno| Refusal::new(errno, errno.to_string()))
    }

    /// What an old socket option says.
    pub(super) fn option(
        &mut self,
        number: u32,
        room: u32,
        data: &[u8],
        peer: Peer,
    ) -> Result<Outcome, Refusal> {
        let server = ipvs::Server::new(self.running());
        let answer = server.option(number, room as usize, data, peer.rights);
        answer.map(Outcome::Text).map_err(|errno| Refusal::new(errno, errno.to_string()))
    }

    /// One knob, or all.
    pub(super) fn knobs(&self, name: Option<&str>) -> Result<Vec<KnobRow>, Refusal> {
        let knobs = name.map_or_else(|| Ok(Knob::all()), |name| knob(name).map(|knob| vec![knob]))?;
        let row = |knob: &Knob| KnobRow {
            name: knob.key.name.to_owned(),
            value: self.knob_text(*knob),
            default: crate::show::knobs::default(knob),
            accepts: knob.key.kind.expected(),
            unit: knob.key.unit.to_owned(),
            sentence: knob.key.sentence.to_owned(),
            in_effect: knob.key.built,
        };
        Ok(knobs.iter().map(row).collect())
    }

    /// Sets a knob.
    pub(super) fn set_knob(&mut self, name: &str, text: &str, peer: Peer) -> Result<Outcome, Refusal> {
        let knob = knob(name)?;
        let what = format!("{PREFIX}{}", knob.key.name);
        if peer.rights != Rights::Write {
            return Err(Refusal::new(Errno::PERM, format!("{what}: you may not set it")));
        }
        self.spend(peer)?;
        let cpus = self.knob_cpus.clone();
        let mut set = self.estimators_take(knob, text);
        if set.is_ok() {
            set = self.change(peer, |mut running| {
                let set = running.set_knob(knob, text, &cpus);
                (running, set)
            });
        }
        if set.is_ok() && knob.key.name == "est_cpulist" {
            // As in the kernel, an equal list too.
            self.estimation.measure();
        }
        set.map(|()| Outcome::Done).map_err(|errno| {
            let shown: String = text.trim().chars().take(60).filter(|c| !c.is_control()).collect();
            Refusal::new(
                errno,
                format!("{what}: \"{shown}\" refused: {errno}; expected {}", knob.key.kind.expected()),
            )
        })
    }

    /// What a program reads. A defence in an automatic mode says which: 2 while it acts, 1 while it waits.
    fn knob_text(&self, knob: Knob) -> String {
        let text = self.table.tunables.text(knob, &self.knob_cpus);
        if !DEFENCES.contains(&knob.key.name) || !matches!(text.as_str(), "1" | "2") {
            return text;
        }
        let low = |worker: &WorkerHandle| memory_is_low(worker.stats.read().conns, worker.born.capacity);
        if self.workers.iter().any(low) { "2" } else { "1" }.to_owned()
    }

    /// Whether the estimators can run with this value of a knob of theirs.
    fn estimators_take(&self, knob: Knob, text: &str) -> Result<(), Errno> {
        let mut new = self.table.tunables.clone();
        match new.set(knob, text, &self.knob_cpus) {
            Ok(()) => self.estimation.check(&new.estimators),
            // Refused for what it is.
            Err(_) => Ok(()),
        }
    }

    /// The value came through a file: who wrote it has gone on.
    pub(super) fn take_knob_value(&mut self, knob: &str, value: &str, peer: Peer) {
        if let Err(refusal) = self.set_knob(knob, value, peer) {
            warn!(target: "weir::api", uid = peer.uid, pid = peer.pid, "{}", refusal.text);
        }
    }

    /// A file of the kernel's /proc.
    pub(super) fn open_text(&mut self, name: &str, write: bool, peer: Peer) -> Result<Outcome, Refusal> {
        if let Some(name) = name.strip_prefix(SYS) {
            let knob = knob(name)?;
            if !write {
                let text = self.knob_text(knob);
                return Ok(Outcome::Text(format!("{text}\n").into_bytes()));
            }
            if peer.rights != Rights::Write {
                return Err(Refusal::new(Errno::ACCESS, "you may not set knobs"));
            }
            return Ok(Outcome::Knob(knob.key.name.to_owned()));
        }
        let file = name.strip_prefix(NET).unwrap_or_default();
        if !crate::show::proc::NAMES.contains(&file) {
            return Err(Refusal::new(Errno::NOENT, format!("no file {name}")));
        }
        if write {
            return Err(Refusal::new(Errno::ACCESS, format!("{name} is only read")));
        }
        Ok(match file {
            "ip_vs" => Outcome::Stream(Box::new(self.services())),
            "ip_vs_conn" => self.connections(proc::CONN_HEAD, proc::conn),
            "ip_vs_conn_sync" => self.connections(proc::CONN_SYNC_HEAD, proc::conn_sync),
            "ip_vs_stats" => Outcome::Text(proc::stats(&self.total()).into_bytes()),
            "ip_vs_stats_percpu" => {
                Outcome::Text(proc::stats_percpu(&self.by_worker(), &self.total()).into_bytes())
            }
            _ => Outcome::Text(proc::APP.as_bytes().to_vec()),
        })
    }

    /// Figures are those of this call, lines are made as they are read.
    fn services(&mut self) -> impl Iterator<Item = Vec<u8>> + use<> {
        let running = self.running();
        let head = proc::head(&running.info());
        let with_dests = |service: ipvs::Service| {
            let dests: Vec<_> = running.dests(&service.key).collect();
            (service, dests)
        };
        let services: Vec<_> = running.services().map(with_dests).collect();
        let lines = services.into_iter().map(|(service, dests)| proc::service(&service, dests.into_iter()));
        std::iter::once(head).chain(lines).map(String::into_bytes)
    }

    fn connections(&self, head: &'static str, line: fn(&Conn<'_>) -> String) -> Outcome {
        let mailboxes = self.workers.iter().map(|worker| Rc::clone(&worker.exchange)).collect();
        let render = move |row: &rows::ConnRow| {
            let entry = Conn {
                protocol: row.protocol,
                client: row.client,
                service: row.service_address,
                dest: row.dest,
                state: row.state,
                expires_seconds: row.expires_ms / 1000,
                engine: None,
            };
            line(&entry).into_bytes()
        };
        let rows = ConnRows::new(mailboxes, ConnFilter::default()).printed(render);
        Outcome::Stream(Box::new(Headed { head: Some(head), rows }))
    }

    /// Sums and rates of everything.
    fn total(&self) -> Stats {
        stats(&self.registry.stats())
    }

    /// What each worker counted since the start, by its CPU.
    fn by_worker(&self) -> Vec<(usize, Stats)> {
        let totals = |id| counters::sum(&[self.registry.counters(id)], counters::TOTALS);
        let row = |totals, cpu| (cpu, stats(&Snapshot { totals, ..Snapshot::default() }));
        self.workers.iter().map(|worker| row(totals(worker.id), worker.cpu)).collect()
    }
}

/// The workers' own measure: less than a tenth of the table is free.
fn memory_is_low(conns: u64, capacity: usize) -> bool {
    let capacity = capacity as u64;
    capacity.saturating_sub(conns) < capacity / 10
}

/// A head before rows.
struct Headed<R> {
    head: Option<&'static str>,
    rows: R,
}

impl<R: Rows> Rows for Headed<R> {
    fn next(&mut self) -> Result<Next, Refusal> {
        match self.head.take() {
            Some(head) => Ok(Next::Row(head.as_bytes().to_vec())),
            None => self.rows.next(),
        }
    }
}

fn knob(name: &str) -> Result<Knob, Refusal> {
    Knob::find(name).map_err(|error| {
        let shown: String = name.chars().take(60).filter(|c| !c.is_control()).collect();
        Refusal::new(Errno::NOENT, format!("{shown}: {error}; `weir sysctl` lists all"))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_low_with_less_than_a_tenth_free() {
        for (conns, capacity, low) in
            [(0, 0, false), (0, 100, false), (90, 100, false), (91, 100, true), (101, 100, true)]
        {
            assert_eq!(memory_is_low(conns, capacity), low, "{conns} of {capacity}");
        }
    }
}

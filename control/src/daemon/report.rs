//! Rows of `status`, `drops` and `list`, from what control holds: registry, slabs, ports. Never asks a worker.

use std::net::{Ipv4Addr, SocketAddr};
use std::time::Instant;

use dataplane::counters::WorkerFigures;
use dataplane::verdict::DropReason;
use dpdk_sys::PageChoice;

use super::boot::BootedPort;
use super::est;
use super::meters::{self, DropMeter};
use super::state::Daemon;
use crate::api::rows::{
    CounterFields, DaemonRow, DestRow, DropRow, ListHead, ListRow, PortRow, RateFields, ServiceRow,
    StatusRow, TableRow, TextRow, WarningRow, WorkerRow,
};
use crate::api::server::CLIENTS_MAX;
use crate::ipvs::{Dest, Family, Method, Service, Stats, Store, flag};

/// Bytes of text in one row; with JSON's escapes it stays below what a datagram holds.
const TEXT_ROW_BYTES: usize = 4096;
/// Size of an ordinary page on x86-64 and of the huge pages that DPDK takes by default.
const PAGE_BYTES: u64 = 4096;
const HUGE_PAGE_BYTES: u64 = 2 << 20;

/// The rows of `weir status`.
pub fn status(daemon: &Daemon<'_>) -> Vec<StatusRow> {
    let mut rows = vec![StatusRow::Daemon(process(daemon))];
    rows.extend(daemon.ports.iter().enumerate().map(|(i, port)| StatusRow::Port(port_row(daemon, i, port))));
    rows.extend(workers(daemon).into_iter().map(StatusRow::Worker));
    rows.push(StatusRow::Estimators(est::summary(&daemon.estimation)));
    rows.extend(tables(daemon).into_iter().map(StatusRow::Table));
    rows.extend(daemon.hints.held().iter().cloned().map(StatusRow::Warning));
    rows.extend(daemon.not_forwarded().into_iter().map(|setting| {
        StatusRow::Warning(WarningRow {
            seen: format!("accepted, not in effect: {setting}"),
            meaning: "this version stores the setting and does not act on it".to_owned(),
            remedy: "remove it, or leave it for a later version".to_owned(),
        })
    }));
    rows.extend(daemon.table.not_forwarded().into_iter().map(|objects| {
        StatusRow::Warning(WarningRow {
            seen: format!("accepted, not forwarded: {objects}"),
            meaning: "this version stores and lists it, and sends no packet there".to_owned(),
            remedy: "delete it, or leave it for a later version".to_owned(),
        })
    }));
    rows
}

/// What runs as a configuration file, in pieces; what the file has no form for as comments at its end.
pub fn file(daemon: &Daemon<'_>) -> Vec<TextRow> {
    let (services, timeouts, others) = daemon.table.as_file();
    let mut text = daemon.valid.running(services, timeouts, daemon.table.tunables.clone()).to_toml();
    if !others.is_empty() {
        text.push_str("\n# Runs too, and has no form in this file:\n");
    }
    others.iter().for_each(|line| text.push_str(&format!("# {line}\n")));
    let mut rows = vec![TextRow::default()];
    for line in text.split_inclusive('\n') {
        if rows.last().is_some_and(|row| row.text.len() + line.len() > TEXT_ROW_BYTES) {
            rows.push(TextRow::default());
        }
        rows.last_mut().expect("never empty").text.push_str(line);
    }
    rows
}

/// The rows of `weir drops`.
pub fn drops(meter: &DropMeter, figures: &WorkerFigures, now: Instant, all: bool) -> Vec<DropRow> {
    let row = |reason: &DropReason| {
        let total = figures.drops_for(*reason);
        DropRow {
            reason: reason.name().to_owned(),
            drops_total: total,
            drops_per_second: meter.per_second(now, *reason, total),
            sentence: reason.sentence().to_owned(),
        }
    };
    DropReason::ALL.iter().map(row).filter(|row| all || row.drops_total > 0).collect()
}

/// The rows of `weir list`: what the IPVS family lists, in its order. Figures are those of this call; the rows
/// are made as they are taken, since there may be a million.
pub fn list(store: &dyn Store) -> impl Iterator<Item = ListRow> + use<> {
    let head = ListRow::Head(ListHead { connection_table_size: store.info().table_size.into() });
    let with_dests = |service: Service| {
        let dests: Vec<_> = store.dests(&service.key).collect();
        (service, dests)
    };
    let services: Vec<_> = store.services().map(with_dests).collect();
    std::iter::once(head).chain(services.into_iter().flat_map(|(service, dests)| {
        let row = service_row(&service);
        let identity = row.service.clone();
        let dests = dests.into_iter().map(move |dest| ListRow::Dest(dest_row(&identity, &dest)));
        std::iter::once(ListRow::Service(row)).chain(dests)
    }))
}

fn service_row(service: &Service) -> ServiceRow {
    let (key, options) = (&service.key, &service.options);
    let has = |bit| options.flags & bit != 0;
    let full = options.netmask == key.family().full_netmask();
    let mask = match key.family() {
        Family::V4 => Ipv4Addr::from_bits(options.netmask).to_string(),
        Family::V6 => options.netmask.to_string(),
    };
    ServiceRow {
        service: key.to_string(),
        protocol: match key.protocol() {
            6 => "tcp".to_owned(),
            17 => "udp".to_owned(),
            132 => "sctp".to_owned(),
            number => number.to_string(),
        },
        address: key.address(),
        port: key.port(),
        fwmark: key.mark(),
        fwmark_ipv6: key.mark() != 0 && key.family() == Family::V6,
        scheduler: options.scheduler.clone(),
        scheduler_flags: scheduler_flags(options.flags),
        persistent_seconds: if has(flag::PERSISTENT) { options.timeout_seconds } else { 0 },
        persistent_mask: (has(flag::PERSISTENT) && !full).then_some(mask),
        persistence_engine: options.engine.clone(),
        one_packet: has(flag::ONE_PACKET),
        counters: counters(&service.stats),
        rates: rates(&service.stats),
    }
}

fn dest_row(service: &str, dest: &Dest) -> DestRow {
    let method = match dest.options.method {
        Method::MASQUERADE => "nat",
        Method::LOCAL => "local",
        Method::TUNNEL => "tunnel",
        Method::DIRECT_ROUTE => "dr",
        _ => "bypass",
    };
    DestRow {
        service: service.to_owned(),
        dest: SocketAddr::new(dest.key.address, dest.key.port),
        method: method.to_owned(),
        weight: dest.options.weight.unsigned_abs(),
        upper_connections: dest.options.upper,
        lower_connections: dest.options.lower,
        active_connections: dest.active,
        inactive_connections: dest.inactive,
        persistent_connections: dest.persistent,
        counters: counters(&dest.stats),
        rates: rates(&dest.stats),
    }
}

fn process(daemon: &Daemon<'_>) -> DaemonRow {
    let (pages, page_bytes) = match daemon.pages {
        PageChoice::Huge { .. } => ("huge", HUGE_PAGE_BYTES),
        PageChoice::Normal { .. } => ("normal", PAGE_BYTES),
    };
    DaemonRow {
        version: env!("CARGO_PKG_VERSION").to_owned(),
        pid: std::process::id(),
        uptime_seconds: daemon.started.elapsed().as_secs(),
        revision: daemon.revision,
        journal_bytes: daemon.journal.bytes(),
        generation: daemon.publisher.current().generation,
        config: daemon.config_path.display().to_string(),
        socket: daemon.valid.daemon().socket.clone(),
        pages: pages.to_owned(),
        page_bytes,
        memory_bytes: u64::from(daemon.valid.eal().memory_mb) << 20,
        resident_bytes: meters::resident_bytes(),
    }
}

fn port_row(daemon: &Daemon<'_>, index: usize, booted: &BootedPort<'_>) -> PortRow {
    let link = booted.port.link().ok();
    let stats = booted.port.stats().unwrap_or_default();
    let addresses = daemon.valid.network().ports.get(index);
    PortRow {
        port: booted.name.clone(),
        device: booted.device.clone(),
        driver: booted.driver.clone(),
        mac: config::Mac(booted.facts.mac).to_string(),
        link_up: link.is_some_and(|link| link.up),
        link_mbps: link.and_then(|link| link.speed_mbps).unwrap_or(0),
        mtu_bytes: booted.facts.mtu,
        addresses: addresses.into_iter().flat_map(|port| &port.addresses).map(ToString::to_string).collect(),
        rx_packets_total: stats.ipackets,
        tx_packets_total: stats.opackets,
        rx_bytes_total: stats.ibytes,
        tx_bytes_total: stats.obytes,
        rx_missed_total: stats.imissed,
        rx_errors_total: stats.ierrors + stats.rx_nombuf,
        tx_errors_total: stats.oerrors,
    }
}

/// The rows of `weir workers`, which are part of `weir status` too.
pub fn workers(daemon: &Daemon<'_>) -> Vec<WorkerRow> {
    let row = |worker: &super::state::WorkerHandle| {
        let (figures, load) = (worker.stats.read(), worker.load.load());
        WorkerRow {
            worker: worker.id,
            cpu: worker.cpu,
            mode: worker.mode.to_string(),
            alive: worker.life.is_alive(),
            load_percent: load.percent,
            rx_packets_total: figures.rx,
            tx_packets_total: figures.tx,
            drops_total: figures.dropped(),
            connections: figures.conns,
            packets_per_second: load.packets_per_second,
            cycles_per_packet: load.cycles_per_packet,
            packets_per_poll: load.packets_per_poll,
            empty_polls_percent: load.empty_polls_percent,
            polls_total: figures.polls,
            handed_out_total: figures.handed_out,
            handed_in_total: figures.handed_in,
            ring_drops_total: figures.drops_for(DropReason::RingFull),
        }
    };
    daemon.workers.iter().map(row).collect()
}

fn tables(daemon: &Daemon<'_>) -> Vec<TableRow> {
    let limits = daemon.valid.limits();
    let (services, destinations) = daemon.table.sizes();
    let neigh = &daemon.registry.shared().neigh;
    let counter_bytes: usize =
        (0..daemon.workers.len()).map(|id| daemon.registry.counters(id).memory_bytes()).sum();
    let row = |table: &str, used: u64, size: u64, reserved_bytes: usize| TableRow {
        table: table.to_owned(),
        used,
        size,
        reserved_bytes: reserved_bytes as u64,
    };
    vec![
        row(
            "connections",
            daemon.workers.iter().map(|worker| worker.stats.read().conns).sum(),
            daemon.connection_capacity(),
            daemon.workers.iter().map(|worker| worker.born.table_bytes).sum(),
        ),
        row("services", services.into(), limits.services.into(), 0),
        row("destinations", destinations.into(), limits.destinations.into(), counter_bytes),
        row("deleted", daemon.registry.trashed() as u64, limits.destinations.into(), 0),
        row("neighbours", neigh.rows().count() as u64, limits.neighbours.into(), neigh.memory_bytes()),
        row("clients", daemon.clients.connected, CLIENTS_MAX as u64, 0),
        row("mbufs", daemon.pool.in_use().into(), daemon.pool.capacity().into(), 0),
    ]
}

/// Scheduler flags 1 to 3 are bits 0x0008 to 0x0020 of a service's flags (`IP_VS_SVC_F_SCHED1..3`).
fn scheduler_flags(bits: u32) -> Vec<u8> {
    (1..=3).filter(|flag| bits & (0x0004 << flag) != 0).collect()
}

fn counters(stats: &Stats) -> CounterFields {
    CounterFields {
        connections_total: stats.conns,
        in_packets_total: stats.in_packets,
        out_packets_total: stats.out_packets,
        in_bytes_total: stats.in_bytes,
        out_bytes_total: stats.out_bytes,
    }
}

fn rates(stats: &Stats) -> RateFields {
    RateFields {
        connections_per_second: stats.conns_per_second,
        in_packets_per_second: stats.in_packets_per_second,
        out_packets_per_second: stats.out_packets_per_second,
        in_bytes_per_second: stats.in_bytes_per_second,
        out_bytes_per_second: stats.out_bytes_per_second,
    }
}

#[cfg(test)]
mod tests {
    use config::ServiceFlags;

    use super::*;

    #[test]
    fn scheduler_flags_are_numbered_from_one() {
        let flags = ServiceFlags::SCHED_1.union(ServiceFlags::SCHED_3);
        assert_eq!(scheduler_flags(flags.bits()), [1, 3]);
        assert_eq!(scheduler_flags(ServiceFlags::SCHED_2.bits()), [2]);
    }
}

//! The statistics blocks, character for character as testpmd 22.11 prints them.
//!
//! Port figures are the driver's. Forward figures are the driver's since the last `start` or clear, besides what the
//! streams count themselves: what a stream received, sent, and could not send.

use std::fmt::Write as _;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::Instant;

use dpdk_sys::PortStats;

use crate::ports::PortSlot;
use crate::settings::Stream;

/// What one stream counts. Its core writes, the control thread reads and, between runs, zeroes.
#[derive(Debug, Default)]
pub struct StreamStats {
    /// Packets received.
    pub rx: AtomicU64,
    /// Packets the driver took.
    pub tx: AtomicU64,
    /// Packets the driver did not take.
    pub dropped: AtomicU64,
}

impl StreamStats {
    fn clear(&self) {
        for cell in [&self.rx, &self.tx, &self.dropped] {
            cell.store(0, Relaxed);
        }
    }
}

/// What is remembered of a port from one showing to the next.
#[derive(Debug, Default)]
pub struct Meter {
    shown: Option<(Instant, PortStats)>,
    /// Figures at the start of forwarding.
    base: PortStats,
}

/// Figures of the running or last forwarding.
#[derive(Debug, Default)]
pub struct FwdStats {
    /// Its streams in order.
    pub streams: Vec<(Stream, Arc<StreamStats>)>,
    /// Its ports in order.
    pub ports: Vec<u16>,
    /// One for each port there is.
    pub meters: Vec<Meter>,
}

impl FwdStats {
    /// For `ports` ports.
    pub fn new(ports: usize) -> FwdStats {
        FwdStats { meters: (0..ports).map(|_| Meter::default()).collect(), ..FwdStats::default() }
    }

    /// Forward figures count from now on.
    pub fn clear(&mut self, slots: &[PortSlot<'_>]) {
        for (meter, slot) in self.meters.iter_mut().zip(slots) {
            meter.base = slot.stats();
        }
        self.streams.iter().for_each(|(_, stats)| stats.clear());
    }

    /// `show port stats N`.
    pub fn port(&mut self, id: u16, slot: &PortSlot<'_>) -> String {
        let (now, stats) = (Instant::now(), slot.stats());
        let shown = self.meters[usize::from(id)].shown.replace((now, stats));
        let rate = |count: fn(&PortStats) -> u64| {
            let Some((then, before)) = shown else { return 0 };
            let ns = now.duration_since(then).as_nanos().max(1) as f64;
            (count(&stats).saturating_sub(count(&before)) as f64 / ns * 1e9) as u64
        };
        port_block(
            id,
            &stats,
            [rate(|s| s.ipackets), rate(|s| s.ibytes) * 8, rate(|s| s.opackets), rate(|s| s.obytes) * 8],
        )
    }

    /// `clear port stats N`.
    pub fn clear_port(&mut self, id: u16, slot: &PortSlot<'_>) -> String {
        match slot.reset_stats() {
            Ok(()) => {
                self.meters[usize::from(id)].base = slot.stats();
                format!("\n  NIC statistics for port {id} cleared\n")
            }
            Err(error) => format!("Error: failed to reset stats (port {id}): {error}\n"),
        }
    }

    /// `show fwd stats all`.
    pub fn forward(&self, slots: &[PortSlot<'_>]) -> String {
        let mut text = String::new();
        if self.streams.len() > self.ports.len() {
            for (stream, stats) in &self.streams {
                text.push_str(&stream_block(stream, stats));
            }
        }
        let mut all = Forwarded::default();
        for &id in &self.ports {
            let (now, base) = (slots[usize::from(id)].stats(), self.meters[usize::from(id)].base);
            let dropped = |(stream, stats): &(Stream, Arc<StreamStats>)| {
                if stream.tx_port == id { stats.dropped.load(Relaxed) } else { 0 }
            };
            let figures = Forwarded {
                received: now.ipackets.saturating_sub(base.ipackets),
                missed: now.imissed.saturating_sub(base.imissed),
                errors: now.ierrors,
                nombuf: now.rx_nombuf.saturating_sub(base.rx_nombuf),
                sent: now.opackets.saturating_sub(base.opackets),
                dropped: self.streams.iter().map(dropped).sum(),
            };
            text.push_str(&forward_block(id, &figures));
            all.add(&figures, now.oerrors.saturating_sub(base.oerrors));
        }
        text.push_str(&accumulated(&all));
        text
    }
}

/// Figures of a forwarding port, or of all.
#[derive(Clone, Copy, Debug, Default)]
struct Forwarded {
    received: u64,
    missed: u64,
    errors: u64,
    nombuf: u64,
    sent: u64,
    dropped: u64,
}

impl Forwarded {
    fn add(&mut self, other: &Forwarded, tx_errors: u64) {
        self.received += other.received;
        self.missed += other.missed;
        self.nombuf += other.nombuf;
        self.sent += other.sent;
        self.dropped += other.dropped + tx_errors;
    }

    fn lines(&self, text: &mut String) {
        let Forwarded { received, missed, sent, dropped, .. } = self;
        let _ = writeln!(
            text,
            "  RX-packets: {received:<14} RX-dropped: {missed:<14}RX-total: {}",
            received + missed
        );
        if self.errors + self.nombuf > 0 {
            let _ = writeln!(text, "  RX-error: {}\n  RX-nombufs: {:<14}", self.errors, self.nombuf);
        }
        let _ =
            writeln!(text, "  TX-packets: {sent:<14} TX-dropped: {dropped:<14}TX-total: {}", sent + dropped);
    }
}

fn port_block(id: u16, stats: &PortStats, [rx_pps, rx_bps, tx_pps, tx_bps]: [u64; 4]) -> String {
    let border = "#".repeat(24);
    let PortStats { ipackets, imissed, ibytes, ierrors, rx_nombuf, opackets, oerrors, obytes, .. } = stats;
    format!(
        "\n  {border} NIC statistics for port {id:<2} {border}\n  \
         RX-packets: {ipackets:<10} RX-missed: {imissed:<10} RX-bytes:  {ibytes}\n  \
         RX-errors: {ierrors}\n  \
         RX-nombuf:  {rx_nombuf:<10}\n  \
         TX-packets: {opackets:<10} TX-errors: {oerrors:<10} TX-bytes:  {obytes}\n\n  \
         Throughput (since last show)\n  \
         Rx-pps: {rx_pps:>12}          Rx-bps: {rx_bps:>12}\n  \
         Tx-pps: {tx_pps:>12}          Tx-bps: {tx_bps:>12}\n  {}\n",
        "#".repeat(76)
    )
}

fn stream_block(stream: &Stream, stats: &StreamStats) -> String {
    let [rx, tx, dropped] = [&stats.rx, &stats.tx, &stats.dropped].map(|cell| cell.load(Relaxed));
    if rx + tx + dropped == 0 {
        return String::new();
    }
    let Stream { rx_port, rx_queue, tx_port, tx_queue } = stream;
    format!(
        "\n  ------- Forward Stats for RX Port={rx_port:2}/Queue={rx_queue:2} -> \
         TX Port={tx_port:2}/Queue={tx_queue:2} -------\n  \
         RX-packets: {rx:<14} TX-packets: {tx:<14} TX-dropped: {dropped:<14}\n"
    )
}

fn forward_block(id: u16, figures: &Forwarded) -> String {
    let border = "-".repeat(22);
    let mut text = format!("\n  {border} Forward statistics for port {id:<2} {border}\n");
    figures.lines(&mut text);
    let _ = writeln!(text, "  {}", "-".repeat(76));
    text
}

fn accumulated(all: &Forwarded) -> String {
    let border = "+".repeat(15);
    let mut text = format!("\n  {border} Accumulated forward statistics for all ports{border}\n");
    let lines = Forwarded { errors: 0, nombuf: 0, ..*all };
    lines.lines(&mut text);
    if all.nombuf > 0 {
        let _ = writeln!(text, "  RX-nombufs: {:<14}", all.nombuf);
    }
    let _ = writeln!(text, "  {}", "+".repeat(76));
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn blocks_have_the_recorded_widths() {
        let stats = PortStats::default();
        let block = port_block(3, &stats, [80_928_149, 0, 1, 2]);
        assert!(block.contains(" NIC statistics for port 3  ####"), "{block}");
        assert!(block.contains("\n  RX-packets: 0          RX-missed: 0          RX-bytes:  0\n"), "{block}");
        assert!(block.contains("\n  Rx-pps:     80928149          Rx-bps:            0\n"), "{block}");
        let figures = Forwarded { received: 711_552_800, dropped: 5, ..Forwarded::default() };
        assert_eq!(
            accumulated(&figures).lines().nth(3).unwrap(),
            "  TX-packets: 0              TX-dropped: 5             TX-total: 5"
        );
        let stream = Stream { rx_port: 0, rx_queue: 1, tx_port: 1, tx_queue: 1 };
        let counted = StreamStats::default();
        assert_eq!(stream_block(&stream, &counted), "");
        counted.rx.store(7, Relaxed);
        assert!(stream_block(&stream, &counted).starts_with(
            "\n  ------- Forward Stats for RX Port= 0/Queue= 1 -> TX Port= 1/Queue= 1 -------\n"
        ));
    }
}

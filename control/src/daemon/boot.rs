//! From a configuration to started ports: EAL, mbuf pool, devices.
//!
//! Order: DPDK starts with every device of the configuration; one pool is made that holds every packet that
//! can be on its way; each port is claimed by name (a virtual device that fails to probe is otherwise just
//! missing), configured with one queue pair per worker, and started. What fails undoes what was done before
//! it by drop: ports close, then the EAL cleans up. Control thread.

use std::io::Read;
use std::path::{Path, PathBuf};

use config::{Pages, Valid};
use dataplane::limits::{BURST, PARKED_MAX, TX_BACKLOG, ring_size};
use dataplane::route::PortFacts;
use dataplane::steer::Steer;
use dpdk_sys::{
    DEFAULT_DATA_ROOM, DpdkError, Eal, EalArgs, HEADROOM_BYTES, Mempool, PageChoice, PoolConfig, Port,
    PortClaim, PortConfig, PortInfo, Rss, Started,
};
use rustix::io::Errno;
use tracing::{info, warn};

use super::spread::{PortAbility, Spread};
use crate::failure::Failure;

/// Mbufs an lcore's cache may hold back: DPDK lets a cache grow to half as much again as its size of 256.
const CACHE_MBUFS: usize = 384;
/// Ethernet header, one VLAN tag and frame check sequence, bytes, beyond the MTU.
const FRAME_OVERHEAD_BYTES: u32 = 22;

/// A started port.
pub struct BootedPort<'eal> {
    /// Name in the configuration.
    pub name: String,
    /// Device text of the configuration.
    pub device: String,
    /// Driver that serves it.
    pub driver: String,
    /// The device.
    pub port: Port<'eal, Started>,
    /// What the data plane needs to know of it.
    pub facts: PortFacts,
    /// Receive queues, for the first workers.
    pub rx_queues: u16,
    /// Transmit queues, likewise.
    pub tx_queues: u16,
}

/// DPDK's run-time folder of this process, which DPDK itself leaves behind. To be dropped after the EAL.
pub struct RuntimeDir {
    prefix: String,
}

impl RuntimeDir {
    /// One of its own for each process, so that several daemons do not meet. Empty ones of daemons that were
    /// killed are removed.
    pub fn new() -> RuntimeDir {
        for dir in dpdk_dirs() {
            let entries = std::fs::read_dir(dir).into_iter().flatten().flatten();
            for entry in entries.filter(|entry| is_of_the_dead(&entry.file_name().to_string_lossy())) {
                let _ = std::fs::remove_dir(entry.path());
            }
        }
        RuntimeDir { prefix: format!("weir-{}", std::process::id()) }
    }
}

impl Drop for RuntimeDir {
    fn drop(&mut self) {
        for dir in dpdk_dirs() {
            // Fails, as it should, where there is none.
            let _ = std::fs::remove_dir(dir.join(&self.prefix));
        }
    }
}

/// Where DPDK makes run-time folders: under systemd, for root, for a user with a session, for any other user.
fn dpdk_dirs() -> impl Iterator<Item = PathBuf> {
    let named = |variable| std::env::var_os(variable).map(PathBuf::from);
    [named("RUNTIME_DIRECTORY"), Some("/var/run".into()), named("XDG_RUNTIME_DIR"), Some("/tmp".into())]
        .into_iter()
        .flatten()
        .map(|base| base.join("dpdk"))
}

/// Whether a run-time folder's name is that of a daemon that does not run any more.
fn is_of_the_dead(name: &str) -> bool {
    let pid = name.strip_prefix("weir-").and_then(|pid| pid.parse::<u32>().ok());
    pid.is_some_and(|pid| !Path::new("/proc").join(pid.to_string()).exists())
}

/// Starts DPDK with the devices of the configuration; the decision on pages is one log line.
pub fn start_eal(valid: &Valid, dir: &RuntimeDir, control_cpu: Option<usize>) -> Result<Eal, Failure> {
    let mut args = EalArgs::new()
        .memory_mb(valid.eal().memory_mb)
        .pages(match valid.eal().pages {
            Pages::Huge => dpdk_sys::Pages::Huge,
            Pages::Normal => dpdk_sys::Pages::Normal,
            _ => dpdk_sys::Pages::Auto,
        })
        .file_prefix(&dir.prefix);
    if let Some(cpu) = control_cpu {
        args = args.main_cpu(cpu);
    }
    let (pci, virtual_devices): (Vec<_>, Vec<_>) =
        valid.ports().iter().partition(|port| is_pci(&port.device));
    args = pci.iter().fold(args, |args, port| args.pci_device(&port.device));
    if pci.is_empty() {
        args = args.no_pci();
    }
    args = virtual_devices.iter().fold(args, |args, port| args.vdev(&port.device));
    args = valid.eal().args.iter().fold(args, |args, word| args.arg(word));
    let eal = Eal::start(&args).map_err(|error| eal_failure(valid, &error))?;
    match eal.pages() {
        PageChoice::Normal { wanted_mb, free_mb } if valid.eal().pages != Pages::Normal => info!(
            target: "weir::boot", wanted_mb, free_hugepages_mb = free_mb,
            "packet memory in normal pages: too few huge pages are free, a packet costs up to three times as much"
        ),
        choice => info!(target: "weir::boot", "packet memory: {choice}"),
    }
    Ok(eal)
}

/// Makes the one pool: every descriptor, backlog, waiting packet and cache of `workers` can be full at once.
pub fn make_pool<'eal>(eal: &'eal Eal, valid: &Valid, workers: usize) -> Result<Mempool<'eal>, Failure> {
    let mtu = valid.ports().iter().map(|port| u32::from(port.mtu)).max().unwrap_or(0);
    let frame = mtu + FRAME_OVERHEAD_BYTES + u32::from(HEADROOM_BYTES);
    let mut config = PoolConfig::new("weir", pool_count(valid.ports().len(), workers));
    config.data_room = u16::try_from(frame.next_multiple_of(64)).unwrap_or(u16::MAX).max(DEFAULT_DATA_ROOM);
    let pool = Mempool::create(eal, &config).map_err(|error| {
        Failure::environment("too little packet memory", error).hint(format!(
            "raise `memory_mb` in [eal], now {}; with huge pages also vm.nr_hugepages",
            valid.eal().memory_mb
        ))
    })?;
    info!(target: "weir::boot", mbufs = pool.capacity(), data_bytes = pool.data_bytes(), "mbuf pool");
    Ok(pool)
}

/// Claims, configures and starts every port of the configuration; who owns which flow depends on what they can do.
pub fn start_ports<'eal>(
    eal: &'eal Eal,
    pool: &Mempool<'eal>,
    valid: &Valid,
    workers: usize,
) -> Result<(Vec<BootedPort<'eal>>, Steer), Failure> {
    let mut claims = Vec::new();
    for wanted in valid.ports() {
        let claim = eal.port_by_name(device_name(&wanted.device));
        let described = claim.and_then(|claim| claim.info().map(|info| (claim, info)));
        claims.push(described.map_err(|error| port_failure(wanted, &error))?);
    }
    let key = random_key().map_err(|error| Failure::environment("/dev/urandom", error))?;
    let able =
        |(_, info): &(PortClaim<'_>, PortInfo)| PortAbility { rx_queues: info.max_rx_queues, rss: info.rss };
    let Spread { steer, rss } =
        Spread::new(valid, &claims.iter().map(able).collect::<Vec<_>>(), workers, key);
    let ports = valid.ports().iter().zip(claims).zip(rss);
    let started = ports.map(|((wanted, claimed), rss)| start_port(claimed, pool, wanted, workers, rss));
    Ok((started.collect::<Result<_, _>>()?, steer))
}

/// A key for a hash, so that nobody can choose flows that collide.
pub fn random_key() -> std::io::Result<(u64, u64)> {
    let mut bytes = [[0; 8]; 2];
    std::fs::File::open("/dev/urandom")?.read_exact(bytes.as_flattened_mut())?;
    let [a, b] = bytes.map(u64::from_ne_bytes);
    Ok((a, b))
}

fn port_failure(wanted: &config::Port, error: &DpdkError) -> Failure {
    let failure = Failure::environment(format!("port {}", wanted.name), error);
    match device_hint(&wanted.device, error) {
        Some(hint) => failure.hint(hint),
        None => failure,
    }
}

fn start_port<'eal>(
    (claim, info): (PortClaim<'eal>, PortInfo),
    pool: &Mempool<'eal>,
    wanted: &config::Port,
    workers: usize,
    rss: Option<Rss>,
) -> Result<BootedPort<'eal>, Failure> {
    let failed = |error: DpdkError| port_failure(wanted, &error);
    let rx_queues = info.max_rx_queues.min(workers as u16);
    let tx_queues = info.max_tx_queues.min(workers as u16);
    let mtu = Some(wanted.mtu);
    let config = PortConfig { rx_queues, tx_queues, mtu, rss: rss.clone(), ..PortConfig::default() };
    if usize::from(rx_queues.min(tx_queues)) < workers {
        info!(
            target: "weir::port", port = wanted.name, rx_queues, tx_queues, workers,
            "fewer queues than workers: packets of the others cross a ring (net_af_packet takes qpairs=N)"
        );
    }
    let configured = claim.configure(&config, pool).map_err(failed)?;
    if let Some(mac) = wanted.mac {
        configured.set_mac(mac.0).map_err(failed)?;
    }
    let port = configured.start().map_err(failed)?;
    if wanted.promiscuous
        && let Err(error) = port.set_promiscuous(true)
    {
        warn!(target: "weir::port", port = wanted.name, %error, "the device does not receive for other addresses");
    }
    if let Some(rss) = &rss {
        match port.redirect(&rss.queues) {
            Ok(()) => {
                info!(target: "weir::port", port = wanted.name, end = ?rss.end, "the device finds the owner of a packet")
            }
            Err(error) => {
                warn!(target: "weir::port", port = wanted.name, %error, "packets reach their owner over a ring");
            }
        }
    }
    let facts = PortFacts { mac: port.mac().map_err(failed)?, mtu: wanted.mtu };
    let link_up = port.link().is_ok_and(|link| link.up);
    info!(
        target: "weir::port", port = wanted.name, device = wanted.device, driver = info.driver,
        mac = %config::Mac(facts.mac), mtu = facts.mtu, link_up, "port started"
    );
    Ok(BootedPort {
        name: wanted.name.clone(),
        device: wanted.device.clone(),
        driver: info.driver,
        port,
        facts,
        rx_queues,
        tx_queues,
    })
}

/// Stops and closes every port; the pool is full afterwards, or it is said aloud.
pub fn stop_ports(ports: Vec<BootedPort<'_>>, pool: &Mempool<'_>) {
    for booted in ports {
        match booted.port.stop() {
            Ok(stopped) => drop(stopped),
            Err(error) => warn!(target: "weir::port", port = booted.name, %error, "the port did not stop"),
        }
    }
    let (available, capacity) = (pool.available(), pool.capacity());
    if available == capacity {
        info!(target: "weir::boot", "pool full {available}/{capacity}: every mbuf came back");
    } else {
        warn!(target: "weir::boot", "pool {available}/{capacity}: {} mbufs did not come back", capacity - available);
    }
}

fn pool_count(ports: usize, workers: usize) -> u32 {
    let descriptors = PortConfig::default();
    let per_queue_pair = usize::from(descriptors.rx_descriptors) + usize::from(descriptors.tx_descriptors);
    // Besides what its own queues hold, a worker may hold a burst of each port for another one.
    let per_worker = ports * (per_queue_pair + TX_BACKLOG + 2 * BURST) + PARKED_MAX + CACHE_MBUFS;
    let rings = workers * workers.saturating_sub(1) * ring_size(workers);
    // The control thread's lcore has a cache too. 2^n - 1 wastes no memory in the pool's ring.
    let needed = workers * per_worker + rings + CACHE_MBUFS;
    (needed + 1).next_power_of_two() as u32 - 1
}

/// A PCI device is named by its address: `0000:3b:00.0` or `3b:00.0`, with options after a comma.
fn is_pci(device: &str) -> bool {
    let name = device_name(device);
    let hex = |text: &str| !text.is_empty() && text.bytes().all(|b| b.is_ascii_hexdigit());
    let Some((bus, function)) = name.rsplit_once('.') else { return false };
    hex(function) && bus.contains(':') && bus.split(':').all(hex)
}

/// The part before the options: DPDK's name of the port.
fn device_name(device: &str) -> &str {
    device.split(',').next().unwrap_or(device)
}

fn eal_failure(valid: &Valid, error: &DpdkError) -> Failure {
    let failure = Failure::environment("DPDK", error);
    match error {
        DpdkError::Hugepages { wanted_mb, .. } => failure.hint(format!(
            "reserve them: sysctl vm.nr_hugepages={}; or set pages = \"auto\" in [eal]",
            wanted_mb.div_ceil(2)
        )),
        DpdkError::BadArgument { .. } => failure.hint("see [eal] args and the devices of [[port]]"),
        DpdkError::EalStart { errno, .. } if errno.code() == Errno::NODEV.raw_os_error() => {
            let ports = valid.ports().iter().map(|port| format!("port {} = {}", port.name, port.device));
            let ports = ports.collect::<Vec<_>>().join("\n");
            failure.hint(format!(
                "DPDK has no driver for one of these, see the log lines of target weir::eal:\n{ports}"
            ))
        }
        _ => failure.hint(format!(
            "the log lines of target weir::eal above say why; often: no privilege, or less than \
             memory_mb = {} of free memory",
            valid.eal().memory_mb
        )),
    }
}

/// What to do when a device is not there or refuses.
fn device_hint(device: &str, error: &DpdkError) -> Option<String> {
    let option = |name: &str| device.split(',').find_map(|part| part.strip_prefix(name)?.strip_prefix('='));
    match error {
        DpdkError::PortNotFound { .. } if is_pci(device) => Some(
            "bind it to vfio-pci: `dpdk-devbind.py --status` shows what is there, `-b vfio-pci ADDRESS` binds".into(),
        ),
        DpdkError::PortNotFound { .. } => match option("iface") {
            Some(iface) if !Path::new("/sys/class/net").join(iface).exists() => Some(format!(
                "there is no interface {iface} in this network namespace: `ip link` shows those that are"
            )),
            _ => Some("the log lines of target weir::eal above say why; opening a device often needs root".into()),
        },
        DpdkError::PoolTooSmall { .. } => Some("lower the port's mtu".into()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pci_devices_are_told_from_virtual_ones() {
        let cases = [
            ("0000:3b:00.0", true),
            ("3b:00.1,opt=1", true),
            ("net_af_packet0,iface=veth0.100", false),
            ("net_null0", false),
            ("0000:3b:00.x", false),
            ("net_memif0,socket=/run/a:b.0", false),
        ];
        for (device, pci) in cases {
            assert_eq!(is_pci(device), pci, "{device}");
        }
    }

    #[test]
    fn the_pool_holds_every_packet_that_can_be_on_its_way() {
        // Two ports, one worker: 2 x (1024 + 1024 + 64 + 32) + 1024 + 2 x 384.
        assert_eq!(pool_count(2, 1), 8191);
        assert!(pool_count(2, 1) >= 2 * 2144 + 1024 + 768);
        assert_eq!(pool_count(1, 1), 4095);
    }

    #[test]
    fn only_folders_of_dead_daemons_are_swept() {
        assert!(is_of_the_dead("weir-4294967295"));
        assert!(!is_of_the_dead(&format!("weir-{}", std::process::id())));
        assert!(!is_of_the_dead("rte") && !is_of_the_dead("weir-x"));
    }

    #[test]
    fn a_missing_interface_is_named() {
        let error = DpdkError::PortNotFound { name: "net_af_packet0".into() };
        let hint = device_hint("net_af_packet0,iface=nosuchif0,qpairs=1", &error).unwrap();
        assert!(hint.contains("no interface nosuchif0"), "{hint}");
        assert!(device_hint("0000:01:00.0", &error).unwrap().contains("vfio-pci"));
    }

    #[test]
    fn keys_differ() {
        assert_ne!(random_key().unwrap(), random_key().unwrap());
    }
}

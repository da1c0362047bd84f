//! The ports: made ready as testpmd does, with its lines, and asked for their figures in either state.

use dpdk_sys::{
    Configured, DpdkError, Eal, MacBytes, Mempool, Port, PortClaim, PortConfig, PortDetails, PortStats,
    QueueSetup, RxQueue, Started, TxQueue,
};

use crate::output::print;
use crate::settings::{Settings, mac_text};

/// One port. Control thread.
pub struct PortSlot<'eal> {
    state: State<'eal>,
    /// Device name.
    pub name: String,
    /// Driver.
    pub driver: String,
    /// NUMA node that testpmd would name for it.
    pub socket: u32,
    /// Whether the driver knows its NUMA node.
    pub knows_socket: bool,
    /// Its queues are to be set up before the next start.
    pub reconfigure: bool,
}

enum State<'eal> {
    Claimed(PortClaim<'eal>),
    Stopped(Port<'eal, Configured>),
    Started(Port<'eal, Started>),
    /// Between two states, or lost by a failure that was reported.
    Gone,
}

/// Evaluates an expression over the port in whichever state it is.
macro_rules! ask {
    ($slot:expr, $port:ident => $value:expr) => {
        match &$slot.state {
            State::Stopped($port) => $value,
            State::Started($port) => $value,
            State::Claimed(_) | State::Gone => Err(DpdkError::PortNotFound { name: $slot.name.clone() }),
        }
    };
}

impl<'eal> PortSlot<'eal> {
    /// Claims the port `name`; it is set up when it is first started.
    pub fn claim(eal: &'eal Eal, name: &str) -> Result<PortSlot<'eal>, DpdkError> {
        let claim = eal.port_by_name(name)?;
        let info = claim.info()?;
        Ok(PortSlot {
            state: State::Claimed(claim),
            name: name.to_owned(),
            driver: info.driver,
            socket: info.socket.unwrap_or(0),
            knows_socket: info.socket.is_some(),
            reconfigure: false,
        })
    }

    /// Starts a stopped port, after setting it up anew if that is due, and prints its address.
    pub fn start(&mut self, id: u16, settings: &Settings, pool: &Mempool<'eal>) -> Result<(), DpdkError> {
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Claimed(claim) => {
                self.say_configuring(id);
                let port = claim.configure(&port_config(settings), pool)?;
                // Drivers without the setting receive everything as they are.
                let _ = port.set_promiscuous(true);
                State::Started(port.start()?)
            }
            State::Stopped(port) if std::mem::take(&mut self.reconfigure) => {
                self.say_configuring(id);
                State::Started(port.configure(&port_config(settings), pool)?.start()?)
            }
            State::Stopped(port) => State::Started(port.start()?),
            other => other,
        };
        print(&format!("Port {id}: {}\n", mac_text(self.mac())));
        Ok(())
    }

    fn say_configuring(&self, id: u16) {
        print(&format!("Configuring Port {id} (socket {})\n", self.socket));
    }

    /// Stops a started port.
    pub fn stop(&mut self) -> Result<(), DpdkError> {
        self.state = match std::mem::replace(&mut self.state, State::Gone) {
            State::Started(port) => State::Stopped(port.stop()?),
            other => other,
        };
        Ok(())
    }

    /// Whether it moves packets.
    pub fn is_started(&self) -> bool {
        matches!(self.state, State::Started(_))
    }

    fn running(&self) -> Result<&Port<'eal, Started>, DpdkError> {
        match &self.state {
            State::Started(port) => Ok(port),
            _ => Err(DpdkError::PortNotFound { name: self.name.clone() }),
        }
    }

    /// Takes receive queue `queue` of a started port.
    pub fn take_rx(&self, queue: u16) -> Result<RxQueue<'_>, DpdkError> {
        self.running()?.take_rx(queue)
    }

    /// Takes transmit queue `queue` of a started port.
    pub fn take_tx(&self, queue: u16) -> Result<TxQueue<'_>, DpdkError> {
        self.running()?.take_tx(queue)
    }

    /// Takes a receive queue back.
    pub fn return_rx(&self, queue: RxQueue<'_>) {
        if let Ok(port) = self.running() {
            port.return_rx(queue);
        }
    }

    /// Takes a transmit queue back.
    pub fn return_tx(&self, queue: TxQueue<'_>) {
        if let Ok(port) = self.running() {
            port.return_tx(queue);
        }
    }

    /// Its address; zeros if the driver has none.
    pub fn mac(&self) -> MacBytes {
        ask!(self, port => port.mac()).unwrap_or_default()
    }

    /// Its MTU in bytes.
    pub fn mtu(&self) -> Result<u16, DpdkError> {
        ask!(self, port => port.mtu())
    }

    /// The driver's counts; zeros where it keeps none.
    pub fn stats(&self) -> PortStats {
        ask!(self, port => port.stats()).unwrap_or_default()
    }

    /// Sets them to zero.
    pub fn reset_stats(&self) -> Result<(), DpdkError> {
        ask!(self, port => port.reset_stats())
    }

    /// The driver's own counters.
    pub fn xstats(&self) -> Result<Vec<(String, u64)>, DpdkError> {
        ask!(self, port => port.xstats())
    }

    /// Sets them to zero.
    pub fn reset_xstats(&self) -> Result<(), DpdkError> {
        ask!(self, port => port.reset_xstats())
    }

    /// Limits and modes.
    pub fn details(&self) -> Result<PortDetails, DpdkError> {
        ask!(self, port => port.details())
    }

    /// Receive and transmit offloads.
    pub fn offloads(&self) -> (u64, u64) {
        ask!(self, port => port.offloads()).unwrap_or_default()
    }

    /// Parameters of its first queues.
    pub fn queue_setup(&self) -> Result<(QueueSetup, QueueSetup), DpdkError> {
        ask!(self, port => Ok((port.rx_queue_setup(0)?, port.tx_queue_setup(0)?)))
    }

    /// Receives for all addresses, or no longer.
    pub fn set_promiscuous(&self, on: bool) -> Result<(), DpdkError> {
        ask!(self, port => port.set_promiscuous(on))
    }

    /// Receives all multicast packets, or no longer.
    pub fn set_allmulticast(&self, on: bool) -> Result<(), DpdkError> {
        ask!(self, port => port.set_allmulticast(on))
    }
}

fn port_config(settings: &Settings) -> PortConfig {
    PortConfig {
        rx_queues: settings.rxq,
        tx_queues: settings.txq,
        rx_descriptors: settings.rxd,
        tx_descriptors: settings.txd,
        ..PortConfig::default()
    }
}

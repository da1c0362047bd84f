//! What the server needs of a table.

use std::net::IpAddr;

use rustix::io::Errno;

use super::types::{
    Daemon, DaemonState, Dest, DestKey, DestOptions, Info, Service, ServiceKey, ServiceOptions, Timeouts,
};

/// A table of services, their destinations, the sync daemons and the timeouts.
///
/// The server has checked everything that the kernel checks before it calls a method that changes something:
/// what is added is not there, what is changed or removed is. An error of such a method is a limit of the
/// store, ENOMEM as a rule, and leaves everything as it was. Control thread only.
pub trait Store {
    /// Version and size of the connection table.
    fn info(&self) -> Info;

    /// Whether services may name this scheduler; `none` is one.
    fn knows_scheduler(&self, name: &str) -> bool;

    /// Whether services may name this persistence engine.
    fn knows_engine(&self, name: &str) -> bool;

    /// MTU of an interface, bytes; `None` when there is no such interface.
    fn interface_mtu(&self, name: &str) -> Option<u32>;

    /// Whether a destination may have this address: one that a packet can be sent to, of this machine or another.
    fn is_unicast(&self, address: IpAddr) -> bool;

    /// One service.
    fn service(&self, key: &ServiceKey) -> Option<Service>;

    /// All services as of now: address services, then mark services, each as they were added.
    fn services(&self) -> Box<dyn Iterator<Item = Service>>;

    /// Adds a service.
    ///
    /// # Errors
    /// A limit of the store.
    fn add_service(&mut self, key: ServiceKey, options: ServiceOptions) -> Result<(), Errno>;

    /// Replaces a service's options; destinations, counters and connections stay.
    ///
    /// # Errors
    /// A limit of the store.
    fn set_service(&mut self, key: &ServiceKey, options: ServiceOptions) -> Result<(), Errno>;

    /// Removes a service and its destinations.
    ///
    /// # Errors
    /// A limit of the store.
    fn remove_service(&mut self, key: &ServiceKey) -> Result<(), Errno>;

    /// Whether the service has this destination.
    fn has_dest(&self, service: &ServiceKey, dest: &DestKey) -> bool;

    /// Whether the destination was removed while connections still refer to it, and can be taken back.
    fn has_waiting_dest(&self, service: &ServiceKey, dest: &DestKey) -> bool;

    /// Destinations of a service as of now, the newest first; none when there is no such service.
    fn dests(&self, service: &ServiceKey) -> Box<dyn Iterator<Item = Dest>>;

    /// Adds a destination, or takes a waiting one back.
    ///
    /// # Errors
    /// A limit of the store.
    fn add_dest(&mut self, service: &ServiceKey, dest: DestKey, options: DestOptions) -> Result<(), Errno>;

    /// Replaces a destination's options.
    ///
    /// # Errors
    /// A limit of the store.
    fn set_dest(&mut self, service: &ServiceKey, dest: &DestKey, options: DestOptions) -> Result<(), Errno>;

    /// Removes a destination; it waits while connections refer to it.
    ///
    /// # Errors
    /// A limit of the store.
    fn remove_dest(&mut self, service: &ServiceKey, dest: &DestKey) -> Result<(), Errno>;

    /// Whether some destination has another address family than its service.
    fn has_mixed_families(&self) -> bool;

    /// Zeroes counters and rates of a service and its destinations, or of everything.
    fn zero(&mut self, service: Option<&ServiceKey>);

    /// Removes all services; timeouts, daemons and connections stay.
    ///
    /// # Errors
    /// A limit of the store.
    fn flush(&mut self) -> Result<(), Errno>;

    /// Running sync daemons, the master first.
    fn daemons(&self) -> Vec<Daemon>;

    /// Starts a sync daemon.
    ///
    /// # Errors
    /// A limit of the store.
    fn start_daemon(&mut self, daemon: Daemon) -> Result<(), Errno>;

    /// Stops a sync daemon.
    ///
    /// # Errors
    /// A limit of the store.
    fn stop_daemon(&mut self, state: DaemonState) -> Result<(), Errno>;

    /// The timeouts.
    fn timeouts(&self) -> Timeouts;

    /// Sets the timeouts.
    ///
    /// # Errors
    /// A limit of the store.
    fn set_timeouts(&mut self, timeouts: Timeouts) -> Result<(), Errno>;
}

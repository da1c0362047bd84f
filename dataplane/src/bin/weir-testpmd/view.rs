//! Commands that do not change the ports' state, the same while packets move and while not.

use std::time::Duration;

use dpdk_sys::DpdkError;

use crate::commands::{Command, Config, Misunderstood, PortAction, PortFacts, Ports, Setting, parse};
use crate::forward::Extra;
use crate::help;
use crate::input::{Event, Input};
use crate::options::txpkts;
use crate::output::{complain, print};
use crate::ports::PortSlot;
use crate::session::After;
use crate::settings::{BURST_LIMIT, Settings};
use crate::show::{self, CoreName};
use crate::stats::FwdStats;

/// Clears the screen before the statistics of `--stats-period`.
const CLEAR: &str = "\x1b[2J\x1b[1;1H";

/// What commands work on, whether packets move or not.
pub struct View<'a, 'eal> {
    /// All ports.
    pub slots: &'a [PortSlot<'eal>],
    /// Forwarding cores.
    pub names: &'a [CoreName],
    /// What is set.
    pub settings: &'a mut Settings,
    /// Figures.
    pub fwd: &'a mut FwdStats,
    /// The mode's own figures.
    pub extra: &'a Extra,
    /// Whether packets move.
    pub running: bool,
}

impl View<'_, '_> {
    /// Reads commands while packets move.
    pub fn interact(&mut self, input: &mut Input) -> After {
        loop {
            match input.prompt() {
                Event::Line(line) => match parse(&line) {
                    Ok(Command::Stop) => return After::Go,
                    Ok(Command::Quit) => return After::Leave,
                    Ok(command) => self.execute(command),
                    Err(why) => misunderstood(why),
                },
                Event::End | Event::Interrupted => return After::Leave,
                Event::Nothing => {}
            }
        }
    }

    /// Shows the ports' figures every `period` until a signal.
    pub fn show_periodically(&mut self, input: &mut Input, period: Duration) {
        loop {
            print(&format!("{CLEAR}\nPort statistics ===================================="));
            for id in self.settings.forwarding().to_vec() {
                print(&self.fwd.port(id, &self.slots[usize::from(id)]));
            }
            match input.wait(Some(period)) {
                Event::Interrupted => return,
                Event::End => std::thread::sleep(period),
                Event::Line(_) | Event::Nothing => {}
            }
        }
    }

    /// Figures of this or the last run.
    pub fn forward_stats(&self) -> String {
        self.fwd.forward(self.slots) + &self.extra.block()
    }

    /// Does what a command says.
    pub fn execute(&mut self, command: Command) {
        match command {
            Command::Empty => {}
            Command::Start(_) => complain("Packet forwarding already started\n"),
            Command::Help(section) => print(&help::text(section.as_deref())),
            Command::ShowPort(facts, ports) => self.show_port(facts, ports),
            Command::ClearPort(facts, ports) => self.clear_port(facts, ports),
            Command::ShowFwd => print(&self.forward_stats()),
            Command::ClearFwd => self.fwd.clear(self.slots),
            Command::ShowConfig(config) => self.show_config(config),
            Command::Set(setting) => self.set(setting),
            Command::Port(PortAction::Stop, ports) => {
                for id in self.ids(ports).unwrap_or_default() {
                    complain(&format!("Please remove port {id} from forwarding configuration.\n"));
                }
            }
            Command::Port(PortAction::Start, ports) => {
                for id in self.ids(ports).unwrap_or_default() {
                    complain(&format!("Port {id} is now not stopped\n"));
                }
            }
            Command::PortConfig(..) => complain("Please stop all ports first\n"),
            // Both loops take these two before.
            Command::Stop | Command::Quit => {}
        }
    }

    /// The ports meant; says so if there is no such port.
    pub fn ids(&self, ports: Ports) -> Option<Vec<u16>> {
        match ports {
            Ports::All => Some((0..self.slots.len() as u16).collect()),
            Ports::One(id) if (id as usize) < self.slots.len() => Some(vec![id as u16]),
            Ports::One(id) => {
                complain(&format!("Invalid port {id}\n"));
                None
            }
        }
    }

    /// The same, with the ports there are where none is meant.
    fn shown_ids(&self, ports: Ports) -> Option<Vec<u16>> {
        let ids = self.ids(ports);
        if ids.is_none() {
            let all: String = (0..self.slots.len()).map(|id| format!(" {id}")).collect();
            print(&format!("The valid ports array is [{all} ]\n"));
        }
        ids
    }

    fn show_port(&mut self, facts: PortFacts, ports: Ports) {
        let Some(ids) = self.shown_ids(ports) else { return };
        if facts == PortFacts::Summary {
            print(&show::summary(&ids, self.slots));
            return;
        }
        for id in ids {
            let slot = &self.slots[usize::from(id)];
            let text = match facts {
                PortFacts::Stats => Ok(self.fwd.port(id, slot)),
                PortFacts::Info => show::info(id, slot),
                PortFacts::Xstats | PortFacts::Summary => show::xstats(id, slot),
            };
            match text {
                Ok(text) => print(&text),
                Err(error) => complain(&format!("{error}\n")),
            }
        }
    }

    fn clear_port(&mut self, facts: PortFacts, ports: Ports) {
        for id in self.shown_ids(ports).unwrap_or_default() {
            let slot = &self.slots[usize::from(id)];
            if facts == PortFacts::Stats {
                print(&self.fwd.clear_port(id, slot));
            } else if let Err(error) = slot.reset_xstats() {
                complain(&format!("{error}\n"));
            }
        }
    }

    fn show_config(&self, config: Config) {
        let settings = &*self.settings;
        let layout = settings.layout();
        print(&match config {
            Config::Fwd => show::config_fwd(settings, &layout, self.names, self.slots),
            Config::Rxtx => show::config_rxtx(settings, self.slots),
            Config::Cores => show::config_cores(settings, self.names),
            Config::Txpkts => show::config_txpkts(settings),
        });
    }

    fn set(&mut self, setting: Setting) {
        let needs_stop = matches!(setting, Setting::NbCore(_) | Setting::NbPort(_) | Setting::PortList(_));
        if self.running && needs_stop {
            complain("Please stop forwarding first\n");
            return;
        }
        let settings = &mut *self.settings;
        match setting {
            Setting::Fwd(mode) => {
                settings.mode = mode;
                print(&format!("Set {} packet forwarding mode\n", mode.name()));
            }
            Setting::Burst(n) if n as usize > BURST_LIMIT => {
                complain(&format!(
                    "nb pkt per burst: {n} > {BURST_LIMIT} (maximum packet per burst)  ignored\n"
                ));
            }
            Setting::Burst(n) => {
                settings.burst = n as u16;
                print(&format!("Number of packets per burst set to {n}\n"));
            }
            Setting::NbCore(n) if n == 0 || n > self.names.len() => complain(&format!(
                "nb fwd cores {n} > {} (max. number of configured lcores) - ignored\n",
                self.names.len()
            )),
            Setting::NbCore(n) => {
                settings.nb_cores = n;
                print(&format!("Number of forwarding cores set to {n}\n"));
            }
            Setting::NbPort(n) if n == 0 || n > settings.ports.len() => complain(&format!(
                "nb fwd ports {n} > {} (number of configured ports) - ignored\n",
                settings.ports.len()
            )),
            Setting::NbPort(n) => {
                settings.nb_ports = n;
                print(&format!("Number of forwarding ports set to {n}\n"));
            }
            Setting::PortList(list) => {
                let before = settings.nb_ports;
                said(settings.set_ports(&list));
                let now = settings.nb_ports;
                if before != now {
                    print(&format!(
                        "previous number of forwarding ports {before} - changed to number of configured ports {now}\n"
                    ));
                }
            }
            Setting::EthPeer(port, mac) => said(settings.set_peer(port, mac)),
            Setting::Txpkts(text) => said(txpkts(&text).map(|len| settings.txpkts = len)),
            Setting::Promisc(ports, on) => {
                self.switch(ports, on, "promiscuous mode", |slot, on| slot.set_promiscuous(on));
            }
            Setting::Allmulti(ports, on) => {
                self.switch(ports, on, "all-multicast mode", |slot, on| slot.set_allmulticast(on));
            }
        }
    }

    fn switch(
        &self,
        ports: Ports,
        on: bool,
        what: &str,
        change: impl Fn(&PortSlot<'_>, bool) -> Result<(), DpdkError>,
    ) {
        for id in self.ids(ports).unwrap_or_default() {
            if let Err(error) = change(&self.slots[usize::from(id)], on) {
                let doing = if on { "enabling" } else { "disabling" };
                let why = match &error {
                    DpdkError::Port { errno, .. } => {
                        std::io::Error::from_raw_os_error(errno.code()).to_string()
                    }
                    other => other.to_string(),
                };
                let why = why.split(" (os error").next().unwrap_or_default();
                complain(&format!("Error during {doing} {what} for port {id}: {why}\n"));
            }
        }
    }
}

fn said(result: Result<(), String>) {
    if let Err(why) = result {
        complain(&format!("{why}\n"));
    }
}

/// Says why a line was no command.
pub fn misunderstood(why: Misunderstood) {
    match why {
        Misunderstood::Unknown => print("Command not found\n"),
        Misunderstood::BadArguments => print("Bad arguments\n"),
        Misunderstood::NotHonoured(word) => {
            print(&format!("{word}: a command of testpmd that weir-testpmd does not honour\n"));
        }
    }
}

//! The session: ports, settings, and what commands do with them, while forwarding and while not.

use std::time::Duration;

use dpdk_sys::DpdkError;

use crate::commands::{
    Command, Config, Misunderstood, PortAction, PortFacts, Ports, QueueSetting, Setting, parse,
};
use crate::forward::{Cores, Extra, Run, obstacle};
use crate::help;
use crate::input::{Event, Input};
use crate::options::txpkts;
use crate::output::{complain, print};
use crate::ports::PortSlot;
use crate::settings::{BURST_LIMIT, Layout, Mode, Settings};
use crate::show::{self, CoreName};
use crate::stats::FwdStats;

/// Clears the screen before the statistics of `--stats-period`.
const CLEAR: &str = "\x1b[2J\x1b[1;1H";
/// Links have so long to come up before the prompt.
const LINK_WAIT: Duration = Duration::from_millis(100);

/// Everything there is between start and end. Control thread.
pub struct Session<'eal> {
    /// Cores, pool and clock.
    pub cores: Cores<'eal>,
    /// The cores' names.
    pub names: Vec<CoreName>,
    /// All ports by number.
    pub slots: Vec<PortSlot<'eal>>,
    /// What is set.
    pub settings: Settings,
    /// Figures.
    pub fwd: FwdStats,
    /// The mode's own.
    pub extra: Extra,
    /// The warning about a lone port is given once.
    pub warned: bool,
}

/// How a run ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    /// The prompt goes on.
    Go,
    /// The program ends.
    Leave,
}

impl<'eal> Session<'eal> {
    /// Starts every port and says so.
    pub fn start_ports(&mut self) -> Result<(), DpdkError> {
        self.warn_of_lone_port();
        for (id, slot) in self.slots.iter_mut().enumerate() {
            slot.start(id as u16, &self.settings, &self.cores.pool)?;
        }
        if !self.slots.is_empty() {
            self.check_links();
        }
        print("Done\n");
        Ok(())
    }

    /// Reads commands until the end of input, `quit` or a signal.
    pub fn interact(&mut self, input: &mut Input) {
        loop {
            match input.prompt() {
                Event::Line(line) => match parse(&line) {
                    Ok(Command::Quit) => return,
                    Ok(Command::Start(first)) => {
                        if self.run(first, |view| view.interact(input)) == Some(After::Leave) {
                            return;
                        }
                    }
                    Ok(command) => self.idle(command),
                    Err(why) => misunderstood(why),
                },
                Event::End | Event::Interrupted => return,
                Event::Nothing => {}
            }
        }
    }

    /// Forwards while `during` lasts and shows the figures. `None`: it could not start, which was said.
    pub fn run<R>(&mut self, first: u32, during: impl FnOnce(&mut View<'_, 'eal>) -> R) -> Option<R> {
        if self.settings.forwarding().iter().any(|id| !self.slots[usize::from(*id)].is_started()) {
            complain("Not all ports were started\n");
            return None;
        }
        let settings = self.settings.clone();
        let layout = settings.layout();
        if let Some(why) = obstacle(&settings, &layout, first) {
            complain(&format!("{why}\n"));
            return None;
        }
        let run = match Run::prepare(&settings, &layout, &self.slots, &self.cores, &mut self.fwd) {
            Ok(run) => run,
            Err(why) => {
                complain(&format!("{why}\n"));
                return None;
            }
        };
        print(&show::config_fwd(&settings, &layout, &self.names, &self.slots));
        if settings.mode == Mode::FlowGen {
            for id in settings.forwarding() {
                print(&format!("  number of flows for port {id}: {}\n", settings.flowgen_flows));
            }
        }
        print(&show::config_rxtx(&settings, &self.slots));
        self.fwd.clear(&self.slots);
        let mut run = run;
        self.extra = std::mem::take(&mut run.extra);
        let mut view = View {
            slots: &self.slots,
            names: &self.names,
            settings: &mut self.settings,
            fwd: &mut self.fwd,
            extra: &self.extra,
            running: true,
        };
        let stopping = || print("Telling cores to stop...\nWaiting for lcores to finish...\n");
        let answer = run.go(&settings, &self.slots, &self.cores, first, || during(&mut view), stopping);
        print(&view.forward_stats());
        print("\nDone.\n");
        Some(answer)
    }

    /// Stops and closes every port, with testpmd's lines.
    pub fn shut_down(self) {
        print("\nPrimary: Sending 'stop_req' request to secondary...\n");
        let mut slots = self.slots;
        for (id, slot) in slots.iter_mut().enumerate() {
            print(&format!("\nStopping port {id}...\nStopping ports...\n"));
            match slot.stop() {
                Ok(()) => print("Done\n"),
                Err(error) => complain(&format!("{error}\n")),
            }
        }
        for (id, slot) in slots.into_iter().enumerate() {
            print(&format!("\nShutting down port {id}...\nClosing ports...\n"));
            drop(slot);
            print(&format!("Port {id} is closed\nDone\n"));
        }
    }

    /// A command between two runs.
    fn idle(&mut self, command: Command) {
        match command {
            Command::Stop => complain("Packet forwarding not started\n"),
            Command::Port(action, ports) => self.port(action, ports),
            Command::PortConfig(what, n) => self.port_config(what, n),
            command => {
                self.view().execute(command);
                self.warn_of_lone_port();
            }
        }
    }

    fn view(&mut self) -> View<'_, 'eal> {
        View {
            slots: &self.slots,
            names: &self.names,
            settings: &mut self.settings,
            fwd: &mut self.fwd,
            extra: &self.extra,
            running: false,
        }
    }

    fn port(&mut self, action: PortAction, ports: Ports) {
        let Some(ids) = self.view().ids(ports) else { return };
        if action == PortAction::Stop {
            print("Stopping ports...\n");
        }
        for id in ids {
            let slot = &mut self.slots[usize::from(id)];
            let done = match action {
                PortAction::Stop => slot.stop(),
                PortAction::Start if slot.is_started() => {
                    complain(&format!("Port {id} is now not stopped\n"));
                    Ok(())
                }
                PortAction::Start => slot.start(id, &self.settings, &self.cores.pool),
            };
            if let Err(error) = done {
                complain(&format!("{error}\n"));
            }
        }
        self.check_links();
        print("Done\n");
    }

    fn port_config(&mut self, what: QueueSetting, n: u16) {
        if self.slots.iter().any(PortSlot::is_started) {
            complain("Please stop all ports first\n");
            return;
        }
        let settings = &mut self.settings;
        let counts_queues = matches!(what, QueueSetting::Rxq | QueueSetting::Txq);
        if counts_queues && n == 0 {
            complain("Warning: Either rx or tx queues should be non zero\n");
            return;
        }
        *match what {
            QueueSetting::Rxq => &mut settings.rxq,
            QueueSetting::Txq => &mut settings.txq,
            QueueSetting::Rxd => &mut settings.rxd,
            QueueSetting::Txd => &mut settings.txd,
        } = n;
        self.slots.iter_mut().for_each(|slot| slot.reconfigure = true);
    }

    fn warn_of_lone_port(&mut self) {
        if self.settings.has_lone_port() && !self.warned {
            self.warned = true;
            complain(
                "\nWarning! port-topology=paired and odd forward ports number, \
                 the last port will pair with itself.\n\n",
            );
        }
    }

    fn check_links(&self) {
        print("Checking link statuses...\n");
        if self.slots.iter().any(|slot| slot.details().is_ok_and(|details| !details.link_up)) {
            std::thread::sleep(LINK_WAIT);
        }
    }
}

/// What commands work on, whether packets move or not.
pub struct View<'a, 'eal> {
    slots: &'a [PortSlot<'eal>],
    names: &'a [CoreName],
    settings: &'a mut Settings,
    fwd: &'a mut FwdStats,
    extra: &'a Extra,
    running: bool,
}

impl View<'_, '_> {
    /// Reads commands while packets move.
    fn interact(&mut self, input: &mut Input) -> After {
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

    /// Interactive from the first packet on.
    pub fn interact_at_once(&mut self, input: &mut Input) -> After {
        self.interact(input)
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
    fn forward_stats(&self) -> String {
        self.fwd.forward(self.slots) + &self.extra.block()
    }

    fn execute(&mut self, command: Command) {
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
    fn ids(&self, ports: Ports) -> Option<Vec<u16>> {
        match ports {
            Ports::All => Some((0..self.slots.len() as u16).collect()),
            Ports::One(id) if (id as usize) < self.slots.len() => Some(vec![id as u16]),
            Ports::One(id) => {
                complain(&format!("Invalid port {id}\n"));
                None
            }
        }
    }

    fn show_port(&mut self, facts: PortFacts, ports: Ports) {
        let Some(ids) = self.ids(ports) else { return };
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
        for id in self.ids(ports).unwrap_or_default() {
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
        let layout: Layout = settings.layout();
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
            Setting::PortList(list) => said(settings.set_ports(&list)),
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

fn misunderstood(why: Misunderstood) {
    match why {
        Misunderstood::Unknown => print("Command not found\n"),
        Misunderstood::BadArguments => print("Bad arguments\n"),
        Misunderstood::NotHonoured(word) => {
            print(&format!("{word}: a command of testpmd that weir-testpmd does not honour\n"));
        }
    }
}

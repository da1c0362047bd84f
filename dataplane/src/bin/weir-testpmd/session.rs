//! The session: ports, settings, and what commands do with them, while forwarding and while not.

use std::time::Duration;

use dpdk_sys::DpdkError;

use crate::commands::{Command, PortAction, Ports, QueueSetting, parse};
use crate::forward::{Cores, Extra, Run, obstacle};
use crate::input::{Event, Input};
use crate::output::{complain, print};
use crate::ports::PortSlot;
use crate::settings::{Mode, Settings};
use crate::show::{self, CoreName};
use crate::stats::FwdStats;
use crate::view::{View, misunderstood};

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

//! The texts of `help`.

/// A section: its name, what it is about, its commands with what they do.
type Section = (&'static str, &'static str, &'static [(&'static str, &'static str)]);

/// The sections.
const SECTIONS: [Section; 4] = [
    (
        "control",
        "Start and stop forwarding.",
        &[
            ("start", "Start packet forwarding with current configuration."),
            ("start tx_first [N]", "Start packet forwarding after sending N bursts (1) first."),
            ("stop", "Stop packet forwarding, and display accumulated statistics."),
            ("quit", "Quit to prompt."),
        ],
    ),
    (
        "display",
        "Displaying port, stats and config information.",
        &[
            (
                "show port (info|stats|summary|xstats) (port_id|all)",
                "Display information for port_id, or all.",
            ),
            ("clear port (stats|xstats) (port_id|all)", "Clear information for port_id, or all."),
            ("show config (rxtx|cores|fwd|txpkts)", "Display the given configuration."),
            ("show fwd stats all", "Display statistics for all fwd engines."),
            ("clear fwd stats all", "Clear statistics for all fwd engines."),
        ],
    ),
    (
        "config",
        "Configuration information.",
        &[
            ("set fwd (io|mac|macswap|flowgen|rxonly|txonly|5tswap|lb|lbgen)", "Set packet forwarding mode."),
            ("set nbport (num)", "Set number of forwarding ports."),
            ("set nbcore (num)", "Set number of forwarding cores."),
            ("set portlist (x[,y]*)", "Set the list of forwarding ports."),
            ("set burst (num)", "Set number of packets per burst."),
            ("set txpkts (x)", "Set the length of each frame of TXONLY and FLOWGEN mode."),
            ("set eth-peer (port_id) (peer_addr)", "Set the peer address for certain port."),
            ("set promisc (port_id|all) (on|off)", "Set the promiscuous mode on port_id, or all."),
            ("set allmulti (port_id|all) (on|off)", "Set the allmulti mode on port_id, or all."),
        ],
    ),
    (
        "ports",
        "Configuring ports.",
        &[
            ("port start (port_id|all)", "Start all ports or port_id."),
            ("port stop (port_id|all)", "Stop all ports or port_id."),
            ("port config all (rxq|txq|rxd|txd) (value)", "Set number for rxq/txq/rxd/txd."),
        ],
    ),
];

/// `help` and `help SECTION`; `help all` is all of them.
pub fn text(section: Option<&str>) -> String {
    let Some(section) = section else {
        let line = |name: &str, what: &str| format!("    help {name:<27}: {what}\n");
        let lines: String = SECTIONS.iter().map(|(name, what, _)| line(name, what)).collect();
        return format!(
            "\nHelp is available for the following sections:\n\n{lines}{}\n",
            line("all", "All of the above sections.")
        );
    };
    let wanted: Vec<_> = SECTIONS.iter().filter(|(name, ..)| section == "all" || section == *name).collect();
    if wanted.is_empty() {
        return "Bad arguments\n".to_owned();
    }
    let mut text = String::new();
    for (name, _, commands) in wanted {
        let title = name[..1].to_uppercase() + &name[1..] + ":";
        text.push_str(&format!("\n{title}\n{}\n\n", "-".repeat(title.len())));
        for (command, does) in *commands {
            text.push_str(&format!("{command}\n    {does}\n\n"));
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sections_are_listed_and_shown() {
        assert!(text(None).contains("    help control                    : Start and stop forwarding.\n"));
        assert!(text(Some("display")).starts_with("\nDisplay:\n--------\n\nshow port (info|stats"));
        assert!(text(Some("all")).contains("port stop"));
        assert_eq!(text(Some("nosuch")), "Bad arguments\n");
    }
}

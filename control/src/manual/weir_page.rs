//! weir(8): the command line's definition as a page.

use clap::{Arg, Command, CommandFactory};

use super::roff::Roff;
use crate::args::Cli;

pub(super) fn page() -> String {
    let mut cli = Cli::command();
    cli.build();
    let about = cli.get_about().map(ToString::to_string).unwrap_or_default();
    let mut page = Roff::new("weir", 8, about.trim_end_matches('.'));
    page.section("Synopsis");
    page.text("weir COMMAND [OPTIONS]");
    page.section("Description");
    page.text(
        "Weir forwards TCP and UDP to servers as the IPVS of Linux does, in user space on DPDK. weir run is the \
        daemon; the other commands ask it over its control socket. weiradm(8) changes services in the words of \
        ipvsadm.",
    );
    page.section("Commands");
    for command in
        cli.get_subcommands().filter(|command| !command.is_hide_set() && command.get_name() != "help")
    {
        subcommand(&mut page, command);
    }
    page.section("Exit status");
    page.text(&cli.get_after_help().map(ToString::to_string).unwrap_or_default());
    page.section("Environment");
    page.entry("WEIR_SOCKET", "Control socket of the daemon for commands without --socket.");
    page.entry("NO_COLOR", "No colours, whatever its value.");
    page.section("Files");
    page.entry("/etc/weir/weir.toml", "Configuration, weir.toml(5).");
    page.entry("/run/weir/weir.sock", "Control socket.");
    page.section("See also");
    page.text("weiradm(8), weir.toml(5), ipvsadm(8)");
    page.finish()
}

fn subcommand(page: &mut Roff, command: &Command) {
    let usage = command.clone().render_usage().to_string();
    page.subsection(usage.trim_start_matches("Usage: "));
    page.text(&format!("{}.", command.get_about().map(ToString::to_string).unwrap_or_default()));
    for argument in command.get_arguments().filter(|argument| !argument.is_hide_set()) {
        if argument.get_id() != "help" {
            page.entry(&term(argument), &told(argument));
        }
    }
    page.text(&command.get_after_help().map(ToString::to_string).unwrap_or_default());
}

/// `--watch [SECONDS]`, `FILE`.
fn term(argument: &Arg) -> String {
    let value = || {
        let names = argument.get_value_names().map(|names| names.join(" ")).unwrap_or_default();
        let optional = argument.get_num_args().is_some_and(|count| count.min_values() == 0);
        if optional { format!("[{names}]") } else { names }
    };
    match argument.get_long() {
        None => value(),
        Some(long) if argument.get_action().takes_values() => format!("--{long} {}", value()),
        Some(long) => format!("--{long}"),
    }
}

fn told(argument: &Arg) -> String {
    let help = argument.get_help().map(ToString::to_string).unwrap_or_default();
    let names: Vec<_> = argument
        .get_possible_values()
        .iter()
        .filter(|_| argument.get_action().takes_values())
        .map(|value| value.get_name().to_owned())
        .collect();
    if names.is_empty() { format!("{help}.") } else { format!("{help}: {}.", names.join(", ")) }
}

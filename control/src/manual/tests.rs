//! Pages say everything that the tables have, and man finds nothing to complain of.

use std::collections::BTreeSet;
use std::process::Command as Program;

use super::*;

#[test]
fn every_command_option_and_key_is_in_its_page() {
    let plain = |of| page(of).replace("\\-", "-").replace("\\&", "").replace("\\(rs", "\\");
    let weir = plain(Page::Weir);
    let mut cli = Cli::command();
    cli.build();
    for command in cli.get_subcommands().filter(|c| !c.is_hide_set() && c.get_name() != "help") {
        assert!(weir.contains(&format!(".SS weir {}", command.get_name())), "{}", command.get_name());
        for argument in command.get_arguments().filter(|argument| argument.get_id() != "help") {
            let help = argument.get_help().unwrap_or_else(|| panic!("{} says nothing", argument.get_id()));
            assert!(weir.contains(&help.to_string()), "{help}");
            let long = argument.get_long().map(|long| format!("\\fB--{long}"));
            assert!(long.is_none_or(|long| weir.contains(&long)), "{}", argument.get_id());
        }
    }
    let weiradm = plain(Page::Weiradm);
    for argument in weiradm::words_as_command().get_arguments() {
        let long = format!("--{}", argument.get_long().unwrap());
        assert!(weiradm.contains(&long), "{long}");
    }
    let toml = plain(Page::Config);
    for key in config::keys::TABLES.iter().flat_map(|table| table.keys) {
        assert!(toml.contains(&format!("\\fB{}\\fR\n{}", key.name, key.sentence)), "{}", key.name);
    }
}

#[test]
fn man_has_nothing_to_complain_of() {
    let directory = tempfile::tempdir().unwrap();
    for of in Page::value_variants() {
        let file = directory.path().join("page");
        std::fs::write(&file, page(*of)).unwrap();
        let mut groff = Program::new("groff");
        groff.args(["-man", "-Tutf8", "-ww", "-rLL=100n"]).arg(&file);
        let Ok(output) = groff.output() else {
            println!("no groff on this machine: the pages are not rendered");
            return;
        };
        let complaints = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && complaints.is_empty(), "{of:?}: {complaints}");
    }
}

#[test]
fn shells_are_told_every_command_and_word() {
    let told = |program, command: &mut clap::Command| {
        let shells = [clap_complete::Shell::Bash, clap_complete::Shell::Zsh, clap_complete::Shell::Fish];
        shells.map(|shell| {
            let mut text = Vec::new();
            clap_complete::generate(shell, command, program, &mut text);
            String::from_utf8(text).unwrap()
        })
    };
    for text in told("weir", &mut Cli::command()) {
        assert!(["conns", "completions", "watch"].iter().all(|word| text.contains(word)), "{text}");
    }
    let words = weiradm::words_as_command();
    let longs: BTreeSet<_> =
        words.get_arguments().filter_map(clap::Arg::get_long).map(str::to_owned).collect();
    for text in told("weiradm", &mut weiradm::words_as_command()) {
        assert!(longs.iter().all(|word| text.contains(word.as_str())), "{text}");
    }
}

//! Manual pages and shell completions, from the tables that the programs themselves go by.
//!
//! Model: weir(8) is made of the command line's definition, weir.toml(5) of the table of configuration keys, weiradm(8)
//! of the text that `weiradm --help` prints and the list of what it does differently from ipvsadm. `make install` asks
//! for them; nothing of a page is written by hand that a table has. Pure functions.

mod config_page;
mod roff;
mod weir_page;
mod weiradm_page;

use std::io;

use clap::{CommandFactory, ValueEnum};

use crate::args::{Cli, CompletionsArgs, ManualArgs};
use crate::weiradm;

/// A manual page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Page {
    Weir,
    Weiradm,
    #[value(name = "weir.toml")]
    Config,
}

/// A program with a command line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[allow(missing_docs, reason = "the names say it")]
pub enum Program {
    Weir,
    Weiradm,
}

/// `weir manual`.
pub fn manual(args: &ManualArgs) {
    print!("{}", page(args.page));
}

/// The page's source for man(1).
pub fn page(page: Page) -> String {
    match page {
        Page::Weir => weir_page::page(),
        Page::Weiradm => weiradm_page::page(),
        Page::Config => config_page::page(),
    }
}

/// `weir completions`.
pub fn completions(args: &CompletionsArgs) {
    let (mut command, name) = match args.program {
        Program::Weir => (Cli::command(), "weir"),
        Program::Weiradm => (weiradm::words_as_command(), "weiradm"),
    };
    clap_complete::generate(args.shell, &mut command, name, &mut io::stdout());
}

#[cfg(test)]
mod tests;

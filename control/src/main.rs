//! The `weir` program: the daemon and the operator's commands.
#![forbid(unsafe_code)]

use std::process::ExitCode;

use clap::Parser;
use clap::error::ErrorKind;
use control::args::{Cli, Command};
use control::failure::{Exit, Failure, panic_text, tell};

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| {
        let place = info.location().map_or_else(|| "an unknown place".to_owned(), ToString::to_string);
        let failure = Failure::run("internal fault", panic_text(info.payload()))
            .hint(format!("at {place}; please report it"));
        tell(failure);
    }));
    match std::panic::catch_unwind(run) {
        Ok(exit) => exit.into(),
        Err(_) => Exit::Failed.into(),
    }
}

fn run() -> Exit {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(error) => return usage(&error),
    };
    let result = match &cli.command {
        Command::Run(args) => return control::daemon::run(args),
        Command::Check(args) => return control::check::check(args),
        Command::Replay(args) => return control::replay::replay(args),
        Command::Status(args) => control::commands::status(args),
        Command::Workers(args) => control::commands::workers(args),
        Command::Drops(args) => control::commands::drops(args),
        Command::Est(args) => control::commands::est(args),
        Command::Rates(args) => control::commands::rates(args),
        Command::List(args) => control::commands::list(args),
        Command::Conns(args) => control::commands::conns(args),
        Command::Sysctl(args) => control::commands::sysctl(args),
        Command::Proc(args) => control::commands::proc(args),
        Command::Plan(args) => return ended(control::transactions::plan(args)),
        Command::Apply(args) => return ended(control::transactions::apply(args)),
        Command::Restore(args) => return ended(control::transactions::restore(args)),
        Command::Save(args) => return ended(control::transactions::save(args)),
        Command::Log(args) => return ended(control::transactions::log(args)),
        Command::Rollback(args) => return ended(control::transactions::rollback(args)),
        Command::Exec(args) => Err(control::exec::exec(args)),
        Command::Completions(args) => {
            control::manual::completions(args);
            Ok(())
        }
        Command::Manual(args) => {
            control::manual::manual(args);
            Ok(())
        }
    };
    ended(result.map(|()| Exit::Done))
}

/// The exit status to end with; prints why there is no better one.
fn ended(result: Result<Exit, Failure>) -> Exit {
    result.unwrap_or_else(|failure| {
        tell(&failure);
        failure.exit
    })
}

/// Prints help and version as asked for; a mistake in our form: `weir: WHAT: WHY`, hint below.
fn usage(error: &clap::Error) -> Exit {
    if matches!(error.kind(), ErrorKind::DisplayHelp | ErrorKind::DisplayVersion) {
        let _ = error.print();
        return Exit::Done;
    }
    if error.kind() == ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand {
        let _ = error.print();
        return Exit::Usage;
    }
    let text = error.render().to_string();
    let (why, rest) = text.split_once('\n').unwrap_or((&text, ""));
    let hint: Vec<&str> = rest.lines().map(str::trim).filter(|line| !line.is_empty()).collect();
    let why = why.strip_prefix("error: ").unwrap_or(why);
    tell(Failure::usage("usage", why).hint(hint.join("\n")));
    Exit::Usage
}

//! `weir check`, and the reading of a configuration file that `run` and `replay` share.

use std::fmt;
use std::path::Path;

use config::Valid;

use crate::args::CheckArgs;
use crate::counted::counted;
use crate::failure::{Exit, Failure, tell};

/// Largest configuration file; 100 000 services with ten destinations each have about 100 MB.
const FILE_BYTES_MAX: u64 = 512 << 20;

/// Why there is no configuration. Displays as the text for people, every problem of the file in it.
#[derive(Debug)]
pub enum LoadError {
    /// The file cannot be read.
    File(Failure),
    /// What it says is not acceptable.
    Content(config::Errors),
}

impl fmt::Display for LoadError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            LoadError::File(failure) => write!(f, "{failure}"),
            LoadError::Content(errors) => f.write_str(errors.to_string().trim_end()),
        }
    }
}

/// Reads and validates a file. Nothing is changed.
pub fn load(path: &Path) -> Result<Valid, LoadError> {
    let shown = path.display().to_string();
    let unread = |why: &dyn std::fmt::Display| LoadError::File(Failure::usage(shown.clone(), why));
    let meta = std::fs::metadata(path).map_err(|error| unread(&error))?;
    if meta.len() > FILE_BYTES_MAX {
        return Err(unread(&format!("larger than {} MiB, no configuration", FILE_BYTES_MAX >> 20)));
    }
    let text = std::fs::read_to_string(path).map_err(|error| unread(&error))?;
    config::parse(&text, &shown).map_err(LoadError::Content)
}

/// `weir check`: prints the problems, or what the file means.
pub fn check(args: &CheckArgs) -> Exit {
    match load(&args.file) {
        Ok(valid) => {
            for line in valid.unbuilt() {
                tell(format_args!("weir: warning: {line}"));
            }
            if args.show {
                print_or_stop(&valid.to_toml());
            } else {
                print_or_stop(&summary(&args.file, &valid));
            }
            Exit::Done
        }
        Err(error) => report(&error),
    }
}

/// Prints why there is no configuration; the exit status to end with.
pub fn report(error: &LoadError) -> Exit {
    tell(error);
    Exit::Usage
}

fn summary(file: &Path, valid: &Valid) -> String {
    let destinations: usize = valid.services().iter().map(|service| service.destinations.len()).sum();
    format!(
        "{}: good: {}, {}, {}\n",
        file.display(),
        counted(valid.ports().len(), "port"),
        counted(valid.services().len(), "service"),
        counted(destinations, "destination")
    )
}

/// Writes to stdout; a reader that has gone (`| head`) is no failure of ours.
fn print_or_stop(text: &str) {
    use std::io::Write;
    let _ = std::io::stdout().lock().write_all(text.as_bytes());
}

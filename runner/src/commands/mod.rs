//! The subcommands, one a file.

/// Prints a line. Whoever reads may have enough and close the pipe: that is no error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod check;
mod plan;
mod profile;
mod run;
pub mod schema;
mod show;
mod simulate;

use crate::args::{Cli, Command};
use crate::failure::{Code, Failure};
use pipewright_core::plan::Plan;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command; errors are printed once, and their code is returned.
pub fn main(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Plan(args) => plan::plan(&args),
        Command::Check(args) => check::check(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Show(args) => show::show(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Schema => schema::schema(),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                eprintln!("error: {}", failure.message);
            }
            ExitCode::from(failure.code as u8)
        }
    }
}

/// Reads and checks a plan file.
fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let text = std::fs::read_to_string(path).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => {
            Failure::new(Code::Plan, format!("{}: not a plan: not text", path.display()))
        }
        _ => Failure::file(path, &e),
    })?;
    Plan::from_json(&text).map_err(|e| Failure::new(Code::Plan, format!("{}: {e}", path.display())))
}

/// Writes a file, or prints it when the path is `-`.
fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return match std::io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::file(path, &e)),
            _ => Ok(()),
        };
    }
    if let Some(folder) = path.parent().filter(|p| !p.as_os_str().is_empty()) {
        std::fs::create_dir_all(folder).map_err(|e| Failure::file(folder, &e))?;
    }
    std::fs::write(path, text).map_err(|e| Failure::file(path, &e))
}

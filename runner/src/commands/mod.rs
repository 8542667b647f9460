//! The subcommands, one a file.

/// Prints a line. Whoever reads may have enough and close the pipe: that is no error.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        let _ = writeln!(std::io::stdout(), $($text)*);
    }};
}

mod bench;
mod calibrate;
mod check;
mod curves;
mod devices;
mod elastic;
mod eval;
mod explore;
mod export;
mod forms;
mod frame;
mod gpu;
mod infer;
mod model;
mod plan;
mod predict;
mod profile;
mod recompute;
mod run;
pub mod schema;
mod show;
mod simulate;

use crate::args::{Cli, Command};
use crate::failure::{Code, Failure};
use pipewright_core::graph::Graph;
use pipewright_core::plan::Plan;
use pipewright_kernels::cpu::without_kernel;
use std::ffi::OsString;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;

/// Runs the command; errors are printed once, and their code is returned.
pub fn main(cli: Cli) -> ExitCode {
    let result = match cli.command {
        Command::Run(args) => run::run(args),
        Command::Elastic(args) => elastic::elastic(args),
        Command::Join(args) => elastic::members::join(&args),
        Command::Leave(args) => elastic::members::leave(&args),
        Command::Plan(args) => plan::plan(&args),
        Command::Check(args) => check::check(&args),
        Command::Simulate(args) => simulate::simulate(&args),
        Command::Eval(args) => eval::eval(&args),
        Command::Predict(args) => predict::predict(&args),
        Command::Show(args) => show::show(&args),
        Command::Curves(args) => curves::curves(&args),
        Command::Export(args) => export::export(&args),
        Command::Forms(args) => forms::forms(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Recompute(args) => recompute::recompute(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Explore(args) => explore::explore(&args),
        Command::Devices(args) => devices::devices(&args),
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

/// Refuses a network that can only be planned.
fn runnable(graph: &Graph) -> Result<(), Failure> {
    let Some(node) = without_kernel(graph) else { return Ok(()) };
    let (model, op) = (graph.name(), node.op.name());
    Err(Failure::new(
        Code::Hardware,
        format!(
            "node `{}` of {model}: this runner has no kernel for {op}; the model can be planned \
             and simulated, not run",
            node.name
        ),
    ))
}

/// Writes a file, or prints it when the path is `-`.
fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return match std::io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(Failure::file(path, &e)),
            _ => Ok(()),
        };
    }
    make_folder_of(path)?;
    std::fs::write(path, text).map_err(|e| Failure::file(path, &e))
}

/// Writes a file that is the old one or the whole new one at every moment, or prints the text when
/// the path is `-`.
fn replace_text(path: &Path, text: &str) -> Result<(), Failure> {
    // What is there and no file, a terminal or a pipe, is written to as it stands.
    let special = std::fs::metadata(path).is_ok_and(|there| !there.is_file());
    let Some(name) = path.file_name().filter(|_| path != Path::new("-") && !special) else {
        return write_text(path, text);
    };
    let mut beside_name = OsString::from(".");
    beside_name.push(name);
    beside_name.push(format!("-{}", std::process::id()));
    let beside = path.with_file_name(beside_name);
    make_folder_of(path)?;
    let written = std::fs::write(&beside, text).and_then(|()| std::fs::rename(&beside, path));
    written.map_err(|e| {
        // It may not even be there.
        let _ = std::fs::remove_file(&beside);
        Failure::file(path, &e)
    })
}

fn make_folder_of(path: &Path) -> Result<(), Failure> {
    match path.parent().filter(|p| !p.as_os_str().is_empty()) {
        Some(folder) => std::fs::create_dir_all(folder).map_err(|e| Failure::file(folder, &e)),
        None => Ok(()),
    }
}

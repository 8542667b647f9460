//! The subcommands, one a file.

/// Prints a line. Whoever reads may have enough and close the pipe: that is no error. What else happens
/// is told at the end of the command.
macro_rules! say {
    ($($text:tt)*) => {{
        use std::io::Write;
        $crate::commands::said(writeln!(std::io::stdout(), $($text)*));
    }};
}

/// Prints a line that says what became of something, unless nobody wants any.
macro_rules! tell {
    ($($text:tt)*) => {
        if !$crate::notes::are_unwanted() {
            say!($($text)*);
        }
    };
}

mod bench;
mod calibrate;
mod check;
mod cluster;
mod curves;
mod devices;
mod elastic;
mod eval;
mod explore;
mod export;
mod figures;
mod forms;
mod frame;
mod gpu;
mod help;
mod infer;
mod json;
mod model;
mod plan;
mod predict;
mod profile;
mod recompute;
mod run;
mod scale;
pub mod schema;
mod show;
mod simulate;
mod tune;
mod words;

use crate::args::{Cli, Command};
use crate::failure::{Code, Failure};
use crate::files;
use crate::notes;
use crate::transport::launched_rank;
use pipewright_core::graph::Graph;
use pipewright_core::plan::Plan;
use pipewright_kernels::cpu::without_kernel;
use std::io::{ErrorKind, Write};
use std::path::Path;
use std::process::ExitCode;
use std::sync::OnceLock;

/// Whether a command is one that several processes run together.
fn is_for_ranks(command: &Command) -> bool {
    matches!(
        command,
        Command::Run(_)
            | Command::Profile(_)
            | Command::Bench(_)
            | Command::Tune(_)
            | Command::Eval(_)
            | Command::Predict(_)
    )
}

/// Runs the command; errors are printed once, and their code is returned. What needs no ranks is done by the
/// first process where a launcher started several.
pub fn main(cli: Cli) -> ExitCode {
    if cli.quiet || cli.command.prints_json() {
        notes::leave_out();
    }
    if let Some(rank) = launched_rank().filter(|rank| *rank > 0 && !is_for_ranks(&cli.command)) {
        if rank == 1 {
            note!("note: this command is for one process: the launcher's first one runs it");
        }
        return ExitCode::SUCCESS;
    }
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
        Command::Scale(args) => scale::scale(&args),
        Command::Calibrate(args) => calibrate::calibrate(&args),
        Command::Cluster(args) => cluster::cluster(&args),
        Command::Profile(args) => profile::profile(&args),
        Command::Tune(args) => tune::tune(&args),
        Command::Recompute(args) => recompute::recompute(&args),
        Command::Bench(args) => bench::bench(&args),
        Command::Explore(args) => explore::explore(&args),
        Command::Devices(args) => devices::devices(&args),
        Command::Schema => schema::schema(),
        Command::Completions(args) => help::completions(&args),
        Command::Man(args) => help::man(&args),
    };
    match result.and_then(|()| UNSAID.get().map_or(Ok(()), |e| Err(printed(e)))) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.message.is_empty() {
                error!("{}", failure.message);
            }
            ExitCode::from(failure.code as u8)
        }
    }
}

/// Why a line was not printed, the first one.
static UNSAID: OnceLock<std::io::Error> = OnceLock::new();

fn said(result: std::io::Result<()>) {
    if let Err(e) = result
        && e.kind() != ErrorKind::BrokenPipe
    {
        let _ = UNSAID.set(e);
    }
}

fn printed(error: &std::io::Error) -> Failure {
    Failure::usage(format!("standard output: {error}"))
}

/// Reads and checks a plan file.
fn read_plan(path: &Path) -> Result<Plan, Failure> {
    let text = files::read_text(path).map_err(|e| match e.kind() {
        ErrorKind::InvalidData => {
            Failure::new(Code::Plan, format!("{}: not a plan: not text", path.display()))
        }
        _ => Failure::file(path, &e),
    })?;
    json::read_plan(&text).map_err(|e| Failure::new(Code::Plan, format!("{}: {e}", path.display())))
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

/// Reads a text; what is too long for any that is accepted is refused.
fn read_text(path: &Path) -> Result<String, Failure> {
    files::read_text(path).map_err(|e| Failure::file(path, &e))
}

/// Writes a file that is the old one or the whole new one at every moment, or prints the text when the
/// path is `-`.
fn write_text(path: &Path, text: &str) -> Result<(), Failure> {
    if path == Path::new("-") {
        return match std::io::stdout().write_all(text.as_bytes()) {
            Err(e) if e.kind() != ErrorKind::BrokenPipe => Err(printed(&e)),
            _ => Ok(()),
        };
    }
    files::replace(path, text).map_err(|e| Failure::file(path, &e))
}

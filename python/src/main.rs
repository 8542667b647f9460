//! The command `pipewright` of the Python package: the runner with threads as ranks.

use pipewright_runner::{args, commands};
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(args::parse(std::env::args_os().collect()))
}

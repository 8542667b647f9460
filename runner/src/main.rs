//! The command `runner`, which is installed as `pipewright` too.

use pipewright_runner::{args, commands};
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(args::parse(std::env::args_os().collect()))
}

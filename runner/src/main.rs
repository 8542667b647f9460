//! The command `runner`, which is installed as `pipewright` too.

use pipewright_runner::{args, commands};
use std::process::ExitCode;

fn main() -> ExitCode {
    commands::main(args::parse(with_run(std::env::args_os())))
}

/// `runner plan.json` means `runner run plan.json`.
fn with_run(args: impl Iterator<Item = std::ffi::OsString>) -> Vec<std::ffi::OsString> {
    let mut args: Vec<_> = args.collect();
    let is_plan = |arg: &std::ffi::OsString| {
        std::path::Path::new(arg).extension().is_some_and(|end| end == "json")
    };
    if args.get(1).is_some_and(is_plan) {
        args.insert(1, "run".into());
    }
    args
}

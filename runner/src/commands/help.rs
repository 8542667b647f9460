//! `runner completions` and `runner man`: help for shells and for `man`, made of the command line itself.

use super::write_text;
use crate::args::{Cli, CompletionsArgs, ManArgs};
use crate::failure::Failure;
use clap::{Command, CommandFactory};
use clap_complete::generate;
use std::io;
use std::path::Path;

/// Prints the script of a shell.
pub fn completions(args: &CompletionsArgs) -> Result<(), Failure> {
    let mut script = vec![];
    generate(args.shell, &mut Cli::command(), "runner", &mut script);
    write_text(Path::new("-"), &String::from_utf8_lossy(&script))
}

/// Writes a page for the program and one for each command.
pub fn man(args: &ManArgs) -> Result<(), Failure> {
    std::fs::create_dir_all(&args.folder).map_err(|e| Failure::file(&args.folder, &e))?;
    let mut program = Cli::command();
    program.build();
    let mut pages = vec![];
    collect(&program, &mut pages).map_err(|e| Failure::file(&args.folder, &e))?;
    for (name, page) in &pages {
        write_text(&args.folder.join(format!("{name}.1")), page)?;
    }
    note!("wrote {} man pages to {}", pages.len(), args.folder.display());
    Ok(())
}

/// The pages of a command and of those below it, by name: `runner-bench-codecs`.
fn collect(command: &Command, pages: &mut Vec<(String, String)>) -> io::Result<()> {
    let name = command.get_display_name().unwrap_or(command.get_name()).to_owned();
    let mut page = vec![];
    let source = concat!("runner ", env!("CARGO_PKG_VERSION"));
    clap_mangen::Man::new(command.clone()).source(source).render(&mut page)?;
    pages.push((name, String::from_utf8_lossy(&page).into_owned()));
    let shown = |below: &&Command| !below.is_hide_set() && below.get_name() != "help";
    command.get_subcommands().filter(shown).try_for_each(|below| collect(below, pages))
}

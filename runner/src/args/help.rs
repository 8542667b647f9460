//! Options of `runner completions` and `runner man`.

use clap::Args;
use clap_complete::Shell;
use std::path::PathBuf;

/// `runner completions`.
#[derive(Debug, Args)]
pub struct CompletionsArgs {
    /// The shell.
    #[arg(value_enum)]
    pub shell: Shell,
}

/// `runner man`.
#[derive(Debug, Args)]
pub struct ManArgs {
    /// The folder; for `man` one called man1 in a folder of MANPATH.
    pub folder: PathBuf,
}

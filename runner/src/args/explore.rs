//! `runner explore`.

use clap::Args;
use std::path::PathBuf;

/// `runner explore`.
#[derive(Debug, Args)]
pub struct ExploreArgs {
    /// The plan to show first.
    pub plan: Option<PathBuf>,
    /// Port on 127.0.0.1, the only address that is served; 0: a free one.
    #[arg(long, default_value_t = 0)]
    pub port: u16,
    /// Print the address and leave the browser alone.
    #[arg(long)]
    pub no_open: bool,
    /// Folder for the runs that the page starts, each in a numbered one of its own.
    #[arg(long, value_name = "DIR", default_value = "explore-runs")]
    pub out: PathBuf,
    /// The page as `make web` builds it, in place of the one in this program.
    #[arg(long, value_name = "DIST")]
    pub dir: Option<PathBuf>,
}

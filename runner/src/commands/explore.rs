//! `runner explore`: the explorer from inside this program, and runs of its plans on this machine.
//!
//! `site` has the page, `access` says who may ask for a run, `api` is what the page asks, `jobs` has
//! the one run that goes on, `process` starts and ends it, `watch` tells how it goes.

mod access;
mod api;
mod jobs;
mod open;
mod process;
mod site;
mod watch;

use crate::args::ExploreArgs;
use crate::failure::{Code, Failure};
use access::Access;
use api::{Api, Given};
use jobs::Jobs;
use pipewright_serve::{Server, listen};
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use site::Site;
use std::sync::Arc;

/// Runs the command.
pub fn explore(args: &ExploreArgs) -> Result<(), Failure> {
    let plan = match &args.plan {
        None => None,
        Some(path) => {
            let plan = super::read_plan(path)?;
            let name = path.file_name().unwrap_or(path.as_os_str());
            Some(Given { name: name.to_string_lossy().into_owned(), text: plan.to_json() })
        }
    };
    let site = Site::find(args.dir.as_deref())?;
    let failed = |e| Failure::new(Code::Failed, format!("port {}: {e}", args.port));
    let listener = listen(args.port).map_err(failed)?;
    let port = listener.local_addr().map_err(failed)?.port();
    // From here on a signal ends the run first.
    let mut signals = Signals::new([SIGINT, SIGTERM, SIGHUP])
        .map_err(|e| Failure::new(Code::Failed, format!("signals: {e}")))?;
    let jobs = Arc::new(Jobs::new(args.out.clone()));
    let access =
        Access::new(port).map_err(|e| Failure::new(Code::Failed, format!("token: {e}")))?;
    let address = access.address();
    let api = Api { access, site, jobs: Arc::clone(&jobs), plan };
    Server::new(listener, move |request| api.answer(request)).spawn().map_err(failed)?;
    say!("The explorer is on {address}");
    say!("It runs plans with {}, in {}. Ctrl-C stops.", jobs.how().title(), args.out.display());
    if !args.no_open {
        open::browser(&address);
    }
    signals.forever().next();
    let hasty = Arc::clone(&jobs);
    // Whoever asks twice does not want to wait for the step's end.
    std::thread::spawn(move || signals.forever().next().map(|_| hasty.end_now()));
    jobs.close();
    Ok(())
}

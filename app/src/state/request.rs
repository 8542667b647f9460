//! Requests of screens to the page around them, which they do not know.

use pipewright_worker::protocol::Make;

/// What a plan's file becomes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// What is compared with.
    A,
    /// What is edited.
    B,
}

/// Something that the page does.
pub enum Request {
    /// The address follows the state, as a step of the browser's history.
    Remember,
    /// The address follows a little later, in place of what it was.
    Follow,
    /// Files are read, one after the other.
    Open(Vec<web_sys::File>, Side),
    /// The run that is shipped with the page is shown.
    Example,
    /// The panel of runs on the machine that serves the page opens.
    RunHere,
    /// The plan is saved.
    Export,
    /// The list of keys is shown.
    Help,
    /// The worker makes cuts or an order for the plan.
    Make(Make),
    /// A stage of the plan is looked at for what less memory costs.
    Recompute(u32),
}

//! Decisions of an elastic job: whether it may run with the members that it has, and how.
//!
//! Members come and go. At each change somebody collects [`Facts`], a [`ScalePolicy`] says
//! whether training goes on, waits or ends, and the plan is made anew for the ranks that are
//! there. Everything here decides and nothing acts: the same functions serve a supervisor with
//! real processes and a simulation in the browser.
//!
//! [`life`] is what becomes of a job: imagined or recorded.
//!
//! Policies after eChainer (Preferred Networks 2019), whose `ok2run(hosts, initial)` answers
//! `ok`, `wait` or `fail`.
//!
//! ```
//! use pipewright_core::elastic::{Facts, Member, Policy, Size, Verdict, decide};
//!
//! let policy: Policy = "min-max:4:8+deadline:48h".parse()?;
//! let mut facts = Facts::initial(8, 1000, 256);
//! facts.members = vec![Member::new("a", 4), Member::new("b", 2)];
//! facts.sizes = [2, 4, 6].map(|ranks| Size::ranks(ranks, 256)).to_vec();
//! assert_eq!(decide(&policy, &facts), Verdict::Run { ranks: 6 });
//! facts.sizes.truncate(1);
//! assert!(matches!(decide(&policy, &facts), Verdict::Wait { .. }));
//! # Ok::<(), pipewright_core::elastic::PolicyError>(())
//! ```

mod built_in;
mod facts;
pub mod life;
mod policy;
mod replan;
mod reroute;
mod samples;
#[cfg(feature = "script")]
mod script;
mod size;
mod text;
mod together;

pub use built_in::Policy;
pub use facts::{Facts, Limits, Member, Occasion, Progress, Size};
pub use policy::{ScalePolicy, Verdict, decide};
pub use replan::{Obstacle, ReplanError, Replanned, replan, sizes};
pub use reroute::{Guest, Place, RerouteError, Rerouted, reroute_to};
pub use samples::Origin;
#[cfg(feature = "script")]
pub use script::{Script, ScriptError};
pub use size::{BatchRule, ResizeError};
pub use text::PolicyError;
pub use together::Together;

//! The explorer's worker: long searches, in a thread of the browser's.
//!
//! `worker.js` owns the thread's event loop and drives a [`Session`]; the page and the session
//! send each other [`protocol`] messages as JSON. Without the feature `worker` only the protocol is
//! left: that is what the page depends on.

#![warn(missing_docs)]

pub mod protocol;

#[cfg(feature = "worker")]
mod session;
#[cfg(feature = "worker")]
pub use session::Session;

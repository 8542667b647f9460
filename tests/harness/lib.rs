//! Common parts of the integration tests: outside programs, found or visibly missed.
//!
//! [`browser`] drives a real Chromium, [`axe`] checks a page in it, [`explorer`] opens the page in it,
//! [`mpirun`] starts ranks, [`hosts`] starts them on several hosts with a network of a known speed,
//! [`tools`] decides what happens when one of them is not installed. Pages are served by `pipewright_serve::Server`, the server of
//! `make demo`.

pub mod axe;
pub mod browser;
pub mod explorer;
pub mod hosts;
pub mod mpirun;
pub mod tools;
mod webdriver;

pub use pipewright_serve::Server;

/// A test reports the first thing that went wrong; nobody handles it by kind.
pub type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

//! Advice, causes, speed-up curves and programs: what the Plan screen says beside its timeline.

#[cfg(feature = "page")]
pub mod advise;
#[cfg(feature = "page")]
pub mod curves;
#[cfg(feature = "page")]
pub mod ordering;
pub mod orders;
pub mod program;
pub mod reason;
pub mod speedup;
pub mod suggest;

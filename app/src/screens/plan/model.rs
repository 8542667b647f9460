//! Advice, causes, speed-up curves and programs: what the Plan screen says beside its timeline.

#[cfg(feature = "page")]
pub mod advise;
#[cfg(feature = "page")]
pub mod curves;
pub mod program;
pub mod reason;
pub mod speedup;
pub mod suggest;

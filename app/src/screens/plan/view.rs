//! The columns of the Plan screen.

pub mod inputs;
pub mod lanes;
pub mod painter;
pub mod pointer;
pub mod program;
pub mod results;
pub mod speedup;
pub mod timeline;
pub mod tray;

//! Screens, a folder each: what it knows (`model`), its pictures (`chart`), what is seen (`view`) and its style.
//! None of them imports another.

pub mod communication;
pub mod compare;
pub mod elastic;
pub mod model;
pub mod plan;
pub mod playground;
pub mod recompute;
pub mod run;

//! Parts of the page that several screens show.

pub mod clipboard;
pub mod icons;
pub mod moves;
pub mod pair;
pub mod precision;
pub mod readout;
pub mod reel;
pub mod schedule;
pub mod selection;
pub mod selects;
pub mod size;
pub mod slider;
pub mod split;
pub mod stands;

//! The page's parts, one a file.

pub mod app;
mod communication;
mod compare;
mod exports;
mod header;
mod help;
mod icons;
mod inputs;
mod lanes;
mod model;
mod moves;
mod painter;
mod palette;
mod playground;
mod pointer;
mod program;
mod recompute;
mod results;
mod schedule;
mod selection;
mod size;
mod slider;
mod speedup;
mod split;
mod timeline;
mod tray;

//! The page's parts, one a file.

pub mod app;
mod communication;
mod compare;
mod elastic;
mod exports;
mod forms;
mod header;
mod help;
mod here;
mod icons;
mod inputs;
mod lanes;
mod model;
mod moves;
mod painter;
mod pair;
mod palette;

mod pictures;
mod playground;
mod pointer;
mod program;
mod recompute;
mod results;
mod run;
mod schedule;
mod selection;
mod size;
mod slider;
mod speedup;
mod split;
mod stands;
mod timeline;
mod tray;

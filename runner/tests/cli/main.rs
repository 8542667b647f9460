//! The program as its users meet it: what it is asked for, what it refuses, how it ends, what it writes.

mod answers;
mod bad_input;
mod bounds;
mod calibrate;
mod clusters;
mod command_line;
#[path = "../common/mod.rs"]
mod common;
mod device_model;
mod examples;
mod explore;
mod explorer;
mod exports;
mod json_faults;
mod locks;
mod names;
mod one_truth;
mod optimizers;
mod orders;
mod outputs;
mod plan_files;
mod planning;
mod planning_codecs;
mod profile;
mod recompute;
mod run_endings;
mod scale;
mod shells;
mod told;
mod transformers;
mod tune;

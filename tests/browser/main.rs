//! Tests of the built page in a real Chromium: one program, a module for each screen or question.
//!
//! `make test` builds `dist/` and runs them. By hand, after `make web`: `cargo build -p
//! pipewright-runner`, which some of them start, then `cargo test --test browser -- --ignored`, or
//! `cargo test --test browser compare:: -- --ignored` for one module.

mod access;
mod budgets;
mod commands;
mod communication;
mod compare;
mod elastic;
mod explore;
mod forecast;
mod gallery;
mod journey;
mod keeping;
mod keyboard;
mod model;
mod moves;
mod playground;
mod recompute;
mod room;
mod run;
mod schedules;
mod screens;
mod smoke;
mod speed;
mod traces;
mod whole;

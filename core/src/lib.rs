//! Planning of parallel training: pure functions over plain data, the same on wasm and native.
//!
//! A model becomes a [`graph::Graph`], nodes get [`cost`]s, a [`partition`] groups nodes into
//! stages, a [`schedule`] orders actions on lanes, a [`plan::Plan`] freezes all of it,
//! [`plan::lower`] turns the plan into one program per rank, and [`simulate`] predicts the
//! [`timeline::Timeline`] that the runner later measures. [`predict::predict`] is all arrows at once.
//!
//! ```
//! use pipewright_core::cost::{Cluster, Costs};
//! use pipewright_core::graph::Precision;
//! use pipewright_core::graph::presets::Preset;
//! use pipewright_core::partition;
//! use pipewright_core::plan::{Draft, Model};
//!
//! let graph = Preset::Vgg16.graph()?;
//! let cluster = Cluster::preset("dgx-a100")?;
//! let costs = Costs::new(&graph, &cluster, 8, Precision::F32);
//! let cuts = partition::balanced(&graph, &costs, 4)?;
//! let mut draft = Draft::new(Model::Preset(Preset::Vgg16), cluster, cuts);
//! (draft.mini_batch, draft.micro_batches) = (64, 8);
//! let (plan, prediction) = draft.plan()?;
//! assert_eq!(plan.ranks(), 4);
//! assert!(prediction.timeline.bubble() > 0.27, "at least (p - 1) / (m + p - 1)");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Nothing here reads a clock, a file, the environment or unseeded randomness, and no result
//! depends on hash-map order: the same inputs give the same bytes everywhere.

#![warn(missing_docs)]
#![forbid(unsafe_code)]

pub mod adapt;
pub mod compress;
pub mod cost;
pub mod elastic;
pub mod graph;
pub mod hf;
pub mod ids;
pub mod onnx;
pub mod order;
pub mod partition;
pub mod plan;
pub mod predict;
pub mod recompute;
pub mod schedule;
pub mod simulate;
pub mod timeline;
pub mod units;

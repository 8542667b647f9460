//! Formats that core reads: ONNX, profiles of other systems, plan files, records of jobs, names of
//! presets; and what becomes of broken ones.

mod graph_json;
mod import;
mod import_mutations;
mod imported_plans;
mod life;
mod models;
mod onnx;
mod plan_mutations;
mod seeded_mutations;

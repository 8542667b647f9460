//! The exact partitioners: against trying everything on small graphs, and against the published
//! answers of PipeDream, dnn-partitioning and Piper.

mod coarse;
mod profiles;
mod tables;
mod twins;

//! The exact partitioners against the answers of PipeDream, dnn-partitioning and Piper.

#[allow(dead_code)]
mod profiles;
mod tables;

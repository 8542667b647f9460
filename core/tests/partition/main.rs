//! The exact partitioners against the answers of PipeDream, dnn-partitioning and Piper.

mod profiles;
mod tables;

//! Training: the same numbers whatever the split, the schedule, the transport and the codec, and those of
//! other implementations.

mod asynchronous;
#[path = "../common/mod.rs"]
mod common;
mod data_sets;
mod edge_codecs;
mod encoded_training;
mod equivalence;
mod every_schedule;
mod exchange_local;
mod expert_parallel;
mod experts;
mod golden_training;
mod hf;
mod loss_scaling;
mod onnx;
mod predict;
mod recompute_in_memory;
mod recompute_training;
mod replicas;
mod replicated_features;
mod reroute;
mod sequence_parallel;
mod skip_connections;
mod skipped_steps;
mod tensor_parallel;
mod tied_weights;
mod training_features;
mod transport_local;
mod two_copies;
mod weights;
mod zero;
mod zero_gradients;

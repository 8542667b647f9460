//! The planner: costs, partitions, schedules, simulations, whole plans and plans for elastic jobs,
//! against exhaustive search, slow twins and what others published.

mod activation_memory;
mod advice;
mod automatic;
mod automatic_plans;
mod calibrate;
mod communication;
mod drift;
mod explain;
mod forms;
mod halves;
mod in_order;
mod llm;
mod loss_memory;
mod megatron;
mod partition;
#[cfg(feature = "script")]
mod policies;
mod published;
mod replan;
mod reroute;
mod schedules;
mod schedules_programs;
mod schedules_structure;
mod simulate_chain;
mod simulation;
mod splits;
mod takisawa;
mod tensor_parallel;
mod torchgpipe;
mod vtrain;
mod zero;
mod zero_bubble;

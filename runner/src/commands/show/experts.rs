//! Expert groups of a plan: what their replicas divide, and the rows that they send each other.

use crate::commands::words::counted;
use pipewright_core::ids::ParamId;
use pipewright_core::plan::{Kernel, Plan};
use pipewright_core::predict::Prediction;
use pipewright_core::units::{Bytes, Nanos};

/// A line where there are some. Times and bytes are those of a micro-batch through all stages.
pub(in crate::commands) fn experts(plan: &Plan, prediction: &Prediction) -> Option<String> {
    let (graph, experts) = (&prediction.graph, prediction.graph.expert_groups()?);
    let ids = (0..graph.params().len() as u32).map(ParamId).filter(|id| graph.is_of_experts(*id));
    let whole: u64 =
        ids.filter_map(|id| graph.shards(id)).map(|s| s.shape.iter().product::<u64>()).sum();
    let stages = prediction.programs.iter().flat_map(|program| &program.stages);
    let kernels = stages.filter(|stage| stage.first_copy).flat_map(|stage| &stage.kernels);
    let rows: Vec<&Kernel> = kernels.filter(|kernel| kernel.kind.is_all_to_all()).collect();
    let bytes: Bytes = rows.iter().map(|kernel| kernel.reads[0].bytes).sum();
    let sent = Bytes(bytes.0 / u64::from(experts.degree) * u64::from(experts.degree - 1));
    let time: Nanos = rows.iter().map(|k| prediction.costs.node(k.node).expert_exchange).sum();
    let ranks = experts.degree * plan.tensor;
    Some(format!(
        "expert groups of {} replicas: a rank has 1/{ranks} of the {whole} parameters of experts; {} of rows in a \
         micro-batch through all stages, {sent} from each replica in {time}",
        experts.degree,
        counted(rows.len() as u64, "all-to-all"),
    ))
}

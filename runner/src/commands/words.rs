//! Words for counts, and for the lanes and ranks of a plan.

use pipewright_core::ids::LaneId;
use pipewright_core::plan::Plan;

/// `1 rank`, `2 ranks`, `3 micro-batches`.
pub(super) fn counted(count: impl Into<u64>, one: &str) -> String {
    let count = count.into();
    let end = match count {
        1 => "",
        _ if one.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{count} {one}{end}")
}

/// Who runs a plan: `4 lanes x 2 replicas = 8 ranks`, `4 lanes = 4 ranks`.
pub(super) fn processes(plan: &Plan) -> String {
    let lanes = counted(plan.lanes(), "lane");
    let replicas = match plan.data_parallel.replicas {
        1 => String::new(),
        replicas => format!(" x {replicas} replicas"),
    };
    format!("{lanes}{replicas} = {}", counted(plan.ranks(), "rank"))
}

/// How a mini-batch is divided: `64 = 4 replicas x 8 micro-batches x 2 samples`.
pub(super) fn division(plan: &Plan) -> String {
    let replicas = match plan.data_parallel.replicas {
        1 => String::new(),
        replicas => format!("{replicas} replicas x "),
    };
    let micro_batches = counted(plan.micro_batches, "micro-batch");
    format!(
        "{} = {replicas}{micro_batches} x {}",
        plan.mini_batch,
        counted(plan.samples(), "sample")
    )
}

/// The ranks of a lane.
pub(super) fn ranks_of(plan: &Plan, lane: LaneId) -> std::ops::Range<u32> {
    let replicas = plan.data_parallel.replicas;
    lane.0 * replicas..(lane.0 + 1) * replicas
}

/// The same for people: `3`, `6-7`.
pub(super) fn rank_words(plan: &Plan, lane: LaneId) -> String {
    let ranks = ranks_of(plan, lane);
    match ranks.len() {
        1 => ranks.start.to_string(),
        _ => format!("{}-{}", ranks.start, ranks.end - 1),
    }
}

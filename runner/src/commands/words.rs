//! Words for counts, and for the lanes and ranks of a plan.

use pipewright_core::ids::LaneId;
use pipewright_core::plan::Plan;
use pipewright_core::units::Nanos;

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

/// `1 is`, `2 are`.
pub(super) fn are(count: impl Into<u64>) -> String {
    match count.into() {
        1 => "1 is".into(),
        count => format!("{count} are"),
    }
}

/// Who runs a plan: `4 lanes x 2 replicas x 2 tensor-parallel = 16 ranks`, `4 lanes = 4 ranks`.
pub(super) fn processes(plan: &Plan) -> String {
    format!("{} = {}", copies(plan), counted(plan.ranks(), "rank"))
}

/// The same without their sum: `4 lanes x 2 replicas`.
pub(super) fn copies(plan: &Plan) -> String {
    let lanes = counted(plan.lanes(), "lane");
    let replicas = match plan.data_parallel.replicas {
        1 => String::new(),
        replicas => format!(" x {replicas} replicas"),
    };
    let tensor = match plan.tensor {
        1 => String::new(),
        tensor => format!(" x {tensor} tensor-parallel"),
    };
    format!("{lanes}{replicas}{tensor}")
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
    let copies = plan.mesh().copies();
    lane.0 * copies..(lane.0 + 1) * copies
}

/// The same for people: `3`, `6-7`.
pub(super) fn rank_words(plan: &Plan, lane: LaneId) -> String {
    let ranks = ranks_of(plan, lane);
    match ranks.len() {
        1 => ranks.start.to_string(),
        _ => format!("{}-{}", ranks.start, ranks.end - 1),
    }
}

/// Times of a column, all in the unit of the longest.
pub(super) fn column(times: &[Nanos]) -> Vec<String> {
    let longest = times.iter().max().map_or(0, |time| time.0);
    let (scale, unit) = match longest {
        0..1_000 => (1.0, "ns"),
        1_000..1_000_000 => (1e3, "us"),
        1_000_000..1_000_000_000 => (1e6, "ms"),
        _ => (1e9, "s"),
    };
    // Three digits of the shortest, within reason.
    let shortest = times.iter().filter(|time| time.0 > 0).min().map_or(1.0, |time| time.0 as f64);
    let decimals = match shortest / scale {
        _ if unit == "ns" => 0,
        share if share >= 1.0 => 2,
        share if share >= 0.1 => 3,
        _ => 4,
    };
    times.iter().map(|time| format!("{:.decimals$} {unit}", time.0 as f64 / scale)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_are_words() {
        let words = |count: u32, one| counted(count, one);
        assert_eq!([words(1, "lane"), words(2, "lane")], ["1 lane", "2 lanes"]);
        assert_eq!(words(0, "micro-batch"), "0 micro-batches");
    }

    #[test]
    fn a_column_has_one_unit() {
        let times = |all: &[u64]| column(&all.iter().map(|ns| Nanos(*ns)).collect::<Vec<_>>());
        assert_eq!(times(&[8_543_090_000, 10_420_000_000]), ["8.54 s", "10.42 s"]);
        assert_eq!(times(&[83_800, 1_380_000]), ["0.0838 ms", "1.3800 ms"]);
        assert_eq!(times(&[5, 0]), ["5 ns", "0 ns"]);
        assert_eq!(times(&[]), [""; 0]);
    }
}

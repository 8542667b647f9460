//! Instructions of a rank's program as lines for people.

use pipewright_core::plan::{Encoded, Instruction, Region, Source};

/// One line: `run 2F0 in slot 1`, `receive from lane 1 to 4096 (3.0 KiB), tag 7`.
pub(super) fn words(instruction: &Instruction) -> String {
    match *instruction {
        Instruction::Load { micro_batch, source, region } => {
            format!("load {} of micro-batch {micro_batch} to {}", title(source), place(region))
        }
        Instruction::Recv { from, tag, region, decode } => {
            let decoded = decode.map_or(String::new(), |to| format!(", {}", coded("decoded", to)));
            format!("receive from lane {from} to {}, tag {tag}{decoded}", place(region))
        }
        Instruction::Run { action, slot, outbox, version, reduces } => {
            let outbox = if outbox > 0 { format!(", outbox {outbox}") } else { String::new() };
            let version = if version > 0 { format!(", version {version}") } else { String::new() };
            let sums = if reduces { ", then begin to sum its gradients" } else { "" };
            format!("run {action} in slot {slot}{outbox}{version}{sums}")
        }
        Instruction::Send { to, tag, region, encode, handle, stage, micro_batch, gradient } => {
            let what = if gradient { "gradient" } else { "value" };
            let encoded =
                encode.map_or(String::new(), |from| format!(", {}", coded("encoded", from)));
            format!(
                "send the {what} of stage {stage}, micro-batch {micro_batch}, to lane {to} from {}, \
                 tag {tag}, handle {handle}{encoded}",
                place(region)
            )
        }
        Instruction::WaitSend { handle } => format!("wait until handle {handle} is sent"),
        Instruction::CheckGradients => "add up the squares of all gradients of all ranks".into(),
        Instruction::WaitReduce { stage } => {
            format!("wait until the gradients of stage {stage} are summed")
        }
        Instruction::Tie { index } => format!("sum the gradients of tied parameters {index}"),
        Instruction::Broadcast { stage } => {
            format!("broadcast the parameters of stage {stage} from the first replica")
        }
        Instruction::Scatter { micro_batch, source, region, staging, tag, handle } => format!(
            "scatter {} of micro-batch {micro_batch} to {} from {}, tag {tag}, handle {handle}",
            title(source),
            place(region),
            place(staging)
        ),
        Instruction::Optimizer { stage, from, to, index } => {
            let versions =
                if from == to { String::new() } else { format!(", version {from} to {to}") };
            let update = if index > 0 { format!(", update {index}") } else { String::new() };
            format!("update the parameters of stage {stage}{versions}{update}")
        }
    }
}

fn title(source: Source) -> &'static str {
    match source {
        Source::Input => "samples",
        Source::Target => "targets",
    }
}

/// Where bytes of the arena begin, and how many they are.
fn place(region: Region) -> String {
    format!("{} ({})", region.offset.0, region.bytes)
}

fn coded(what: &str, encoded: Encoded) -> String {
    format!("{what} by {} at {}", encoded.codec, place(encoded.values))
}

//! Fused groups that are found, and the values of them that are stored.

use crate::common::{chains, draft_of};
use pipewright_core::graph::Graph;
use pipewright_core::graph::autodiff::ComputationKind::{self, Forward, SumGradients};
use pipewright_core::ids::StageId;
use pipewright_core::plan::{Area, Operand, Program};
use pipewright_core::predict::predict;
use pipewright_core::units::Bytes;
use pipewright_runner::execute::Fusion;

fn program(graph: Graph) -> (Graph, Program) {
    let mut draft = draft_of(graph, 1);
    (draft.mini_batch, draft.micro_batches) = (4, 1);
    let mut prediction = predict(&draft.plan().unwrap().0).unwrap();
    (prediction.graph, prediction.programs.remove(0))
}

/// Chains of more than one, as text: the first node, and which values are stored.
fn found(graph: &Graph, program: &Program) -> Vec<String> {
    let fusion = Fusion::of(graph, program);
    let (mut all, mut at) = (vec![], 0);
    let kernels = &program.stages[0].kernels;
    while at < kernels.len() {
        let stored = fusion.at(StageId(0), at);
        if stored.len() > 1 {
            let kind = match kernels[at].kind {
                Forward => "",
                SumGradients => "sum of ",
                _ => "gradient of ",
            };
            let marks: String = stored.iter().map(|s| if *s { '+' } else { '-' }).collect();
            all.push(format!("{kind}{} {marks}", graph.node(kernels[at].node).name));
        }
        at += stored.len();
    }
    all
}

#[test]
fn chains_of_a_residual_network() {
    let (graph, program) = program(chains::residual());
    let expected = [
        "stem.bn -+",
        "same.a.bn -+",
        "same.b.bn --+",
        "half.a.bn -+",
        "half.skip.bn --+",
        // Its sum has another reader.
        "first.add ++",
        "sum of first.bn +++",
        "gradient of half.out +++",
        "gradient of half.b.bn ++",
        "gradient of half.relu +++",
        "gradient of same.out +++",
        "gradient of same.relu +++",
        "gradient of stem.relu +++",
    ];
    assert_eq!(found(&graph, &program), expected);
}

#[test]
fn chains_of_convolutions_and_of_blocks() {
    let (graph, program) = program(chains::plain());
    assert_eq!(found(&graph, &program), ["gradient of b.pool -+", "gradient of a.pool -+"]);
    let (graph, program) = self::program(chains::blocks());
    let expected = [
        "gpt.add1 ++",
        "gpt.add2 ++",
        "llama.add1 ++",
        "llama.add2 ++",
        "gradient of llama.norm2 -++",
        "gradient of llama.norm1 -++",
        "gradient of gpt.norm2 -++",
    ];
    assert_eq!(found(&graph, &program), expected);
}

/// Where the kernel of a node is in a program's only stage.
fn kernel(graph: &Graph, program: &Program, name: &str, kind: ComputationKind) -> usize {
    let is_it =
        |k: &pipewright_core::plan::Kernel| graph.node(k.node).name == name && k.kind == kind;
    program.stages[0].kernels.iter().position(is_it).unwrap()
}

/// One more reader, before somebody else writes there.
#[test]
fn what_somebody_else_reads_is_stored() {
    let (graph, mut program) = program(chains::residual());
    let bn = kernel(&graph, &program, "stem.bn", Forward);
    assert_eq!(Fusion::of(&graph, &program).at(StageId(0), bn), [false, true]);
    let kernels = &mut program.stages[0].kernels;
    let value = kernels[bn].writes[0];
    let pool = &mut kernels[bn + 2];
    pool.reads.push(Operand { bytes: Bytes(64), ..value });
    assert_eq!(Fusion::of(&graph, &program).at(StageId(0), bn), [true, true]);
    // And in memory that outlives the action.
    let kernels = &mut program.stages[0].kernels;
    kernels[bn + 2].reads.pop();
    let kept = Operand { area: Area::Slot, ..value };
    (kernels[bn].writes[0], kernels[bn + 1].reads[0]) = (kept, kept);
    assert!(Fusion::of(&graph, &program).at(StageId(0), bn)[0]);
}

/// A result that lies exactly where its input lay is written there when that was read; one that lies across
/// is not.
#[test]
fn what_would_be_written_too_early() {
    let (graph, mut program) = program(chains::residual());
    let bn = kernel(&graph, &program, "stem.bn", Forward);
    let chain = |program: &Program| Fusion::of(&graph, program).at(StageId(0), bn).len();
    let x = program.stages[0].kernels[bn].reads[0];
    program.stages[0].kernels[bn + 1].writes[0] = x;
    assert_eq!(chain(&program), 2);
    program.stages[0].kernels[bn + 1].writes[0].offset = x.offset + Bytes(64);
    assert_eq!(chain(&program), 1);
    // Statistics are whole channels'.
    let saved = program.stages[0].kernels[bn].writes[1];
    program.stages[0].kernels[bn + 1].writes[0].offset = saved.offset;
    program.stages[0].kernels[bn + 1].writes[0].area = saved.area;
    assert_eq!(chain(&program), 1);
}

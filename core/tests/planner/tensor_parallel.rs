//! Tensor groups in plans: who sums what with whom, what it takes, and what is sent.

use pipewright_core::cost::{Cluster, Costs};
use pipewright_core::graph::Op;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{
    DataParallel, Draft, Instruction, Kernel, Model, Plan, Program, groups,
};
use pipewright_core::predict::{Prediction, predict};
use pipewright_core::schedule::{ScheduleKind, Updates};
use pipewright_core::simulate::StageCost;
use pipewright_core::units::{Bytes, Nanos};

const GPT: &str = "transformer:layers=4,hidden=64,heads=8,sequence=16,vocabulary=97";
const LLAMA: &str = "transformer:layers=4,hidden=64,heads=8,kv=4,sequence=16,vocabulary=97,gated";

fn draft(preset: &str, stages: u32, tensor: u32, replicas: u32) -> Draft {
    let model = Model::Preset(preset.parse::<Preset>().unwrap());
    let graph = model.graph().unwrap();
    let cuts = pipewright_core::partition::uniform(&graph, stages).unwrap();
    let mut draft = Draft::new(model, Cluster::preset("dgx-a100").unwrap(), cuts);
    draft.tensor = tensor;
    draft.data_parallel = DataParallel::ddp(replicas);
    draft.cluster.nodes = 4;
    draft
}

/// Bytes of the sums of a micro-batch, in forward and in backward passes.
fn sums(prediction: &Prediction) -> [Vec<u64>; 2] {
    let stages = || prediction.programs.iter().flat_map(|program| &program.stages);
    [true, false].map(|forward| {
        let kernels = stages().flat_map(|stage| {
            let (before, after) = stage.kernels.split_at(stage.forward_end as usize);
            if forward { before } else { after }
        });
        kernels.filter(|kernel| kernel.reduces).map(|kernel| kernel.writes[0].bytes.0).collect()
    })
}

/// What experts give is summed as a row-parallel layer's output is; backward that of tokens, and the few numbers of shares.
#[test]
fn a_block_of_experts_sums_the_gradient_of_shares_too() {
    let draft = draft(&format!("{LLAMA},experts=4,top_k=2"), 1, 2, 1);
    let samples = draft.mini_batch / u64::from(draft.micro_batches);
    let (plan, prediction) = draft.plan().unwrap();
    let [forwards, mut backwards] = sums(&prediction);
    let (activation, shares) = (4 * 16 * 64 * samples, 4 * 16 * 4 * samples);
    assert_eq!(forwards, [vec![activation; 9], vec![4 * 5 * 2 * 16 * samples]].concat());
    backwards.sort_unstable();
    assert_eq!(backwards, [vec![shares; 4], vec![activation; 9]].concat());
    let costs = plan.costs(&prediction.graph, plan.samples());
    for (at, node) in prediction.graph.nodes().iter().enumerate() {
        let cost = costs.nodes[at];
        match node.op {
            Op::Combine => assert!(cost.tensor_gradient_sum < cost.tensor_sum, "{}", node.name),
            _ => assert_eq!(cost.tensor_gradient_sum, cost.tensor_sum, "{}", node.name),
        }
    }
}

/// Two forwards and two backwards a block, as Megatron-LM has them: gate and product together, too. The looked-up
/// tokens and the head's input gradient besides, and five numbers of each rank and position for the loss.
#[test]
fn a_block_sums_four_times() {
    for preset in [GPT, LLAMA] {
        for (stages, kind) in [(1, ScheduleKind::OneFOneB), (2, ScheduleKind::ZbH1)] {
            let mut draft = draft(preset, stages, 2, 1);
            draft.schedule = kind;
            let samples = draft.mini_batch / u64::from(draft.micro_batches);
            let (_, prediction) = draft.plan().unwrap();
            let [forwards, backwards] = sums(&prediction);
            let activations = vec![4 * 16 * 64 * samples; 9];
            assert_eq!(backwards, activations, "{preset}");
            assert_eq!(
                forwards,
                [activations, vec![4 * 5 * 2 * 16 * samples]].concat(),
                "{preset}"
            );
        }
    }
}

#[test]
fn every_rank_has_its_twins_and_its_group() {
    let (plan, prediction) = draft(GPT, 2, 2, 2).plan().unwrap();
    let ranks = |group: u32| -> Vec<u32> {
        prediction.groups[group as usize].iter().map(|rank| rank.0).collect()
    };
    assert_eq!(plan.ranks(), 8);
    for program in &prediction.programs {
        for copy in 0..4 {
            let (replica, tensor) = (copy / 2, copy % 2);
            let rank =
                |replica: u32, tensor: u32| plan.mesh().rank(program.lane, 2 * replica + tensor);
            let own = ranks(program.tensor.group + replica);
            assert_eq!(own, [rank(replica, 0), rank(replica, 1)]);
            for bucket in program.stages.iter().flat_map(|stage| &stage.buckets) {
                assert_eq!(ranks(bucket.group + tensor), [rank(0, tensor), rank(1, tensor)]);
            }
        }
    }
    let (graph, schedule) = plan.check().unwrap();
    assert_eq!(groups(&plan.inputs(&graph, &schedule)), prediction.groups);
    assert!(draft(GPT, 2, 1, 1).plan().unwrap().1.groups.is_empty(), "nobody sums");
}

/// Under every schedule programs come to their end, and passes take longer with slower sums.
#[test]
fn programs_of_groups_come_to_their_end() {
    let mut seen = 0;
    for kind in ScheduleKind::ALL {
        let stages = kind.placement().stages(2);
        if stages > 4 || kind.updates() != Updates::Synchronous {
            continue;
        }
        let mut draft = draft(LLAMA, stages, 2, 2);
        (draft.schedule, draft.micro_batches) = (kind, 4);
        let (plan, prediction) = draft.plan().unwrap();
        let mut slower = plan.clone();
        slower.cluster.local.bytes_per_sec /= 1e4;
        slower.cluster.collectives = None;
        let slow = predict(&slower).unwrap();
        // A stage may have none.
        let sum = |stages: &[StageCost], of: fn(&StageCost) -> Nanos| -> Nanos {
            stages.iter().map(of).sum()
        };
        for of in [|cost: &StageCost| cost.forward, StageCost::backward] {
            assert!(sum(&prediction.stages, of) < sum(&slow.stages, of), "{kind}");
        }
        // All ranks are simulated where they share devices.
        slower.cluster.devices_per_node = 1;
        let all = predict(&slower).unwrap().timeline;
        assert_eq!(all.lanes.len(), plan.ranks() as usize, "{kind}");
        assert!(all.step > slow.timeline.step, "{kind}");
        seen += 1;
    }
    assert!(seen > 8, "{seen} schedules");
}

#[test]
fn passes_and_traffic_have_the_sums_in_them() {
    let (plan, prediction) = draft(GPT, 2, 4, 2).plan().unwrap();
    let costs = plan.costs(&prediction.graph, plan.samples());
    let bytes = Bytes(4 * 16 * 64 * plan.samples());
    let kernels = prediction.programs[0].stages[0].kernels.iter();
    for kernel in kernels.filter(|kernel| kernel.reduces) {
        assert_eq!(kernel.writes[0].bytes, bytes);
        assert!(costs.node(kernel.node).tensor_sum > Nanos::ZERO);
    }
    let runs = |program: &Program| {
        program.train.iter().filter(|i| matches!(i, Instruction::Run { .. })).count()
    };
    assert_eq!(runs(&prediction.programs[0]), 8, "passes are not divided");
    // Four sums in each of four blocks, of what the table gives and of the head's input, and the numbers of the
    // loss; for four micro-batches, on both replicas' groups of four.
    let all = 18 * bytes.0 + 4 * 5 * 4 * 16 * plan.samples();
    let within = 2.0 * 3.0 / 4.0 * all as f64 * f64::from(4 * 2 * 4);
    let stages = prediction.programs.iter().flat_map(|program| &program.stages);
    // Each of the eight ranks of a lane sends its twin as many bytes as it has.
    let gradients = |bucket: &pipewright_core::plan::Bucket| 8.0 * bucket.region.bytes.0 as f64;
    let gradients: f64 = stages.flat_map(|stage| &stage.buckets).map(gradients).sum();
    let messages: u64 = prediction.timeline.messages.iter().map(|m| m.bytes.0).sum();
    let expected = within + gradients + 8.0 * messages as f64;
    let found = prediction.timeline.traffic().0 as f64;
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
}

#[test]
fn shards_are_smaller_and_take_less_time() {
    let rank = |tensor| {
        let (plan, prediction) = draft(LLAMA, 1, tensor, 1).plan().unwrap();
        let costs = Costs::new(&prediction.graph, &plan.cluster, 512, plan.training.precision);
        let time: Nanos = costs.nodes.iter().map(|node| node.forward).sum();
        (plan.prediction.arena[0], time)
    };
    let sizes = [1, 2, 4].map(rank);
    assert!(sizes.windows(2).all(|two| two[1].0 < two[0].0 && two[1].1 < two[0].1), "{sizes:?}");
}

#[test]
fn a_degree_of_one_is_in_no_file_and_others_are_checked() {
    let plan = draft(GPT, 2, 1, 1).plan().unwrap().0;
    assert!(!plan.to_json().contains("\n  \"tensor\":"));
    let plan = draft(GPT, 2, 2, 1).plan().unwrap().0;
    let text = plan.to_json();
    assert_eq!(Plan::from_json(&text).unwrap(), plan);
    let with = |degree: &str| {
        let text = text.replace("\"tensor\": 2", &format!("\"tensor\": {degree}"));
        Plan::from_json(&text).unwrap_err().to_string()
    };
    assert_eq!(with("0"), "tensor is 0, must be between 1 and 2^10");
    assert!(
        with("16").contains("8 heads of keys and values do not divide among 16"),
        "{}",
        with("16")
    );
}

/// Of each block's and the head's input all is gathered, twice, because the weight gradient gathers it again; what
/// each block and the table give is scattered. The other way round for gradients. Norms sum their gradients.
#[test]
fn slices_are_gathered_before_pairs_and_scattered_behind_them() {
    for (preset, norms) in [(GPT, 9), (LLAMA, 9)] {
        for kind in [ScheduleKind::OneFOneB, ScheduleKind::ZbH1] {
            let mut draft = draft(preset, 1, 2, 1);
            (draft.schedule, draft.sequence_parallel) = (kind, true);
            let (plan, prediction) = draft.plan().unwrap();
            let stage = &prediction.programs[0].stages[0];
            let (forward, backward) = stage.kernels.split_at(stage.forward_end as usize);
            let count = |kernels: &[Kernel], kind| {
                kernels.iter().filter(|kernel| kernel.kind == kind).count()
            };
            use ComputationKind::{AllGather, ReduceScatter};
            assert_eq!([AllGather, ReduceScatter].map(|kind| count(forward, kind)), [9, 9]);
            // Where weight gradients come later they gather the gradient again; the table's is gathered for it alone.
            let again = if kind == ScheduleKind::ZbH1 { 8 } else { 0 };
            assert_eq!(count(backward, AllGather), 9 + 9 + again, "{preset}, {kind}");
            assert_eq!(count(backward, ReduceScatter), 9, "{preset}, {kind}");
            let sums = |kernel: &&Kernel| kernel.reduces;
            let kinds: Vec<_> =
                stage.kernels.iter().filter(sums).map(|kernel| kernel.kind).collect();
            assert_eq!(kinds[0], ComputationKind::PartialLoss);
            assert_eq!(kinds[1..], vec![ComputationKind::WeightGradient; norms]);
            let slice = Bytes(4 * 16 * 64 / 2 * plan.samples());
            let gathered = forward.iter().filter(|kernel| kernel.kind == AllGather);
            for kernel in gathered {
                assert_eq!([kernel.reads[0].bytes, kernel.writes[0].bytes], [slice, slice * 2]);
                let cost = prediction.costs.node(kernel.node);
                assert!(
                    cost.tensor_gather > Nanos::ZERO && cost.of(AllGather) == cost.tensor_gather
                );
            }
        }
    }
}

/// A gather and a scatter send what a sum sends, so without the second gathers there would be as much; less is kept.
#[test]
fn slices_send_a_little_more_and_keep_less() {
    let with = |sequence_parallel: bool| {
        let mut draft = draft(GPT, 2, 4, 1);
        draft.sequence_parallel = sequence_parallel;
        let (plan, prediction) = draft.plan().unwrap();
        let kept: u64 = prediction.programs.iter().map(|p| p.stages[0].slots.bytes.0).sum();
        (plan, prediction, kept)
    };
    let ((plan, whole, kept), (_, sliced, less)) = (with(false), with(true));
    assert!(less < kept, "{less} and {kept}");
    let bytes = (4 * 16 * 64 * plan.samples()) as f64;
    // Nine gathers of each of four micro-batches on four ranks; nine norms of two parameters, once a step.
    let again = 0.75 * 4.0 * (4.0 * 9.0 * bytes + 2.0 * 9.0 * (2.0 * 64.0 * 4.0));
    // Messages between the two stages are slices: an activation and a gradient.
    let messages = 2.0 * 4.0 * 4.0 * bytes * 0.75;
    let expected = whole.timeline.traffic().0 as f64 + again - messages;
    let found = sliced.timeline.traffic().0 as f64;
    assert!((found / expected - 1.0).abs() < 1e-6, "{found} instead of {expected}");
}

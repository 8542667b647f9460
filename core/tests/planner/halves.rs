//! Memory of values in two bytes: processors unpack what they compute with, GPUs take it as it lies.

use pipewright_core::cost::{Cluster, Halves};
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::presets::Preset;
use pipewright_core::graph::{Op, Precision};
use pipewright_core::plan::{Draft, Kernel, Model, Operand, Plan, StageProgram};
use pipewright_core::predict::{Prediction, predict, predict_with};

const NETWORKS: [&str; 3] =
    ["transformer:layers=2,hidden=64,heads=2,sequence=32,vocabulary=512", "resnet18:32", "fc32:64"];

fn plan(network: &str, cluster: &str, change: impl FnOnce(&mut Draft)) -> Plan {
    let preset: Preset = network.parse().unwrap();
    let cluster = Cluster::preset(cluster).unwrap();
    let mut draft = Draft::new(Model::Preset(preset), cluster, vec![]);
    (draft.mini_batch, draft.micro_batches) = (8, 2);
    draft.training.precision = Precision::Bf16;
    change(&mut draft);
    draft.plan().unwrap().0
}

fn stages(prediction: &Prediction) -> impl Iterator<Item = &StageProgram> {
    prediction.programs.iter().flat_map(|program| &program.stages)
}

fn kernels(prediction: &Prediction) -> impl Iterator<Item = &Kernel> {
    stages(prediction).flat_map(|stage| &stage.kernels)
}

#[test]
fn gpus_have_no_copies_in_single_precision() {
    for network in NETWORKS {
        let plan = plan(network, "h100", |_| {});
        let [there, here] = [Halves::AsTheyLie, Halves::Unpacked]
            .map(|halves| predict_with(&plan, halves).unwrap());
        for kernel in kernels(&there) {
            assert!(kernel.unpack.is_empty() && kernel.pack.is_empty(), "{network}: {kernel:?}");
        }
        assert!(kernels(&here).any(|kernel| !kernel.unpack.is_empty()), "{network}");
        // Between passes both keep the same, and both compute with the same numbers.
        let slots = |of| stages(of).map(|stage| stage.slots.bytes).collect::<Vec<_>>();
        assert_eq!(slots(&there), slots(&here), "{network}");
        for (there, here) in kernels(&there).zip(kernels(&here)) {
            let elements = |kernel: &Kernel| -> Vec<u64> {
                kernel.reads.iter().chain(&kernel.writes).map(|o| o.elements()).collect()
            };
            assert_eq!(elements(there), elements(here), "{network}: {there:?}");
        }
    }
}

/// Half of what single precision takes, but for kernels' scratch.
#[test]
fn half_the_bytes_take_half_the_memory() {
    for network in NETWORKS {
        let transient = |precision, halves| {
            let plan = plan(network, "h100", |draft| draft.training.precision = precision);
            let prediction = predict_with(&plan, halves).unwrap();
            let scratch = kernels(&prediction).filter_map(|kernel| kernel.workspace);
            let scratch = scratch.map(|scratch| scratch.bytes.0).max().unwrap_or(0);
            stages(&prediction).map(|stage| stage.transient.bytes.0).sum::<u64>() - scratch
        };
        let whole = transient(Precision::F32, Halves::AsTheyLie);
        let [there, here] =
            [Halves::AsTheyLie, Halves::Unpacked].map(|halves| transient(Precision::Bf16, halves));
        assert!(there < here, "{network}: {there} and {here}");
        assert!(there * 10 < whole * 6, "{network}: {there} of {whole}");
    }
}

#[test]
fn a_cluster_says_how_its_devices_compute() {
    for (cluster, halves) in [("laptop", Halves::Unpacked), ("dgx-a100", Halves::AsTheyLie)] {
        let plan = plan(NETWORKS[0], cluster, |_| {});
        let arenas = |prediction: Prediction| -> Vec<u64> {
            prediction.programs.iter().map(|program| program.arena.0).collect()
        };
        let said = arenas(predict_with(&plan, halves).unwrap());
        assert_eq!(arenas(predict(&plan).unwrap()), said, "{cluster}");
    }
}

/// Hosts may add partial sums up, and do it in single precision.
#[test]
fn partial_sums_have_room_for_hosts() {
    let plan = plan(NETWORKS[0], "dgx-a100", |draft| draft.tensor = 2);
    let prediction = predict(&plan).unwrap();
    let mut sums = 0;
    for kernel in kernels(&prediction) {
        assert!(kernel.unpack.is_empty(), "{kernel:?}");
        let [(whole, packed)] = &kernel.pack[..] else {
            // A loss's sums are in single precision anyway.
            let is_half = |operand: &Operand| kernel.reduces && operand.halves.is_some();
            assert!(kernel.pack.is_empty() && !kernel.writes.iter().any(is_half), "{kernel:?}");
            continue;
        };
        let partial = kernel.writes.first().filter(|_| kernel.reduces).expect("a sum is packed");
        assert_eq!((whole, whole.bytes.0), (partial, 4 * partial.elements()));
        assert_eq!(packed.halves, Some(partial.elements()));
        sums += 1;
    }
    assert!(sums > 0, "a tensor group adds something up");
}

/// Devices mask a rectifier's gradient in the kernel of the pooling's behind it, which reads while it writes.
#[test]
fn a_pooling_reads_until_the_rectifier_has_its_gradient() {
    for (cluster, apart) in [("h100", true), ("laptop", false)] {
        let plan = plan("vgg16:32", cluster, |draft| draft.training.precision = Precision::F32);
        let graph = plan.model.graph().unwrap();
        let prediction = predict(&plan).unwrap();
        let op = |kernel: &Kernel| &graph.node(kernel.node).op;
        let kernels: Vec<&Kernel> = kernels(&prediction).collect();
        let pairs: Vec<&[&Kernel]> = (kernels.windows(2))
            .filter(|pair| pair.iter().all(|k| k.kind == ComputationKind::InputGradient))
            .filter(|pair| matches!(op(pair[0]), Op::MaxPool2d { .. }))
            .filter(|pair| matches!(op(pair[1]), Op::Relu))
            .collect();
        assert_eq!(pairs.len(), 5, "{cluster}");
        let overlap = |a: &Operand, b: &Operand| {
            let [a_end, b_end] = [a, b].map(|operand| operand.offset + operand.bytes);
            a.area == b.area && a.offset < b_end && b.offset < a_end
        };
        let writes_there =
            |pair: &&[&Kernel]| pair[0].reads.iter().any(|read| overlap(read, &pair[1].writes[0]));
        assert_eq!(!pairs.iter().any(writes_there), apart, "{cluster}");
    }
}

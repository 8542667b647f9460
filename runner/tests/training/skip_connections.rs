//! ResNet-50 cut inside of its bottleneck blocks: skip connections cross stages, some of them two,
//! and training stays the same to the bit.

use pipewright_core::cost::Cluster;
use pipewright_core::graph::Graph;
use pipewright_core::graph::presets::Preset;
use pipewright_core::plan::{Draft, Model};
use pipewright_runner::data::open;
use pipewright_runner::execute::Rank;
use pipewright_runner::transport::local::local;

const STEPS: u64 = 2;

fn cuts(graph: &Graph, first_nodes: &[&str]) -> Vec<u32> {
    let node = |name: &&str| graph.nodes().iter().position(|n| n.name == *name).expect(name);
    first_nodes.iter().map(|name| node(name) as u32).collect()
}

/// The bits of the losses of the first steps, all ranks as threads.
fn losses(cuts: Vec<u32>) -> Vec<u64> {
    let model = Model::Preset(Preset::Resnet50);
    let mut draft = Draft::new(model, Cluster::preset("laptop").unwrap(), cuts);
    (draft.mini_batch, draft.micro_batches) = (4, 2);
    draft.data = crate::common::few_samples();
    let (plan, prediction) = draft.plan().unwrap();
    let data = open(&plan.data, &prediction.graph.sample().unwrap(), plan.seed).unwrap();
    let handles = prediction.programs.iter().map(|p| p.handles).max().unwrap();
    let transports = local(plan.ranks(), handles as usize);
    let losses: Vec<Vec<f64>> = std::thread::scope(|scope| {
        let start = |(transport, program)| {
            let (plan, graph, data) = (&plan, &prediction.graph, &data);
            scope.spawn(move || {
                let mut rank = Rank::new((plan, graph, program), data, transport, 1);
                (0..STEPS).map(|step| rank.step(step).unwrap().loss).collect()
            })
        };
        let ranks: Vec<_> = transports.into_iter().zip(&prediction.programs).map(start).collect();
        ranks.into_iter().map(|rank| rank.join().unwrap()).collect()
    });
    // One rank has the loss, the others count nothing.
    let sum = |step: usize| losses.iter().map(|of_rank| of_rank[step]).sum::<f64>();
    (0..STEPS as usize).map(|step| sum(step).to_bits()).collect()
}

#[test]
fn cuts_inside_of_bottleneck_blocks() {
    let graph = Preset::Resnet50.graph().unwrap();
    let expected = losses(vec![]);
    assert_ne!(expected[0], expected[1], "a step changes something");
    let splits: [(&[&str], u32); 2] = [
        // The skip of a block with its own convolution, and one of a block without.
        (&["layer2.0.downsample.0", "layer3.2.bn2"], 1),
        // Both cuts in one block: its skip goes straight from the first stage to the third.
        (&["layer3.1.conv2", "layer3.1.bn3"], 2),
    ];
    for (first_nodes, stages_crossed) in splits {
        let cuts = cuts(&graph, first_nodes);
        let division = graph.division(&cuts);
        let crossed = division.crossings.iter().map(|c| c.to.0 - c.from.0).max();
        assert_eq!(crossed, Some(stages_crossed), "{first_nodes:?}");
        assert!(division.crossings.len() > cuts.len(), "a skip crosses too: {first_nodes:?}");
        assert_eq!(losses(cuts), expected, "{first_nodes:?}");
    }
}

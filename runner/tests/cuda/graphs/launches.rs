//! Savings of fused groups, counted: launches of a step's passes, and bytes of activations and their gradients
//! that these read and write. `docs/gpu.md` has the numbers.

use crate::common::draft;
use pipewright_core::cost::Halves;
use pipewright_core::graph::autodiff::ComputationKind::{Forward, InputGradient};
use pipewright_core::graph::{Graph, Op, TensorSpec};
use pipewright_core::plan::{Kernel, Plan, Precision, StageProgram};
use pipewright_core::predict::predict_with;
use pipewright_kernels::{Call, Draw, Phase, Shard, Turn};
use pipewright_runner::device::FusedKind;
use pipewright_runner::device::cuda::kernels::{
    Buffers, Computed, DevicePtr, ImageOrder, Storage, fused, steps,
};
use pipewright_runner::execute::{Fusion, ImageLayouts};

/// Launches, and bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Counted {
    launches: usize,
    bytes: u64,
}

/// A computation with what [`steps`] wants to know of it, at addresses of nothing.
struct Computation<'a> {
    kernel: &'a Kernel,
    graph: &'a Graph,
    inputs: Vec<&'a TensorSpec>,
    gradients: usize,
    /// Whether its images have their channels innermost.
    channels_last: bool,
}

const NOWHERE: [DevicePtr; 16] = [DevicePtr::NULL; 16];

impl<'a> Computation<'a> {
    fn new(graph: &'a Graph, stage: &'a StageProgram, at: usize, layouts: &ImageLayouts) -> Self {
        let kernel = &stage.kernels[at];
        let mut operands = 0..kernel.reads.len() + kernel.writes.len();
        let channels_last = operands.any(|operand| {
            layouts.at(stage.stage, at, operand).is_some_and(|image| image.channels_last)
        });
        let inputs = graph.node(kernel.node).inputs.iter();
        let params = &stage.params[kernel.params.start as usize..kernel.params.end as usize];
        let gradients = params.iter().filter(|p| p.gradient.is_some()).count();
        Self {
            kernel,
            graph,
            inputs: inputs.map(|id| &graph.node(*id).output).collect(),
            gradients,
            channels_last,
        }
    }

    fn call(&self, plan: &Plan) -> Call<'_> {
        let node = self.graph.node(self.kernel.node);
        Call {
            op: &node.op,
            kind: self.kernel.kind,
            inputs: &self.inputs,
            output: &node.output,
            samples: plan.samples(),
            phase: Phase::Train,
            loss_scale: 1.0,
            wanted: self.kernel.wanted,
            threads: 1,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: plan.training.precision,
        }
    }

    fn buffers(&self) -> Buffers<'static> {
        let params = (self.kernel.params.end - self.kernel.params.start) as usize;
        Buffers {
            reads: &NOWHERE[..self.kernel.reads.len()],
            writes: &NOWHERE[..self.kernel.writes.len()],
            params: &NOWHERE[..params],
            gradients: &NOWHERE[..self.gradients],
            channels_last: self.channels_last,
            ..Buffers::default()
        }
    }

    fn bytes(&self, operand: &pipewright_core::plan::Operand) -> u64 {
        self.kernel.packed(operand).unwrap_or(*operand).bytes.0
    }

    fn written(&self) -> u64 {
        self.kernel.writes.first().map_or(0, |value| self.bytes(value))
    }

    /// What goes through memory when it is done alone. Normalisations of channels go over their tensors
    /// twice: for sums, then with them. Rows come from the caches when they are read again.
    fn alone(&self) -> u64 {
        let twice = matches!(self.graph.node(self.kernel.node).op, Op::BatchNorm2d { .. })
            && matches!(self.kernel.kind, Forward | InputGradient);
        let reads = self.kernel.reads.iter().enumerate().map(|(at, read)| {
            let passes = if twice && at < 2 { 2 } else { 1 };
            passes * self.bytes(read)
        });
        reads.sum::<u64>() + self.kernel.writes.iter().map(|value| self.bytes(value)).sum::<u64>()
    }
}

/// A step of one micro-batch: one computation after the other, and in chains. What only turns a value round is
/// not counted.
fn counted(plan: &Plan, order: ImageOrder) -> [Counted; 2] {
    let storage = Storage::from(plan.training.precision);
    let prediction = predict_with(plan, Halves::AsTheyLie).unwrap();
    let (graph, program) = (&prediction.graph, &prediction.programs[0]);
    let layouts = match order {
        ImageOrder::ChannelsFirst => ImageLayouts::default(),
        ImageOrder::ChannelsLast => ImageLayouts::of(graph, program),
    };
    let (fusion, stage) = (Fusion::of(graph, program), &program.stages[0]);
    let (mut alone, mut together) = (Counted::default(), Counted::default());
    let mut at = 0;
    while at < stage.kernels.len() {
        let stored = fusion.at(stage.stage, at);
        let own = at..at + stored.len();
        let all: Vec<_> =
            own.map(|kernel| Computation::new(graph, stage, kernel, &layouts)).collect();
        let calls: Vec<Call> = all.iter().map(|c| c.call(plan)).collect();
        let mut launches = 0;
        for (own, call) in all.iter().zip(&calls) {
            launches += steps(call, &own.buffers(), storage).steps.len();
            alone.bytes += own.alone();
            together.bytes += own.alone();
        }
        alone.launches += launches;
        if all.len() > 1 {
            let link = |((own, call), stored): ((&Computation, _), &bool)| Computed {
                call,
                buffers: own.buffers(),
                stored: *stored,
            };
            let chain: Vec<_> = all.iter().zip(&calls).zip(stored).map(link).collect();
            launches = fused(&chain, storage).steps.len();
        }
        together.launches += launches;
        together.bytes -= spared(&all, &calls, stored);
        at += stored.len();
    }
    [alone, together]
}

/// What does not go through memory: values that are handed on are not read, or read once less, and not
/// written where they are not stored; the sums that gradients of weights are made of are there already.
fn spared(all: &[Computation], calls: &[Call], stored: &[bool]) -> u64 {
    let mut bytes = 0;
    let mut value = 0;
    for ((own, call), stored) in all.iter().zip(calls).zip(stored) {
        match FusedKind::of_call(call, own.kernel.reads.len()) {
            Some(FusedKind::NormWeights) => bytes += own.alone(),
            Some(FusedKind::RowsWeights) => {}
            _ => {
                bytes += value;
                value = own.written();
                bytes += if *stored { 0 } else { value };
            }
        }
    }
    bytes
}

#[test]
fn chains_spare_launches_and_bytes() {
    let gpt2 = "transformer:layers=12,hidden=768,heads=12,sequence=1024,vocabulary=50257";
    let found = [("resnet50", 256), ("vgg16", 128), (gpt2, 16)].map(|(name, samples)| {
        let mut draft = draft(name.parse().unwrap(), 1);
        (draft.mini_batch, draft.micro_batches) = (samples, 1);
        draft.training.precision = Precision::Bf16;
        // MB, rounded.
        let plan = draft.plan().unwrap().0;
        [ImageOrder::ChannelsFirst, ImageOrder::ChannelsLast].map(|order| {
            counted(&plan, order).map(|c| (c.launches, (c.bytes + 500_000) / 1_000_000))
        })
    });
    let [resnet, vgg, gpt] = [
        [(618, 133_276), (436, 95_525)],
        [(122, 39_465), (117, 36_331)],
        // The head's products are 28 launches in place of 3: its rows go through scratch in four parts.
        [(481, 42_223), (433, 40_411)],
    ];
    // Channels innermost, sums of parts are put together by a launch for each of 53 norms and for its gradient,
    // which is that of the gradients of its weights in a chain.
    let resnet_last = [(618 + 2 * 53, 133_276), (436 + 53, 95_525)];
    assert_eq!(found, [[resnet, resnet_last], [vgg, vgg], [gpt, gpt]]);
}

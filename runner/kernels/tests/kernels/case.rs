//! One node with data around it: runs its computations as a training graph would.

use pipewright_core::graph::autodiff::{
    BackwardStyle, Computation, ComputationKind, Role, TrainingGraph, training_graph,
};
use pipewright_core::graph::{DType, Function, GraphBuilder, Op, TensorSpec};
use pipewright_core::ids::{NodeId, StageId, ValueId};
use pipewright_core::plan::Precision;
use pipewright_kernels::{Call, Draw, Operands, Phase, Shard, Turn};

/// What a suite tests.
pub type Launch<'a> = &'a mut dyn FnMut(&Call, Operands);

/// A node, its inputs and its parameters.
#[derive(Clone)]
pub struct Case {
    pub op: Op,
    pub samples: u64,
    pub specs: Vec<TensorSpec>,
    pub output: TensorSpec,
    /// Input values of all samples; u32 tensors as bits.
    pub inputs: Vec<Vec<f32>>,
    pub params: Vec<Vec<f32>>,
    pub phase: Phase,
    pub loss_scale: f32,
    pub threads: usize,
    /// Which parameters are trained.
    trainable: Vec<bool>,
    workspace: Vec<f32>,
    node: InGraph,
}

/// What autodiff makes of a node: what its computations read, write and save.
#[derive(Clone)]
struct InGraph {
    graph: TrainingGraph,
    id: NodeId,
    /// The nodes of its inputs.
    inputs: Vec<NodeId>,
}

/// What the forward pass gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Forward {
    pub output: Vec<f32>,
    pub saved: Option<Vec<f32>>,
}

/// What the backward pass gave.
#[derive(Clone, Debug, PartialEq)]
pub struct Backward {
    /// One per input; empty for indexes.
    pub inputs: Vec<Vec<f32>>,
    /// One per trainable parameter.
    pub params: Vec<Vec<f32>>,
}

impl InGraph {
    /// A network around the node: all its inputs are trained, its output becomes a loss.
    fn new(op: &Op, specs: &[TensorSpec]) -> Self {
        let mut builder = GraphBuilder::new("case");
        builder.layer("all");
        if let Op::TiedLinear { out_features, .. } = op {
            let last = specs[0].shape.last().copied().expect("features");
            let shape = vec![*out_features, last];
            builder.add("tied", Op::Parameter { shape, trainable: true }, &[]);
        }
        let classes = classes(op, specs);
        let source = |spec: &TensorSpec| match (spec.dtype, &spec.shape[..]) {
            (DType::F32, shape) => Op::Parameter { shape: shape.to_vec(), trainable: true },
            (DType::U32, []) => Op::Target { classes },
            (DType::U32, shape) if op.is_loss() => Op::Targets { count: shape[0], classes },
            (DType::U32, shape) => Op::Tokens { length: shape[0], vocabulary: classes },
        };
        let inputs: Vec<NodeId> = (0..)
            .zip(specs)
            .map(|(i, spec)| builder.add(format!("input {i}"), source(spec), &[]))
            .collect();
        let id = builder.add("node", op.clone(), &inputs);
        if !op.is_loss() {
            let refs: Vec<&TensorSpec> = specs.iter().collect();
            let shape = op.infer(&refs).expect("shapes fit").shape;
            let target = builder.add("target", Op::TargetValues { shape }, &[]);
            builder.add("loss", Op::MeanSquaredError, &[id, target]);
        }
        let graph = builder.finish().expect("a network");
        let division = graph.division(&[]);
        let graph = training_graph(&graph, &division, StageId(0), BackwardStyle::Fused);
        Self { graph, id, inputs }
    }

    fn computation(&self, kind: ComputationKind) -> Option<&Computation> {
        let mut all = self.graph.computations.iter();
        all.find(|computation| computation.node == self.id && computation.kind == kind)
    }

    /// Which input's activation or gradient a value is.
    fn input(&self, value: ValueId) -> Option<usize> {
        let node = self.graph.values[value.index()].node;
        self.inputs.iter().position(|input| *input == node)
    }

    /// What a backward computation reads as that value.
    fn read<'a>(
        &self,
        value: ValueId,
        (inputs, forward, gradient): (&'a [Vec<f32>], &'a Forward, &'a [f32]),
    ) -> &'a [f32] {
        match self.graph.values[value.index()].role {
            Role::Gradient => gradient,
            Role::Saved => forward.saved.as_deref().expect("something was saved"),
            Role::Loss | Role::Partial => unreachable!("nobody reads a loss, or a part of a sum"),
            Role::Activation => self.input(value).map_or(&forward.output, |i| &inputs[i]),
        }
    }

    fn words(&self, value: ValueId, samples: u64) -> usize {
        self.graph.values[value.index()].extent.bytes(samples).0 as usize / 4
    }
}

impl Case {
    /// A node with all parameters and inputs zero.
    pub fn new(op: Op, specs: Vec<TensorSpec>, samples: u64) -> Self {
        let refs: Vec<&TensorSpec> = specs.iter().collect();
        let output = op.infer(&refs).expect("shapes fit");
        let params = op.params(&refs);
        let zeros = |spec: &TensorSpec| vec![0.0; (spec.elements() * samples) as usize];
        let node = InGraph::new(&op, &specs);
        let workspace = node.computation(ComputationKind::Forward);
        let workspace = workspace.map_or(0, |c| c.workspace.bytes(samples).0 as usize / 4);
        Self {
            samples,
            inputs: specs.iter().map(zeros).collect(),
            params: params
                .iter()
                .map(|p| vec![0.0; p.shape.iter().product::<u64>() as usize])
                .collect(),
            phase: Phase::Train,
            loss_scale: 1.0,
            threads: 1,
            trainable: params.iter().map(|p| p.trainable).collect(),
            workspace: vec![f32::NAN; workspace],
            op,
            specs,
            output,
            node,
        }
    }

    pub fn empty_forward(&self) -> Forward {
        // Not a number: whatever a kernel forgets to write shows.
        let empty = |value: &ValueId| vec![f32::NAN; self.node.words(*value, self.samples)];
        match self.node.computation(ComputationKind::Forward) {
            Some(Computation { writes, .. }) => {
                Forward { output: empty(&writes[0]), saved: writes.get(1).map(empty) }
            }
            None => Forward { output: vec![f32::NAN; self.inputs[0].len()], saved: None },
        }
    }

    pub fn empty_backward(&self) -> Backward {
        let trained = self.params.iter().zip(&self.trainable).filter(|(_, trained)| **trained);
        let params = trained.map(|(param, _)| vec![0.0; param.len()]).collect();
        let inputs = self.inputs.iter().zip(&self.specs);
        let inputs = inputs.map(|(input, spec)| match spec.dtype {
            DType::F32 => vec![f32::NAN; input.len()],
            DType::U32 => vec![],
        });
        Backward { inputs: inputs.collect(), params }
    }

    fn launch(
        &mut self,
        launch: Launch,
        (kind, wanted): (ComputationKind, u64),
        reads: &[&[f32]],
        writes: Vec<&mut [f32]>,
        gradients: Vec<&mut [f32]>,
    ) {
        // A new binding lets the lifetimes shrink to one that all lists share.
        let (mut writes, mut gradients) = (writes, gradients);
        let specs: Vec<&TensorSpec> = self.specs.iter().collect();
        let call = Call {
            op: &self.op,
            kind,
            inputs: &specs,
            output: &self.output,
            samples: self.samples,
            phase: self.phase,
            loss_scale: self.loss_scale,
            wanted,
            threads: self.threads,
            draw: Draw::default(),
            turn: Turn::default(),
            shard: Shard::default(),
            precision: Precision::F32,
        };
        let mut params: Vec<&mut [f32]> = self.params.iter_mut().map(|p| &mut p[..]).collect();
        let operands = Operands {
            reads,
            writes: &mut writes,
            params: &mut params,
            gradients: &mut gradients,
            deferred: &mut [],
            workspace: &mut self.workspace,
        };
        launch(&call, operands);
    }

    /// Runs the forward pass into `forward`.
    pub fn forward_into(&mut self, launch: Launch, forward: &mut Forward) {
        if self.node.computation(ComputationKind::Forward).is_none() {
            // A view.
            return forward.output.copy_from_slice(&self.inputs[0]);
        }
        let inputs = std::mem::take(&mut self.inputs);
        let reads: Vec<&[f32]> = inputs.iter().map(|x| &x[..]).collect();
        let mut writes: Vec<&mut [f32]> = vec![&mut forward.output];
        writes.extend(forward.saved.as_mut().map(|saved| &mut saved[..]));
        self.launch(launch, (ComputationKind::Forward, 0), &reads, writes, vec![]);
        self.inputs = inputs;
    }

    #[allow(dead_code)] // The bench includes this file and brings its own memory.
    pub fn forward(&mut self, launch: Launch) -> Forward {
        let mut forward = self.empty_forward();
        self.forward_into(launch, &mut forward);
        forward
    }

    /// Runs the input gradient and, with parameters, the weight gradient; adds to `backward`.
    /// An input whose gradient no computation writes shares the output's.
    pub fn backward_into(
        &mut self,
        launch: Launch,
        forward: &Forward,
        gradient: &[f32],
        backward: &mut Backward,
    ) {
        let (inputs, node) = (std::mem::take(&mut self.inputs), self.node.clone());
        let read = |value: &ValueId| node.read(*value, (&inputs, forward, gradient));
        let mut written = vec![false; inputs.len()];
        if let Some(c) = node.computation(ComputationKind::InputGradient) {
            c.writes.iter().filter_map(|v| node.input(*v)).for_each(|i| written[i] = true);
            let writes = backward.inputs.iter_mut().zip(&written).filter(|(_, written)| **written);
            let writes = writes.map(|(gradient, _)| &mut gradient[..]).collect();
            let reads: Vec<&[f32]> = c.reads.iter().map(read).collect();
            self.launch(launch, (c.kind, c.wanted), &reads, writes, vec![]);
        }
        for (input, _) in backward.inputs.iter_mut().zip(&written).filter(|(_, w)| !**w) {
            if matches!(self.op, Op::Dispatch { .. }) {
                // Shares have no gradient by it.
                input.fill(0.0);
                continue;
            }
            let shared = gradient.len().min(input.len());
            input.copy_from_slice(&gradient[..shared]);
        }
        if let Some(c) = node.computation(ComputationKind::WeightGradient) {
            let reads: Vec<&[f32]> = c.reads.iter().map(read).collect();
            let gradients = backward.params.iter_mut().map(|g| &mut g[..]).collect();
            self.launch(launch, (c.kind, c.wanted), &reads, vec![], gradients);
        }
        self.inputs = inputs;
    }

    /// The gradient of one input alone, where a computation writes it; of what a loss judges, written over it.
    #[allow(dead_code)] // As above.
    pub fn one_gradient(
        &mut self,
        launch: Launch,
        forward: &Forward,
        gradient: &[f32],
        input: usize,
    ) -> Option<Vec<f32>> {
        let node = self.node.clone();
        let c = node.computation(ComputationKind::InputGradient)?;
        c.writes.iter().find(|v| node.input(**v) == Some(input))?;
        let inputs = std::mem::take(&mut self.inputs);
        let mut out = vec![f32::NAN; inputs[input].len()];
        let read = |value: &ValueId| node.read(*value, (&inputs, forward, gradient));
        let mut reads: Vec<&[f32]> = c.reads.iter().map(read).collect();
        if self.op.is_loss() {
            out.copy_from_slice(std::mem::take(&mut reads[0]));
        }
        self.launch(launch, (c.kind, 1 << input), &reads, vec![&mut out], vec![]);
        self.inputs = inputs;
        Some(out)
    }

    #[allow(dead_code)] // As above.
    pub fn backward(&mut self, launch: Launch, forward: &Forward, gradient: &[f32]) -> Backward {
        let mut backward = self.empty_backward();
        self.backward_into(launch, forward, gradient, &mut backward);
        backward
    }

    /// Fills inputs and parameters with numbers in ±1 that depend on `seed` only; targets become
    /// classes, and what a root or a logarithm is taken of is positive.
    pub fn fill(&mut self, seed: u64) {
        let mut noise = Noise(seed);
        let classes = classes(&self.op, &self.specs);
        let positive =
            matches!(self.op, Op::Activation { function: Function::Log | Function::Sqrt });
        let above = if positive { 2.0 } else { 0.0 };
        for (input, spec) in self.inputs.iter_mut().zip(&self.specs) {
            match spec.dtype {
                DType::F32 => input.iter_mut().for_each(|x| *x = noise.next() + above),
                DType::U32 => {
                    let class = |noise: &mut Noise| (noise.bits() % classes) as u32;
                    input.iter_mut().for_each(|x| *x = f32::from_bits(class(&mut noise)));
                }
            }
        }
        for (param, trained) in self.params.iter_mut().zip(&self.trainable) {
            // Running variances must be positive.
            let shift = if *trained { 0.0 } else { 1.5 };
            param.iter_mut().for_each(|w| *w = noise.next() + shift);
        }
    }
}

/// Different indexes that an input of indexes may have.
fn classes(op: &Op, specs: &[TensorSpec]) -> u64 {
    match op {
        Op::Embedding { entries, .. } => *entries,
        Op::SigmoidCrossEntropy => 2,
        _ => specs.first().and_then(|spec| spec.shape.last().copied()).unwrap_or(1),
    }
}

/// Numbers that look random (SplitMix64).
pub struct Noise(pub u64);

impl Noise {
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// In -1 .. 1.
    pub fn next(&mut self) -> f32 {
        (self.bits() >> 40) as f32 / (1 << 23) as f32 - 1.0
    }

    pub fn vec(&mut self, len: usize) -> Vec<f32> {
        (0..len).map(|_| self.next()).collect()
    }
}

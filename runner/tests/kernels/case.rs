//! One node with data around it: runs its computations as a training graph would.

use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{DType, Op, TensorSpec};
use pipewright_core::plan::Precision;
use pipewright_runner::device::cpu::{Call, Draw, Operands, Phase, Turn};

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
    pub input: Vec<f32>,
    /// One per trainable parameter.
    pub params: Vec<Vec<f32>>,
}

impl Case {
    /// A node with all parameters and inputs zero.
    pub fn new(op: Op, specs: Vec<TensorSpec>, samples: u64) -> Self {
        let refs: Vec<&TensorSpec> = specs.iter().collect();
        let output = op.infer(&refs).expect("shapes fit");
        let params = op.params(&refs);
        let zeros = |spec: &TensorSpec| vec![0.0; (spec.elements() * samples) as usize];
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
            workspace: vec![f32::NAN; workspace_words(&op, &specs[0], &output)],
            op,
            specs,
            output,
        }
    }

    /// Words that the forward pass saves.
    fn saved_words(&self) -> Option<usize> {
        match self.op {
            Op::MaxPool2d { .. } => Some((self.samples * self.output.elements()) as usize),
            Op::BatchNorm2d { .. } => Some(2 * self.output.shape[0] as usize),
            Op::SoftmaxCrossEntropy { .. } => Some(self.inputs[0].len()),
            _ => None,
        }
    }

    pub fn empty_forward(&self) -> Forward {
        let words = match self.op {
            Op::SoftmaxCrossEntropy { .. } => 2,
            _ => (self.samples * self.output.elements()) as usize,
        };
        // Not a number: whatever a kernel forgets to write shows.
        let saved = self.saved_words().map(|words| vec![f32::NAN; words]);
        Forward { output: vec![f32::NAN; words], saved }
    }

    pub fn empty_backward(&self) -> Backward {
        let trained = self.params.iter().zip(&self.trainable).filter(|(_, trained)| **trained);
        let params = trained.map(|(param, _)| vec![0.0; param.len()]).collect();
        Backward { input: vec![f32::NAN; self.inputs[0].len()], params }
    }

    fn launch(
        &mut self,
        launch: Launch,
        kind: ComputationKind,
        reads: Vec<&[f32]>,
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
            threads: self.threads,
            draw: Draw::default(),
            turn: Turn::default(),
            precision: Precision::F32,
        };
        let mut params: Vec<&mut [f32]> = self.params.iter_mut().map(|p| &mut p[..]).collect();
        let operands = Operands {
            reads: &reads,
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
        let inputs = std::mem::take(&mut self.inputs);
        let reads: Vec<&[f32]> = inputs.iter().map(|x| &x[..]).collect();
        let mut writes: Vec<&mut [f32]> = vec![&mut forward.output];
        writes.extend(forward.saved.as_mut().map(|saved| &mut saved[..]));
        self.launch(launch, ComputationKind::Forward, reads, writes, vec![]);
        self.inputs = inputs;
    }

    #[allow(dead_code)] // The bench includes this file and brings its own memory.
    pub fn forward(&mut self, launch: Launch) -> Forward {
        let mut forward = self.empty_forward();
        self.forward_into(launch, &mut forward);
        forward
    }

    /// Runs the input gradient and, with parameters, the weight gradient; adds to `backward`.
    pub fn backward_into(
        &mut self,
        launch: Launch,
        forward: &Forward,
        gradient: &[f32],
        backward: &mut Backward,
    ) {
        let inputs = std::mem::take(&mut self.inputs);
        let (x, y) = (&inputs[0][..], &forward.output[..]);
        let saved = forward.saved.as_deref();
        let reads: Vec<&[f32]> = match self.op {
            Op::Relu => vec![y, gradient],
            Op::MaxPool2d { .. } => saved.into_iter().chain([gradient]).collect(),
            Op::BatchNorm2d { .. } => [x, gradient].into_iter().chain(saved).collect(),
            Op::SoftmaxCrossEntropy { .. } => saved.into_iter().chain([&inputs[1][..]]).collect(),
            _ => vec![gradient],
        };
        let writes = vec![&mut backward.input[..]];
        self.launch(launch, ComputationKind::InputGradient, reads, writes, vec![]);
        if !backward.params.is_empty() {
            let reads: Vec<&[f32]> = [x, gradient].into_iter().chain(saved).collect();
            let gradients: Vec<&mut [f32]> =
                backward.params.iter_mut().map(|g| &mut g[..]).collect();
            self.launch(launch, ComputationKind::WeightGradient, reads, vec![], gradients);
        }
        self.inputs = inputs;
    }

    #[allow(dead_code)] // As above.
    pub fn backward(&mut self, launch: Launch, forward: &Forward, gradient: &[f32]) -> Backward {
        let mut backward = self.empty_backward();
        self.backward_into(launch, forward, gradient, &mut backward);
        backward
    }

    /// Fills inputs and parameters with numbers in ±1 that depend on `seed` only; targets become
    /// classes.
    pub fn fill(&mut self, seed: u64) {
        let mut noise = Noise(seed);
        let classes = self.specs[0].shape.last().copied().unwrap_or(1);
        for (input, spec) in self.inputs.iter_mut().zip(&self.specs) {
            match spec.dtype {
                DType::F32 => input.iter_mut().for_each(|x| *x = noise.next()),
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

/// Scratch that core's `autodiff::workspace` gives.
fn workspace_words(op: &Op, input: &TensorSpec, output: &TensorSpec) -> usize {
    let Op::Conv2d { kernel, stride, padding, groups, .. } = op else {
        return 0;
    };
    if *kernel == [1, 1] && *stride == [1, 1] && *padding == [0, 0] {
        return 0;
    }
    let rows = input.shape[0] / groups * kernel[0] * kernel[1];
    (rows * output.shape[1] * output.shape[2]) as usize
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

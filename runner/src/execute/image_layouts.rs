//! Image layouts: which values of a stage's computations lie with their channels innermost on a device, as the
//! tensor cores take them. Found once, from the program alone.
//!
//! An image does if every computation that writes or reads it has kernels for that order, and one of those that
//! it goes through is a convolution. Computations that go over elements want all their images alike; convolutions
//! and poolings stand between two of them. What is loaded, sent or received lies as everywhere, whoever computes
//! with it converts it.
//!
//! Values have no names in a program: one is what a kernel wrote to a place until another one writes there. A
//! gradient is in the places of its contributions, views (a flattened image) in those of what they show.

use super::fusion::lies;
use crate::device::Image;
use pipewright_core::graph::autodiff::ComputationKind;
use pipewright_core::graph::{Graph, Node, Op, TensorSpec};
use pipewright_core::ids::StageId;
use pipewright_core::plan::{Area, Instruction, Kernel, Operand, Program, Region, StageProgram};
use std::collections::BTreeMap;
use std::ops::Range;

/// How the images of a rank's computations lie; none of them is listed that is not asked about.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImageLayouts {
    /// By stage and kernel, of those that touch an image with channels innermost: what is read, then what is written.
    kernels: BTreeMap<(StageId, usize), Vec<Option<Image>>>,
}

impl ImageLayouts {
    /// Those of a program.
    pub fn of(graph: &Graph, program: &Program) -> Self {
        let stages = program.stages.iter().flat_map(|stage| {
            let mut values = Values::new(Crossing::of(program, stage));
            let ends = [stage.forward_end, stage.input_gradient_end];
            let touch = |(kernel, next): (&Kernel, u32)| {
                let touched = values.touch(kernel, Views::of(graph, kernel));
                if ends.contains(&next) {
                    values.end_action(next == stage.forward_end);
                }
                touched
            };
            let touched: Vec<_> = stage.kernels.iter().zip(1..).map(touch).collect();
            values.end_action(true);
            values.settle();
            let images = touched.into_iter().enumerate().filter_map(move |(at, touched)| {
                let images: Vec<_> = touched.iter().map(|value| values.image(*value)).collect();
                let is_one = images.iter().flatten().any(|image| image.channels_last);
                is_one.then_some(((stage.stage, at), images))
            });
            images.collect::<Vec<_>>()
        });
        Self { kernels: stages.collect() }
    }

    /// Of what a kernel reads or, behind it, writes: how it lies, where that is to be told.
    pub fn at(&self, stage: StageId, kernel: usize, operand: usize) -> Option<Image> {
        self.kernels.get(&(stage, kernel)).and_then(|images| images[operand])
    }
}

/// Channels of an image and positions of each.
type Size = [u64; 2];

fn size(spec: &TensorSpec) -> Option<Size> {
    match spec.shape[..] {
        [channels, rows, columns] => Some([channels, rows * columns]),
        _ => None,
    }
}

/// As what a computation that has kernels for channels innermost takes its values.
struct Views {
    /// Sizes of images; what is none, or none here, has no order.
    reads: Vec<Option<Size>>,
    writes: Vec<Option<Size>>,
    how: How,
}

/// What a computation does with images.
#[derive(Clone, Copy, PartialEq, Eq)]
enum How {
    /// It goes over them: all lie alike.
    Along,
    /// A convolution.
    Convolves,
    /// A pooling: what it finds lies as where it found it.
    Pools,
}

impl Views {
    /// Those of a kernel; none where it has no such kernels. (`cuda/kernels/steps.rs` has them.)
    fn of(graph: &Graph, kernel: &Kernel) -> Option<Self> {
        use ComputationKind::{Forward, InputGradient, SumGradients, WeightGradient};
        let node = graph.node(kernel.node);
        let output = size(&node.output);
        if kernel.kind == SumGradients {
            let (reads, writes) = (vec![Some(output?); kernel.reads.len()], vec![output]);
            return Some(Self { reads, writes, how: How::Along });
        }
        let how = how(graph, node)?;
        let input = size(&graph.node(node.inputs[0]).output);
        input?;
        // Every other operand of element-wise ones is as large.
        let (reads, writes) = match (kernel.kind, &node.op) {
            (Forward, Op::MaxPool2d { .. }) => (vec![input], vec![output; 2]),
            (Forward, Op::BatchNorm2d { .. }) => (vec![input], vec![output, None]),
            (Forward, _) => (vec![input; node.inputs.len()], vec![output]),
            (InputGradient, Op::BatchNorm2d { .. }) => (vec![input, output, None], vec![input]),
            (InputGradient, _) => {
                (vec![output; kernel.reads.len()], vec![input; kernel.writes.len()])
            }
            (WeightGradient, Op::BatchNorm2d { .. }) => (vec![input, output, None], vec![]),
            (WeightGradient, Op::Conv2d { .. }) => (vec![input, output], vec![]),
            _ => return None,
        };
        let counts = (reads.len(), writes.len()) == (kernel.reads.len(), kernel.writes.len());
        counts.then_some(Self { reads, writes, how })
    }
}

/// What an operation does with images, if it has kernels for channels innermost.
fn how(graph: &Graph, node: &Node) -> Option<How> {
    Some(match node.op {
        Op::Conv2d { groups: 1, .. } => How::Convolves,
        Op::MaxPool2d { .. } | Op::AvgPool2d { .. } | Op::GlobalAvgPool => How::Pools,
        Op::BatchNorm2d { .. }
        | Op::Relu
        | Op::Activation { .. }
        | Op::Clip { .. }
        | Op::Affine { .. } => How::Along,
        Op::Add | Op::Subtract | Op::Multiply | Op::Divide => {
            let mut inputs = node.inputs.iter().map(|id| &graph.node(*id).output.shape);
            inputs.all(|shape| *shape == node.output.shape).then_some(How::Along)?
        }
        _ => return None,
    })
}

/// Places of messages and samples, in any slot.
#[derive(Default)]
struct Crossing {
    /// What is there before an action.
    comes: Vec<(Area, Range<u64>)>,
    /// What is taken from there after one.
    goes: Vec<(Area, Range<u64>)>,
}

impl Crossing {
    fn of(program: &Program, stage: &StageProgram) -> Self {
        let mut crossing = Self::default();
        for instruction in &program.train {
            let (regions, into, encoded) = match instruction {
                Instruction::Load { region, .. } => ([*region; 2], &mut crossing.comes, None),
                Instruction::Scatter { region, staging, .. } => {
                    ([*region, *staging], &mut crossing.comes, None)
                }
                Instruction::Recv { region, decode, .. } => {
                    ([*region; 2], &mut crossing.comes, *decode)
                }
                Instruction::Send { region, encode, .. } => {
                    ([*region; 2], &mut crossing.goes, *encode)
                }
                _ => continue,
            };
            let all = regions.into_iter().chain(encoded.map(|encoded| encoded.values));
            into.extend(all.filter_map(|region| inside(stage, region)));
        }
        crossing
    }

    fn comes_to(&self, operand: &Operand) -> bool {
        let (begin, end) = (operand.offset.0, operand.offset.0 + operand.bytes.0);
        let holds = |(area, range): &(Area, Range<u64>)| {
            *area == operand.area && range.start <= begin && end <= range.end
        };
        self.comes.iter().any(holds)
    }
}

/// Where a region lies among those of an action, if it is one.
fn inside(stage: &StageProgram, region: Region) -> Option<(Area, Range<u64>)> {
    let whole = stage.transient.bytes;
    let pools = [
        (Area::Slot, stage.slots.offset, stage.slots.bytes, stage.slots.total()),
        (Area::Outbox, stage.outbox.offset, stage.outbox.bytes, stage.outbox.total()),
        (Area::Transient, stage.transient.offset, whole, whole),
    ];
    pools.into_iter().find_map(|(area, offset, bytes, total)| {
        let at = region.offset.0.checked_sub(offset.0).filter(|at| *at < total.0)? % bytes.0;
        Some((area, at..at + region.bytes.0))
    })
}

/// A value, by the place of the one that it lies with.
type Id = usize;

/// What is known of a value.
#[derive(Clone, Copy)]
struct Value {
    /// The one that it lies with, or itself.
    with: Id,
    size: Option<Size>,
    /// It lies as everywhere, but nothing follows for those that it is computed with.
    is_apart: bool,
    /// Somebody has no kernels for another order.
    is_fixed: bool,
    /// A convolution reads or writes it.
    is_convolved: bool,
}

/// The values of a stage, as its kernels come.
struct Values {
    crossing: Crossing,
    all: Vec<Value>,
    /// Values of one kernel that are to lie alike.
    together: Vec<Vec<Id>>,
    /// What lies where: by area and begin, the end and the value.
    there: BTreeMap<(u8, u64), (u64, Id)>,
}

/// A value as a kernel has it.
type Touched = (Id, Option<Size>);

impl Values {
    fn new(crossing: Crossing) -> Self {
        Self { crossing, all: vec![], together: vec![], there: BTreeMap::new() }
    }

    /// A kernel reads and writes: its values, in this order.
    fn touch(&mut self, kernel: &Kernel, views: Option<Views>) -> Vec<Touched> {
        let reads: Vec<Id> = kernel.reads.iter().map(|o| self.read(&lies(kernel, o))).collect();
        let writes: Vec<Id> = kernel.writes.iter().map(|o| self.write(&lies(kernel, o))).collect();
        let ids = || reads.iter().chain(&writes).copied();
        let Some(Views { reads: of_reads, writes: of_writes, how }) = views else {
            ids().for_each(|id| self.all[id].is_fixed = true);
            return ids().map(|id| (id, None)).collect();
        };
        let touched: Vec<Touched> = ids().zip(of_reads.into_iter().chain(of_writes)).collect();
        for (id, size) in &touched {
            self.is_seen(*id, *size, how);
        }
        let together = match how {
            How::Along => &touched[..],
            How::Convolves => &[],
            // A maximum and its place.
            How::Pools if kernel.kind == ComputationKind::Forward => &touched[reads.len()..],
            How::Pools => &[],
        };
        let images = together.iter().filter(|(_, size)| size.is_some());
        self.together.push(images.map(|(id, _)| *id).collect());
        touched
    }

    fn is_seen(&mut self, id: Id, size: Option<Size>, how: How) {
        let value = &mut self.all[id];
        let Some(size) = size else { return };
        value.is_fixed |= value.size.is_some_and(|before| before != size);
        value.size = Some(size);
        value.is_convolved |= how == How::Convolves;
    }

    /// A new value.
    fn add(&mut self, is_apart: bool) -> Id {
        let with = self.all.len();
        let (size, is_fixed, is_convolved) = (None, false, false);
        self.all.push(Value { with, size, is_apart, is_fixed, is_convolved });
        with
    }

    fn key(operand: &Operand) -> (u8, u64) {
        (operand.area as u8, operand.offset.0)
    }

    /// What lies in a range, if only in part.
    fn overlapping(&self, area: Area, range: &Range<u64>) -> Vec<((u8, u64), Id)> {
        let area = area as u8;
        let below = self.there.range((area, 0)..(area, range.end)).rev();
        // What is written there ends what was: none reaches over another.
        let all = below.take_while(|(_, (until, _))| *until > range.start);
        all.map(|(key, (_, id))| (*key, *id)).collect()
    }

    /// The value that lies there; of one that nobody wrote here, one of its own.
    fn read(&mut self, operand: &Operand) -> Id {
        let range = operand.offset.0..operand.offset.0 + operand.bytes.0;
        let comes = self.crossing.comes_to(operand);
        match self.there.get(&Self::key(operand)) {
            Some((until, id)) if *until == range.end => {
                // In a slot another action's, perhaps, in the place of which this one came.
                self.all[*id].is_apart |= comes && operand.area == Area::Slot;
                return *id;
            }
            _ => {}
        }
        for (_, id) in self.overlapping(operand.area, &range) {
            // Part of a value, unless another one came in its place.
            self.all[id].is_fixed |= !comes;
        }
        self.add(true)
    }

    fn write(&mut self, operand: &Operand) -> Id {
        let range = operand.offset.0..operand.offset.0 + operand.bytes.0;
        for (key, _) in self.overlapping(operand.area, &range) {
            self.there.remove(&key);
        }
        let id = self.add(false);
        self.there.insert(Self::key(operand), (range.end, id));
        id
    }

    /// The kernels of an action end here, or may: what goes to others lies where they take it from. `forgets`:
    /// nothing stays but in slots.
    fn end_action(&mut self, forgets: bool) {
        let all: Vec<_> = (self.crossing.goes.iter())
            .flat_map(|(area, range)| self.overlapping(*area, range))
            .collect();
        all.into_iter().for_each(|(_, id)| self.all[id].is_apart = true);
        if forgets {
            self.there.retain(|(area, _), _| *area == Area::Slot as u8);
        }
    }

    fn root(&self, mut id: Id) -> Id {
        while self.all[id].with != id {
            id = self.all[id].with;
        }
        id
    }

    fn join(&mut self, a: Id, b: Id) {
        let (a, b) = (self.root(a), self.root(b));
        self.all[a.max(b)].with = a.min(b);
    }

    /// Joins those that lie alike, now that it is known who lies apart. What is known of one is known of all.
    fn settle(&mut self) {
        for together in std::mem::take(&mut self.together) {
            let mut joined = together.into_iter().filter(|id| !self.all[*id].is_apart);
            let Some(first) = joined.next() else { continue };
            let others: Vec<Id> = joined.collect();
            others.into_iter().for_each(|other| self.join(first, other));
        }
        for id in 0..self.all.len() {
            let (root, Value { is_fixed, is_convolved, .. }) = (self.root(id), self.all[id]);
            self.all[root].is_fixed |= is_fixed;
            self.all[root].is_convolved |= is_convolved;
        }
    }

    /// How a value lies, where that is more than one way.
    fn image(&self, (id, size): Touched) -> Option<Image> {
        let [channels, plane] = size.filter(|size| size.iter().all(|n| *n > 1))?;
        let all = &self.all[self.root(id)];
        let channels_last = !self.all[id].is_apart && !all.is_fixed && all.is_convolved;
        Some(Image { channels, plane, channels_last })
    }
}

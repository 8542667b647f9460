//! Commands that come again are replayed.
//!
//! ```text
//! Engine ── launches, products, copies, zeros, small uploads ──> pending ─┐ the host waits, or the
//!                                                                         v mini-batch ends
//!            seen for the first time: handed over one by one, and remembered
//!            the second time:         captured as a graph, and replayed
//!            after that:              replayed
//! ```
//! A step of training asks for the same as the one before, but for the bytes that it uploads: the number
//! of the step, which dropout reads, and the numbers of the optimizer. So a rank that waits for nobody has
//! two graphs a step, and two calls in place of hundreds: the first commands go ahead, for a device that the
//! host has waited for has nothing to do while the others are collected. Others have as many between each two
//! waits.
//!
//! Two sequences are the same when their commands are, one by one: sizes, addresses and all arguments of
//! kernels. Nobody has to say what changes from step to step; what changes is not replayed.

use super::backend::{Backend, Capture};
use super::kernels::{ConvolutionStep, DevicePtr, Launch, ProductStep, Storage};
use crate::data::SampleBuffer;
use crate::device::{DeviceError, Graphs};
use pipewright_core::plan::Precision;
use std::hash::{DefaultHasher, Hash, Hasher};

/// Most sequences that are remembered; those that were not used for longest go. A rank of a pipeline with
/// m micro-batches has some 4 m a step.
const SEEN_MAX: usize = 512;

/// Commands that a device without work begins with. It needs longer for them than the host does for all
/// others, where tensors are of real sizes.
const AHEAD: usize = 32;

/// Larger uploads are handed over at once: they would be copied on the host once more, and travel long
/// enough that a call of their own does not count.
const UPLOAD_MAX: usize = 64 << 10;

/// Most calls of libraries that are in no graph; a device that refuses more makes none at all.
const APART_MAX: usize = 64;

/// What is asked of a backend and does not wait.
#[derive(Clone, Debug, PartialEq)]
enum Command {
    Launch(Launch),
    Product(ProductStep, Storage),
    Convolution(ConvolutionStep, Storage),
    Copy { from: DevicePtr, to: DevicePtr, bytes: u64 },
    Zero { at: DevicePtr, bytes: u64 },
    Upload { to: DevicePtr, bytes: usize },
    Moment(usize),
}

impl Command {
    /// Tells most commands apart; not all, which comparing them does.
    fn stamp(&self, hasher: &mut DefaultHasher) {
        match self {
            Self::Launch(launch) => (0, &launch.kernel, launch.grid, &launch.args).hash(hasher),
            Self::Product(ProductStep { args, .. }, _) => {
                (1, args.a.0, args.b.0, args.c.0).hash(hasher);
            }
            Self::Convolution(c, _) => (6, c.pass, c.x.0, c.weight.0, c.y.0).hash(hasher),
            Self::Copy { from, to, bytes } => (2, from.0, to.0, bytes).hash(hasher),
            Self::Zero { at, bytes } => (3, at.0, bytes).hash(hasher),
            Self::Upload { to, bytes } => (4, to.0, bytes).hash(hasher),
            Self::Moment(number) => (5, number).hash(hasher),
        }
    }

    /// Whether it is a library's, and which one; our own kernels are in every graph.
    fn of_library(&self) -> Option<String> {
        match self {
            Self::Convolution(ConvolutionStep { pass, shape, .. }, _) => {
                let [rows, columns] = shape.kernel;
                let channels = shape.groups * shape.channels;
                let of =
                    format!("a convolution of {channels} channels by {rows} x {columns} windows");
                Some(format!("{of} ({pass:?}, {} samples)", shape.samples))
            }
            Self::Product(ProductStep { args, .. }, _) => {
                Some(format!("a product of {} x {} x {}", args.m, args.n, args.k))
            }
            _ => None,
        }
    }
}

/// Bytes of the uploads among commands.
fn uploaded(commands: &[Command]) -> usize {
    let bytes = |command: &Command| match command {
        Command::Upload { bytes, .. } => *bytes,
        _ => 0,
    };
    commands.iter().map(bytes).sum()
}

/// Hands commands over one by one; `at` is the number of the one under way, in the end of all.
fn issue(
    backend: &mut impl Backend,
    commands: &[Command],
    mut uploads: &[u8],
    at: &mut usize,
) -> Result<(), DeviceError> {
    *at = 0;
    for command in commands {
        issue_one(backend, command, &mut uploads)?;
        *at += 1;
    }
    Ok(())
}

fn issue_one(
    backend: &mut impl Backend,
    command: &Command,
    uploads: &mut &[u8],
) -> Result<(), DeviceError> {
    match command {
        Command::Launch(launch) => backend.launch(launch),
        Command::Product(product, storage) => backend.product(product, *storage),
        Command::Convolution(convolution, storage) => backend.convolution(convolution, *storage),
        Command::Copy { from, to, bytes } => backend.copy(*from, *to, *bytes),
        Command::Zero { at, bytes } => backend.zero(*at, *bytes),
        Command::Upload { to, bytes } => {
            let (own, rest) = uploads.split_at(*bytes);
            *uploads = rest;
            backend.upload(*to, own)
        }
        Command::Moment(number) => backend.moment(*number),
    }
}

/// What was asked for and not yet handed over.
#[derive(Default)]
struct Pending {
    commands: Vec<Command>,
    hasher: DefaultHasher,
    /// The bytes of its uploads, one behind the other.
    uploads: Vec<u8>,
    /// Places whose bytes it reads.
    arrived: Vec<usize>,
    /// Places whose bytes nobody reads after it.
    taken: Vec<usize>,
}

/// A sequence of commands that was handed over.
struct Segment<G> {
    hash: u64,
    commands: Vec<Command>,
    graph: Option<G>,
    /// When it was used last, by the count of sequences.
    used: u64,
}

/// A backend whose work is handed over in sequences.
pub struct GraphReplay<B: Capture> {
    // Before the device that they are on.
    seen: Vec<Segment<B::Graph>>,
    pending: Pending,
    /// What the device makes no graph of: handed over between two graphs.
    apart: Vec<Command>,
    counts: Graphs,
    /// Whether the host has waited until all was done, and has handed over nothing since.
    idle: bool,
    backend: B,
}

impl<B: Capture> GraphReplay<B> {
    /// Over a backend that was asked for nothing so far.
    pub fn new(backend: B) -> Self {
        let (pending, counts) = (Pending::default(), Graphs::default());
        Self { seen: vec![], pending, apart: vec![], counts, idle: true, backend }
    }

    /// One that makes no graphs, for a reason that it tells: all is handed over at once.
    pub fn without_graphs(backend: B, why_not: &str) -> Self {
        let counts = Graphs { why_not: Some(why_not.into()), ..Graphs::default() };
        Self { counts, ..Self::new(backend) }
    }

    fn records(&self) -> bool {
        self.counts.why_not.is_none()
    }

    fn ask(&mut self, command: Command) -> Result<(), DeviceError> {
        // Graphs have no copies of nothing.
        if let Command::Copy { bytes: 0, .. } | Command::Zero { bytes: 0, .. } = command {
            return Ok(());
        }
        if self.apart.contains(&command) {
            self.flush()?;
            return issue_one(&mut self.backend, &command, &mut &[][..]);
        }
        command.stamp(&mut self.pending.hasher);
        self.pending.commands.push(command);
        match self.idle && self.pending.commands.len() == AHEAD {
            true => self.flush(),
            false => Ok(()),
        }
    }

    /// Hands over a sequence.
    fn hand_over(&mut self, commands: Vec<Command>, hash: u64) -> Result<(), DeviceError> {
        let now = self.counts.replayed + self.counts.one_by_one;
        let (backend, uploads) = (&mut self.backend, &self.pending.uploads[..]);
        let same = |segment: &&mut Segment<_>| segment.hash == hash && segment.commands == commands;
        let Some(segment) = self.seen.iter_mut().find(same) else {
            self.counts.one_by_one += 1;
            issue(backend, &commands, uploads, &mut 0)?;
            self.remember(Segment { hash, commands, graph: None, used: now });
            return Ok(());
        };
        segment.used = now;
        if segment.graph.is_none() {
            let mut at = 0;
            let mut issue = |backend: &mut B| issue(backend, &commands, uploads, &mut at);
            match backend.capture(uploads.len(), &mut issue) {
                Ok(graph) => segment.graph = Some(graph),
                Err(error) => return self.refused(&commands, at, &error),
            }
            self.counts.captured += 1;
        }
        self.counts.replayed += 1;
        let graph = segment.graph.as_mut().expect("it was made");
        backend.replay(graph, uploads)
    }

    fn remember(&mut self, segment: Segment<B::Graph>) {
        if self.seen.len() < SEEN_MAX {
            return self.seen.push(segment);
        }
        let oldest = self.seen.iter_mut().min_by_key(|segment| segment.used);
        *oldest.expect("there are many") = segment;
    }

    /// The device makes no graph of commands, because of number `at`. Where that is a library's, there are
    /// graphs before it and behind it, and it is seen at once what else is refused; else there are none from
    /// now on.
    fn refused(
        &mut self,
        commands: &[Command],
        mut at: usize,
        error: &DeviceError,
    ) -> Result<(), DeviceError> {
        let (mut rest, mut refused) = (commands, Some(error.clone()));
        while let Some(error) = refused.take() {
            let library = rest.get(at).and_then(Command::of_library);
            let Some(what) = library.filter(|_| self.apart.len() < APART_MAX) else {
                warn!("no CUDA graphs, commands are handed over one by one: {error}");
                self.counts.why_not = Some(error.to_string());
                self.seen.clear();
                break;
            };
            warn!("{what} is in no CUDA graph: {error}");
            self.counts.apart.push(what);
            self.apart.push(rest[at].clone());
            rest = &rest[at + 1..];
            if rest.is_empty() {
                break;
            }
            let uploads = self.pending.uploads.len() - uploaded(rest);
            let uploads = &self.pending.uploads[uploads..];
            let mut issue = |backend: &mut B| issue(backend, rest, uploads, &mut at);
            refused = self.backend.capture(uploads.len(), &mut issue).err();
        }
        self.counts.one_by_one += 1;
        issue(&mut self.backend, commands, &self.pending.uploads, &mut 0)
    }

    /// Hands over what is pending, whatever comes of it.
    fn hand_over_pending(&mut self) -> Result<(), DeviceError> {
        let commands = std::mem::take(&mut self.pending.commands);
        let hash = std::mem::take(&mut self.pending.hasher).finish();
        for place in self.pending.arrived.drain(..) {
            self.backend.arrived(place)?;
        }
        if !commands.is_empty() {
            self.idle = false;
            self.hand_over(commands, hash)?;
        }
        let mut taken = self.pending.taken.drain(..);
        taken.try_for_each(|place| self.backend.taken(place))
    }
}

impl<B: Capture> Backend for GraphReplay<B> {
    fn name(&self) -> &str {
        self.backend.name()
    }

    fn allocate(&mut self, bytes: u64, what: &str) -> Result<DevicePtr, DeviceError> {
        // Nothing that is pending knows of it.
        self.backend.allocate(bytes, what)
    }

    fn upload(&mut self, to: DevicePtr, bytes: &[u8]) -> Result<(), DeviceError> {
        if !self.records() || bytes.is_empty() || bytes.len() > UPLOAD_MAX {
            self.flush()?;
            return self.backend.upload(to, bytes);
        }
        self.pending.uploads.extend_from_slice(bytes);
        self.ask(Command::Upload { to, bytes: bytes.len() })
    }

    fn download(&mut self, from: DevicePtr, bytes: &mut [u8]) -> Result<(), DeviceError> {
        self.flush()?;
        self.idle = true;
        self.backend.download(from, bytes)
    }

    fn copy(&mut self, from: DevicePtr, to: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.copy(from, to, bytes);
        }
        self.ask(Command::Copy { from, to, bytes })
    }

    fn zero(&mut self, at: DevicePtr, bytes: u64) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.zero(at, bytes);
        }
        self.ask(Command::Zero { at, bytes })
    }

    fn launch(&mut self, launch: &Launch) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.launch(launch);
        }
        self.ask(Command::Launch(launch.clone()))
    }

    fn product(&mut self, product: &ProductStep, storage: Storage) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.product(product, storage);
        }
        self.ask(Command::Product(*product, storage))
    }

    fn convolution(
        &mut self,
        convolution: &ConvolutionStep,
        storage: Storage,
    ) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.convolution(convolution, storage);
        }
        self.ask(Command::Convolution(*convolution, storage))
    }

    fn moment(&mut self, number: usize) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.moment(number);
        }
        self.ask(Command::Moment(number))
    }

    fn ages(&mut self, count: usize, ages: &mut Vec<u64>) -> Result<(), DeviceError> {
        self.flush()?;
        self.idle = true;
        self.backend.ages(count, ages)
    }

    fn mark(&mut self, number: usize) -> Result<(), DeviceError> {
        // Somebody else is going to ask for it, who cannot know what is pending.
        self.flush()?;
        self.backend.mark(number)
    }

    fn reached(&mut self, number: usize) -> Result<bool, DeviceError> {
        self.backend.reached(number)
    }

    fn beside(&mut self) -> Result<Option<Box<dyn Backend>>, DeviceError> {
        self.backend.beside()
    }

    fn buffer(&mut self, words: usize) -> Result<Box<dyn SampleBuffer>, DeviceError> {
        self.backend.buffer(words)
    }

    fn rehearses(&self) -> bool {
        self.backend.rehearses()
    }

    fn stage(
        &mut self,
        place: usize,
        bytes: u64,
        fill: &mut dyn FnMut(&mut Box<dyn SampleBuffer>),
    ) -> Result<DevicePtr, DeviceError> {
        if self.pending.taken.contains(&place) {
            // What is to be read first has not been asked for.
            self.flush()?;
        }
        self.backend.stage(place, bytes, fill)
    }

    fn arrived(&mut self, place: usize) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.arrived(place);
        }
        self.pending.arrived.push(place);
        Ok(())
    }

    fn taken(&mut self, place: usize) -> Result<(), DeviceError> {
        if !self.records() {
            return self.backend.taken(place);
        }
        self.pending.taken.push(place);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), DeviceError> {
        let done = self.hand_over_pending();
        self.pending.uploads.clear();
        self.pending.arrived.clear();
        self.pending.taken.clear();
        done.and_then(|()| self.backend.flush())
    }

    fn most_shared(&self) -> u32 {
        self.backend.most_shared()
    }

    fn matrix_units(&self) -> bool {
        self.backend.matrix_units()
    }

    fn channels_last(&self, precision: Precision) -> bool {
        self.backend.channels_last(precision)
    }

    fn brings_scratch(&self) -> bool {
        self.backend.brings_scratch()
    }

    fn rehearsed(&mut self) {
        self.backend.rehearsed();
    }

    fn algorithms(&mut self) -> Vec<String> {
        self.backend.algorithms()
    }

    fn no_fp8(&self) -> Option<String> {
        self.backend.no_fp8()
    }

    fn graphs(&self) -> Option<Graphs> {
        Some(self.counts.clone())
    }
}

//! Samples drawn from the plan's seed, whatever the network takes and gives, with a structure
//! that it can learn. Labels and values are functions of (seed, index); nothing is stored per
//! sample.
//!
//! | sample | target | structure |
//! |---|---|---|
//! | values | a class | the class's pattern and noise |
//! | values | classes of positions | the noiseless pattern there, in steps |
//! | values or tokens | values | another pattern of the sample's hidden class |
//! | tokens | the same number of classes | the next token of a made-up language |
//! | tokens | a class, or other numbers of classes | tokens that are frequent in the class |
//!
//! A class's pattern is coarse (at most 4 x 4 cells per channel, at most 64 in a flat vector) and
//! constant within a cell. So it survives strides and pooling, which white noise would not: small
//! convolutional networks learn it as well as dense ones. The noise has variance 1 against the
//! pattern's 1/3, so a single element says little and the loss falls over tens of steps.

mod patterns;
mod text;

use super::random::{Purpose, bell, stream};
use patterns::Patterns;
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;
use std::sync::Arc;
use text::Text;

/// Classes that nobody asks for, behind targets that are none.
const HIDDEN: u32 = 10;

/// One split.
#[derive(Debug)]
pub(super) struct Synthetic {
    len: u64,
    noise: Purpose,
    seed: u64,
    world: Arc<World>,
}

/// What both splits share.
#[derive(Debug)]
struct World {
    classes: u32,
    input: Input,
    target: Target,
}

#[derive(Debug)]
enum Input {
    Values(Patterns),
    /// Sentences, when the next token is asked for; else tokens of the class.
    Tokens {
        text: Text,
        sentences: bool,
    },
}

#[derive(Debug)]
enum Target {
    /// The sample's class.
    Class,
    /// One of so many for each position.
    Positions {
        classes: u32,
    },
    Values(Patterns),
}

/// The splits of `lens` = [train, test] samples. Needs whole shapes and at least one class.
pub(super) fn pair(lens: [u64; 2], sample: &SampleSpec, seed: u64) -> [Synthetic; 2] {
    let world = Arc::new(World::new(sample, seed));
    let split = |len, noise| Synthetic { len, noise, seed, world: Arc::clone(&world) };
    [split(lens[0], Purpose::TrainNoise), split(lens[1], Purpose::TestNoise)]
}

impl World {
    fn new(sample: &SampleSpec, seed: u64) -> Self {
        let (classes, target) = match &sample.target {
            TargetSpec::Classes { count: 1, classes } => (*classes as u32, Target::Class),
            TargetSpec::Classes { classes, .. } => {
                (HIDDEN, Target::Positions { classes: *classes as u32 })
            }
            TargetSpec::Values { shape } => {
                (HIDDEN, Target::Values(Patterns::new(Purpose::Answer, shape, HIDDEN, seed)))
            }
        };
        let input = match &sample.input {
            InputSpec::Values { shape } => {
                Input::Values(Patterns::new(Purpose::Centre, shape, classes, seed))
            }
            InputSpec::Tokens { length, vocabulary } => {
                let sentences =
                    matches!(target, Target::Positions { .. }) && sample.target.words() == *length;
                Input::Tokens { text: Text::new(*vocabulary, seed), sentences }
            }
        };
        Self { classes, input, target }
    }
}

/// Noise of variance 1, a number for each of the generator's words. All words are drawn at once and where
/// they are needed: the rest is a loop over them that compilers make vectors of.
fn noise(source: &mut ChaCha8Rng, out: &mut [u32]) {
    source.fill_bytes(bytemuck::cast_slice_mut(out));
    out.iter_mut().for_each(|word| *word = bell(u32::from_le(*word)).to_bits());
}

impl Synthetic {
    pub(super) fn len(&self) -> u64 {
        self.len
    }

    /// Classes take turns: every split is balanced, and the sampler shuffles.
    fn class(&self, index: u64) -> u32 {
        (index % u64::from(self.world.classes)) as u32
    }

    /// The random numbers that a sample is drawn from.
    fn source(&self, index: u64) -> ChaCha8Rng {
        stream(self.noise, self.seed, index)
    }

    pub(super) fn input(&self, index: u64, out: &mut [u32]) {
        let class = self.class(index);
        match &self.world.input {
            Input::Values(patterns) => {
                noise(&mut self.source(index), out);
                patterns.add(class, bytemuck::cast_slice_mut(out));
            }
            Input::Tokens { text, sentences: true } => text.write(self.source(index), 0, out),
            Input::Tokens { text, sentences: false } => {
                text.write_class(self.source(index), class, out);
            }
        }
    }

    pub(super) fn target(&self, index: u64, out: &mut [u32]) {
        let class = self.class(index);
        match (&self.world.target, &self.world.input) {
            (Target::Class, _) => out[0] = class,
            (Target::Values(patterns), _) => {
                out.fill(0.0_f32.to_bits());
                patterns.add(class, bytemuck::cast_slice_mut(out));
            }
            (Target::Positions { classes }, Input::Tokens { text, sentences: true }) => {
                text.write(self.source(index), 1, out);
                out.iter_mut().for_each(|token| *token %= classes);
            }
            (Target::Positions { classes }, Input::Tokens { .. }) => {
                let of = |position: u64| (u64::from(class) + position) % u64::from(*classes);
                (0..).zip(out).for_each(|(position, out)| *out = of(position) as u32);
            }
            (Target::Positions { classes }, Input::Values(patterns)) => {
                let positions = out.len();
                for (position, out) in out.iter_mut().enumerate() {
                    // The image's own place where there are as many positions as pixels.
                    let element = match patterns.pixels() {
                        pixels if pixels == positions => position,
                        _ => position * patterns.elements() / positions,
                    };
                    let share = (patterns.at(class, element) + 1.0) / 2.0;
                    *out = ((share * *classes as f32) as u32).min(classes - 1);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

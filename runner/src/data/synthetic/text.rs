//! Sentences of a made-up language.
//!
//! A sentence goes on with the successor of its last token three times out of four, and with any
//! token otherwise. Successors are a permutation of the language's tokens, drawn from the seed, so
//! a network learns the language when it learns a table: the loss falls from ln V to 0.25 ln V and
//! a bit. At most 256 tokens are in use, so that a few hundred steps suffice.

use super::super::order::Permutation;
use rand_chacha::ChaCha8Rng;
use rand_chacha::rand_core::Rng;

/// Tokens in use.
const TOKENS_MAX: u64 = 256;

/// Sets the language's permutation apart from those of the epochs, of which there are fewer.
const SUCCESSORS: u64 = u64::MAX;

#[derive(Debug)]
pub(super) struct Text {
    tokens: u64,
    /// The successor of each token.
    next: Vec<u32>,
}

impl Text {
    pub(super) fn new(vocabulary: u64, seed: u64) -> Self {
        let tokens = vocabulary.min(TOKENS_MAX);
        let order = Permutation::new(seed, SUCCESSORS, tokens);
        Self { tokens, next: (0..tokens).map(|token| order.apply(token) as u32).collect() }
    }

    /// The words of the sentence that `rng` draws, `skip` of them left out.
    pub(super) fn write(&self, mut rng: ChaCha8Rng, skip: usize, out: &mut [u32]) {
        let mut any = |tokens: u64| (u64::from(rng.next_u32()) * tokens) >> 32;
        let mut token = any(self.tokens) as u32;
        for at in 0..skip + out.len() {
            if at >= skip {
                out[at - skip] = token;
            }
            token = match any(4) {
                0 => any(self.tokens) as u32,
                _ => self.next[token as usize],
            };
        }
    }

    /// A sample of class `class` that `rng` draws: every other token is one of the four of the class.
    pub(super) fn write_class(&self, mut rng: ChaCha8Rng, class: u32, out: &mut [u32]) {
        let mut any = |tokens: u64| (u64::from(rng.next_u32()) * tokens) >> 32;
        for (at, token) in out.iter_mut().enumerate() {
            *token = match at % 2 {
                0 => ((u64::from(class) * 4 + any(4)) % self.tokens) as u32,
                _ => any(self.tokens) as u32,
            };
        }
    }
}

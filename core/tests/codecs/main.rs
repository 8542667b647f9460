//! Codecs of gradients and messages, and the choice among them while training.

mod adapt;
mod adapt_replay;
mod compress;

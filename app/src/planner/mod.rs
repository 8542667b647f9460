//! Plans as the page has them: what is chosen, what follows from it, and the words of both in links and files.

pub mod choices;
pub mod command;
pub mod compare;
pub mod content;
pub mod details;
pub mod engine;
pub mod found;
pub mod held;
pub mod inputs;
pub mod kept;
pub mod link;
pub mod measured;
pub mod networks;
pub mod precision;
pub mod presets;
pub mod range;
pub mod ready;
pub mod repair;
pub mod sane;
pub mod stories;
pub mod times;
#[cfg(feature = "page")]
pub mod wire;

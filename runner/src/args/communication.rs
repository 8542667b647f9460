//! Options of `runner plan` for communication.

use clap::Args;
use pipewright_core::compress::{CodecKind, ParseCodecError, Reduction, USUAL};
use std::str::FromStr;

/// What sums gradients.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Codec {
    /// This way, for all of them.
    One(Reduction),
    /// The allowed way with the shortest step, single precision among them.
    Auto,
    /// For every bucket the fastest of the allowed ways.
    Adaptive,
    /// Chosen by the search together with everything else, and edges as well.
    Search,
}

impl FromStr for Codec {
    type Err = ParseCodecError;

    fn from_str(text: &str) -> Result<Self, ParseCodecError> {
        Ok(match text {
            "auto" => Self::Auto,
            "adaptive" => Self::Adaptive,
            "search" => Self::Search,
            name => Self::One(name.parse()?),
        })
    }
}

/// How ranks send each other gradients and activations. Lossy codecs change what is trained, so
/// nothing is encoded unless asked for.
#[derive(Debug, Args)]
#[command(next_help_heading = "Communication")]
pub struct CommunicationArgs {
    /// How replicas sum gradients: bf16, fp8-e5m2, one-bit+feedback and so on; or among those of
    /// --codecs `auto`: the one with the shortest step, `adaptive`: for every bucket the fastest,
    /// `search`: together with all else that is searched.
    #[arg(long, value_name = "CODEC")]
    pub codec: Option<Codec>,
    /// Among which `auto`, `adaptive` and `search` choose.
    #[arg(long, value_name = "LIST", value_delimiter = ',', requires = "codec", default_values_t = USUAL)]
    pub codecs: Vec<Reduction>,
    /// Add what a codec loses to the next step's gradients; the same as CODEC+feedback.
    #[arg(long, requires = "codec")]
    pub feedback: bool,
    /// Ranks of one host first sum in single precision, encoded gradients travel between hosts only.
    #[arg(long, requires = "codec")]
    pub hierarchical: bool,
    /// Choose while training how gradients are summed, among these, the most precise first: from time to
    /// time each is tried for a few steps, learning curves foretell the gain of each for its time.
    /// With --codec adaptive that is one more.
    #[arg(long, value_name = "LIST", value_delimiter = ',')]
    pub choose: Vec<Reduction>,
    /// Steps between two choices.
    #[arg(long, value_name = "STEPS", default_value_t = 200, requires = "choose")]
    pub choose_every: u64,
    /// Steps of each trial.
    #[arg(long, value_name = "STEPS", default_value_t = 20, requires = "choose")]
    pub choose_trial: u64,
    /// How values travel between stages on different nodes: bf16, fp8-e4m3 and so on.
    #[arg(long, value_name = "CODEC")]
    pub edge_codec: Option<CodecKind>,
    /// The same between stages on one node.
    #[arg(long, value_name = "CODEC")]
    pub edge_codec_within: Option<CodecKind>,
}

impl CommunicationArgs {
    /// A way with the feedback that was asked for; single precision has nothing to make up for.
    pub fn with_feedback(&self, way: Reduction) -> Reduction {
        if self.feedback && !way.is_plain() { way.with_feedback() } else { way }
    }
}

//! Difference: what replicas of a stage do not have alike any more, and whose it is.

use serde::{Deserialize, Serialize};
use std::fmt;

/// A tensor that replicas do not have alike.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Its name. Empty on ranks that only know that there is one.
    pub tensor: String,
    /// Whose it is that differs from most, or all of them where no value has a majority.
    pub ranks: Vec<u32>,
    /// Whether most others have the same.
    pub majority: bool,
    /// The step after which they were alike last.
    pub alike: u64,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { tensor, ranks, majority, alike } = self;
        if tensor.is_empty() {
            return write!(f, "replicas have different weights; rank 0 knows which");
        }
        let what = match majority {
            true => "is not what the other replicas have",
            false => "differs between replicas, and no value has a majority",
        };
        write!(f, "`{tensor}` of rank {ranks:?} {what}: a memory or a processor has failed. ")?;
        write!(f, "They were alike after step {alike}: go on from there, without that machine")
    }
}

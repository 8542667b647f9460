//! Indexes that cannot be mixed up.

use serde::{Deserialize, Serialize};
use std::fmt;

macro_rules! id {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize,
        )]
        #[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
        #[serde(transparent)]
        pub struct $name(pub u32);

        impl $name {
            /// To index a slice.
            pub fn index(self) -> usize {
                self.0 as usize
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{}", self.0)
            }
        }
    };
}

id! {
    /// A node of a [`crate::graph::Graph`], in topological order.
    NodeId
}
id! {
    /// A parameter tensor of a [`crate::graph::Graph`].
    ParamId
}
id! {
    /// A stage: nodes placed together, numbered along the data flow.
    StageId
}
id! {
    /// A lane: one column of the pipeline.
    LaneId
}
id! {
    /// A micro-batch of a step.
    MicroBatch
}
id! {
    /// A value of a [`crate::graph::autodiff::TrainingGraph`].
    ValueId
}

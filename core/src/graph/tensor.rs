//! Shapes and element types.

use crate::units::Bytes;
use serde::{Deserialize, Serialize};
use std::fmt;

/// Type of the elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum DType {
    /// IEEE 754 single precision.
    F32,
    /// Indexes: classes, positions of maxima.
    U32,
}

impl DType {
    /// Bytes of one element.
    pub fn bytes(self) -> Bytes {
        match self {
            DType::F32 | DType::U32 => Bytes(4),
        }
    }
}

/// Shape and type of the tensor of one sample; the batch axis is implicit.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct TensorSpec {
    /// Sizes, outermost first; empty for one number.
    pub shape: Vec<u64>,
    /// Element type.
    pub dtype: DType,
}

impl TensorSpec {
    /// Single precision of that shape.
    pub fn f32(shape: Vec<u64>) -> Self {
        Self { shape, dtype: DType::F32 }
    }

    /// Elements of one sample.
    pub fn elements(&self) -> u64 {
        self.shape.iter().product()
    }

    /// Bytes of one sample.
    pub fn bytes(&self) -> Bytes {
        self.dtype.bytes() * self.elements()
    }
}

impl fmt::Display for TensorSpec {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let dims: Vec<String> = self.shape.iter().map(u64::to_string).collect();
        let dtype = match self.dtype {
            DType::F32 => "f32",
            DType::U32 => "u32",
        };
        write!(f, "{dtype}[{}]", dims.join(", "))
    }
}

//! Networks with attention by what a device and its software were measured to reach: rates, times of
//! nodes, tensor-parallel shards.

mod nodes;
mod rates;
mod shards;

pub use rates::{MeasuredAttention, MeasuredLayer, TensorRates, TransformerRates};

pub(super) use nodes::{Priced, has_attention};

//! Pictures of elastic jobs: nodes, generations, verdicts, throughput and epochs on one time axis; the
//! view's markup.

pub mod form;
pub mod lanes;
pub mod page;
pub mod rates;
pub mod scale;
pub mod timeline;

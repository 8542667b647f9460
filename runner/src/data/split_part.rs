//! The two halves of a data set in files, fitted to the model.

use super::column::{Array, Column};
use super::{DataError, DataSet, Split, Targets};
use pipewright_core::graph::SampleSpec;

/// Samples and targets, as a format finds them.
#[derive(Debug)]
pub(super) struct SplitPart {
    pub x: Array,
    /// None where nobody asks for targets.
    pub y: Option<Array>,
}

impl SplitPart {
    /// Without its targets where they are not wanted.
    pub fn with(self, targets: Targets) -> Self {
        Self { y: self.y.filter(|_| targets == Targets::Wanted), ..self }
    }
}

/// Both halves for a model; without a second one there is nothing to test on.
pub(super) fn data_set(
    train: SplitPart,
    test: Option<SplitPart>,
    sample: &SampleSpec,
) -> Result<DataSet, DataError> {
    let shape = train.x.shape.clone();
    let train = fit(train, sample)?;
    let test = match test {
        None => Split::none(sample),
        Some(test) => {
            // A flat model takes 8 x 8 as well as 4 x 16, yet those are no halves of one data set.
            if test.x.shape != shape {
                let (what, found) = (test.x.what, test.x.shape);
                return Err(DataError::Shape { what, found, wanted: shape });
            }
            fit(test, sample)?
        }
    };
    Ok(DataSet { train, test })
}

fn fit(half: SplitPart, sample: &SampleSpec) -> Result<Split, DataError> {
    let SplitPart { x, y } = half;
    let (inputs, input_count) = (x.what.clone(), x.samples());
    if input_count == 0 {
        return Err(DataError::Empty { what: inputs });
    }
    let input = Column::input(x, &sample.input)?;
    let target = |y: Array| {
        let (targets, target_count) = (y.what.clone(), y.samples());
        if input_count != target_count {
            return Err(DataError::Counts { inputs, input_count, targets, target_count });
        }
        Column::target(y, &sample.target)
    };
    Ok(Split::columns(input, y.map(target).transpose()?, sample))
}

//! Number of classes of a data set, found without a model.

use super::column::{Array, Column};
use super::split_part::SplitPart;
use super::{DataError, Targets, cifar, idx, images, npy, shapes, tensors};
use pipewright_core::graph::TargetSpec;
use pipewright_core::plan::Data;
use std::path::Path;

/// The number of classes of a data set with one class a sample: what its kind says, or one more than the
/// largest label of its files. None where samples have no class of their own.
///
/// # Errors
/// Files that cannot be read.
pub fn classes(data: &Data) -> Result<Option<u64>, DataError> {
    let largest = |halves: [Option<SplitPart>; 2]| -> Result<Option<u64>, DataError> {
        let labels = halves.into_iter().flatten().filter_map(|half| half.y);
        let counts: Vec<Option<u64>> = labels.map(counted).collect::<Result<_, _>>()?;
        Ok(counts.into_iter().collect::<Option<Vec<u64>>>().and_then(|all| all.into_iter().max()))
    };
    let perhaps = |(train, test): (SplitPart, Option<SplitPart>)| largest([Some(train), test]);
    match data {
        Data::Synthetic { .. } | Data::Tokens16 { .. } | Data::Tokens32 { .. } => Ok(None),
        Data::Shapes { .. } => Ok(Some(shapes::CLASSES)),
        Data::Cifar10 { .. } => Ok(Some(cifar::CLASSES_10)),
        Data::Cifar100 { .. } => Ok(Some(cifar::CLASSES_100)),
        Data::Idx { dir } => largest(idx::open(Path::new(dir), Targets::Wanted)?.map(Some)),
        Data::Images { dir } => images::classes(Path::new(dir)).map(Some),
        Data::Npy { dir } => perhaps(npy::open(Path::new(dir), Targets::Wanted)?),
        Data::Safetensors { file } => perhaps(tensors::open(Path::new(file), Targets::Wanted)?),
    }
}

/// One more than the largest of one label a sample; none where there are fractions, or several a sample.
fn counted(labels: Array) -> Result<Option<u64>, DataError> {
    let single = labels.shape.iter().all(|size| *size == 1);
    if !single || !labels.element.is_integer() {
        return Ok(None);
    }
    let any = TargetSpec::Classes { count: 1, classes: u64::from(u32::MAX) };
    let column = Column::target(labels, &any)?;
    let (mut largest, mut label) = (0, [0]);
    for index in 0..column.len() {
        column.write(index, &mut label)?;
        largest = largest.max(label[0]);
    }
    Ok(Some(u64::from(largest) + 1))
}

#[cfg(test)]
mod tests {
    use super::super::tests::Folder;
    use super::*;
    use safetensors::tensor::{Dtype, TensorView, serialize};

    #[test]
    fn kinds_and_labels_say_how_many() {
        let of = |text: &str| classes(&text.parse().unwrap());
        assert_eq!(of("cifar10:/nowhere").unwrap(), Some(10));
        assert_eq!(of("cifar100:/nowhere").unwrap(), Some(100));
        assert_eq!(of("shapes").unwrap(), Some(16));
        assert_eq!(of("synthetic").unwrap(), None);
        assert!(of("idx:/nowhere").is_err());
        let digits = concat!("idx:", env!("CARGO_MANIFEST_DIR"), "/../tests/data/digits");
        assert_eq!(of(digits).unwrap(), Some(10));
        let folder = Folder::new("classes");
        let file = |dtype, y: &[u8]| {
            let x = TensorView::new(Dtype::U8, vec![2, 1], &[0, 0]).unwrap();
            let y = TensorView::new(dtype, vec![2], y).unwrap();
            folder.write("d.safetensors", &serialize([("x", x), ("y", y)], None).unwrap());
            of(&format!("safetensors:{}", folder.path("d.safetensors"))).unwrap()
        };
        assert_eq!(file(Dtype::U8, &[6, 2]), Some(7));
        assert_eq!(file(Dtype::F32, &[0; 8]), None);
    }
}

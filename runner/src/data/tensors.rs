//! Tensors of a safetensors file: `x` and `y`, whose first axis counts the samples, and perhaps
//! `x_test` and `y_test`.

use super::column::{Array, Block};
use super::element::Element;
use super::file::Mapped;
use super::split_part::SplitPart;
use super::{DataError, Targets};
use safetensors::tensor::{Dtype, Metadata, SafeTensors};
use std::path::Path;
use std::sync::Arc;

/// The halves of a file; the second one where it is there.
pub(super) fn open(
    path: &Path,
    targets: Targets,
) -> Result<(SplitPart, Option<SplitPart>), DataError> {
    let file = Mapped::open(path, "a safetensors file")?;
    let damaged = |why: String| DataError::Damaged { path: path.into(), why };
    let (header, tensors) = SafeTensors::read_metadata(file.bytes())
        .map_err(|error| damaged(format!("not a safetensors file: {error}")))?;
    let tensor = |name: &str| array(&file, 8 + header as u64, &tensors, name);
    let half = |x: &str, y: &str| Ok(SplitPart { x: tensor(x)?, y: targets.find(|| tensor(y))? });
    let train = half("x", "y")?;
    let has = |name| tensors.info(name).is_some();
    let test = has("x_test") || targets == Targets::Wanted && has("y_test");
    Ok((train, test.then(|| half("x_test", "y_test")).transpose()?))
}

/// One tensor. The library has checked that it lies within the file.
fn array(
    file: &Arc<Mapped>,
    data: u64,
    tensors: &Metadata,
    name: &str,
) -> Result<Array, DataError> {
    let damaged = |why: String| DataError::Damaged { path: file.path().into(), why };
    let Some(info) = tensors.info(name) else {
        return Err(damaged(format!(
            "holds no tensor `{name}`, only {}; a data set has `x` and `y`, and perhaps `x_test` \
             and `y_test`",
            names(tensors)
        )));
    };
    let element = element(info.dtype).ok_or_else(|| {
        damaged(format!("tensor `{name}` has the type {:?}, which cannot be read", info.dtype))
    })?;
    let [samples, shape @ ..] = info.shape.as_slice() else {
        return Err(damaged(format!("tensor `{name}` is a single number, without samples")));
    };
    let shape: Vec<u64> = shape.iter().map(|&size| size as u64).collect();
    // Without samples the other sizes may be anything.
    let stride = shape.iter().fold(element.bytes() as u64, |n, size| n.saturating_mul(*size));
    let first = data + info.data_offsets.0 as u64;
    let block = Block { file: Arc::clone(file), first, stride, samples: *samples as u64 };
    let what = format!("{}: tensor `{name}`", file.path().display());
    Ok(Array { what, blocks: vec![block], element, shape, classes: None })
}

/// A few of the names, for messages.
fn names(tensors: &Metadata) -> String {
    const SHOWN: usize = 6;
    let mut names: Vec<String> = tensors.tensors().into_keys().collect();
    names.sort_unstable();
    let more = if names.len() > SHOWN { ", .." } else { "" };
    match names.len() {
        0 => "nothing".into(),
        _ => format!("{}{more}", names[..names.len().min(SHOWN)].join(", ")),
    }
}

fn element(dtype: Dtype) -> Option<Element> {
    Some(match dtype {
        Dtype::U8 => Element::U8,
        Dtype::I8 => Element::I8,
        Dtype::U16 => Element::U16,
        Dtype::I16 => Element::I16,
        Dtype::U32 => Element::U32,
        Dtype::I32 => Element::I32,
        Dtype::U64 => Element::U64,
        Dtype::I64 => Element::I64,
        Dtype::F16 => Element::F16,
        Dtype::BF16 => Element::Bf16,
        Dtype::F32 => Element::F32,
        Dtype::F64 => Element::F64,
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::tests::{Folder, classes, error, regression, target, values};
    use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
    use pipewright_core::plan::Data;
    use safetensors::tensor::{Dtype, TensorView, serialize};

    fn bytes<const N: usize>(values: impl IntoIterator<Item = [u8; N]>) -> Vec<u8> {
        values.into_iter().flatten().collect()
    }

    fn write(folder: &Folder, tensors: &[(&str, Dtype, &[usize], Vec<u8>)]) -> Data {
        let views = tensors.iter().map(|(name, dtype, shape, data)| {
            (*name, TensorView::new(*dtype, shape.to_vec(), data).unwrap())
        });
        folder.write("d.safetensors", &serialize(views, None).unwrap());
        Data::Safetensors { file: folder.path("d.safetensors") }
    }

    #[test]
    fn values_and_classes_of_several_types() {
        let folder = Folder::new("tensors");
        let x = bytes((0..12).map(|i| (i as f32).to_le_bytes()));
        let half = bytes((0..4).map(|i| half::bf16::from_f32(i as f32).to_le_bytes()));
        let data = write(
            &folder,
            &[
                ("x", Dtype::F32, &[3, 2, 2], x),
                ("y", Dtype::I64, &[3], bytes([2i64, 0, 1].map(i64::to_le_bytes))),
                ("x_test", Dtype::BF16, &[1, 2, 2], half),
                ("y_test", Dtype::U8, &[1, 1], vec![1]),
            ],
        );
        let set = open(&data, &classes(&[1, 2, 2], 3), 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (3, 1));
        assert_eq!(values(&set.train, 2), [8.0, 9.0, 10.0, 11.0]);
        assert_eq!([0, 1, 2].map(|i| set.train.label(i)), [2, 0, 1]);
        assert_eq!((values(&set.test, 0), set.test.label(0)), (vec![0.0, 1.0, 2.0, 3.0], 1));
        let text = error(&data, &classes(&[4], 2));
        assert!(text.ends_with("expected a label below 2, the model's number of classes, found 2"));
        let text = error(&data, &classes(&[5], 3));
        assert!(text.contains("d.safetensors: tensor `x` holds samples of shape [2, 2]"), "{text}");
    }

    #[test]
    fn target_values_and_what_is_no_number() {
        let folder = Folder::new("regression");
        let x = bytes([1.0f64, 2.0, 3.0, 4.0].map(f64::to_le_bytes));
        let y = |last: f32| bytes([0.5f32, last].map(f32::to_le_bytes));
        let tensors = |last| {
            [
                ("x", Dtype::F64, &[2usize, 2][..], x.clone()),
                ("y", Dtype::F32, &[2, 1][..], y(last)),
            ]
        };
        let set = open(&write(&folder, &tensors(-2.5)), &regression(&[2], &[1]), 0).unwrap();
        assert_eq!(target(&set.train, 1), [(-2.5f32).to_bits()]);
        let set = open(&write(&folder, &tensors(f32::NAN)), &regression(&[2], &[1]), 0).unwrap();
        let text = set.train.target(1, &mut [0]).unwrap_err().to_string();
        assert!(
            text.ends_with("expected a finite number of single precision, found NaN"),
            "{text}"
        );
        let text = error(&write(&folder, &tensors(0.0)), &classes(&[2], 3));
        assert!(
            text.ends_with("tensor `y` holds fractions, the model takes one of 3 classes"),
            "{text}"
        );
    }

    #[test]
    fn positions_may_lie_in_several_axes() {
        let folder = Folder::new("segmentation");
        let data = write(
            &folder,
            &[
                ("x", Dtype::U8, &[2, 1, 2, 2], vec![255; 8]),
                ("y", Dtype::U8, &[2, 2, 2], (0..8).collect()),
            ],
        );
        let pixels = SampleSpec {
            input: InputSpec::Values { shape: vec![1, 2, 2] },
            target: TargetSpec::Classes { count: 4, classes: 8 },
        };
        let set = open(&data, &pixels, 0).unwrap();
        assert_eq!(
            (values(&set.train, 1), target(&set.train, 1)),
            (vec![1.0; 4], vec![4, 5, 6, 7])
        );
    }

    #[test]
    fn what_is_missing_or_of_another_length_is_said() {
        let folder = Folder::new("missing-tensor");
        let x = || ("x", Dtype::U8, &[2usize, 1][..], vec![0; 2]);
        let text = error(&write(&folder, &[x()]), &classes(&[1], 2));
        assert!(text.contains("holds no tensor `y`, only x; a data set has"), "{text}");
        let y = ("y", Dtype::U8, &[3usize][..], vec![0; 3]);
        let text = error(&write(&folder, &[x(), y]), &classes(&[1], 2));
        assert!(text.contains("tensor `x` holds 2 samples, "), "{text}");
        assert!(text.ends_with("tensor `y` holds 3 targets"), "{text}");
        let single = ("y", Dtype::U8, &[][..], vec![0]);
        let text = error(&write(&folder, &[x(), single]), &classes(&[1], 2));
        assert!(text.ends_with("tensor `y` is a single number, without samples"), "{text}");
        let bools = ("y", Dtype::BOOL, &[2usize][..], vec![0; 2]);
        let text = error(&write(&folder, &[x(), bools]), &classes(&[1], 2));
        assert!(text.ends_with("has the type BOOL, which cannot be read"), "{text}");
        let (empty, none) = (
            ("x", Dtype::U8, &[0usize, 1 << 40, 1 << 40][..], vec![]),
            ("y", Dtype::U8, &[0usize][..], vec![]),
        );
        let text = error(&write(&folder, &[empty, none]), &classes(&[1], 2));
        assert!(text.ends_with("tensor `x` holds no samples"), "{text}");
    }

    #[test]
    fn every_truncation_is_refused() {
        let folder = Folder::new("cut-tensors");
        let tensors = [
            ("x", Dtype::U8, &[2usize, 1][..], vec![0; 2]),
            ("y", Dtype::U8, &[2][..], vec![0; 2]),
        ];
        let data = write(&folder, &tensors);
        let whole = std::fs::read(folder.path("d.safetensors")).unwrap();
        open(&data, &classes(&[1], 2), 0).unwrap();
        for end in 0..whole.len() {
            folder.write("d.safetensors", &whole[..end]);
            let text = error(&data, &classes(&[1], 2));
            assert!(text.contains("d.safetensors: not a safetensors file: "), "{text}");
        }
    }
}

//! Data sets through the front door, with real folders; and what the tests of the formats share.

use super::*;
use std::fs;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU32, Ordering};

/// A folder that goes away with the test.
pub(super) struct Folder(PathBuf);

impl Folder {
    pub(super) fn new(name: &str) -> Self {
        static COUNT: AtomicU32 = AtomicU32::new(0);
        let (id, count) = (std::process::id(), COUNT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(format!("pipewright-{name}-{id}-{count}"));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Writes a file, and the folders above it.
    pub(super) fn write(&self, name: &str, bytes: &[u8]) {
        let path = self.0.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    pub(super) fn path(&self, name: &str) -> String {
        self.0.join(name).to_str().unwrap().into()
    }

    pub(super) fn text(&self) -> String {
        self.0.to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// A classifier.
pub(super) fn classes(shape: &[u64], classes: u64) -> SampleSpec {
    SampleSpec {
        input: InputSpec::Values { shape: shape.to_vec() },
        target: TargetSpec::Classes { count: 1, classes },
    }
}

/// A language model.
pub(super) fn language(length: u64, vocabulary: u64) -> SampleSpec {
    SampleSpec {
        input: InputSpec::Tokens { length, vocabulary },
        target: TargetSpec::Classes { count: length, classes: vocabulary },
    }
}

/// A network that is trained on values.
pub(super) fn regression(input: &[u64], target: &[u64]) -> SampleSpec {
    SampleSpec {
        input: InputSpec::Values { shape: input.to_vec() },
        target: TargetSpec::Values { shape: target.to_vec() },
    }
}

/// The values of a sample.
pub(super) fn values(split: &Split, index: u64) -> Vec<f32> {
    tokens(split, index).into_iter().map(f32::from_bits).collect()
}

/// The words of a sample.
pub(super) fn tokens(split: &Split, index: u64) -> Vec<u32> {
    let mut out = vec![u32::MAX; split.input_words()];
    split.input(index, &mut out).unwrap();
    out
}

/// The words of a target.
pub(super) fn target(split: &Split, index: u64) -> Vec<u32> {
    let mut out = vec![u32::MAX; split.target_words()];
    split.target(index, &mut out).unwrap();
    out
}

impl Split {
    /// The class of a sample that has one.
    pub(super) fn label(&self, index: u64) -> u32 {
        let [class] = target(self, index)[..] else { panic!("one class a sample") };
        class
    }
}

pub(super) fn error(data: &Data, sample: &SampleSpec) -> String {
    open(data, sample, 0).unwrap_err().to_string()
}

fn digits() -> Data {
    Data::Idx { dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/digits").into() }
}

#[test]
fn the_digits_open_for_images_and_for_vectors() {
    for shape in [&[1, 8, 8][..], &[8, 8], &[64]] {
        let set = open(&digits(), &classes(shape, 10), 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (1437, 360));
        // The first bytes of the label files.
        assert_eq!([0, 1, 2, 3].map(|i| set.train.label(i)), [6, 6, 6, 2]);
        let image = values(&set.train, 0);
        assert!(image.iter().all(|v| (0.0..=1.0).contains(v)));
        assert_eq!(image[2..4], [f32::from(0x10u8) / 255.0, f32::from(0xcfu8) / 255.0]);
    }
}

#[test]
fn a_model_that_does_not_fit_is_told_why() {
    let text = error(&digits(), &classes(&[1, 28, 28], 10));
    assert!(text.contains("holds samples of shape [8, 8], the model takes [1, 28, 28]"), "{text}");
    let text = error(&digits(), &classes(&[64], 9));
    assert!(text.contains("train-labels-idx1-ubyte, byte "), "{text}");
    assert!(text.ends_with("expected a label below 9, the model's number of classes, found 9"));
    let text = error(&digits(), &language(64, 256));
    assert!(text.contains("-labels-idx1-ubyte holds samples of shape [], the model"), "{text}");
    assert_eq!(
        error(&digits(), &classes(&[0], 10)),
        "a model that trains on values of shape [0] and one of 10 classes fits no data set"
    );
    for sample in [classes(&[4], 0), language(0, 5), language(5, 1 << 32), regression(&[4], &[0])] {
        assert!(error(&Data::default(), &sample).ends_with("fits no data set"));
    }
}

#[test]
fn missing_folders_and_files_are_named() {
    let dir = "/nowhere/digits".to_string();
    for data in [
        Data::Idx { dir: dir.clone() },
        Data::Cifar10 { dir: dir.clone() },
        Data::Cifar100 { dir: dir.clone() },
        Data::Npy { dir: dir.clone() },
        Data::Images { dir },
    ] {
        let text = error(&data, &classes(&[3, 32, 32], 100));
        assert_eq!(text, "/nowhere/digits: not found; expected a folder", "{data}");
    }
    let folder = Folder::new("packed");
    folder.write("train-images-idx3-ubyte.gz", &[0x1f, 0x8b]);
    let text = error(&Data::Idx { dir: folder.text() }, &classes(&[64], 10));
    assert!(text.ends_with("unpack the .gz beside it: gunzip -k"), "{text}");
    let text = error(&Data::Cifar10 { dir: folder.text() }, &classes(&[64], 10));
    assert!(text.contains("data_batch_1.bin: not found"), "{text}");
    let text = error(&Data::Safetensors { file: folder.text() }, &classes(&[64], 10));
    assert!(text.ends_with("is no file; expected a safetensors file"), "{text}");
}

#[test]
fn halves_of_different_shape_are_no_data_set() {
    let folder = Folder::new("halves");
    let source = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/digits"));
    for entry in fs::read_dir(source).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_str().unwrap().to_owned();
        let mut bytes = fs::read(path).unwrap();
        if name == "t10k-images-idx3-ubyte" {
            (bytes[11], bytes[15]) = (4, 16);
        }
        folder.write(&name, &bytes);
    }
    let text = error(&Data::Idx { dir: folder.text() }, &classes(&[64], 10));
    assert!(text.contains("t10k-images-idx3-ubyte holds samples of shape [4, 16]"), "{text}");
}

#[test]
fn a_synthetic_set_without_training_samples_is_empty() {
    let text = error(&Data::Synthetic { train: 0, test: 5 }, &classes(&[4], 2));
    assert_eq!(text, "the synthetic training set holds no samples");
    let set = open(&Data::Synthetic { train: 3, test: 0 }, &classes(&[4], 2), 9).unwrap();
    assert!(set.test.is_empty());
    assert_eq!([0, 1, 2].map(|i| set.train.label(i)), [0, 1, 0]);
}

#[test]
#[should_panic(expected = "sample 3 of 3")]
fn reading_past_the_end_is_a_bug() {
    let set = open(&Data::Synthetic { train: 3, test: 0 }, &classes(&[4], 2), 9).unwrap();
    set.train.input(3, &mut [0; 4]).unwrap();
}

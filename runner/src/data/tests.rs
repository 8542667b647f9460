//! Data sets through the front door, with real folders.

use super::*;
use std::fs;
use std::path::PathBuf;

/// A folder that goes away with the test.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("pipewright-{name}-{}", std::process::id()));
        fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    fn write(&self, name: &str, bytes: &[u8]) {
        fs::write(self.0.join(name), bytes).unwrap();
    }

    fn text(&self) -> String {
        self.0.to_str().unwrap().into()
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn digits() -> Data {
    Data::Idx { dir: concat!(env!("CARGO_MANIFEST_DIR"), "/../tests/data/digits").into() }
}

fn error(data: &Data, shape: &[u64], classes: u64) -> String {
    open(data, shape, classes, 0).unwrap_err().to_string()
}

#[test]
fn the_digits_open_for_images_and_for_vectors() {
    for shape in [&[1, 8, 8][..], &[8, 8], &[64]] {
        let set = open(&digits(), shape, 10, 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (1437, 360));
        // The first bytes of the label files.
        assert_eq!([0, 1, 2, 3].map(|i| set.train.label(i)), [6, 6, 6, 2]);
        let mut image = [0.0f32; 64];
        set.train.write_sample(0, &mut image);
        assert!(image.iter().all(|v| (0.0..=1.0).contains(v)));
        assert_eq!(image[2..4], [f32::from(0x10u8) / 255.0, f32::from(0xcfu8) / 255.0]);
    }
}

#[test]
fn a_model_that_does_not_fit_is_told_why() {
    let text = error(&digits(), &[1, 28, 28], 10);
    assert!(text.contains("holds samples of shape [8, 8], the model takes [1, 28, 28]"), "{text}");
    let text = error(&digits(), &[64], 9);
    assert!(text.contains("train-labels-idx1-ubyte, byte "), "{text}");
    assert!(text.ends_with("expected a label below 9, the model's number of classes, found 9"));
    assert_eq!(
        error(&digits(), &[0], 10),
        "a model with input [0] and 10 classes fits no data set"
    );
    assert!(open(&Data::default(), &[4], 0, 0).is_err());
}

#[test]
fn missing_folders_and_files_are_named() {
    let dir = "/nowhere/digits".to_string();
    assert_eq!(
        error(&Data::Idx { dir: dir.clone() }, &[64], 10),
        "/nowhere/digits: not found; expected a folder"
    );
    assert_eq!(
        error(&Data::Cifar10 { dir }, &[3, 32, 32], 10),
        "/nowhere/digits: not found; expected a folder"
    );
    let folder = Folder::new("packed");
    folder.write("train-images-idx3-ubyte.gz", &[0x1f, 0x8b]);
    let text = error(&Data::Idx { dir: folder.text() }, &[64], 10);
    assert!(text.ends_with("unpack the .gz beside it: gunzip -k"), "{text}");
    let text = error(&Data::Cifar10 { dir: folder.text() }, &[3, 32, 32], 10);
    assert!(text.contains("data_batch_1.bin: not found"), "{text}");
}

#[test]
fn cifar_batches_are_joined_in_numerical_order() {
    let folder = Folder::new("cifar");
    let batch = |labels: &[u8]| -> Vec<u8> {
        labels.iter().flat_map(|&l| std::iter::once(l).chain([l * 20; 3072])).collect()
    };
    folder.write("data_batch_10.bin", &batch(&[5]));
    folder.write("data_batch_2.bin", &batch(&[3, 4]));
    folder.write("test_batch.bin", &batch(&[7]));
    let data = Data::Cifar10 { dir: folder.text() };
    let set = open(&data, &[3, 32, 32], 10, 0).unwrap();
    assert_eq!([0, 1, 2].map(|i| set.train.label(i)), [3, 4, 5]);
    let mut image = vec![0.0; 3072];
    set.train.write_sample(2, &mut image);
    assert!(image.iter().all(|&v| v == 100.0 / 255.0));
    assert_eq!((set.test.len(), set.test.label(0)), (1, 7));
    assert!(error(&data, &[32, 32, 3], 10).contains("the model takes [32, 32, 3]"));
    fs::remove_file(folder.0.join("test_batch.bin")).unwrap();
    assert!(error(&data, &[3072], 10).contains("test_batch.bin: not found"));
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
    let text = error(&Data::Idx { dir: folder.text() }, &[64], 10);
    assert!(text.contains("t10k-images-idx3-ubyte holds samples of shape [4, 16]"), "{text}");
}

#[test]
fn a_synthetic_set_without_training_samples_is_empty() {
    let text = error(&Data::Synthetic { train: 0, test: 5 }, &[4], 2);
    assert_eq!(text, "the synthetic training set holds no samples");
    let set = open(&Data::Synthetic { train: 3, test: 0 }, &[4], 2, 9).unwrap();
    assert!(set.test.is_empty());
    assert_eq!([0, 1, 2].map(|i| set.train.label(i)), [0, 1, 0]);
}

#[test]
#[should_panic(expected = "sample 3 of 3")]
fn reading_past_the_end_is_a_bug() {
    let set = open(&Data::Synthetic { train: 3, test: 0 }, &[4], 2, 9).unwrap();
    set.train.write_sample(3, &mut [0.0; 4]);
}

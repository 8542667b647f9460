//! Image folders made by the tests.

use super::super::open;
use super::super::tests::{Folder, classes, error, language, values};
use super::*;
use image::codecs::jpeg::JpegEncoder;
use image::{ImageFormat, Rgb, RgbImage};
use pipewright_core::plan::Data;

/// An image whose colour is a function of the place.
fn picture(width: u32, height: u32, colour: impl Fn(u32, u32) -> [u8; 3]) -> RgbImage {
    RgbImage::from_fn(width, height, |x, y| Rgb(colour(x, y)))
}

fn png(image: &RgbImage) -> Vec<u8> {
    let mut bytes = Cursor::new(vec![]);
    image.write_to(&mut bytes, ImageFormat::Png).unwrap();
    bytes.into_inner()
}

fn jpeg(image: &RgbImage) -> Vec<u8> {
    let mut bytes = vec![];
    JpegEncoder::new_with_quality(&mut bytes, 100).encode_image(image).unwrap();
    bytes
}

fn plain(colour: [u8; 3]) -> RgbImage {
    picture(6, 4, |_, _| colour)
}

fn images(folder: &Folder) -> Data {
    Data::Images { dir: folder.text() }
}

#[test]
fn classes_are_folders_by_name() {
    let folder = Folder::new("images");
    folder.write("train/dog/b.png", &png(&plain([255, 0, 0])));
    folder.write("train/cat/a.JPG", &jpeg(&plain([0, 0, 255])));
    folder.write("train/cat/notes.txt", b"no image");
    folder.write("train/.hidden/x.png", b"");
    folder.write("train/README", b"no class");
    folder.write("val/dog/c.jpeg", &jpeg(&plain([0, 255, 0])));
    let set = open(&images(&folder), &classes(&[3, 2, 2], 2), 0).unwrap();
    assert_eq!((set.train.len(), set.test.len()), (2, 1));
    assert_eq!([set.train.label(0), set.train.label(1), set.test.label(0)], [0, 1, 1]);
    assert_eq!(values(&set.train, 1), [[1.0; 4], [0.0; 4], [0.0; 4]].concat());
    let near = |found: Vec<f32>, wanted: [f32; 3]| {
        let wanted = wanted.iter().flat_map(|v| [*v; 4]);
        assert!(found.iter().zip(wanted).all(|(f, w)| (f - w).abs() < 0.02), "{found:?}");
    };
    near(values(&set.train, 0), [0.0, 0.0, 1.0]);
    near(values(&set.test, 0), [0.0, 1.0, 0.0]);
}

#[test]
fn the_middle_is_scaled_to_the_models_size() {
    let folder = Folder::new("sized");
    // Grey borders left and right of a square whose halves are black and white.
    let wide = picture(16, 8, |x, y| match x {
        4..12 => [if y < 4 { 0 } else { 255 }; 3],
        _ => [128; 3],
    });
    folder.write("a/1.png", &png(&wide));
    folder.write("a/2.png", &png(&image::imageops::rotate90(&wide)));
    folder.write("a/3.png", &png(&picture(2, 2, |x, y| [(100 * x + 50 * y) as u8; 3])));
    let set = open(&images(&folder), &classes(&[1, 8, 8], 1), 0).unwrap();
    let rows = |index| -> Vec<Vec<f32>> {
        values(&set.train, index).chunks(8).map(<[f32]>::to_vec).collect()
    };
    let (first, second) = (rows(0), rows(1));
    for i in 0..8 {
        assert_eq!(first[i], [if i < 4 { 0.0 } else { 1.0 }; 8], "as large as it is");
        assert_eq!(second[i], [1.0, 1.0, 1.0, 1.0, 0.0, 0.0, 0.0, 0.0]);
    }
    let third = rows(2);
    assert_eq!((third[0][0], third[7][7]), (0.0, 150.0 / 255.0));
    assert!(third[0].is_sorted() && third.iter().map(|row| row[0]).is_sorted(), "{third:?}");
    // Half the size: 4 x 4 means of 2 x 2 pixels, and rows of a 4 x 2 model from its proportions.
    let set = open(&images(&folder), &classes(&[1, 4, 4], 1), 0).unwrap();
    let small = values(&set.train, 0);
    assert!(small[..4].iter().all(|v| *v < 0.2) && small[12..].iter().all(|v| *v > 0.8));
    let set = open(&images(&folder), &classes(&[2, 4], 1), 0).unwrap();
    assert_eq!(values(&set.train, 0).len(), 8);
}

#[test]
fn every_tenth_file_is_tested_on_where_nobody_said_which() {
    let folder = Folder::new("tenth");
    for class in ["a", "b"] {
        for i in 0..21 {
            let colour = [i; 3];
            folder.write(&format!("{class}/{i:02}.png"), &png(&plain(colour)));
        }
    }
    let set = open(&images(&folder), &classes(&[1, 1, 1], 2), 0).unwrap();
    assert_eq!((set.train.len(), set.test.len()), (38, 4));
    let test: Vec<(f32, u32)> =
        (0..4).map(|i| ((values(&set.test, i)[0] * 255.0).round(), set.test.label(i))).collect();
    assert_eq!(test, [(9.0, 0), (19.0, 0), (9.0, 1), (19.0, 1)]);
}

#[test]
fn what_is_wrong_with_the_folders_is_said() {
    let folder = Folder::new("bad-images");
    let text = error(&images(&folder), &classes(&[3, 2, 2], 2));
    assert!(text.ends_with("holds no folders; images lie in a folder a class"), "{text}");
    folder.write("a/x.txt", b"");
    let text = error(&images(&folder), &classes(&[3, 2, 2], 2));
    assert!(text.ends_with("a: holds no .jpg, .jpeg or .png files"), "{text}");
    folder.write("a/x.png", b"");
    folder.write("b/x.png", b"");
    let text = error(&images(&folder), &classes(&[3, 2, 2], 1));
    assert!(text.ends_with("holds 2 folders, a class each; the model tells 1 classes apart"));
    let text = error(&images(&folder), &classes(&[12], 2));
    assert!(text.contains("holds images of 1 or 3 channels with one class each, the model takes"));
    assert!(error(&images(&folder), &language(4, 9)).contains("the model takes 4 tokens below 9"));
    folder.write("train/a/x.png", b"");
    folder.write("test/c/x.png", b"");
    let text = error(&images(&folder), &classes(&[3, 2, 2], 2));
    assert!(text.ends_with("test/c: is a class that the training images have not"), "{text}");
}

#[test]
fn broken_images_are_errors_with_their_names() {
    let folder = Folder::new("broken-images");
    let image = picture(64, 48, |x, y| [(x * 4) as u8, (y * 5) as u8, (x * y) as u8]);
    let refused = |name: &str, bytes: &[u8]| {
        folder.write(name, bytes);
        let set = open(&images(&folder), &classes(&[3, 8, 8], 2), 0).unwrap();
        let result = set.train.input(0, &mut [0; 192]);
        fs::remove_file(folder.path(name)).unwrap();
        let text = result.expect_err(&format!("{name} of {} bytes", bytes.len())).to_string();
        assert!(text.contains(&format!("{name}: cannot be decoded: ")), "{text}");
    };
    let (png, jpeg) = (png(&image), jpeg(&image));
    for part in 0..16 {
        refused("a/x.png", &png[..png.len() * part / 16]);
        refused("a/x.jpg", &jpeg[..jpeg.len() * part / 16]);
    }
    refused("a/x.png", &png[..png.len() - 13]);
    refused("a/x.jpg", &jpeg[..jpeg.len() - 3]);
    refused("a/x.jpg", b"GIF89a, which is not read");
    // A header that promises 40 GB.
    let mut huge = png.clone();
    huge[16..24].copy_from_slice(&[0, 1, 0x86, 0xa0, 0, 1, 0x86, 0xa0]);
    refused("a/x.png", &huge);
    folder.write("a/x.jpg", &jpeg);
    let set = open(&images(&folder), &classes(&[3, 8, 8], 2), 0).unwrap();
    fs::remove_file(folder.path("a/x.jpg")).unwrap();
    let text = set.train.input(0, &mut [0; 192]).unwrap_err().to_string();
    assert!(text.contains("x.jpg: No such file"), "{text}");
}

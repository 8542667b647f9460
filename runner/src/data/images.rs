//! Folders of JPEG and PNG files, a folder a class.
//!
//! Classes are numbered by the sorted names of their folders, below `train` and `test` (or `val`)
//! where there is a `train`. Without one, every tenth file of each class, in the order of names,
//! is there to test on. Files are decoded when they are read: opening a million of them would
//! take minutes. Each is brought to the model's size by the largest cut around its centre that
//! has the model's proportions, and bilinear scaling of that.

use super::{DataError, DataSet, Split, Targets};
use image::imageops::{self, FilterType};
use image::{DynamicImage, ImageFormat, ImageReader, Limits};
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::io::Cursor;
use std::path::{Path, PathBuf};

/// Of the files of a class one in so many is there to test on, where nobody said which.
const TEST_SHARE: usize = 10;

/// No side of an image is longer: what is decoded stays below 1 GiB.
const SIDE_MAX: u32 = 1 << 14;

/// No file is longer.
const FILE_MAX: u64 = 1 << 28;

/// One half.
#[derive(Debug)]
pub(super) struct Images {
    /// Folders by class.
    folders: Vec<PathBuf>,
    /// Class and name of each file, class by class.
    files: Vec<(u32, OsString)>,
    /// Channels, rows, columns.
    shape: [usize; 3],
}

/// Names of the files of a class's folder, sorted.
type Class = (PathBuf, Vec<OsString>);

/// Both halves of folder `dir`.
pub(super) fn open(
    dir: &Path,
    sample: &SampleSpec,
    targets: Targets,
) -> Result<DataSet, DataError> {
    let (shape, classes) = fits(dir, sample)?;
    if !dir.is_dir() {
        return Err(DataError::Missing { path: dir.into(), expected: "a folder".into() });
    }
    let (train, test) = match dir.join("train") {
        _ if targets == Targets::Unwanted && !images_of(dir)?.is_empty() => {
            (vec![(dir.to_path_buf(), images_of(dir)?)], None)
        }
        train if train.is_dir() => {
            let test = ["test", "val"].map(|name| dir.join(name)).into_iter().find(|d| d.is_dir());
            let train = class_folders(&train)?;
            let test = test.map(|test| paired(&train, &test)).transpose()?;
            (train, test)
        }
        _ => {
            let (train, test) = divided(class_folders(dir)?);
            (train, Some(test))
        }
    };
    if train.len() as u64 > classes {
        let why = format!(
            "holds {} folders, a class each; the model tells {classes} classes apart",
            train.len()
        );
        return Err(DataError::Damaged { path: dir.into(), why });
    }
    let images = |classes| Split::images(Images::new(classes, shape), sample);
    let test = test.map_or_else(|| Split::none(sample), images);
    Ok(DataSet { train: images(train), test })
}

/// How many classes folder `dir` has.
pub(super) fn classes(dir: &Path) -> Result<u64, DataError> {
    let train = dir.join("train");
    let all = class_folders(if train.is_dir() { &train } else { dir })?;
    Ok(all.len() as u64)
}

/// Channels, rows, columns and the number of classes, when the model takes images.
fn fits(dir: &Path, sample: &SampleSpec) -> Result<([usize; 3], u64), DataError> {
    let shape = match &sample.input {
        InputSpec::Values { shape } => match shape[..] {
            [c @ (1 | 3), h, w] => Some([c, h, w]),
            [h, w] => Some([1, h, w]),
            _ => None,
        },
        InputSpec::Tokens { .. } => None,
    };
    match (shape, &sample.target) {
        (Some(shape), TargetSpec::Classes { count: 1, classes })
            if shape.iter().all(|&size| size <= u64::from(SIDE_MAX)) =>
        {
            Ok((shape.map(|size| size as usize), *classes))
        }
        _ => Err(DataError::Kind {
            what: dir.display().to_string(),
            found: "images of 1 or 3 channels with one class each".into(),
            wanted: sample.to_string(),
        }),
    }
}

/// The folders of `dir` by name, with the images in them.
fn class_folders(dir: &Path) -> Result<Vec<Class>, DataError> {
    let mut classes = vec![];
    for name in names(dir)?.into_iter().filter(|name| dir.join(name).is_dir()) {
        let folder = dir.join(name);
        let files = images_of(&folder)?;
        if files.is_empty() {
            let why = "holds no .jpg, .jpeg or .png files".into();
            return Err(DataError::Damaged { path: folder, why });
        }
        classes.push((folder, files));
    }
    match classes.is_empty() {
        true => {
            let why = "holds no folders; images lie in a folder a class".into();
            Err(DataError::Damaged { path: dir.into(), why })
        }
        false => Ok(classes),
    }
}

/// The images of a folder, sorted.
fn images_of(folder: &Path) -> Result<Vec<OsString>, DataError> {
    Ok(names(folder)?.into_iter().filter(is_image).collect())
}

/// What a folder holds, sorted, without hidden files.
fn names(dir: &Path) -> Result<Vec<OsString>, DataError> {
    let io = |source| DataError::Io { path: dir.into(), source };
    let mut names = vec![];
    for entry in fs::read_dir(dir).map_err(io)? {
        let name = entry.map_err(io)?.file_name();
        if !name.as_encoded_bytes().starts_with(b".") {
            names.push(name);
        }
    }
    names.sort_unstable();
    Ok(names)
}

fn is_image(name: &OsString) -> bool {
    let extension = Path::new(name).extension().and_then(|e| e.to_str());
    extension.is_some_and(|e| ["jpg", "jpeg", "png"].iter().any(|i| e.eq_ignore_ascii_case(i)))
}

/// The classes of `dir` under the numbers that they have in `train`.
fn paired(train: &[Class], dir: &Path) -> Result<Vec<Class>, DataError> {
    let name = |class: &Class| class.0.file_name().unwrap_or_default().to_owned();
    let mut found: BTreeMap<OsString, Class> =
        class_folders(dir)?.into_iter().map(|class| (name(&class), class)).collect();
    let absent = |name: &OsString| (dir.join(name), vec![]);
    let paired = train
        .iter()
        .map(|class| found.remove(&name(class)).unwrap_or_else(|| absent(&name(class))))
        .collect();
    match found.into_values().next() {
        None => Ok(paired),
        Some((path, _)) => {
            let why = "is a class that the training images have not".into();
            Err(DataError::Damaged { path, why })
        }
    }
}

/// Takes every tenth file of each class away, to test on.
fn divided(classes: Vec<Class>) -> (Vec<Class>, Vec<Class>) {
    let divide = |(folder, files): Class| {
        let is_test = |(at, _): &(usize, OsString)| at % TEST_SHARE == TEST_SHARE - 1;
        let (test, train): (Vec<_>, Vec<_>) = files.into_iter().enumerate().partition(is_test);
        let names = |files: Vec<(usize, OsString)>| files.into_iter().map(|(_, n)| n).collect();
        ((folder.clone(), names(train)), (folder, names(test)))
    };
    classes.into_iter().map(divide).unzip()
}

impl Images {
    fn new(classes: Vec<Class>, shape: [usize; 3]) -> Self {
        let (mut folders, mut files) = (vec![], vec![]);
        for (class, (folder, names)) in (0..).zip(classes) {
            folders.push(folder);
            files.extend(names.into_iter().map(|name| (class, name)));
        }
        Self { folders, files, shape }
    }

    pub(super) fn len(&self) -> u64 {
        self.files.len() as u64
    }

    pub(super) fn class(&self, index: u64) -> u32 {
        self.files[index as usize].0
    }

    /// Decodes one image into values from 0 to 1, channel by channel.
    pub(super) fn write(&self, index: u64, out: &mut [f32]) -> Result<(), DataError> {
        let (class, name) = &self.files[index as usize];
        let path = self.folders[*class as usize].join(name);
        let image = decode(&path)?;
        let [channels, rows, columns] = self.shape;
        let pixels = match channels {
            1 => sized(&image.into_luma8(), rows as u32, columns as u32),
            _ => sized(&image.into_rgb8(), rows as u32, columns as u32),
        };
        for (channel, plane) in out.chunks_exact_mut(rows * columns).enumerate() {
            let pixels = pixels.iter().skip(channel).step_by(channels);
            plane.iter_mut().zip(pixels).for_each(|(value, &p)| *value = f32::from(p) / 255.0);
        }
        Ok(())
    }
}

fn decode(path: &Path) -> Result<DynamicImage, DataError> {
    let io = |source| DataError::Io { path: path.into(), source };
    let damaged = |why: String| DataError::Damaged { path: path.into(), why };
    let length = fs::metadata(path).map_err(io)?.len();
    if length > FILE_MAX {
        return Err(damaged(format!("has {length} bytes, more than any image")));
    }
    let bytes = fs::read(path).map_err(io)?;
    let mut reader = ImageReader::new(Cursor::new(&bytes)).with_guessed_format().map_err(io)?;
    let mut limits = Limits::default();
    (limits.max_image_width, limits.max_image_height) = (Some(SIDE_MAX), Some(SIDE_MAX));
    limits.max_alloc = Some(1 << 30);
    reader.limits(limits);
    if reader.format() == Some(ImageFormat::Jpeg) && !is_whole_jpeg(&bytes) {
        return Err(damaged("cannot be decoded: it ends early".into()));
    }
    reader.decode().map_err(|error| damaged(format!("cannot be decoded: {error}")))
}

/// Whether the end of the image comes after the beginning of its last scan. The decoder makes an
/// image of a part as well, grey where there is nothing. Within a scan 0xff stands alone.
fn is_whole_jpeg(bytes: &[u8]) -> bool {
    let last = |marker: [u8; 2]| bytes.windows(2).rposition(|pair| pair == marker);
    last([0xff, 0xd9]) > last([0xff, 0xda])
}

/// The largest cut around the centre with the proportions of `rows` and `columns`, scaled to
/// them. Cutting first keeps the memory below the image's own, whatever its proportions.
fn sized<P>(image: &image::ImageBuffer<P, Vec<u8>>, rows: u32, columns: u32) -> Vec<u8>
where
    P: image::Pixel<Subpixel = u8> + 'static,
{
    let (width, height) = image.dimensions();
    let part = |side: u32, of: u32, by: u32| {
        let rounded = (u64::from(side) * u64::from(of) + u64::from(by) / 2) / u64::from(by);
        (rounded as u32).max(1)
    };
    let (cut_width, cut_height) =
        match u64::from(width) * u64::from(rows) > u64::from(height) * u64::from(columns) {
            true => (part(height, columns, rows).min(width), height),
            false => (width, part(width, rows, columns).min(height)),
        };
    let (left, top) = ((width - cut_width) / 2, (height - cut_height) / 2);
    let cut = imageops::crop_imm(image, left, top, cut_width, cut_height);
    if (cut_width, cut_height) == (columns, rows) {
        return cut.to_image().into_raw();
    }
    imageops::resize(&*cut, columns, rows, FilterType::Triangle).into_raw()
}

#[cfg(test)]
mod tests;

//! Files of token numbers and nothing else, as nanoGPT's `prepare.py` writes them.
//!
//! Sample i of length L is the tokens from i·L to i·L + L, and its target the same one further
//! on: each token is predicted once an epoch.
//!
//! ```text
//! tokens   t0 t1 t2 t3 t4 t5 t6 ..        L = 3
//! sample 0 [t0 t1 t2]          target [t1 t2 t3]
//! sample 1          [t3 t4 t5] target          [t4 t5 t6]
//! ```

use super::column::{Array, Block};
use super::element::Element;
use super::file::Mapped;
use super::split_part::SplitPart;
use super::{DataError, Targets};
use pipewright_core::graph::{InputSpec, SampleSpec, TargetSpec};
use std::path::Path;
use std::sync::Arc;

/// A file, or the `train.bin` and `val.bin` (or `test.bin`) of a folder.
pub(super) fn open(
    path: &Path,
    element: Element,
    sample: &SampleSpec,
    targets: Targets,
) -> Result<(SplitPart, Option<SplitPart>), DataError> {
    let length = length(path, sample)?;
    let half = |path: &Path| half(path, element, length, targets);
    if !path.is_dir() {
        return Ok((half(path)?, None));
    }
    let train = half(&path.join("train.bin"))?;
    let test = ["val.bin", "test.bin"].map(|name| path.join(name)).into_iter().find(|p| p.exists());
    Ok((train, test.map(|test| half(&test)).transpose()?))
}

/// Tokens of one sample, when the model is one of language.
fn length(path: &Path, sample: &SampleSpec) -> Result<u64, DataError> {
    match (&sample.input, &sample.target) {
        (InputSpec::Tokens { length, .. }, TargetSpec::Classes { count, .. })
            if count == length =>
        {
            Ok(*length)
        }
        _ => Err(DataError::Kind {
            what: path.display().to_string(),
            found: "tokens, each of which is the target of those before it".into(),
            wanted: sample.to_string(),
        }),
    }
}

fn half(
    path: &Path,
    element: Element,
    length: u64,
    targets: Targets,
) -> Result<SplitPart, DataError> {
    let file = Mapped::open(path, "a file of tokens, or a folder with train.bin and val.bin")?;
    let width = element.bytes() as u64;
    let spare = file.len() % width;
    if spare != 0 {
        return Err(DataError::Format {
            file: path.into(),
            offset: file.len() - spare,
            expected: format!("a token of {width} bytes"),
            found: format!("{spare} bytes until the end of the file"),
        });
    }
    let tokens = file.len() / width;
    // Without targets nothing comes after the last token.
    let after = u64::from(targets == Targets::Wanted);
    let samples = tokens.saturating_sub(after) / length;
    if samples == 0 {
        let more = if after > 0 { " and the one after" } else { "" };
        let why = format!("holds {tokens} tokens; one sample of the model takes {length}{more}");
        return Err(DataError::Damaged { path: path.into(), why });
    }
    let array = |first| Array {
        what: path.display().to_string(),
        blocks: vec![Block { file: Arc::clone(&file), first, stride: length * width, samples }],
        element,
        shape: vec![length],
        classes: None,
    };
    Ok(SplitPart { x: array(0), y: Some(array(width)) }.with(targets))
}

#[cfg(test)]
mod tests {
    use super::super::open;
    use super::super::tests::{Folder, classes, error, language, target, tokens};
    use pipewright_core::plan::Data;

    fn bin16(tokens: impl IntoIterator<Item = u16>) -> Vec<u8> {
        tokens.into_iter().flat_map(u16::to_le_bytes).collect()
    }

    #[test]
    fn targets_are_the_samples_one_further_on() {
        let folder = Folder::new("tokens");
        folder.write("train.bin", &bin16(100..111));
        let data = Data::Tokens16 { path: folder.path("train.bin") };
        let set = open(&data, &language(3, 200), 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (3, 0));
        assert_eq!(tokens(&set.train, 1), [103, 104, 105]);
        assert_eq!(target(&set.train, 1), [104, 105, 106]);
        assert_eq!(target(&set.train, 2), [107, 108, 109]);
        // Ten tokens make three samples as well, nine make two.
        folder.write("train.bin", &bin16(100..110));
        assert_eq!(open(&data, &language(3, 200), 0).unwrap().train.len(), 3);
        folder.write("train.bin", &bin16(100..109));
        assert_eq!(open(&data, &language(3, 200), 0).unwrap().train.len(), 2);
    }

    #[test]
    fn folders_have_two_halves() {
        let folder = Folder::new("token-folder");
        let bytes: Vec<u8> = (70_000u32..70_009).flat_map(u32::to_le_bytes).collect();
        folder.write("train.bin", &bytes);
        folder.write("test.bin", &bytes[..20]);
        let data = Data::Tokens32 { path: folder.text() };
        let set = open(&data, &language(4, 80_000), 0).unwrap();
        assert_eq!((set.train.len(), set.test.len()), (2, 1));
        folder.write("val.bin", &bytes);
        assert_eq!(open(&data, &language(4, 80_000), 0).unwrap().test.len(), 2);
        assert_eq!(tokens(&set.train, 1), [70_004, 70_005, 70_006, 70_007]);
    }

    #[test]
    fn what_is_wrong_is_said() {
        let folder = Folder::new("bad-tokens");
        let data = Data::Tokens16 { path: folder.path("t.bin") };
        folder.write("t.bin", &bin16([1, 2, 3, 65, 4]));
        let text = error(&data, &language(4, 65));
        let expected = "t.bin, byte 6: expected a token below 65, the model's vocabulary, found 65";
        assert!(text.ends_with(expected), "{text}");
        let text = error(&data, &language(5, 66));
        let expected = "holds 5 tokens; one sample of the model takes 5 and the one after";
        assert!(text.ends_with(expected), "{text}");
        folder.write("t.bin", &[1, 0, 2]);
        let text = error(&data, &language(1, 9));
        assert!(
            text.ends_with(
                "byte 2: expected a token of 2 bytes, found 1 bytes until the end of the file"
            ),
            "{text}"
        );
        let text = error(&data, &classes(&[3], 9));
        assert!(
            text.ends_with("the model takes values of shape [3] and one of 9 classes"),
            "{text}"
        );
        let text = error(&Data::Tokens16 { path: "/nowhere/t.bin".into() }, &language(2, 9));
        assert_eq!(text, "/nowhere: not found; expected a folder");
        let text = error(&Data::Tokens16 { path: folder.text() }, &language(2, 9));
        assert!(text.contains("train.bin: not found; expected a file of tokens"), "{text}");
    }

    #[test]
    fn a_file_cut_short_in_training_is_an_error() {
        let folder = Folder::new("cut-tokens");
        folder.write("t.bin", &bin16(0..40_000));
        let data = Data::Tokens16 { path: folder.path("t.bin") };
        let set = open(&data, &language(8, 40_000), 0).unwrap();
        assert_eq!(tokens(&set.train, 4000)[0], 32_000);
        let file = std::fs::OpenOptions::new().write(true).open(folder.path("t.bin")).unwrap();
        file.set_len(100).unwrap();
        let text = set.train.input(4000, &mut [0; 8]).unwrap_err().to_string();
        assert!(
            text.contains("t.bin had 80000 bytes when training began and has 100 now"),
            "{text}"
        );
    }

    #[test]
    fn tokens_that_change_in_training_are_checked() {
        let folder = Folder::new("changed-tokens");
        folder.write("t.bin", &bin16([1; 9]));
        let data = Data::Tokens16 { path: folder.path("t.bin") };
        let set = open(&data, &language(4, 2), 0).unwrap();
        use std::os::unix::fs::FileExt;
        let file = std::fs::OpenOptions::new().write(true).open(folder.path("t.bin")).unwrap();
        file.write_all_at(&[7], 10).unwrap();
        let text = set.train.input(1, &mut [0; 4]).unwrap_err().to_string();
        assert!(text.contains("byte 10: expected a token below 2"), "{text}");
    }
}

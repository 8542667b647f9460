//! The sum at the end of a manifest, over every byte before it.
//!
//! ```text
//! {
//!   "version": 2,
//!   ...
//!   "crc32c": 1234567890
//! }
//! ```
//! Over bytes, not over what they mean: later programs may write the same fields otherwise.

/// What comes between the last field and the sum. Fields of this name inside of others are indented more.
const MARK: &str = ",\n  \"crc32c\": ";

/// A JSON object of several lines with its sum.
///
/// # Panics
/// When the text is none.
pub(super) fn seal(object: &str) -> String {
    let body = object.trim_end().strip_suffix("\n}").expect("an object of several lines");
    format!("{body}{}", end(body))
}

/// Whether a sealed text is as it was written.
pub(super) fn is_whole(text: &str) -> bool {
    text.rfind(MARK).is_some_and(|at| text[at..] == end(&text[..at]))
}

fn end(body: &str) -> String {
    format!("{MARK}{}\n}}\n", crc32c::crc32c(body.as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_byte_counts() {
        let text = seal("{\n  \"a\": 1,\n  \"b\": {\n    \"crc32c\": 5\n  }\n}");
        assert!(text.ends_with("\n}\n") && is_whole(&text), "{text}");
        for at in 0..text.len() {
            assert!(!is_whole(&text[..at]), "cut at {at}");
            for bit in 0..7 {
                let mut bytes = text.clone().into_bytes();
                bytes[at] ^= 1 << bit;
                assert!(!is_whole(std::str::from_utf8(&bytes).unwrap()), "byte {at} bit {bit}");
            }
        }
    }
}

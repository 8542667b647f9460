//! Sections of a wasm file: a number, a length in LEB128, a content.

use crate::Failure;

/// Bytes before the first section.
const HEADER: usize = 8;

/// The header, and the number and the content of each section.
type Sections<'a> = (&'a [u8], Vec<(u8, &'a [u8])>);

/// Takes a file apart.
pub fn sections(wasm: &[u8]) -> Result<Sections<'_>, Failure> {
    let (header, mut rest) = wasm.split_at_checked(HEADER).ok_or("a wasm file without header")?;
    let mut found = vec![];
    while let Some((&id, after)) = rest.split_first() {
        rest = after;
        let length = number(&mut rest).ok_or("a section without length")?;
        found.push((id, take(&mut rest, length).ok_or("a section that is cut off")?));
    }
    Ok((header, found))
}

/// Writes a section behind others.
pub fn put(out: &mut Vec<u8>, id: u8, content: &[u8]) {
    out.push(id);
    put_number(out, content.len());
    out.extend(content);
}

/// Takes a number in LEB128 of at most five bytes.
pub fn number(bytes: &mut &[u8]) -> Option<usize> {
    let mut value = 0;
    for at in 0..5 {
        let (&byte, rest) = bytes.split_first()?;
        *bytes = rest;
        value |= usize::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            return Some(value);
        }
    }
    None
}

/// Writes a number in LEB128.
pub fn put_number(out: &mut Vec<u8>, mut value: usize) {
    while value >= 0x80 {
        out.push(value as u8 | 0x80);
        value >>= 7;
    }
    out.push(value as u8);
}

/// Takes so many bytes.
pub fn take<'a>(bytes: &mut &'a [u8], length: usize) -> Option<&'a [u8]> {
    let (taken, rest) = bytes.split_at_checked(length)?;
    *bytes = rest;
    Some(taken)
}

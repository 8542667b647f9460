//! Classes that a dependency gives to JavaScript and nobody there makes: what is exported cannot be dropped by the
//! linker, with all that it calls.
//!
//! Leptos has functions that run on a server, and their client has streams of the browser's; the page has neither.

use crate::Failure;
use crate::sections::{number, put, put_number, sections, take};

/// The classes `IntoUnderlyingSource`, `IntoUnderlyingByteSource` and `IntoUnderlyingSink` of wasm-streams.
const CLASSES: &[u8] = b"intounderlying";

const CUSTOM: u8 = 0;
const EXPORTS: u8 = 7;

/// Where macros leave what the glue is made of.
const GLUE: &[u8] = b"__wasm_bindgen_unstable";

/// The module without exports of the classes, and without what glue would be made of for them; what only they call
/// goes with the glue's own collection of garbage. Number and order of sections stay, as relocations count them.
pub fn without_unused(wasm: &[u8]) -> Result<Vec<u8>, Failure> {
    let (header, found) = sections(wasm)?;
    let mut out = header.to_vec();
    for (id, content) in found {
        let less = match id {
            EXPORTS => exports(content),
            CUSTOM => glue(content),
            _ => Some(content.to_vec()),
        };
        put(&mut out, id, &less.ok_or("a section of wasm that cannot be read")?);
    }
    Ok(out)
}

fn of_a_class(bytes: &[u8]) -> bool {
    bytes.windows(CLASSES.len()).any(|part| part.eq_ignore_ascii_case(CLASSES))
}

/// A count, then for each export its name, its kind and its index.
fn exports(mut content: &[u8]) -> Option<Vec<u8>> {
    let (mut kept, mut count): (Vec<u8>, _) = (vec![], 0);
    for _ in 0..number(&mut content)? {
        let whole = content;
        let length = number(&mut content)?;
        let name = take(&mut content, length)?;
        take(&mut content, 1)?;
        number(&mut content)?;
        if !of_a_class(name) {
            kept.extend(&whole[..whole.len() - content.len()]);
            count += 1;
        }
    }
    let mut out = vec![];
    put_number(&mut out, count);
    out.extend(kept);
    Some(out)
}

/// A name; then pairs of a version and a description, each behind its length in four bytes.
fn glue(content: &[u8]) -> Option<Vec<u8>> {
    let mut rest = content;
    let length = number(&mut rest)?;
    if take(&mut rest, length)? != GLUE {
        return Some(content.to_vec());
    }
    let mut out = content[..content.len() - rest.len()].to_vec();
    while !rest.is_empty() {
        let whole = rest;
        sized(&mut rest)?;
        let description = sized(&mut rest)?;
        if !of_a_class(description) {
            out.extend(&whole[..whole.len() - rest.len()]);
        }
    }
    Some(out)
}

fn sized<'a>(bytes: &mut &'a [u8]) -> Option<&'a [u8]> {
    let length = u32::from_le_bytes(take(bytes, 4)?.try_into().ok()?);
    take(bytes, length as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn section(id: u8, content: &[u8]) -> Vec<u8> {
        let mut out = vec![];
        put(&mut out, id, content);
        out
    }

    fn described(what: &[u8]) -> Vec<u8> {
        [&[2, 0, 0, 0][..], b"{}", &(what.len() as u32).to_le_bytes(), what].concat()
    }

    #[test]
    fn classes_go_from_exports_and_glue_and_all_else_stays() {
        let header = b"\0asm\x01\0\0\0";
        let export = |name: &[u8]| [&[name.len() as u8][..], name, &[0, 5]].concat();
        let (main, class) = (export(b"main"), export(b"__wbg_intounderlyingsink_free"));
        let glue = |what: &[u8]| [&[GLUE.len() as u8][..], GLUE, what].concat();
        let (kept, gone) = (described(b"Window"), described(b"IntoUnderlyingSink"));
        let long = section(10, &[7; 300]);
        let wasm = [
            &header[..],
            &section(EXPORTS, &[&[2][..], &class, &main].concat()),
            &long,
            &section(CUSTOM, &glue(&[kept.clone(), gone].concat())),
            &section(CUSTOM, b"\x04name"),
        ];
        let less = [
            &header[..],
            &section(EXPORTS, &[&[1][..], &main].concat()),
            &long,
            &section(CUSTOM, &glue(&kept)),
            &section(CUSTOM, b"\x04name"),
        ];
        assert_eq!(without_unused(&wasm.concat()).unwrap(), less.concat());
        let cut = [&header[..], &section(EXPORTS, &[2, 4, b'm'])].concat();
        assert!(without_unused(&cut).is_err());
    }
}

//! A trace's text, cut into its events and its header as it comes: a long file is never held whole.

use super::TraceError;

/// What stands in the text, in its order.
pub(super) enum Piece<'a> {
    /// An element of `traceEvents`.
    Event(&'a [u8]),
    /// The list of events has begun.
    Events,
    /// One more value after the end of the last, as reports of a value a line have it.
    Another,
    /// Another field of the file.
    Field(&'a str, &'a [u8]),
}

/// Where the text goes on.
#[derive(Clone, Copy, Default, PartialEq)]
enum At {
    /// Before the brace that begins it.
    #[default]
    Start,
    /// Before a field, or the brace that ends it.
    Field { first: bool },
    /// Before an event, or the bracket that ends the list.
    Event { first: bool },
    /// Behind everything.
    End,
}

/// Cuts the text; what is not yet whole waits.
#[derive(Default)]
pub(super) struct Scan {
    at: At,
    waiting: Vec<u8>,
}

/// The longest value that is waited for: the header of a long run is a hundredth of that.
const VALUE_MAX: usize = 64 << 20;

impl Scan {
    /// The next bytes; `each` gets every piece that is whole now.
    ///
    /// # Errors
    /// Where the text is no JSON, and what `each` says.
    pub fn push(
        &mut self,
        bytes: &[u8],
        mut each: impl FnMut(Piece) -> Result<(), TraceError>,
    ) -> Result<(), TraceError> {
        let mut text = std::mem::take(&mut self.waiting);
        text.extend_from_slice(bytes);
        let mut from = 0;
        while let Some(length) = self.next(&text[from..], &mut each)? {
            from += length;
        }
        text.drain(..from);
        if text.len() > VALUE_MAX {
            return Err(json(format!("a value of more than {} MiB", VALUE_MAX >> 20)));
        }
        self.waiting = text;
        Ok(())
    }

    /// The text is over.
    ///
    /// # Errors
    /// When it should go on.
    pub fn finish(&self) -> Result<(), TraceError> {
        let rest = self.waiting.iter().find(|byte| !byte.is_ascii_whitespace());
        match (self.at, rest) {
            (At::End, None) => Ok(()),
            (At::Start, None) => Err(json("nothing in it")),
            _ => Err(TraceError::Cut),
        }
    }

    /// Hands out what stands at the beginning of `text` and returns its length; `None` while it is
    /// not whole.
    fn next(
        &mut self,
        text: &[u8],
        each: &mut impl FnMut(Piece) -> Result<(), TraceError>,
    ) -> Result<Option<usize>, TraceError> {
        let blank = blank(text);
        let Some(&byte) = text.get(blank) else { return Ok(None) };
        let rest = &text[blank..];
        let length = match (self.at, byte) {
            (At::Start, b'{') => {
                self.at = At::Field { first: true };
                Some(1)
            }
            (At::End, b'{') => {
                each(Piece::Another)?;
                self.at = At::Field { first: true };
                Some(1)
            }
            (At::Field { .. }, b'}') => {
                self.at = At::End;
                Some(1)
            }
            (At::Event { .. }, b']') => {
                self.at = At::Field { first: false };
                Some(1)
            }
            (At::Field { first }, _) => match behind_comma(rest, first)? {
                Some(comma) => self.field(&rest[comma..], each)?.map(|length| comma + length),
                None => None,
            },
            (At::Event { first }, _) => match behind_comma(rest, first)? {
                Some(comma) => match extent(&rest[comma..]) {
                    Some(end) => {
                        each(Piece::Event(&rest[comma..comma + end]))?;
                        self.at = At::Event { first: false };
                        Some(comma + end)
                    }
                    None => None,
                },
                None => None,
            },
            // The other format of Chrome, which has no place for a header.
            (At::Start, b'[') => return Err(TraceError::NoEvents),
            (At::Start | At::End, byte) => {
                let what = char::from(byte).escape_default();
                let place = if self.at == At::End { "after its end" } else { "at its beginning" };
                return Err(json(format!("`{what}` {place}")));
            }
        };
        Ok(length.map(|length| blank + length))
    }

    /// A field's name and, unless it is the list of events, its value.
    fn field(
        &mut self,
        text: &[u8],
        each: &mut impl FnMut(Piece) -> Result<(), TraceError>,
    ) -> Result<Option<usize>, TraceError> {
        let Some(end) = extent(text) else { return Ok(None) };
        let name: String =
            serde_json::from_slice(&text[..end]).map_err(|e| json(format!("a field: {e}")))?;
        let colon = end + blank(&text[end..]);
        match text.get(colon) {
            None => return Ok(None),
            Some(b':') => {}
            Some(_) => return Err(json(format!("no `:` after \"{name}\""))),
        }
        let value = colon + 1 + blank(&text[colon + 1..]);
        let Some(&byte) = text.get(value) else { return Ok(None) };
        if name == "traceEvents" && byte == b'[' {
            self.at = At::Event { first: true };
            each(Piece::Events)?;
            return Ok(Some(value + 1));
        }
        let Some(length) = extent(&text[value..]) else { return Ok(None) };
        each(Piece::Field(&name, &text[value..value + length]))?;
        self.at = At::Field { first: false };
        Ok(Some(value + length))
    }
}

pub(super) fn json(why: impl Into<String>) -> TraceError {
    TraceError::Json(why.into())
}

fn blank(text: &[u8]) -> usize {
    text.iter().take_while(|byte| byte.is_ascii_whitespace()).count()
}

/// Where the next value begins: behind a comma, except for the first one.
fn behind_comma(text: &[u8], first: bool) -> Result<Option<usize>, TraceError> {
    let comma = match (first, text[0]) {
        (true, b',') | (false, b'0'..=b'9' | b'"' | b'{' | b'[') => {
            return Err(json("commas and values do not alternate"));
        }
        (false, b',') => 1,
        _ => 0,
    };
    let at = comma + blank(&text[comma..]);
    Ok((at < text.len()).then_some(at))
}

/// The length of the value at the beginning of `text`; `None` while it is not whole. Whether it is
/// a value at all is for its reader to say.
fn extent(text: &[u8]) -> Option<usize> {
    let scalar = !matches!(text.first()?, b'{' | b'[' | b'"');
    let (mut depth, mut quoted, mut escaped) = (0u32, false, false);
    for (at, byte) in text.iter().enumerate() {
        match byte {
            _ if escaped => escaped = false,
            b'\\' if quoted => escaped = true,
            b'"' => {
                quoted = !quoted;
                if !quoted && depth == 0 {
                    return Some(at + 1);
                }
            }
            _ if quoted => {}
            b',' | b'}' | b']' if scalar => return Some(at.max(1)),
            b'{' | b'[' => depth += 1,
            b'}' | b']' => {
                depth = depth.saturating_sub(1);
                if depth == 0 {
                    return Some(at + 1);
                }
            }
            _ => {}
        }
    }
    None
}

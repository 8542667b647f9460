//! Every text of the page, in the page's language.
//!
//! As in gettext, the English text is the key: code reads as what people see, and a text without
//! translation is shown in English. Translations are files of `app/texts`, fetched when their language
//! is chosen. [`t`] gives a text, [`tr!`] one with values in it, [`n`] marks one that a table holds
//! and that is looked up where it is shown. A test finds all of them and compares them with the files.
//!
//! What core says (why a plan is refused, what is wrong with a file) comes as the value `why`, and is
//! translated as [`sentences`](super::sentences) has it.

use super::sentences;
use std::cell::RefCell;
use std::fmt::{Display, Write as _};

/// A text and its translation.
type Pair = (&'static str, &'static str);

thread_local! {
    /// Sorted by text; empty for English.
    static TRANSLATED: RefCell<Vec<Pair>> = const { RefCell::new(Vec::new()) };
}

/// From now on texts are those of this list; empty: English.
pub fn speak(mut pairs: Vec<Pair>) {
    pairs.sort_unstable();
    TRANSLATED.set(pairs);
}

/// The text in the page's language. The page is written anew when that changes.
pub fn t(english: &'static str) -> &'static str {
    TRANSLATED.with_borrow(|pairs| {
        let at = pairs.binary_search_by_key(&english, |(text, _)| *text);
        at.map_or(english, |at| pairs[at].1)
    })
}

/// A sentence of core's in the page's language, as far as its words are known.
pub fn said(sentence: &str) -> String {
    TRANSLATED.with_borrow(|pairs| sentences::translated(sentence, pairs))
}

/// Marks a text that [`t`] gets later, from a table.
pub const fn n(english: &'static str) -> &'static str {
    english
}

/// The text with values in place of the names in braces.
pub fn fill(english: &'static str, values: &[(&str, &dyn Display)]) -> String {
    let text = t(english);
    let mut out = String::with_capacity(text.len() + 16);
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        out.push_str(before);
        let Some((name, after)) = after.split_once('}') else { break };
        // Writing into a String cannot fail.
        let _ = match values.iter().find(|(given, _)| *given == name) {
            Some(("why", value)) => write!(out, "{}", said(&value.to_string())),
            Some((_, value)) => write!(out, "{value}"),
            None => Ok(()),
        };
        rest = after;
    }
    out.push_str(rest);
    out
}

/// A text with values in it: `tr!("{count} layers of {name}", count = layers.len(), name)`.
macro_rules! tr {
    ($english:literal $(, $name:ident $(= $value:expr)?)* $(,)?) => {
        $crate::base::texts::fill(
            $english,
            &[$((stringify!($name), &$crate::base::texts::tr!(@value $name $($value)?) as &dyn ::std::fmt::Display)),*],
        )
    };
    (@value $name:ident $value:expr) => { $value };
    (@value $name:ident) => { $name };
}
pub(crate) use tr;

#[cfg(test)]
#[path = "texts_tests.rs"]
mod tests;

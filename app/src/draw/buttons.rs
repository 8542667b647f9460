//! Rows of buttons as markup.

use crate::base::format::escape;
use std::fmt::Write;

/// Buttons of which one is pressed: what each does, and its name.
pub fn buttons<'a>(
    label: &str,
    class: &str,
    each: impl IntoIterator<Item = (String, &'a str)>,
) -> String {
    let mut out = format!("<div class='{class}' role='group' aria-label='{}'>", escape(label));
    for (does, name) in each {
        // Writing into a String cannot fail.
        let _ = write!(out, "<button data-do='{does}' aria-pressed='false'>{name}</button>");
    }
    out + "</div>"
}

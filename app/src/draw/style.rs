//! Reads the palette off the style sheet.

use super::palette::{Colour, HUES, KINDS, Palette, rgb};
use leptos::prelude::{document, window};

impl Palette {
    /// The colours of the theme that holds.
    pub fn read() -> Self {
        let style = document()
            .document_element()
            .and_then(|root| window().get_computed_style(&root).ok().flatten());
        let value = |name: &str| {
            let found =
                style.as_ref().and_then(|s| s.get_property_value(&format!("--{name}")).ok());
            found.unwrap_or_default().trim().to_owned()
        };
        let colour = |name: &str| {
            let css = value(name);
            Colour { rgb: rgb(&css), css }
        };
        let hue = |css: &&str| Colour { rgb: rgb(css), css: (*css).into() };
        Self {
            actions: KINDS.iter().map(|k| colour(k)).chain(HUES.iter().map(hue)).collect(),
            font: value("font"),
            chart: colour("chart"),
            sunk: colour("sunk"),
            line: colour("line"),
            line_2: colour("line-2"),
            text: colour("text"),
            text_2: colour("text-2"),
            text_3: colour("text-3"),
            ink: colour("ink"),
            bad: colour("bad"),
            warn: colour("warn"),
            warn_fill: colour("warn-fill"),
            hatch: colour("hatch"),
            mem: colour("mem"),
            mem_2: colour("mem-2"),
            path: colour("path"),
            path_case: colour("path-case"),
            measured: colour("measured"),
        }
    }
}

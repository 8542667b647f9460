//! Files that the page is given: chosen in an input or dropped.

use leptos::prelude::event_target;

/// What was dropped; none where it was no files.
pub fn dropped(event: &web_sys::DragEvent) -> Vec<web_sys::File> {
    event.data_transfer().and_then(|data| data.files()).map_or_else(Vec::new, |list| held(&list))
}

/// What was chosen. The input is empty afterwards: the same file may be chosen again after it changed.
///
/// Emptied at once: what is chosen next, however soon, is chosen alone.
pub fn chosen(event: &web_sys::Event) -> Vec<web_sys::File> {
    let input: web_sys::HtmlInputElement = event_target(event);
    let files = input.files().map_or_else(Vec::new, |list| held(&list));
    input.set_value("");
    files
}

/// The list is live: what it holds now is what was meant.
fn held(list: &web_sys::FileList) -> Vec<web_sys::File> {
    (0..list.length()).filter_map(|i| list.get(i)).collect()
}

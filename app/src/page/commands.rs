//! Commands of the keys that act anywhere, done.

use super::files;
use super::state::Page;
use crate::base::focus::focus;
use crate::base::keys::Command;
use leptos::prelude::*;

/// Does what a key of the page does.
pub fn perform(page: Page, command: Command) {
    match command {
        Command::Undo => page.undo(),
        Command::Redo => page.redo(),
        Command::Export => files::export(page.state),
        Command::Help => page.help.set(true),
        Command::Palette => page.palette.set(true),
        Command::Screen(screen) => page.state.go(screen),
        Command::Clear => clear(page),
        _ => {}
    }
}

/// One thing at a time, the topmost first.
fn clear(page: Page) {
    let state = page.state;
    if page.palette.get_untracked() {
        page.palette.set(false);
    } else if page.help.get_untracked() {
        page.help.set(false);
        focus("help");
    } else if state.sheet.get_untracked() {
        state.sheet.set(false);
    } else if page.plan.hovered.get_untracked().is_some()
        || state.look.range.get_untracked().is_some()
    {
        page.plan.hovered.set(None);
        state.look.range.set(None);
    } else {
        state.look.selected.set(None);
        state.note.set(Default::default());
    }
}

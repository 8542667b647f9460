//! Requests of screens to the page, carried out.

use super::state::Page;
use super::{address, files, here, making};
use crate::base::screen::Screen;
use crate::screens::recompute::state::Source;
use crate::state::request::Request;
use leptos::prelude::*;
use std::cell::Cell;

thread_local! {
    /// Whom requests are for: screens know a function alone, which is small to copy.
    static PAGE: Cell<Option<Page>> = const { Cell::new(None) };
}

/// From now on requests are for this page.
pub fn answer_for(page: Page) {
    PAGE.set(Some(page));
}

/// Does what was asked for.
pub fn answer(request: Request) {
    let Some(page) = PAGE.get() else { return };
    match request {
        Request::Remember => address::push(page),
        Request::Follow => address::replace_soon(page),
        Request::Open(chosen, side) => files::read_all(page, chosen, side),
        Request::Example => files::example(page),
        Request::RunHere => here::panel::open(page, true),
        Request::Export => files::export(page.state),
        Request::Help => page.help.set(true),
        Request::Make(what) => making::make(page.state, what),
        Request::Recompute(stage) => {
            page.recompute.source.set(Source::Stage(stage));
            page.state.go(Screen::Recompute);
        }
    }
}

//! What screens ask the page for, done.

use super::state::Page;
use super::{address, files};
use crate::base::screen::Screen;
use crate::screens::recompute::state::Source;
use crate::state::request::Request;
use leptos::prelude::*;

/// Does what was asked for.
pub fn answer(page: Page, request: Request) {
    match request {
        Request::Remember => address::push(page),
        Request::Follow => address::replace_soon(page),
        Request::Open(list, side) => files::read_all(page, list, side),
        Request::Export => files::export(page.state),
        Request::Copy(command) => files::copy(page.state, command),
        Request::Help => page.help.set(true),
        Request::Recompute(stage) => {
            page.recompute.source.set(Source::Stage(stage));
            page.state.go(Screen::Recompute);
        }
    }
}

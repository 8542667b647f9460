//! The Playground view: small networks, trained while one looks.

mod controls;
mod lab;
mod side;
mod tiles;
mod work;

use crate::later::{self, Missing};
use crate::state::State;
use controls::Controls;
use lab::Lab;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use side::Side;
use work::Work;

#[component]
pub fn PlaygroundView() -> impl IntoView {
    later::view(regions())
}

/// The view's regions, laid out by the style sheet.
#[wasm_split(playground, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    provide_context(Lab::new(expect_context::<State>()));
    Ok(view! { <Controls /> <Work /> <Side /> }.into_any())
}

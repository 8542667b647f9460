//! The Compare screen: A above B on one time axis, what differs, and which other plans there are.

mod shelf;
mod shown;
mod sides;
mod sizes;
mod table;
mod timelines;
mod trade_offs;

use super::model::scaling::SizeSearch;
use super::model::search::PlanSearch;
use crate::base::later::{self, Missing};
use crate::state::State;
use leptos::prelude::*;
use leptos::wasm_split::wasm_split;
use shown::Compare;
use sides::Sides;
use table::Differences;
use timelines::Timelines;
use trade_offs::TradeOffs;

#[component]
pub fn CompareView() -> impl IntoView {
    later::view(regions())
}

/// The screen's regions, laid out by the style sheet.
#[wasm_split(compare, wasm_split_path = ::leptos::wasm_split, fallible)]
fn regions() -> Result<AnyView, Missing> {
    let page = expect_context::<State>();
    provide_context(Compare::new(page));
    provide_context(PlanSearch::new(page));
    provide_context(SizeSearch::new(page));
    Ok(view! { <Sides /> <Timelines /> <Differences /> <TradeOffs /> }.into_any())
}

//! Slider, number box and unit: always together. The slider knows only the allowed values; the
//! box takes any number, and what does not fit is said at the control, not corrected.

use crate::base::stops::{contiguous, jump, position, value_at};
use crate::base::texts::tr;
use crate::state::State;
use leptos::ev::KeyboardEvent;
use leptos::prelude::*;

/// What a control does with a value: the value, and whether the hand is still dragging.
pub type Set = Callback<(u64, bool)>;

#[component]
pub fn Slider(
    id: &'static str,
    label: &'static str,
    #[prop(into)] unit: Signal<String>,
    #[prop(into)] values: Signal<Vec<u64>>,
    #[prop(into)] value: Signal<u64>,
    /// The value of a double click.
    usual: u64,
    /// Most that the box takes.
    most: u64,
    set: Set,
) -> impl IntoView {
    let state = expect_context::<State>();
    let at = move || values.with(|v| position(v, value.get()));
    let least_at = move || values.with(|v| if contiguous(v) { v[0] } else { 0 });
    let most_at =
        move || values.with(|v| if contiguous(v) { v[v.len() - 1] } else { v.len() as u64 - 1 });
    let filled = move || {
        let (a, b) = (least_at(), most_at());
        let share = if b > a { (at() - a.min(at())) as f64 / (b - a) as f64 } else { 0.0 };
        format!("--p:{:.1}%", share * 100.0)
    };
    let slide = move |event: web_sys::Event, dragging: bool| {
        if let Ok(position) = event_target_value(&event).parse::<u64>() {
            set.run((values.with_untracked(|v| value_at(v, position)), dragging));
        }
    };
    let key = move |event: KeyboardEvent| {
        let to = values
            .with_untracked(|v| jump(v, value.get_untracked(), &event.key(), event.shift_key()));
        if let Some(to) = to {
            event.prevent_default();
            set.run((to, false));
        }
    };
    let typed = move |event: web_sys::Event, dragging: bool| {
        let typed = number(&event, most);
        match typed {
            Some(n) => set.run((n, dragging)),
            None if dragging => {} // half-typed numbers wait
            None => state.complain(no_number(label, 1, most)),
        }
        if !dragging {
            // The digits before it were tried while it was typed.
            if typed != Some(value.get_untracked()) {
                state.abandon();
            }
            let input: web_sys::HtmlInputElement = event_target(&event);
            input.set_value(&value.get_untracked().to_string());
        }
    };
    view! {
        <div class="row">
            <label for=id>{label}</label>
            <div class="sl">
                <input id=id type="range" style=filled step="1"
                    min=move || least_at().to_string() max=move || most_at().to_string()
                    prop:value=move || { most_at(); at().to_string() }
                    aria-valuetext=move || format!("{} {}", value.get(), unit.get()).trim_end().to_owned()
                    on:input=move |e| slide(e, true) on:change=move |e| slide(e, false)
                    on:keydown=key on:dblclick=move |_| set.run((usual, false)) />
                <input id=format!("{id}-n") type="number" min="1" max=most.to_string() step="1"
                    inputmode="numeric" aria-label=label
                    prop:value=move || value.get().to_string()
                    on:input=move |e| typed(e, true) on:change=move |e| typed(e, false) />
                <i>{unit}</i>
            </div>
        </div>
    }
}

/// What a box has, where it is a number from 1 to `most`.
pub fn number(event: &web_sys::Event, most: u64) -> Option<u64> {
    event_target_value(event).trim().parse().ok().filter(|n| (1..=most).contains(n))
}

/// What is said of a text that is no number that a control takes.
pub fn no_number(label: &str, least: u64, most: u64) -> String {
    tr!("{label}: a whole number from {least} to {most}.", label, least, most)
}
